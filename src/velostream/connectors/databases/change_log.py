"""The durable log of what was read from a database: first its rows, then every change, in order.

A database cannot be asked twice for the same rows. What is read is written here before the job sees it, so
that any range can be read again after a crash, and the database may forget it at once (an acknowledged
replication slot, a purged binlog). A job's position is a number of rows of this log. What the job has
committed is deleted.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from velostream.disk.framing import FrameFile, encode, write_parts
from velostream.disk.full_disk import storing
from velostream.disk.private import FILE
from velostream.disk.sealed_json import sync_folder
from velostream.errors import CorruptDataError, LaggingReaderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

_NAME = re.compile(r"changes-\d{20}\.frames")
FILE_BYTES = 64 << 20
"""A larger file is not appended to, so that it can be deleted once its rows are committed."""
_HINT = "begin anew with CREATE OR REPLACE"


@dataclass(frozen=True)
class SetAside:
    """A row that does not fit its columns.

    In the log it is the deletion of its key, so no older row stays.
    """

    number: int
    """The number of that row of the log, counted from 1."""
    reason: str
    raw: str


@dataclass(frozen=True)
class Written:
    """One frame of the log."""

    path: Path
    offset: int
    base: int
    """The number of rows before the load of everything that it belongs to or follows."""
    first: int
    """The number of rows before it."""
    end: int
    """The number of rows up to its last."""
    whole: bool
    """Whether a transaction, or a load of everything, ends with it."""
    divisible: bool
    """Whether a step may end between its rows."""
    position: Any
    """The database's own position after it; only of a frame that is `whole`."""
    columns: tuple[tuple[str, str], ...]
    """The columns that its rows have, with their types."""
    aside: tuple[SetAside, ...]


class ChangeLog:
    """One thread appends; another reads and forgets."""

    def __init__(self, folder: Path, of: str) -> None:
        self._folder = folder
        self._of = of
        self._lock = Lock()
        self.news = Event()
        """Set when there is more to read."""
        self._frames: list[Written] = []
        self._whole = 0
        """How many of the frames are complete transactions."""
        self._base = 0
        self._descriptor: int | None = None
        self._path = folder
        self._size = 0

    # --- opening ------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Read what is there, and cut off what follows the last whole transaction.

        The database still has it.
        """
        files = sorted(path for path in self._folder.iterdir() if _NAME.fullmatch(path.name))
        found: list[Written] = []
        for path in files:
            found += self._frames_of(path, found[-1] if found else None, newest=path == files[-1])
        whole = next((n for n in range(len(found), 0, -1) if found[n - 1].whole), 0)
        self._frames, self._whole = found, whole
        self._base = found[whole - 1].base if whole else 0
        self.abandon()
        for path in files:
            if not any(each.path == path for each in self._frames):
                path.unlink(missing_ok=True)

    def _frames_of(self, path: Path, before: Written | None, *, newest: bool) -> list[Written]:
        found: list[Written] = []
        frames = FrameFile(path, hint=_HINT)
        for frame in frames.frames():
            made = _written(path, frame.offset, frame.header)
            if frame.header["of"] != self._of:
                raise CorruptDataError(f'file "{path}" belongs to {frame.header["of"]}', hint=_HINT)
            if before is not None and made.first != before.end and made.first != made.base:
                raise CorruptDataError(f'file "{path}" does not continue the one before it', hint=_HINT)
            found.append(made)
            before = made
        if frames.torn_at is not None:
            if not newest:
                raise CorruptDataError(f'file "{path}" is cut off at byte {frames.torn_at}', hint=_HINT)
            with storing(path):
                os.truncate(path, frames.torn_at)
        return found

    # --- writing ------------------------------------------------------------------------------------------

    @property
    def position(self) -> Any:
        """The database's own position after the last whole transaction; None before the first load."""
        return self._frames[self._whole - 1].position if self._whole else None

    @property
    def last_columns(self) -> tuple[tuple[str, str], ...]:
        """The columns, with their types, that rows had at the end of the last whole transaction."""
        return self._frames[self._whole - 1].columns if self._whole else ()

    @property
    def written(self) -> int:
        """The number of rows written, those of unfinished transactions included."""
        return self._frames[-1].end if self._frames and self._frames[-1].base == self._base else self._base

    def begin_load(self, after: int) -> None:
        """Begin to write everything that the database has, in place of what is in the log.

        `after` is the job's position. Rows of the load have higher numbers, by which the job notices.
        """
        self.abandon()
        self._close_file()
        last = max(self.end, after)
        self._base = last + 1 if self._whole or after else 0

    def append(
        self,
        rows: pa.Table,
        position: Any = None,
        *,
        whole: bool,
        divisible: bool = False,
        aside: Sequence[SetAside] = (),
    ) -> None:
        """Write rows.

        `whole`: they end a transaction, and can be read once everything up to them is synced.
        """
        descriptor = self._open_file()
        first = self.written
        head = {
            "of": self._of,
            "base": self._base,
            "first": first,
            "end": first + rows.num_rows,
            "whole": whole,
            "divisible": divisible and self._base == 0,
            "position": position,
            "columns": [[field.name, str(field.type)] for field in rows.schema],
            "aside": [[each.number, each.reason, each.raw] for each in aside],
        }
        with storing(self._path):
            try:
                size = write_parts(descriptor, encode(head, rows, self._size))
                if whole:
                    os.fdatasync(descriptor)
            except OSError:
                os.ftruncate(descriptor, self._size)
                raise
        with self._lock:
            self._frames.append(_written(self._path, self._size, head))
            if whole:
                self._whole = len(self._frames)
        self._size += size
        if whole:
            self.news.set()

    def abandon(self) -> None:
        """Take back what was written since the last whole transaction."""
        with self._lock:
            gone, self._frames = self._frames[self._whole :], self._frames[: self._whole]
        if not gone:
            return
        self._close_file()
        kept = self._frames[-1].path if self._frames else None
        # From the last: a crash in between leaves files that continue each other.
        for path in reversed(dict.fromkeys(each.path for each in gone)):
            with storing(path):
                if path == kept:
                    os.truncate(path, next(each.offset for each in gone if each.path == path))
                else:
                    path.unlink(missing_ok=True)
                    sync_folder(self._folder)
        self._base = self._frames[-1].base if self._frames else 0

    def _open_file(self) -> int:
        if self._size > FILE_BYTES:
            if self._descriptor is not None:
                # The end of its transaction is in a later file, and is all that is synced then.
                with storing(self._path):
                    os.fdatasync(self._descriptor)
            self._close_file()
        if self._descriptor is not None:
            return self._descriptor
        path = self._folder / f"changes-{self.written:020d}.frames"
        last = self._frames[-1] if self._frames else None
        if last is not None and last.base == self._base and last.path.stat().st_size <= FILE_BYTES:
            path = last.path
        with storing(path):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE)
            self._path, self._size = path, os.fstat(self._descriptor).st_size
            if self._size == 0:
                sync_folder(self._folder)
        return self._descriptor

    def _close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._size = None, 0

    def close(self) -> None:
        """Close the file."""
        self._close_file()

    # --- reading ------------------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The number of rows up to the end of the last whole transaction."""
        with self._lock:
            return self._frames[self._whole - 1].end if self._whole else 0

    def step(self, after: int, most: int | None) -> int:
        """Where a step of about `most` rows after `after` ends: a transaction is not divided."""
        limit = self.end if most is None else after + most
        found = after
        for each in self._readable():
            if each.end <= after:
                continue
            if each.end > limit and (each.divisible or found > after):
                return max(found, limit) if each.divisible else found
            if each.whole or each.divisible:
                found = each.end
        return found

    def between(self, start: int | None, end: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The rows after `start` (None: of the last load, and since) up to `end`; with the rows before each
        batch.

        Raises LaggingReaderError where everything was loaded again since `start`.
        """
        frames = [each for each in self._readable() if each.first <= end]
        base = frames[-1].base if frames else 0
        if start is not None and start < base:
            raise LaggingReaderError("everything was read from the database again")
        first = base if start is None else start
        there = [each for each in frames if each.base == base and each.end > each.first]
        wanted = [each for each in there if each.first < end and each.end > first]
        if (wanted[0].first if wanted else end) > first:
            raise CorruptDataError(f'changes after row {first} are missing in "{self._folder}"', hint=_HINT)
        for each in wanted:
            rows = next(FrameFile(each.path, hint=_HINT).frames(each.offset)).rows()
            assert rows is not None
            low = max(first - each.first, 0)
            number = each.first + low
            for batch in rows.slice(low, min(end, each.end) - number).to_batches():
                if batch.num_rows:
                    yield number, batch
                number += batch.num_rows

    def kept(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """All rows that are still here; with the number of rows before each batch."""
        for each in self._readable():
            if each.end > each.first:
                rows = next(FrameFile(each.path, hint=_HINT).frames(each.offset)).rows()
                assert rows is not None
                number = each.first
                for batch in rows.to_batches():
                    yield number, batch
                    number += batch.num_rows

    def aside(self, start: int | None, end: int) -> list[SetAside]:
        """Rows of a range that do not fit their columns."""
        found = [row for each in self._readable() if each.aside for row in each.aside]
        return [row for row in found if (start is None or row.number > start) and row.number <= end]

    def columns(self, start: int | None, end: int) -> set[tuple[str, str]]:
        """The columns, with their types, of the rows of a range."""
        frames = [each for each in self._readable() if each.first < end and each.end > (start or 0)]
        return {column for each in frames for column in each.columns}

    def forget(self, upto: int) -> None:
        """Delete rows that are committed, where a whole file has no others.

        The file of the last whole transaction stays: it tells where the database was.
        """
        with self._lock:
            last = max(self._whole - 1, 0)
            needed = {each.path for each in self._frames[:last] if each.end > upto}
            needed |= {each.path for each in self._frames[last:]} | {self._path}
            gone = {each.path for each in self._frames} - needed
            before = len(self._frames)
            self._frames = [each for each in self._frames if each.path not in gone]
            self._whole -= before - len(self._frames)
        # From the first: a crash in between leaves files that continue each other.
        for path in sorted(gone):
            path.unlink(missing_ok=True)

    def _readable(self) -> list[Written]:
        with self._lock:
            return self._frames[: self._whole]


def _written(path: Path, offset: int, head: dict[str, Any]) -> Written:
    return Written(
        path,
        offset,
        head["base"],
        head["first"],
        head["end"],
        head["whole"],
        head["divisible"],
        head["position"],
        tuple((name, kind) for name, kind in head["columns"]),
        tuple(SetAside(*each) for each in head["aside"]),
    )
