"""The log of a table: every commit as one framed record, in files that are only ever appended to."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.errors import CorruptDataError, LaggingReaderError, TableError, TableStorageError
from velostream.serving.frames import Frame, FrameFile, encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

_NAME = re.compile(r"log-(\d{16})-(\d{16})\.frames")


@dataclass(frozen=True)
class LogFile:
    """One file: records from number `first` on, of versions after `base`."""

    path: Path
    first: int
    base: int


class Log:
    """The files of one table's log. Records are numbered from 1 without gaps."""

    def __init__(self, folder: Path, *, read_only: bool) -> None:
        self._folder = folder
        self._read_only = read_only
        self._files = sorted(_log_files(folder), key=lambda file: file.first)
        self._descriptor: int | None = None
        self._position = 0
        self._broken: OSError | None = None
        self.last = 0
        """Number of the newest record."""

    # --- recovery -----------------------------------------------------------------------------------

    def replay(self, after: int) -> Iterator[Frame]:
        """The records after number `after`; then the log is ready to be appended to.

        An unfinished record at the very end, which nobody was told about, is cut off; read-only, ignored.
        """
        self.last = after
        wanted = [
            file
            for number, file in enumerate(self._files)
            if number + 1 == len(self._files) or self._files[number + 1].first > after + 1
        ]
        for number, file in enumerate(wanted):
            if file.first > self.last + 1:
                raise CorruptDataError(
                    f'file "{file.path}" starts with record {file.first}, record {self.last + 1} is missing'
                )
            reader = FrameFile(file.path)
            for frame in reader.frames():
                if frame.header["seq"] <= after:
                    continue
                self._check_next(file, frame)
                self.last = frame.header["seq"]
                yield frame
            if reader.torn_at is not None:
                if number + 1 < len(wanted):
                    raise CorruptDataError(
                        f'file "{file.path}" is damaged at byte {reader.torn_at}',
                        detail="the record is cut off, but later records exist",
                    )
                self._cut(file, reader.torn_at)

    def _check_next(self, file: LogFile, frame: Frame) -> None:
        if frame.header["seq"] != self.last + 1:
            raise CorruptDataError(
                f'file "{file.path}" is damaged at byte {frame.offset}',
                detail=f"record {frame.header['seq']} follows record {self.last}",
            )

    def _cut(self, file: LogFile, size: int) -> None:
        if not self._read_only:
            os.truncate(file.path, size)

    # --- writing ------------------------------------------------------------------------------------

    def append(self, header: dict[str, Any], rows: pa.Table | None, base: int) -> None:
        """Write one record and wait until it is on the disk.

        When that fails the file is cut back to what it was, and TableError names it; the log stays usable.
        """
        if self._broken is not None:
            raise TableError(f'the log in "{self._folder}" failed earlier', detail=str(self._broken))
        descriptor = self._open(base)
        start = self._position
        parts = encode({"seq": self.last + 1, **header}, rows, start)
        try:
            size = _write_all(descriptor, parts)
            os.fdatasync(descriptor)
        except OSError as exc:
            self._undo(descriptor, start)
            raise TableStorageError(
                f'cannot write to "{self._files[-1].path}": {(exc.strerror or str(exc)).lower()}',
                hint="make room on the disk; nothing of this commit was kept, and it can be tried again",
            ) from exc
        self._position = start + size
        self.last += 1

    def _undo(self, descriptor: int, size: int) -> None:
        try:
            os.ftruncate(descriptor, size)
        except OSError as exc:
            self._broken = exc

    def _open(self, base: int) -> int:
        if self._descriptor is not None:
            return self._descriptor
        fresh = not self._files
        if fresh:
            name = f"log-{self.last + 1:016d}-{base:016d}.frames"
            self._files.append(LogFile(self._folder / name, self.last + 1, base))
        path = self._files[-1].path
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if fresh:
                sync_folder(self._folder)
        except OSError as exc:
            if fresh:
                self._files.pop()
            reason = (exc.strerror or str(exc)).lower()
            raise TableStorageError(f'cannot write to "{path}": {reason}') from exc
        self._descriptor = descriptor
        self._position = os.fstat(descriptor).st_size
        return descriptor

    def rotate(self, base: int) -> None:
        """Let the next record start a new file, so that the older ones can be removed whole."""
        if not self._files or self._files[-1].first == self.last + 1:
            return
        self.close()
        name = f"log-{self.last + 1:016d}-{base:016d}.frames"
        path = self._folder / name
        path.touch(mode=0o600)
        sync_folder(self._folder)
        self._files.append(LogFile(path, self.last + 1, base))

    def trim(self, seq: int, version: int) -> None:
        """Remove files in which all records are at most number `seq` and of versions at most `version`."""
        while len(self._files) > 1 and self._files[1].first <= seq + 1 and self._files[1].base <= version:
            self._files.pop(0).path.unlink()

    def close(self) -> None:
        """Let go of the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    # --- reading back -------------------------------------------------------------------------------

    def between(self, after: int, upto: int, table: str) -> Iterator[Frame]:
        """Records that changed rows, of versions above `after` up to `upto`.

        Raises LaggingReaderError when the log no longer reaches back to `after`.
        """
        files = list(self._files)
        if after < upto and (not files or files[0].base > after):
            raise lagging(table, after, files[0].base if files else upto)
        for number, file in enumerate(files):
            if number + 1 < len(files) and files[number + 1].base <= after:
                continue
            if file.base >= upto:
                return
            try:
                reader = FrameFile(file.path)
                yield from (
                    frame
                    for frame in reader.frames()
                    if after < frame.header["version"] <= upto and frame.body.size
                )
            except FileNotFoundError:
                raise lagging(table, after, file.base) from None

    @property
    def oldest(self) -> int:
        """The oldest version whose later changes are all still in the log."""
        return self._files[0].base if self._files else 0

    def sizes(self) -> list[tuple[LogFile, int]]:
        """The files and their sizes, oldest first."""
        return [(file, file.path.stat().st_size) for file in self._files if file.path.exists()]


def lagging(table: str, after: int, oldest: int) -> LaggingReaderError:
    """The error for a reader whose place in the log is gone."""
    return LaggingReaderError(
        f'changes of table "{table}" after version {after} are no longer kept; the oldest kept is {oldest}',
        hint="read a snapshot and go on from its version",
    )


def sync_folder(folder: Path) -> None:
    """Make created, renamed and removed names durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _log_files(folder: Path) -> Iterator[LogFile]:
    for path in folder.iterdir():
        match = _NAME.fullmatch(path.name)
        if match:
            yield LogFile(path, int(match[1]), int(match[2]))


def _write_all(descriptor: int, parts: list[bytes | pa.Buffer]) -> int:
    views = [memoryview(part) for part in parts if len(part)]
    total = sum(view.nbytes for view in views)
    while views:
        written = os.writev(descriptor, views)
        while views and written >= views[0].nbytes:
            written -= views.pop(0).nbytes
        if views:
            views[0] = views[0][written:]
    return total
