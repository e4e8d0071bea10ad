"""The data directory: its lock, its format version, and the paths in it."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.disk.full_disk import reason, remedy, storing
from velostream.disk.private import FOLDER, close_to_others, make_folder
from velostream.errors import DataDirError
from velostream.model.tables import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FORMAT = 2
"""Version of the directory layout. A newer one is refused; an older one is upgraded when opened to write.

In format 1 the catalogue had no checksum and no copies, and job files did not name their job.
"""


class DataDirectory:
    """A data directory: one process at a time writes to it; others read it or talk to that process."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._lock: int | None = None

    @property
    def catalog(self) -> Path:
        """The catalogue file: statements and discovered columns."""
        return self.root / "catalog.json"

    @property
    def tables(self) -> Path:
        """One folder per table."""
        return self.root / "tables"

    @property
    def tmp(self) -> Path:
        """Temporary files, deleted when the process that holds the directory ends."""
        return self.root / "tmp"

    @property
    def logs(self) -> Path:
        """The folder of the log that `velo logs` reads."""
        return self.root / "logs"

    @property
    def socket(self) -> Path:
        """The file that names the socket of the process that holds the directory."""
        return self.root / "socket"

    def job(self, job_id: str) -> Path:
        """The folder of one job: checkpoint, spools, kept rows and sink journal."""
        return self.root / "jobs" / job_id

    @contextmanager
    def writing(self, identity: str | None) -> Iterator[Path]:
        """The folder of a statement that writes to a sink once, while it does.

        With an identity, it is the same after a crash, and stays until the block has succeeded.
        """
        if identity is not None:
            yield self.root / "writes" / identity
            shutil.rmtree(self.root / "writes" / identity, ignore_errors=True)
            return
        with storing(self.tmp):
            make_folder(self.tmp)
            folder = Path(tempfile.mkdtemp(prefix="write-", dir=self.tmp))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def folders(self) -> list[str]:
        """The folders of tables and jobs, relative to the directory, but for `dead_letters`."""
        found = []
        for kind in ("tables", "jobs"):
            parent = self.root / kind
            paths = sorted(parent.iterdir()) if parent.is_dir() else ()
            found += [f"{kind}/{path.name}" for path in paths if path.is_dir() and path.name[0] != "."]
        return [path for path in found if path.partition("@")[0] != f"tables/{DEAD_LETTERS}"]

    def remove(self, folders: Iterable[str]) -> None:
        """Delete folders of tables and jobs, as far as they exist."""
        for folder in folders:
            kind, _, name = folder.partition("/")
            if kind in ("tables", "jobs") and name not in ("", ".", "..") and "/" not in name:
                shutil.rmtree(self.root / folder, ignore_errors=True)

    def exists(self) -> bool:
        """Whether a data directory was ever created here."""
        return self.catalog.exists()

    def holder(self) -> int | None:
        """Process id of the process that holds the directory; None when it is free."""
        path = self.root / "lock"
        if not path.exists():
            return None
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # A shared lock: processes that only look must not
            # block each other, nor appear to hold the directory.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = os.read(descriptor, 32).decode("ascii", "replace").strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(descriptor)
        return None

    def last_held(self) -> int | None:
        """Changes whenever a process takes the directory; None before any has."""
        try:
            return (self.root / "lock").stat().st_mtime_ns
        except FileNotFoundError:
            return None

    def hold(self) -> None:
        """Lock the directory for writing; DataDirError names the process that holds it, if there is one."""
        try:
            make_folder(self.root)
            self.root.chmod(FOLDER)
        except OSError as exc:
            raise self._unusable(exc) from exc
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise self._unusable(exc) from exc
        if not _locked(descriptor):
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            program = _program(holder)
            raise DataDirError(
                f"data directory {self.root} is in use by process {holder}"
                + (f" ({program})" if program else ""),
                hint="velo sql and velo plan work with it while it runs; to start something else here, "
                "stop that process, or give another directory with --data-dir",
            )
        self._lock = descriptor
        try:
            mine = str(os.getpid()).encode()
            # In this order nothing is written that needs new disk
            # space, so that a directory on a full disk opens.
            os.pwrite(descriptor, mine, 0)
            os.ftruncate(descriptor, len(mine))
            for folder in (self.tables, self.logs):
                make_folder(folder)
            # Folders of an earlier version, or of a copy that lost its file modes.
            close_to_others(self.root)
        except OSError as exc:
            self.release()
            raise self._unusable(exc) from exc

    def _unusable(self, exc: OSError) -> DataDirError:
        return DataDirError(
            f"cannot use data directory {self.root}: {reason(exc)}",
            hint=remedy(exc, "give another directory with --data-dir"),
        )

    def release(self) -> None:
        """Release the lock."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _program(process: str) -> str | None:
    """What a process is: a command of ours, or a Python program; None where that cannot be told."""
    try:
        words = Path(f"/proc/{process}/cmdline").read_text("utf-8", "replace").split("\0")
    except OSError:
        return None
    names = [Path(word).name for word in words]
    ours = next((n for n, name in enumerate(names[:4]) if name in ("velo", "velostream")), None)
    if ours is None:
        return "a Python program" if names[0].startswith("python") else names[0] or None
    # No more of the line: statements and options may hold secrets.
    command = next((word for word in words[ours + 1 :] if word and not word.startswith("-")), "")
    return f"velo {command}" if command.isalpha() else "velo"


def _locked(descriptor: int) -> bool:
    """Take the lock, with some patience: processes that only look hold it shared for a moment."""
    deadline = time.monotonic() + _LOOKING_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > deadline:
                return False
        else:
            return True
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        except OSError:
            return False
        time.sleep(0.005)


_LOOKING_SECONDS = 1.0
