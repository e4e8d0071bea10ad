"""The data directory: who holds it, which format it has, where things lie in it."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from typing import TYPE_CHECKING

from velostream.errors import DataDirError
from velostream.model.private import FOLDER, close_to_others, make_folder
from velostream.model.storage import reason, remedy
from velostream.model.tables import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

FORMAT = 2
"""Version of the layout below; a newer one is refused, an older one is taken over when it is opened to write.

In format 1 the catalogue had no checksum and no copies, and files of jobs did not say whose they are.
"""


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

    def folders(self) -> list[str]:
        """Folders of tables and jobs, as paths in the directory; `dead_letters` needs no entry."""
        found = []
        for kind in ("tables", "jobs"):
            parent = self.root / kind
            paths = sorted(parent.iterdir()) if parent.is_dir() else ()
            found += [f"{kind}/{path.name}" for path in paths if path.is_dir() and path.name[0] != "."]
        return [path for path in found if path.partition("@")[0] != f"tables/{DEAD_LETTERS}"]

    def remove(self, folders: Iterable[str]) -> None:
        """Delete folders of tables and jobs, as far as they are there."""
        for folder in folders:
            kind, _, name = folder.partition("/")
            if kind in ("tables", "jobs") and name not in ("", ".", "..") and "/" not in name:
                shutil.rmtree(self.root / folder, ignore_errors=True)

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
            raise DataDirError(
                f"data directory {self.root} is in use by process {holder}",
                hint="stop that process, or give another directory with --data-dir",
            )
        self._lock = descriptor
        try:
            mine = str(os.getpid()).encode()
            # In this order it takes no room that the file does not have, so a full disk can be opened.
            os.pwrite(descriptor, mine, 0)
            os.ftruncate(descriptor, len(mine))
            for folder in (self.tables, self.logs):
                make_folder(folder)
            # What an earlier version left, or a copy that lost its modes.
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
