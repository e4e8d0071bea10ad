"""The data directory: who holds it, which format it has, where things lie in it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

from velostream.errors import CorruptDataError, DataDirError

if TYPE_CHECKING:
    from pathlib import Path

FORMAT = 1
"""Version of the layout below; a newer one is refused, an older one would be migrated here."""


class DataDirectory:
    """One process writes a data directory at a time; others read it or talk to that process."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self._lock: int | None = None

    @property
    def catalog(self) -> Path:
        """Statements and discovered columns."""
        return self.root / "catalog.json"

    @property
    def tables(self) -> Path:
        """One folder per table."""
        return self.root / "tables"

    @property
    def tmp(self) -> Path:
        """What lives no longer than the process that holds the directory."""
        return self.root / "tmp"

    @property
    def logs(self) -> Path:
        """What happened, for `velo logs`."""
        return self.root / "logs"

    @property
    def socket(self) -> Path:
        """Where the process that holds the directory listens."""
        return self.root / "socket"

    def job(self, job_id: str) -> Path:
        """Checkpoint, spools and sink journal of one job."""
        return self.root / "jobs" / job_id

    def keep_jobs(self, ids: set[str]) -> None:
        """Delete the folders of all other jobs."""
        folder = self.root / "jobs"
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in ids:
                shutil.rmtree(path)

    def exists(self) -> bool:
        """Whether anything was ever kept here."""
        return self.catalog.exists()

    def holder(self) -> int | None:
        """Process id of the holder, or None when the directory is free."""
        path = self.root / "lock"
        if not path.exists():
            return None
        descriptor = os.open(path, os.O_RDONLY)
        try:
            # Shared: those who only look must not be in each other's way, nor look like a holder.
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            text = os.read(descriptor, 32).decode("ascii", "replace").strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(descriptor)
        return None

    def hold(self) -> None:
        """Become the one writer; DataDirError names the holder if there is one."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.root.chmod(0o700)
        except OSError as exc:
            raise self._unusable(exc) from exc
        try:
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as exc:
            raise self._unusable(exc) from exc
        if not _locked(descriptor):
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            raise DataDirError(
                f"data directory {self.root} is in use by process {holder}",
                hint="stop that process, or give another directory with --data-dir",
            )
        self._lock = descriptor
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
            for folder in (self.tables, self.logs):
                folder.mkdir(exist_ok=True, mode=0o700)
        except OSError as exc:
            self.release()
            raise self._unusable(exc) from exc

    def _unusable(self, exc: OSError) -> DataDirError:
        return DataDirError(
            f"cannot use data directory {self.root}: {(exc.strerror or str(exc)).lower()}",
            hint="give another directory with --data-dir",
        )

    def release(self) -> None:
        """Let another process hold it."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _locked(descriptor: int) -> bool:
    """Take the lock; for a moment it may be shared by processes that only look who has it."""
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


def write_json(path: Path, value: Any) -> None:
    """Replace a small file so that a crash leaves the old or the new one, never half of either."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.unlink(missing_ok=True)
        # Statements may hold passwords, and the file may be copied out of its private folder with its mode.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as exc:
        raise DataDirError(f"{path} cannot be written: {(exc.strerror or str(exc)).lower()}") from exc


def read_json(path: Path) -> Any:
    """The file's value, or None when it does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (ValueError, UnicodeDecodeError) as exc:
        raise damaged(path, str(exc)) from exc


def damaged(path: Path, reason: str) -> CorruptDataError:
    """The error for a file of the directory that cannot be what was written."""
    return CorruptDataError(
        f"{path} is damaged: {reason}",
        hint="put back a copy of the directory, or begin anew in another one with --data-dir",
    )
