"""The folder of a broker: which process runs on it, stopping that process, deleting the folder.

Found by the lock that Kafka itself holds there, so a kill leaves nothing stale.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING

from velostream.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

STOP_SECONDS = 30.0
_POLL_SECONDS = 0.02


def running(folder: Path) -> int | None:
    """The process of the broker that holds this folder; None when there is none."""
    try:
        with (folder / "data" / ".lock").open("r+b") as file:
            return _lock_holder(file.fileno())
    except FileNotFoundError:
        return None


def port_of(folder: Path) -> int | None:
    """The port on which the broker of this folder listens, or last did."""
    with contextlib.suppress(OSError, ValueError):
        for line in (folder / "server.properties").read_text(encoding="utf-8").splitlines():
            if line.startswith("advertised.listeners="):
                return int(line.rpartition(":")[2])
    return None


def stop(folder: Path, timeout: float = STOP_SECONDS) -> int | None:
    """Stop the broker of this folder, whoever started it; returns its process, None when there was none."""
    process = running(folder)
    if process is None:
        return None
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
        while running(folder) == process:
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
                deadline = time.monotonic() + timeout
            time.sleep(_POLL_SECONDS)
    return process


def wipe(folder: Path) -> bool:
    """Delete everything that a broker stored; False when there was nothing. ConfigError while it runs."""
    process = running(folder)
    if process is not None:
        raise ConfigError(
            f"the broker of {folder} runs, as process {process}", hint="velo broker stop ends it"
        )
    if not folder.exists():
        return False
    shutil.rmtree(folder)
    return True


def _lock_holder(descriptor: int) -> int | None:
    """The process that holds a lock of the kind that Java uses."""
    if sys.platform == "darwin":
        form, question = "qqihh", (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET)
    else:
        form, question = "hhqqi4x", (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    answer = struct.unpack(form, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(form, *question)))
    kind, process = (answer[3], answer[2]) if sys.platform == "darwin" else (answer[0], answer[4])
    return None if kind == fcntl.F_UNLCK else process
