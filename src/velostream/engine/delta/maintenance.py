"""Compaction of a Delta table: which files readers need, and which can be deleted."""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.disk.private import make_folder
from velostream.engine.delta import commit_metadata as state
from velostream.errors import CorruptDataError, DataDirError
from velostream.serving.durable import description
from velostream.serving.durable.verification import FileReport, FileState, TableReport
from velostream.spark import delta

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from velostream.engine.delta.commit_metadata import State
    from velostream.engine.delta.log import DeltaLog

EVERY = 50
"""Commits between two compactions."""
KEPT_SECONDS = 600.0
"""How long files of older versions stay at least, for queries that are reading them."""
MOST_GARBAGE = 4
"""How many times the table's size its older files may take before those of slow readers are deleted."""
SPARE = 1 << 30
MANY_FILES = 16
_HORIZON = "horizon.json"


class Maintenance:
    """Keeps the number and the size of a table's files bounded."""

    def __init__(self, folder: Path, rows: Path, log: DeltaLog) -> None:
        self._folder = folder
        self._rows = rows
        self._log = log
        self._lock = Lock()
        self._readers = description.read_readers(folder)
        self._commits = 0
        self._measured: tuple[int | None, int] | None = None
        found = description.read(folder / _HORIZON)
        self.horizon = int(found["version"]) if found is not None else 0
        """The oldest version from which changes are still available."""

    # --- readers ------------------------------------------------------------------------------------------

    def register(self, reader: str, version: int) -> None:
        """Retain the changes after `version` for `reader`."""
        with self._lock:
            if self._readers.get(reader) != version:
                # Not made durable at once: an older version after a crash only keeps more.
                durable = reader not in self._readers
                self._readers[reader] = version
                self._write(durable=durable)

    def release(self, reader: str) -> None:
        """Stop retaining changes for a reader."""
        with self._lock:
            if self._readers.pop(reader, None) is not None:
                self._write(durable=True)

    def _write(self, *, durable: bool) -> None:
        description.write(self._folder / description.READERS, {"readers": self._readers}, durable=durable)

    # --- compaction ---------------------------------------------------------------------------------------

    def after_commit(self, spark: SparkSession, at: State) -> None:
        """Compact after every fiftieth commit."""
        self._commits += 1
        if self._commits >= EVERY:
            self.run(spark, at)

    def run(self, spark: SparkSession, at: State) -> None:
        """Merge small files into large ones; delete files and commits that no reader needs any more."""
        self._commits = 0
        if at.physical is None:
            return
        live = self._log.live()
        if len(live) > MANY_FILES:
            # OPTIMIZE is a commit too, and repeats our metadata: the newest commit always has it.
            delta.compact(spark, self._rows, at.text())
            live = self._log.live()
        used = sum(size or 0 for size in live.values())
        with self._lock:
            oldest = min([at.number, *self._readers.values()])
        if self.disk_bytes(fresh=True) > MOST_GARBAGE * used + SPARE:
            oldest = at.number
        needed = self._log.first_after(oldest)
        kept = KEPT_SECONDS
        if needed is not None:
            kept = max(kept, time.time() - self._log.said(needed)[1] / 1000 + 60)
        self._set_horizon(kept, oldest)
        delta.vacuum(spark, self._rows, kept / 3600)
        newest = self._log.newest()
        assert newest is not None
        self._log.forget_before(newest if needed is None else needed - 1)
        self._measured = None

    def _set_horizon(self, kept: float, oldest: int) -> None:
        """Record from which version changes are available, before files are deleted."""
        since = (time.time() - kept) * 1000
        horizon = self.horizon
        for version in self._log.versions():
            said, at = self._log.said(version)
            if at >= since or said is None or int(said["number"]) > oldest:
                break
            horizon = int(said["number"])
        if horizon > self.horizon:
            description.write(self._folder / _HORIZON, {"version": horizon})
            self.horizon = horizon

    # --- the disk -----------------------------------------------------------------------------------------

    def disk_bytes(self, *, fresh: bool = False) -> int:
        """The table's size on disk, measured once per version."""
        newest = self._log.newest()
        if fresh or self._measured is None or self._measured[0] != newest:
            self._measured = (newest, sum(map(_size, self._folder.rglob("*"))))
        return self._measured[1]

    def verify(self, name: str) -> TableReport:
        """Read every file of the newest version to its end, without Spark."""
        return verify(name, self._folder, self._log)

    @staticmethod
    def remove(folder: Path) -> None:
        """Delete temporary files of an earlier process."""
        shutil.rmtree(folder, ignore_errors=True)

    @contextmanager
    def scratch(self, name: str, read_only: bool) -> Iterator[Path]:
        """A folder for temporary files, deleted at the end of the block."""
        parent = None if read_only else self._folder / name
        if parent is not None:
            make_folder(parent)
        with tempfile.TemporaryDirectory(dir=parent, prefix="velostream-") as folder:
            yield Path(folder)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0


def verify(name: str, folder: Path, log: DeltaLog) -> TableReport:
    """Check the description, Delta's log, and every file that the newest version is made of."""
    files: list[FileReport] = []
    problem: str | None = None
    at: State | None = None
    try:
        description.read_spec(folder)
        at = state.load(folder, log)
        live = log.live()
    except (DataDirError, OSError, pa.ArrowException, KeyError, ValueError) as exc:
        message = exc.message if isinstance(exc, CorruptDataError) else str(exc)
        return TableReport(name, (), None, problem=message, hint="restore the folder from a copy")
    for path, size in sorted(live.items()):
        report = _checked(path, size)
        files.append(replace(report, name=str(path.relative_to(folder))))
        if report.state is FileState.DAMAGED:
            problem = problem or f'file "{path.relative_to(folder)}" is damaged: its rows are lost'
    hint = None if problem is None else "restore the folder from a copy, or CREATE OR REPLACE the table"
    return TableReport(name, tuple(files), at.number, at.rows, problem, hint)


def _checked(path: Path, size: int | None) -> FileReport:
    import pyarrow.parquet as pq

    try:
        found = path.stat().st_size
        if size is not None and found != size:
            return FileReport(path.name, FileState.DAMAGED, found, detail=f"{found} bytes instead of {size}")
        if size is None:
            return FileReport(path.name, FileState.GOOD, found)
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
            return FileReport(path.name, FileState.GOOD, found, file.metadata.num_rows)
    except (OSError, pa.ArrowException) as exc:
        return FileReport(path.name, FileState.DAMAGED, 0, detail=str(exc).splitlines()[0])
