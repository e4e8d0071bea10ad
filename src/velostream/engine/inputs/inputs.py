"""A job's inputs as Spark views: the changes between two positions, or a snapshot at one."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.capabilities import Partitioned, Replayable, SparkReader
from velostream.connectors.delivered import delivered
from velostream.engine.inputs.event_times import Seen
from velostream.engine.inputs.tables import TableSource
from velostream.engine.inputs.widening import ColumnsWidenedError
from velostream.engine.runner import Halves
from velostream.errors import TypeMismatchError, UnsupportedError
from velostream.formats.columns.dataframes import rows_at
from velostream.model.columns import BAD, ENTERED, EVENT_TIME, POSITION, WEIGHT, arrow_types
from velostream.model.windows import EventTime
from velostream.plan.time.event_time import event_time_sql
from velostream.spark.dataframes import arrow_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.base import Source
    from velostream.model.changes import BadRow, Offset, SourceOffsets
    from velostream.plan.time.event_times import Timing

_MOST_EXCLUDED = 10_000


@dataclass
class Input:
    """One source of a job and the columns that the statement uses of it (None: all)."""

    id: str
    source: Source
    schema: pa.Schema
    columns: frozenset[str] | None
    description: str
    kind: str
    """The connector's name, or "table"."""
    spread: Callable[[DataFrame], DataFrame] | None = None
    """Repartitions the rows of a frame."""
    time: EventTime = field(default_factory=EventTime)
    """The event time of its rows."""
    watched: bool = False
    """Whether the latest event time of each partition is observed."""

    def since(self, start: Offset | None) -> Offset | None:
        """The position to read after: where nothing was read yet, the one that the statement begins at."""
        beginning = self.source.beginning
        if start is None or beginning is None:
            return beginning if start is None else start
        # It may also name partitions that come later.
        return {**beginning, **start}

    def wanted(self, extra: tuple[str, ...] = ()) -> list[str] | None:
        """Columns to read from the source, in the source's order, system columns last."""
        if self.columns is None and not extra:
            return None
        used = set(self.schema.names) if self.columns is None else self.columns
        folded = {name.casefold() for name in used}
        plain = [name for name in self.schema.names if name.casefold() in folded]
        system = [name for name in sorted(used) if name not in plain and name.startswith("_")]
        if not plain and not system:
            plain = self.schema.names[:1]
        return [*plain, *system, *(name for name in extra if name not in system)]

    def empty(self) -> pa.Table:
        """No rows, with the system columns that a query may use."""
        if isinstance(self.source, TableSource):
            return self.schema.empty_table()
        system = [pa.field(n, kind) for n, kind in arrow_types().items() if n not in self.schema.names]
        return pa.schema([*self.schema, *system]).empty_table()

    def beneath(self, columns: list[str] | None) -> list[str] | None:
        """The columns to read from the source for `columns`: the event time is computed here, not there."""
        if columns is None or EVENT_TIME not in columns:
            return columns
        needed = [self._time_column, *(self.source.traits.partition_columns if self.watched else ())]
        asked = [name for name in columns if name != EVENT_TIME]
        return [*asked, *(name for name in needed if name not in asked)]

    @property
    def _time_column(self) -> str:
        if self.time.column is None:
            return ENTERED
        first = self.time.column.split(".")[0].casefold()
        return next((name for name in self.schema.names if name.casefold() == first), first)


class Inputs:
    """All inputs of one job."""

    def __init__(self, spark: SparkSession, inputs: Mapping[str, Input]) -> None:
        self._spark = spark
        self.all = dict(inputs)
        for item in inputs.values():
            SparkReader.of(item.source).session = spark
        self.excluded: dict[str, set[str]] = {}
        """Positions of rows that cannot be computed: they are left out of every frame."""
        self.again: Mapping[str, frozenset[str]] | None = None
        """During a replay of dead letters: the records of each input that replace the range's new ones."""
        self._told_apart_by_content: set[str] = set()
        """Inputs whose rows have no position: a row that comes later may hold the same."""
        self.seen = Seen()
        """The event times observed in watched inputs."""

    @property
    def only(self) -> Input:
        """The one input of a job that has exactly one."""
        return next(iter(self.all.values()))

    def changes(
        self, start: SourceOffsets | None, end: SourceOffsets, extra: tuple[str, ...], *, careful: bool
    ) -> dict[str, Halves]:
        """The rows added to and retracted from each input after `start` up to `end`."""
        return {
            key: self._halves(item, _of(start, key), end[key], item.wanted(extra), careful)
            for key, item in self.all.items()
        }

    def snapshot(
        self, end: SourceOffsets, extra: tuple[str, ...] = (), *, careful: bool = False
    ) -> dict[str, DataFrame]:
        """All rows of each input as of `end`."""
        return {
            key: self._halves(item, None, end[key], item.wanted(extra), careful).plus
            for key, item in self.all.items()
        }

    def restricted(
        self,
        end: SourceOffsets,
        columns: tuple[str, ...],
        keys: pa.Table,
        extra: tuple[str, ...] = (),
        *,
        careful: bool,
    ) -> dict[str, DataFrame]:
        """Rows as of `end`, at least those whose columns are among the keys: a table is looked up."""
        item = next(iter(self.all.values()))
        known = set(columns) <= set(item.schema.names) and bool(columns)
        if len(self.all) > 1 or not known or not isinstance(item.source, TableSource) or self.excluded:
            return self.snapshot(end, extra, careful=careful)
        rows = self.arrow_where(item.id, end[item.id], columns, keys)
        wanted = [name for name in item.wanted(extra) or item.schema.names if name in rows.schema.names]
        positioned = POSITION in extra and POSITION not in wanted
        return {item.id: self._arrow_frame(rows.select(wanted), positioned)}

    @property
    def descriptions(self) -> Mapping[str, str]:
        """The name of each input in messages."""
        return {key: item.description for key, item in self.all.items()}

    def stream_halves(
        self,
        key: str,
        start: SourceOffsets | None,
        end: SourceOffsets,
        extra: tuple[str, ...],
        *,
        careful: bool,
    ) -> Halves:
        """The rows added to and retracted from one input after `start` up to `end`."""
        item = self.all[key]
        return self._halves(item, _of(start, key), end[key], item.wanted(extra), careful)

    def _halves(
        self, item: Input, start: Offset | None, end: Offset, columns: list[str] | None, careful: bool
    ) -> Halves:
        """The rows of one input, without excluded ones."""
        excluded = self.excluded.get(item.id)
        asked = columns
        if excluded and POSITION not in (columns or ()):
            asked = [*(columns if columns is not None else item.schema.names), POSITION]
        halves = self._read(item, start, end, asked, careful or bool(excluded))
        if not excluded:
            return halves
        left = [part if part is None else without(part, excluded) for part in (halves.plus, halves.minus)]
        if columns is None or POSITION not in columns:
            left = [part if part is None else part.drop(POSITION) for part in left]
        assert left[0] is not None
        return Halves(left[0], left[1])

    def _read(
        self, item: Input, start: Offset | None, end: Offset, columns: list[str] | None, careful: bool
    ) -> Halves:
        frame: DataFrame | None
        asked = item.beneath(columns)
        if self.again is not None and start is not None:
            frame = records_at(self._spark, item, self.again.get(item.id, frozenset()), end, asked)
        else:
            since = Replayable.of(item.source).oldest() if self.again is not None else item.since(start)
            frame = SparkReader.of(item.source).frame(self._spark, since, end, asked, careful=careful)
        if frame is None:
            return self._arrow_halves(item, start, end, columns)
        if columns is not None and EVENT_TIME in columns:
            frame = self._timed(item, frame, columns, start, end)
        if BAD in frame.columns:
            frame = frame.where(f"{BAD} IS NULL").drop(BAD)
        if item.spread is not None and not careful:
            frame = item.spread(frame)
        if WEIGHT not in frame.columns:
            return Halves(frame, None)
        plus = frame.where(f"{WEIGHT} > 0").drop(WEIGHT)
        if start is None:
            return Halves(plus, None)
        return Halves(plus, frame.where(f"{WEIGHT} < 0").drop(WEIGHT))

    def _timed(
        self, item: Input, frame: DataFrame, columns: list[str], start: Offset | None, end: Offset
    ) -> DataFrame:
        """The frame with the event time; its maximum per partition is known once the frame was read."""
        time = event_time_sql(item.time, item.schema, item.description)
        frame = frame.selectExpr("*", f"{time} AS {EVENT_TIME}")
        if item.watched:
            found = Partitioned.of(item.source).partitions(item.since(start), end)
            frame = self.seen.watch(item.id, frame, found, item.source.traits.partition_sql)
        kept = [*columns, *(name for name in (WEIGHT, BAD) if name in frame.columns)]
        return frame.select(*(quote(name) for name in kept))

    def _arrow_halves(
        self, item: Input, start: Offset | None, end: Offset, columns: list[str] | None
    ) -> Halves:
        table = self._arrow(item, start, end)
        if columns is not None and EVENT_TIME in columns and EVENT_TIME not in table.schema.names:
            return self._timed_halves(item, table, columns, start, end)
        given = set(table.schema.names)
        positioned = self._positioned(item, columns, given)
        if columns is not None:
            table = _selected(item, table, columns)
        if WEIGHT not in given:
            return Halves(self._arrow_frame(table, positioned), None)
        plus, minus = split_weights(table)
        return Halves(
            self._arrow_frame(plus, positioned),
            self._arrow_frame(minus, positioned) if minus.num_rows else None,
        )

    def _positioned(self, item: Input, columns: Sequence[str] | None, given: Collection[str]) -> bool:
        """Whether positions are asked for that the rows do not have, so that their contents identify them."""
        found = columns is not None and POSITION in columns and POSITION not in given
        if found:
            self._told_apart_by_content.add(item.id)
        return found

    def _timed_halves(
        self, item: Input, table: pa.Table, columns: list[str], start: Offset | None, end: Offset
    ) -> Halves:
        given = set(table.schema.names)
        positioned = self._positioned(item, columns, given)
        frame = self._arrow_frame(_selected(item, table, item.beneath(columns) or ()), positioned)
        frame = self._timed(item, frame, columns, start, end)
        if WEIGHT not in given:
            return Halves(frame, None)
        minus = frame.where(f"{WEIGHT} < 0").drop(WEIGHT) if start is not None else None
        return Halves(frame.where(f"{WEIGHT} > 0").drop(WEIGHT), minus)

    def _arrow(self, item: Input, start: Offset | None, end: Offset) -> pa.Table:
        batches = list(_read_all(item.source, item.since(start), end))
        table = pa.Table.from_batches(batches) if batches else item.empty()
        self._refuse_wider(item, table.schema)
        if item.watched and isinstance(item.source, TableSource):
            self._watch(item, table)
        return table

    def _watch(self, item: Input, rows: pa.Table) -> None:
        """Observe event times. A table is one partition; retracted rows were observed when added."""
        name = item.time.column
        if name in rows.schema.names and rows.num_rows:
            kind = rows.schema.field(name).type
            if not pa.types.is_timestamp(kind) and not pa.types.is_date(kind):
                raise TypeMismatchError(
                    f'the event time column "{name}" is {kind}',
                    hint=f"CAST({name} AS TIMESTAMP) below the window",
                )
            at = pc.max(rows.column(name).cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())).as_py()
            if at is not None:
                self.seen.note(item.id, item.id, at)

    def arrow_rows(self, key: str, start: Offset | None, end: Offset) -> pa.Table | None:
        """The rows of an input after `start` in its own order; None where Spark reads or sorts them."""
        item = self.all[key]
        by_spark = isinstance(item.source, SparkReader) or not item.source.traits.frames_in_order
        if by_spark or item.watched or self.again is not None or self.excluded.get(key):
            return None
        return self._arrow(item, start, end)

    # --- tables, by key ---------------------------------------------------------------------------------

    def arrow_changes(self, key: str, start: Offset | None, end: Offset) -> tuple[pa.Table, pa.Table]:
        """Rows added to and retracted from a table, in the columns that the statement uses."""
        item = self.all[key]
        table = self._arrow(item, start, end)
        wanted = item.wanted() or item.schema.names
        if WEIGHT not in table.schema.names:
            rows = table.select(wanted)
            return rows, rows.slice(0, 0)
        return split_weights(table.select([*wanted, WEIGHT]))

    def schema(self, key: str, columns: Sequence[str]) -> pa.Schema:
        """The columns of a table as the statement knows them."""
        return pa.schema([self.all[key].schema.field(name) for name in columns])

    def arrow_snapshot(self, key: str, end: Offset) -> pa.Table:
        """All rows of a table as of `end`."""
        return self._arrow(self.all[key], None, end)

    def native(self, key: str, end: Offset) -> DataFrame | None:
        """All rows of a table as of `end`, if they are in files rather than in memory; None otherwise."""
        item = self.all[key]
        return SparkReader.of(item.source).frame(self._spark, None, end, item.wanted())

    def far_too_many(self, start: SourceOffsets, end: SourceOffsets, most: int) -> bool:
        """Whether more rows changed, in tables whose rows are in files, than are to be held here."""
        tables = {key: item.source for key, item in self.all.items() if isinstance(item.source, TableSource)}
        return any(
            table.changed_in_files(start[key], end[key]) > most
            for key, table in tables.items()
            if key in start
        )

    def arrow_where(self, key: str, end: Offset, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows of a table as of `end` whose columns equal one of the keys; null equals null."""
        source = self.all[key].source
        assert isinstance(source, TableSource)
        rows = source.where(end, columns, keys)
        self._refuse_wider(self.all[key], rows.schema)
        return rows

    def tables_loaded(self) -> bool:
        """Whether every table among the inputs has completed its initial load."""
        sources = [item.source for item in self.all.values()]
        return all(source.loaded for source in sources if isinstance(source, TableSource))

    def size(self, end: SourceOffsets) -> int:
        """The number of rows of the tables at these positions."""
        sources = [(self.all[key].source, offset) for key, offset in end.items()]
        return sum(source.size(offset) for source, offset in sources if isinstance(source, TableSource))

    def _refuse_wider(self, item: Input, given: pa.Schema) -> None:
        """Raise if a table below has widened since this job was opened."""
        plain = [field for field in given if not field.name.startswith("_")]
        new = item.columns is None and len(plain) > len(item.schema)
        used = item.wanted() or item.schema.names
        if new or any(f.name in used and f.type != item.schema.field(f.name).type for f in plain):
            raise ColumnsWidenedError(f"{item.description} has wider columns now")

    def _arrow_frame(self, table: pa.Table, positioned: bool) -> DataFrame:
        """A frame over rows. Rows of a multiset have no position, so their contents identify them."""
        frame = arrow_frame(self._spark, table)
        return frame.selectExpr("*", f"to_json(struct(*)) AS {POSITION}") if positioned else frame

    def computing_errors(self, start: SourceOffsets | None, end: SourceOffsets) -> list[BadRow]:
        """Rows that a step below the plan cannot compute: none, as there is no such step."""
        return []

    def take_figures(self) -> tuple[int, int]:
        """The number of rows read since the last call, and of stream rows without a match."""
        return 0, 0

    def forget_excluded(self) -> None:
        """Try excluded rows again that have no position of their own: later rows may have the same contents.

        Also forgets rows that no later frame contains, and, when there are many, all: they are found again if
        need be.
        """
        for key, item in self.all.items():
            traits = item.source.traits
            once = not traits.positioned or not traits.rereadable or key in self._told_apart_by_content
            if once or len(self.excluded.get(key, ())) > _MOST_EXCLUDED:
                self.excluded.pop(key, None)


def without(frame: DataFrame, excluded: set[str]) -> DataFrame:
    """The rows of a frame with `_position`, except those at these positions."""
    return rows_at(frame, excluded, but=True)


def records_at(
    spark: SparkSession, item: Input, positions: frozenset[str], end: Offset, columns: list[str] | None
) -> DataFrame:
    """The records of an input at these positions, with `_position` if it is wanted."""
    frame = Replayable.of(item.source).again(spark, positions, end, columns)
    if frame is None:
        asked = [*(columns if columns is not None else item.schema.names)]
        whole = SparkReader.of(item.source).frame(
            spark, None, end, [*dict.fromkeys([*asked, POSITION])], careful=True
        )
        if whole is None:
            whole = _positioned(spark, item, end, asked)
        if whole is None or POSITION not in whole.columns:
            raise UnsupportedError(f"{item.description} cannot read single records again")
        frame = rows_at(whole, positions)
    asked_for = columns is not None and POSITION in columns
    return frame if asked_for else frame.drop(POSITION)


def _positioned(spark: SparkSession, item: Input, end: Offset, columns: list[str]) -> DataFrame | None:
    """All rows of a source that Spark does not read itself, with positions; None: it has no positions."""
    batches = list(_read_all(item.source, item.source.beginning, end))
    if not batches or POSITION not in batches[0].schema.names:
        return None
    table = pa.Table.from_batches(batches)
    names = [name for name in columns if name in table.schema.names and name != POSITION]
    return arrow_frame(spark, table.select([*names, POSITION]))


def _selected(item: Input, table: pa.Table, columns: Sequence[str]) -> pa.Table:
    """These columns and the weight; system columns that a source does not have are null."""
    given = set(table.schema.names)
    found = table.select([*(name for name in columns if name in given), *({WEIGHT} & given)])
    if isinstance(item.source, TableSource):
        return found
    for name, kind in arrow_types().items():
        if name in columns and name not in given and name not in (EVENT_TIME, POSITION):
            found = found.append_column(name, pa.nulls(table.num_rows, kind))
    return found


def split_weights(table: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Added rows and retracted rows, each repeated as its weight says, without the weight."""
    import numpy as np

    weights = table.column(WEIGHT).to_numpy()
    plain = table.drop_columns([WEIGHT])
    halves = []
    for sign in (1, -1):
        counts = np.maximum(weights * sign, 0)
        halves.append(plain.take(pa.array(np.repeat(np.arange(len(weights)), counts))))
    return halves[0], halves[1]


def _read_all(source: Source, start: Offset | None, end: Offset) -> Iterator[pa.RecordBatch]:
    read = source.read if isinstance(source, TableSource) else partial(delivered, source)
    for partition, position in end.items():
        yield from read(partition, start.get(partition) if start else None, position)


def _of(offsets: SourceOffsets | None, key: str) -> Offset | None:
    return offsets.get(key) if offsets is not None else None


def tell_times(timing: Timing, inputs: Mapping[str, Input]) -> None:
    """Set the event time of each input, and whether it is watched; raises for an invalid event time."""
    for name, time in timing.times.items():
        item = inputs.get(name)
        if item is not None:
            event_time_sql(time, item.schema, item.description)
            item.time = time
            item.watched = timing.windowing is not None and timing.windowing.bounded
