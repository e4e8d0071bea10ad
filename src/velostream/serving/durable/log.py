"""Write-ahead log of a table: every commit is one framed record, in append-only files."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from velostream.disk.framing import Frame, encode, write_parts
from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import sync_folder
from velostream.errors import CorruptDataError, LaggingReaderError, TableError
from velostream.serving.durable.damage import corrupt, table_frames

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


@dataclass(frozen=True)
class Mark:
    """The place of a record in its file."""

    version: int
    seq: int
    offset: int


class Log:
    """The files of one table's log. Records are numbered from 1 without gaps.

    One thread appends and rotates; another may trim meanwhile, and any may read.
    """

    def __init__(self, folder: Path, of: str | None = None) -> None:
        self._folder = folder
        self.of = of
        """The id of the table, which its records carry."""
        self._files = files_in(folder)
        self._files_lock = Lock()
        self._marks: dict[Path, list[Mark]] = {}
        """By file, complete up to its end: readers of changes need not scan from the first record."""
        self._descriptor: int | None = None
        self._position = 0
        self._broken: OSError | None = None
        self.last = 0
        """Number of the newest record."""

    # --- writing ------------------------------------------------------------------------------------

    def resume(self, replay: Replay, *, writing: bool) -> None:
        """Continue where the replay ended; for writing, an incomplete last record is cut off first."""
        self.last = replay.last
        if self._files:
            self._marks[self._files[-1].path] = replay.marks
        elif writing:
            # A table without a log counts as damaged; one of format 1 had none until its first commit.
            self.rotate(0)
        if replay.torn is not None and writing:
            with storing(replay.torn[0]):
                os.truncate(*replay.torn)

    def append(self, header: dict[str, Any], rows: pa.Table | None, base: int) -> int:
        """Write one record and sync it to disk; returns its size.

        On failure the file is truncated to its former length and StorageError names it; the log stays usable.
        """
        if self._broken is not None:
            raise TableError(f'the log in "{self._folder}" failed earlier', detail=str(self._broken))
        descriptor = self._open(base)
        start = self._position
        parts = encode({"seq": self.last + 1, **header}, rows, start)
        with storing(self._files[-1].path):
            try:
                size = write_parts(descriptor, parts)
                os.fdatasync(descriptor)
            except OSError:
                self._undo(descriptor, start)
                raise
        self._position = start + size
        self.last += 1
        self._marks.setdefault(self._files[-1].path, []).append(Mark(header["version"], self.last, start))
        return size

    def _undo(self, descriptor: int, size: int) -> None:
        try:
            os.ftruncate(descriptor, size)
        except OSError as exc:
            self._broken = exc

    def _open(self, base: int) -> int:
        if self._descriptor is not None:
            return self._descriptor
        if not self._files:
            self.rotate(base)
        path = self._files[-1].path
        with storing(path):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._descriptor = descriptor
        self._position = os.fstat(descriptor).st_size
        return descriptor

    def rotate(self, base: int) -> None:
        """Start a new file with the next record, so that older files can be deleted whole."""
        if self._files and self._files[-1].first == self.last + 1:
            return
        path = first_file(self._folder, self.last + 1, base)
        with storing(path):
            try:
                path.touch(mode=0o600)
                sync_folder(self._folder)
            except OSError:
                path.unlink(missing_ok=True)
                raise
        self.close()
        with self._files_lock:
            self._files = (*self._files, LogFile(path, self.last + 1, base))

    def trim(self, seq: int, version: int, keep_bytes: int) -> None:
        """Delete files in which all records are at most number `seq` and of versions at most `version`.

        Above `keep_bytes` in all, the oldest are deleted whatever their versions.
        """
        with self._files_lock:
            sizes = dict(self.sizes())
            while len(self._files) > 1 and self._files[1].first <= seq + 1:
                if self._files[1].base > version and sum(sizes.values()) <= keep_bytes:
                    break
                gone, self._files = self._files[0], self._files[1:]
                sizes.pop(gone, None)
                self._marks.pop(gone.path, None)
                gone.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    # --- reading back -------------------------------------------------------------------------------

    def between(self, after: int, upto: int, table: str) -> Iterator[Frame]:
        """Records that changed rows, of versions above `after` up to `upto`.

        Raises LaggingReaderError when the log no longer reaches back to `after`, also where it is damaged:
        the table itself is complete, so a follower can start again from a snapshot of its rows.
        """
        end = self.end
        files = self._files
        if after < upto and (not files or files[0].base > after):
            raise lagging(table, after, files[0].base if files else upto)
        if after > upto:
            raise LaggingReaderError(
                f'table "{table}" is at version {upto}, older than version {after}, which was read before',
                detail="it was restored from a copy",
                hint="read a snapshot and continue from its version",
            )
        seq: int | None = None
        for number, file in enumerate(files):
            if number + 1 < len(files) and files[number + 1].base <= after:
                continue
            if file.base >= upto:
                return
            if seq is not None and file.first != seq + 1:
                raise lagging(table, after, file.base)
            start = self._start(file, after)
            seq = start.seq - 1
            size = end[1] if end is not None and end[0] == file.path else None
            try:
                for frame in table_frames(file.path, size).frames(start.offset):
                    seq += 1
                    if frame.header["seq"] != seq or foreign(frame.header, self.of):
                        raise lagging(table, after, file.base)
                    if after < frame.header["version"] <= upto and frame.body.size:
                        yield frame
            except FileNotFoundError:
                raise lagging(table, after, file.base) from None
            except CorruptDataError as exc:
                raise LaggingReaderError(
                    f'changes of table "{table}" after version {after} cannot be read: {exc.message}',
                    detail=exc.detail,
                    hint="read a snapshot and continue from its version",
                ) from exc

    def _start(self, file: LogFile, after: int) -> Mark:
        """The last record known not to be later than version `after`, or the file's first."""
        marks = self._marks.get(file.path, ())
        place = bisect_right(marks, after, key=lambda mark: mark.version)
        return marks[place - 1] if place else Mark(file.base, file.first, 0)

    @property
    def oldest(self) -> int:
        """The oldest version whose later changes are all still in the log."""
        return self._files[0].base if self._files else 0

    @property
    def end(self) -> tuple[Path, int] | None:
        """The file that is appended to, and how much of it is durable."""
        if not self._files:
            return None
        path = self._files[-1].path
        return path, self._position if self._descriptor is not None else path.stat().st_size

    def sizes(self) -> list[tuple[LogFile, int]]:
        """The files and their sizes, oldest first."""
        return [(file, file.path.stat().st_size) for file in self._files if file.path.exists()]


# --- recovery ---------------------------------------------------------------------------------------


class Replay:
    """Reads the log after record `after`, verifying each record, and finds where the log ends."""

    def __init__(self, folder: Path, of: str | None, after: int, end: tuple[Path, int] | None = None) -> None:
        self._files = files_in(folder)
        self._of = of
        self._folder = folder
        self._after = after
        self._end = end
        """Of a log that is being written: the newest file, and how much of it counts."""
        self.last = after
        """Number of the newest record that was read."""
        self.marks: list[Mark] = []
        """The records of the newest file."""
        self.torn: tuple[Path, int] | None = None
        """File and offset of an incomplete record at the very end: its commit was never acknowledged."""

    def frames(self) -> Iterator[Frame]:
        """The records in order; raises CorruptDataError when one is damaged or missing."""
        wanted = [
            file
            for file, later in zip(self._files, (*self._files[1:], None), strict=False)
            if later is None or later.first > self._after + 1
        ]
        if not wanted and self._after:
            raise corrupt(f'the log in "{self._folder}" is missing', f"it goes on after record {self._after}")
        for file in wanted:
            if file.first > self.last + 1:
                raise corrupt(
                    f'file "{file.path}" starts with record {file.first}, record {self.last + 1} is missing'
                )
            yield from self._frames_of(file, newest=file is wanted[-1])

    def _frames_of(self, file: LogFile, *, newest: bool) -> Iterator[Frame]:
        size = self._end[1] if self._end is not None and self._end[0] == file.path else None
        reader = table_frames(file.path, size)
        seq = file.first - 1
        for frame in reader.frames():
            seq += 1
            if frame.header["seq"] != seq:
                raise corrupt(
                    f'file "{file.path}" is damaged at byte {frame.offset}',
                    f"record {frame.header['seq']} follows record {seq - 1}",
                )
            if foreign(frame.header, self._of):
                raise corrupt(f'file "{file.path}" is of another table than the description beside it')
            if seq > self._after:
                self.last = seq
                if newest:
                    self.marks.append(Mark(frame.header["version"], seq, frame.offset))
                yield frame
        if seq < self._after:
            raise corrupt(
                f'file "{file.path}" is cut off', f"it ends with record {seq}, a snapshot holds {self._after}"
            )
        if reader.torn_at is None:
            return
        if not newest:
            raise corrupt(
                f'file "{file.path}" is damaged at byte {reader.torn_at}',
                "the record is cut off, but later records exist",
            )
        self.torn = (file.path, reader.torn_at)


def files_in(folder: Path) -> tuple[LogFile, ...]:
    """The log files of a table, oldest first."""
    found = (_NAME.fullmatch(path.name) for path in folder.iterdir())
    files = (LogFile(folder / match[0], int(match[1]), int(match[2])) for match in found if match)
    return tuple(sorted(files, key=lambda file: file.first))


def first_file(folder: Path, first: int = 1, base: int = 0) -> Path:
    """The name of a file that starts with record `first`."""
    return folder / f"log-{first:016d}-{base:016d}.frames"


def foreign(header: dict[str, Any], of: str | None) -> bool:
    """Whether a record or snapshot belongs to another table; unknown for those of earlier formats."""
    return of is not None and header.get("of", of) != of


def lagging(table: str, after: int, oldest: int) -> LaggingReaderError:
    """The error for a reader whose version is no longer in the log."""
    return LaggingReaderError(
        f'changes of table "{table}" after version {after} are no longer kept; the oldest kept is {oldest}',
        hint="read a snapshot and continue from its version",
    )
