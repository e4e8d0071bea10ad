"""kill -9 of the process that keeps a table: how long until it answers, and until it goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from threading import Timer
from typing import TYPE_CHECKING, Self

from benchmarks.measure import HERE, family
from benchmarks.pipelines.workload import send_one

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT = 300.0
GONE_SECONDS = 10.0
NOBODY = "-"
"""In place of a user that is not waited for."""


def killed_and_back(follower: str, folder: Path, brokers: str, topic: str) -> dict[str, float]:
    """Seconds from the start of the second process.

    `answers`: what was in the table is readable. Only a table that is kept answers for a user that does not
    change, so written by hand there is no such figure. `goes on`: a record that came meanwhile is in it.
    """
    folder.mkdir()
    send_one(brokers, topic, f"before-{follower}")
    with _Life(follower, folder, brokers, topic, NOBODY, f"before-{follower}") as life:
        life.moments()
    send_one(brokers, topic, f"after-{follower}")
    kept = follower == "ours"
    started = time.time()
    old = f"before-{follower}" if kept else NOBODY
    with _Life(follower, folder, brokers, topic, old, f"after-{follower}") as life:
        answers, goes_on = life.moments()
    return ({"answers": answers - started} if kept else {}) | {"goes on": goes_on - started}


class _Life:
    """A process with all that it starts; at the end of the block it is killed."""

    def __init__(self, *arguments: object) -> None:
        # A file, since a pipe that nobody reads fills up.
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed at the end of the block
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.pipelines.life", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=HERE.parent,
            start_new_session=True,
        )
        self._overdue = Timer(TIMEOUT, self._process.kill)

    def moments(self) -> tuple[float, float]:
        """The two that it prints; RuntimeError when it ends before, or takes too long."""
        assert self._process.stdout is not None
        lines = [self._process.stdout.readline() for _ in range(2)]
        if not all(lines):
            self._errors.seek(0)
            raise RuntimeError(f"a life ended before its time:\n{self._errors.read()[-2000:]}")
        return float(lines[0]), float(lines[1])

    def __enter__(self) -> Self:
        self._overdue.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._overdue.cancel()
        members = family(self._process.pid)
        for member in members:
            with suppress(ProcessLookupError):
                os.kill(member, signal.SIGKILL)
        self._process.communicate()
        self._errors.close()
        # Java may be in the middle of a write to the folder of the next life.
        deadline = time.monotonic() + GONE_SECONDS
        while any(family(member) for member in members) and time.monotonic() < deadline:
            time.sleep(0.01)
