"""Rows of a stream joined to tables as they are now: what a pipeline reads when a statement does that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.capabilities import Counted
from velostream.engine.inputs.derived import Evaluation, Restriction, keys_of
from velostream.engine.inputs.feed import DerivedFeed
from velostream.engine.inputs.inputs import Halves
from velostream.engine.rows.multisets import among, distinct, split_nulls
from velostream.errors import UnsupportedError
from velostream.model.columns import POSITION
from velostream.plan.derived.nodes import Keyed, Node, Scan, Side
from velostream.plan.derived.plan import scans
from velostream.spark.dataframes import arrow_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.inputs.inputs import Inputs
    from velostream.model.changes import SourceOffsets

_COUNT = "__rows"
_COUNTED = frozenset({"JOIN", "LEFT JOIN", "RIGHT JOIN"})
"""Joins whose misses are counted."""
_MET = "__met"
_MISSED = f"{_MET} IS NULL"


class LookupFeed(DerivedFeed):
    """A stream's batches, looked up in tables. Tables give no changes: they are seen as of the batch."""

    def __init__(
        self, spark: SparkSession, inputs: Inputs, node: Node, stream: str, *, observes: bool
    ) -> None:
        super().__init__(spark, inputs, node)
        self._stream = stream
        self._observes = observes
        self.watched: dict[str, DataFrame] = {}
        """Frames that are observed while the result of the range asked for last is computed, by name."""
        self.gone: pa.Table | None = None
        """Positions of rows that the stream took back in the range asked for last; None when none were."""

    def cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets, held: int) -> bool:
        """Never: rows that were joined stay as they are."""
        return False

    def changes(
        self, start: SourceOffsets | None, end: SourceOffsets, extra: tuple[str, ...], *, careful: bool
    ) -> dict[str, Halves]:
        """The rows that came, joined; `gone` tells which went."""
        only_grows = self._inputs.all[self._stream].source.traits.only_grows
        # Only careful frames promise positions that stay the same.
        halves = self._inputs.stream_halves(
            self._stream, start, end, (POSITION,), careful=careful or not only_grows
        )
        self.gone = None
        if halves.minus is not None:
            self.gone = halves.minus.select(POSITION).distinct().toArrow()
        self.begin(None, end)
        assert self._evaluation is not None
        batch = Batch(self._evaluation, self._inputs, end, self._stream, halves.plus)
        if self._observes and not careful:
            batch.meets = max(_FEW, self._count(start, end) // _SHARE)
        rows = batch.rows(self._node)
        self._misses = batch.misses
        self.watched = batch.watched
        return {self._node.view: Halves(self._usable(rows, extra), None)}

    def observed(self, figures: Mapping[str, list[int | None]]) -> None:
        """Take what was counted while the result was computed; what was not computed is counted now."""
        for name, frame in self.watched.items():
            (found,) = figures.get(name, [None])
            self._misses += found if found is not None else frame.where(_MISSED).count()
        self.watched = {}

    def _count(self, start: SourceOffsets | None, end: SourceOffsets) -> int:
        """About how many rows of the stream there are in the range."""
        first = (start or {}).get(self._stream)
        return Counted.of(self._inputs.all[self._stream].source).count(first, end[self._stream]) or 0

    def snapshot(
        self, end: SourceOffsets, extra: tuple[str, ...] = (), *, careful: bool = False
    ) -> dict[str, DataFrame]:
        """Rows that were joined before cannot be joined again: the tables have changed since."""
        raise UnsupportedError(
            "rows of a stream that were joined before would have to be joined again",
            hint="make a table of the join first, and build on that table",
        )

    def restricted(
        self,
        end: SourceOffsets,
        columns: tuple[str, ...],
        keys: pa.Table,
        extra: tuple[str, ...] = (),
        *,
        careful: bool,
    ) -> dict[str, DataFrame]:
        """As `snapshot`."""
        return self.snapshot(end)

    def _came(self, evaluation: Evaluation, node: Node, start: SourceOffsets | None) -> set[str] | None:
        """All did: only rows that come are joined."""
        return None

    def _touched(self, evaluation: Evaluation, node: Keyed, start: SourceOffsets | None) -> set[str] | None:
        """As `_came`."""
        return None


class Batch:
    """One batch of the stream on its way up through the joins."""

    def __init__(
        self, evaluation: Evaluation, inputs: Inputs, end: SourceOffsets, stream: str, rows: DataFrame
    ) -> None:
        self._evaluation = evaluation
        self._inputs = inputs
        self._end = end
        self._stream = stream
        self._rows = rows
        self.misses = 0
        """Rows that found no row in a table they are joined to, of those that were counted before."""
        self.meets = 0
        """Tables of up to so many rows are met whole: the batch is read once, and misses are observed."""
        self.watched: dict[str, DataFrame] = {}

    def rows(self, node: Node) -> DataFrame:
        """The rows of a node that the batch gives."""
        if isinstance(node, Scan):
            return self._rows.select(*(quote(name) for name in node.columns))
        if not isinstance(node, Keyed):
            return self._evaluation.run(node, [self.rows(child) for child in node.below])
        mine = next(side for side in node.sides if self._carries(side.node))
        batch = self.rows(mine.node)
        found = {}
        for side in node.sides:
            if side is not mine:
                batch, found[id(side)] = self._met_whole(node, batch, mine, side) or (
                    batch,
                    self._looked_up(node, batch, mine, side),
                )
        return self._evaluation.run(node, [found.get(id(side), batch) for side in node.sides])

    def _carries(self, node: Node) -> bool:
        return any(scan.relation == self._stream for scan in scans(node))

    def _met_whole(
        self, node: Keyed, batch: DataFrame, mine: Side, other: Side
    ) -> tuple[DataFrame, DataFrame] | None:
        """The batch, observed, and all rows of a table that is small beside it; None where it is not.

        The different keys of a batch cost reading and decoding it once more.
        """
        from pyspark.sql import functions

        if not mine.keys or self._size(other.node) > min(self.meets, _SMALL):
            return None
        rows = self._evaluation.table(other.node, None)
        keys = split_nulls(distinct([keys_of(rows, other)]), node.nulls_meet)
        if keys.num_rows == 0:
            return None
        table = functions.broadcast(arrow_frame(batch.sparkSession, rows))
        if node.word not in _COUNTED:
            return batch, table
        names = [f"__key_{number}" for number in range(len(mine.keys))]
        known = arrow_frame(batch.sparkSession, keys.rename_columns(names)).withColumn(_MET, functions.lit(1))
        same = [
            batch[quote(column)].eqNullSafe(known[name]) if meet else batch[quote(column)] == known[name]
            for column, name, meet in zip(mine.keys, names, node.nulls_meet, strict=True)
        ]
        met = batch.join(functions.broadcast(known), same, "left")
        name = f"__misses_{len(self.watched)}"
        self.watched[name] = met
        missed = functions.count_if(functions.expr(_MISSED)).alias("missed")
        return met.observe(name, missed).select(*map(quote, batch.columns)), table

    def _looked_up(self, node: Keyed, batch: DataFrame, mine: Side, other: Side) -> DataFrame:
        from pyspark.sql import functions

        keys = self._keys(batch, mine) if mine.keys else None
        if keys is None or not self._evaluation.same_types(other, keys.schema.types[:-1]):
            # Without a key, or where Spark must convert to compare, the batch meets the whole table.
            rows = self._evaluation.frame(other.node, "after", None)
            return functions.broadcast(rows) if self._size(other.node) <= _SMALL else rows
        wanted = split_nulls(keys, node.nulls_meet)
        only = Restriction(other.keys, wanted.drop_columns([_COUNT]))
        found = self._evaluation.table(other.node, only)
        if node.word in _COUNTED:
            self.misses += _total(keys) - _total(among(wanted, only.keys.schema.names, keys_of(found, other)))
        return functions.broadcast(arrow_frame(batch.sparkSession, found))

    def _keys(self, batch: DataFrame, mine: Side) -> pa.Table:
        """The different keys of the batch, and how many rows have each."""
        from pyspark.sql import functions

        names = [f"k{number}" for number in range(len(mine.keys))]
        keys = batch.select(*(batch[quote(c)].alias(n) for c, n in zip(mine.keys, names, strict=True)))
        return self._evaluation.here(keys.groupBy(*names).agg(functions.count("*").alias(_COUNT)))

    def _size(self, node: Node) -> int:
        return self._inputs.size({s.relation: self._end[s.relation] for s in scans(node)})


def _total(keys: pa.Table) -> int:
    return sum(keys.column(_COUNT).to_pylist())


_SMALL = 100_000
"""Rows of a table that are worth sending to every executor whole."""
_FEW = 1000
"""Rows of a table that cost less to send than the keys of any batch to collect."""
_SHARE = 10
"""A table is small beside a batch that has so many times its rows."""
