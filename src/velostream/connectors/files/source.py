"""Files as a source of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.base import Source, SourceContext
from velostream.connectors.capabilities import (
    Announcing,
    Awaited,
    BadRecords,
    Counted,
    Partitioned,
    Replayable,
    SparkReader,
    Widening,
)
from velostream.connectors.files.place import forbidden, reading
from velostream.connectors.files.read.dataframes import SYSTEM, FrameReader, chosen, place, record_table
from velostream.connectors.files.read.rows import RowReader
from velostream.connectors.files.read.sampling import header_schema, sample_schema
from velostream.connectors.files.read.widening import widened
from velostream.connectors.files.spool.merges import merge_small
from velostream.connectors.files.spool.spool import Spool
from velostream.connectors.files.watch.layout import Dialects, Layout, layout_of
from velostream.connectors.files.watch.tracker import Tracker
from velostream.errors import SourceConfigError, SourceEmptyError
from velostream.formats.columns.dataframes import RECORD, rows_at
from velostream.formats.json.numbers import restored
from velostream.model.changes import BadRow, Located
from velostream.model.columns import OFFSET, PARTITION, POSITION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import timedelta
    from threading import Event

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.files.options import FilesOptions
    from velostream.connectors.files.place import Place
    from velostream.connectors.files.read.rows import Suspect
    from velostream.connectors.files.spool.segments import Segment
    from velostream.model.changes import Offset

ONLY = "spool"
"""The name of the one partition."""


class FilesSource(
    Source, Announcing, SparkReader, Counted, Partitioned, BadRecords, Widening, Replayable, Awaited
):
    """A file, folder or pattern: a snapshot of its rows, then rows appended, added, edited and removed.

    Positions count the entries of a durable spool, into which everything is copied before it is emitted. A
    single file that vanishes is an outage, and its rows stay; when a file vanishes from a folder or pattern,
    its rows are retracted.
    """

    def __init__(self, place: Place, options: FilesOptions, context: SourceContext) -> None:
        self._options = options
        self._context = context
        self._files = place
        self._watch = options.watch is not False and not context.once
        self._schema = context.schema
        self._spool = Spool(context.spool, context.owner, resumed=context.resumed)
        self._tracker = Tracker(
            self._files,
            self._spool,
            options,
            once=not self._watch,
            table=context.table,
            clock=context.clock,
        )
        self._dialects = Dialects(options)
        self._patience = 2 * options.debounce
        self._read_all = False
        self._spark: SparkSession | None = None
        self._used: Sequence[str] | None = None

    @property
    def spool(self) -> Spool:
        """The durable copy of what was read, whose entries positions count."""
        return self._spool

    @property
    def unread(self) -> bool:
        """Whether the last look left something of the files for the next one."""
        return self._tracker.unread

    # --- the contract --------------------------------------------------------------------------------

    def check(self) -> None:
        """See `Source`.

        A file that was read before may be missing: a single one is an outage; one of several has its rows
        retracted.
        """
        if not self._spool.position:
            self._checked()

    def _checked(self) -> list[tuple[str, Layout]]:
        """The files that may be read, each with its layout; raises if nothing could ever be read."""
        found = ((path, layout_of(path, self._options)) for path in self._files.check().files)
        wanted = [(path, layout) for path, layout in found if layout is not None]
        readable = [(path, layout) for path, layout in wanted if self._files.readable(path)]
        if wanted and not readable:
            raise forbidden(wanted[0][0])
        if not wanted and self._options.format is None:
            raise SourceConfigError(
                f'the format of "{self._files.name}" cannot be derived from its name',
                hint='say it: WITH ("format" = "csv")',
            )
        return readable

    def discover(self) -> pa.Schema:
        """See `Source`: inferred from a sample of the files, unless the columns are known already."""
        if self._schema is None:
            layouts = self._checked()
            with reading(self._files.name):
                schema = sample_schema(self._files, layouts)
                if schema is None and self._context.once:
                    schema = header_schema(self._files, layouts)
            if schema is None or not len(schema):
                raise SourceEmptyError(
                    f'"{self._files.name}" holds no row yet to tell its columns from',
                    hint="declare them: CREATE SOURCE name (column type, …) FROM …",
                )
            self._schema = schema
        return self._schema

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`: polls the files once.

        Rows that an earlier start copied but did not commit may be what made the job fail, and may have been
        corrected in the file since. They are emitted together with the correction, once the file is quiet.
        """
        self._spool.resume(self._position(after))
        if self._watch or not self._read_all:
            self._tracker.poll()
            self._read_all = not self._tracker.unread and self._tracker.outage is None
        behind = self._position(after) < self._spool.position
        if after is not None and behind and self._tracker.unread and self._tracker.passed < self._patience:
            return after
        return {ONLY: self._spool.position}

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`: decoded in Python, without rows that cannot be decoded."""
        reader = RowReader(self._spool, self.discover(), self._dialects)
        yield from reader.batches(self._changes(start, end), not self._context.table)

    def frame(
        self,
        spark: SparkSession,
        start: Offset | None,
        end: Offset,
        columns: Sequence[str] | None,
        *,
        careful: bool = False,
    ) -> DataFrame | None:
        """See `SparkReader`: always a native plan."""
        self._spark, self._used = spark, columns
        reader = FrameReader(spark, self._spool, self._dialects, self.discover().names)
        system = [name for name in columns or () if name in SYSTEM]
        changes = self._changes(*self._bounds(start, end))
        return reader.rows(changes, self._fields(columns), system, careful=careful)

    def listen(self, news: Event) -> None:
        """See `Announcing`."""
        self._files.listen(news)

    def retry_delay(self, attempt: int) -> timedelta:
        """See `Awaited`."""
        return self._options.retry_interval

    def partitions(self, start: Offset | None, end: Offset) -> Mapping[str, str] | None:
        """See `Partitioned`: a position does not name the files."""
        return None

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Counted`: every record of the files, including bad ones."""
        first, last = self._bounds(start, end)
        changes = sum(segment.rows for segment, _ in self._changes(first, last))
        return changes + len(self._spool.bad(first or 0, last))

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """See `BadRecords`: records that are not UTF-8, damaged files, and what a stream cannot retract."""
        first, last = self._bounds(start, end)
        return bool(self._spool.bad(first or 0, last))

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """See `BadRecords`."""
        first, last = self._bounds(start, end)
        for row in self._spool.bad(first or 0, last):
            yield BadRow(row.reason, self._files.name, row.path, str(row.start), row.raw.encode("latin-1"))
        reader = RowReader(self._spool, pa.schema(self._fields(self._used)), self._dialects)
        added = [segment for segment, weight in self._changes(first, last) if weight > 0]
        for bad in reader.bad_records(added, self._suspects(added)):
            yield BadRow(
                bad.reason,
                self._files.name,
                bad.path,
                str(bad.start),
                restored(bad.record).encode(),
                position=bad.position,
            )

    def located(self, positions: Collection[str], end: Offset) -> dict[str, Located]:
        """See `BadRecords`: the records of text files, as they are in their files."""
        places = {place(position): position for position in positions}
        found = {p: Located(path, str(start)) for (path, start), p in places.items()}
        only = frozenset(places)
        for segment in self._holding(only, end):
            if segment.kind == "text":
                records = chosen(record_table(self._spool, segment), only)
                columns = (records[name].to_pylist() for name in (RECORD, PARTITION, OFFSET))
                for record, path, start in zip(*columns, strict=True):
                    text = record[: len(record) - len(segment.separator)]
                    raw = restored(text).encode()
                    found[places[path, start]] = Located(path, str(start), raw)
        return found

    def again(
        self, spark: SparkSession, positions: Collection[str], end: Offset, columns: Sequence[str] | None
    ) -> DataFrame | None:
        """See `Replayable`: records that were not retracted since."""
        only = frozenset(place(position) for position in positions)
        reader = FrameReader(spark, self._spool, self._dialects, self.discover().names, only)
        system = [name for name in columns or () if name in SYSTEM and name != POSITION]
        segments = [(segment, 1) for segment in self._holding(only, end)]
        frame = reader.rows(segments, self._fields(columns), [*system, POSITION], careful=True)
        return rows_at(frame, positions)

    def reasons(self, positions: Collection[str], end: Offset) -> dict[str, str]:
        """See `Replayable`."""
        segments = self._holding(frozenset(map(place, positions)), end)
        reader = RowReader(self._spool, pa.schema(self._fields(self._used)), self._dialects)
        shapes = reader.shapes_by_path(segments)
        found = self.located(positions, end).items()
        told = {p: reader.reason((at.raw or b"").decode(), shapes[at.partition]) for p, at in found}
        return {position: why for position, why in told.items() if why is not None}

    def took(self, position: str) -> bool | None:
        """See `Replayable`: files are read from their beginning."""
        path, _ = place(position)
        segments = self._spool.snapshot(self._spool.position)
        return True if any(path == p.path for s in segments for p in s.pieces) else None

    def _holding(self, only: frozenset[tuple[str, int]], end: Offset) -> list[Segment]:
        """Segments that are live at `end` and hold records of these files."""
        paths = {path for path, _ in only}
        live = self._spool.snapshot(self._position(end))
        return [segment for segment in live if paths & {piece.path for piece in segment.pieces}]

    def new_columns(self, start: Offset | None, end: Offset) -> bool:
        """See `Widening`: a CSV header names a column, or a JSON record a field, that the schema lacks."""
        return self._widened(start, end, values=False) is not None

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """See `Widening`; the wider schema is used from now on."""
        wider = self._widened(start, end, values=True)
        if wider is not None:
            self._schema = wider
        return wider

    def settled(self) -> bool:
        """See `Source`: False while a file is being written, or was at the last poll."""
        return not self._tracker.unread

    def finished(self, offset: Offset) -> bool:
        """See `Source`: with `watch` off, once everything that was there is read."""
        return not self._watch and self._read_all and self._position(offset) >= self._spool.position

    def commit(self, offset: Offset) -> None:
        """See `Source`: also compacts the spool into few segments, with a bounded amount of work."""
        merge_small(self._spool, self._position(offset))
        self._spool.forget(self._position(offset))

    def health(self) -> tuple[str, str | None]:
        """See `Source`."""
        if self._tracker.outage is not None:
            return "file not found", self._tracker.outage
        if self._tracker.unreadable:
            path, reason = next(iter(self._tracker.unreadable.items()))
            more = len(self._tracker.unreadable) - 1
            others = f", nor {more} more" if more else ""
            return "degraded", f"{path} cannot be read: {reason}{others}"
        return "healthy", None

    # --- inside --------------------------------------------------------------------------------------

    def _fields(self, columns: Sequence[str] | None) -> list[pa.Field]:
        schema = self.discover()
        if columns is None:
            return list(schema)
        wanted = {name.casefold() for name in columns}
        return [field for field in schema if field.name.casefold() in wanted]

    def _position(self, offset: Offset | None) -> int:
        return int(offset[ONLY]) if offset else 0

    def _bounds(self, start: Offset | None, end: Offset) -> tuple[int | None, int]:
        return (None if start is None else self._position(start)), self._position(end)

    def _changes(self, start: int | None, end: int) -> list[tuple[Segment, int]]:
        if start is None:
            return [(segment, 1) for segment in self._spool.snapshot(end)]
        return self._spool.changes(start, end)

    def _suspects(self, segments: Sequence[Segment]) -> Iterator[Suspect] | None:
        """Records that Spark finds bad; None when there is no Spark session yet."""
        if self._spark is None:
            return None
        reader = FrameReader(self._spark, self._spool, self._dialects, self.discover().names)
        found = reader.bad_records(segments, self._fields(self._used))
        return zip(*(column.to_pylist() for column in found.columns), strict=True)

    def _widened(self, start: Offset | None, end: Offset, values: bool) -> pa.Schema | None:
        if self._context.declared:
            return None
        first, last = self._bounds(start, end)
        added = [segment for segment, weight in self._changes(first, last) if weight > 0]
        reader = RowReader(self._spool, self.discover(), self._dialects)
        suspects = self._suspects(added) if values else None
        wider = widened(reader, added, suspects, values=values)
        return None if wider.equals(self.discover()) else wider

    def close(self) -> None:
        """See `Source`."""
        self._spark = None
        self._files.close()
        self._spool.close()
