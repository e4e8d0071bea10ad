"""The feed of a lookup join: rows of a stream, joined to tables as they are now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.capabilities import Counted
from velostream.engine.inputs.evaluation import Evaluation, Restriction, keys_of
from velostream.engine.inputs.feed import DerivedFeed
from velostream.engine.rows.multisets import among, distinct, split_nulls
from velostream.engine.runner import Halves
from velostream.errors import UnsupportedError
from velostream.model.columns import POSITION
from velostream.plan.derived.nodes import Keyed, Node, Scan, Side
from velostream.plan.derived.plan import scans
from velostream.spark.dataframes import arrow_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.runner import Runner
    from velostream.model.changes import SourceOffsets

_COUNT = "__rows"
_COUNTED = frozenset({"JOIN", "LEFT JOIN", "RIGHT JOIN"})
"""Joins whose rows without a match are counted."""
_MET = "__met"
_MISSED = f"{_MET} IS NULL"


class LookupFeed(DerivedFeed):
    """A stream's batches, looked up in tables. Only the stream has changes; tables are read as they are."""

    def __init__(self, runner: Runner, inputs: Inputs, node: Node, stream: str) -> None:
        super().__init__(runner, inputs, node)
        self._stream = stream
        self.watched: dict[str, DataFrame] = {}
        """Frames that are observed while the result of the last range is computed, by name."""
        self.gone: pa.Table | None = None
        """Positions of the rows that the stream retracted in the last range; None when there are none."""

    def cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets, held: int) -> bool:
        """Never: rows that were joined stay as they are."""
        return False

    def changes(
        self, start: SourceOffsets | None, end: SourceOffsets, extra: tuple[str, ...], *, careful: bool
    ) -> dict[str, Halves]:
        """The rows added, joined; `gone` has the positions of the retracted ones."""
        only_grows = self._inputs.all[self._stream].source.traits.only_grows
        # Only careful frames guarantee positions that are the same in every frame.
        halves = self._inputs.stream_halves(
            self._stream, start, end, (POSITION,), careful=careful or not only_grows
        )
        self.gone = None
        if halves.minus is not None:
            self.gone = self._runner.rows(halves.minus.select(POSITION).distinct())
        self.begin(None, end)
        assert self._evaluation is not None
        batch = Batch(self._evaluation, self._inputs, end, self._stream, halves.plus)
        if self._runner.observes and not careful:
            batch.meets = max(FEW, self._count(start, end) // _SHARE)
        rows = batch.rows(self._node)
        self._misses = batch.misses
        self.watched = batch.watched
        return {self._node.view: Halves(self._usable(rows, extra), None)}

    def observed(self, figures: Mapping[str, list[int | None]]) -> None:
        """Add the rows without a match that Spark observed; frames that it did not compute are counted."""
        for name, frame in self.watched.items():
            (found,) = figures.get(name, [None])
            self._misses += found if found is not None else frame.where(_MISSED).count()
        self.watched = {}

    def _count(self, start: SourceOffsets | None, end: SourceOffsets) -> int:
        """The approximate number of rows of the stream in the range."""
        first = (start or {}).get(self._stream)
        return Counted.of(self._inputs.all[self._stream].source).count(first, end[self._stream]) or 0

    def snapshot(
        self, end: SourceOffsets, extra: tuple[str, ...] = (), *, careful: bool = False
    ) -> dict[str, DataFrame]:
        """Raises: rows that were joined before cannot be joined again, as the tables have changed since."""
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
        """Raises, like `snapshot`."""
        return self.snapshot(end)

    def _came(self, evaluation: Evaluation, node: Node, start: SourceOffsets | None) -> set[str] | None:
        """None: all rows are new, since only added rows are joined."""
        return None

    def _touched(self, evaluation: Evaluation, node: Keyed, start: SourceOffsets | None) -> set[str] | None:
        """None, like `_came`."""
        return None


class Batch:
    """One batch of the stream while it passes through the joins."""

    def __init__(
        self, evaluation: Evaluation, inputs: Inputs, end: SourceOffsets, stream: str, rows: DataFrame
    ) -> None:
        self._evaluation = evaluation
        self._inputs = inputs
        self._end = end
        self._stream = stream
        self._rows = rows
        self.misses = 0
        """Rows without a match in a table, as far as they were counted by key."""
        self.meets = 0
        """Tables of up to so many rows are joined whole: the batch is then read once, its misses observed."""
        self.watched: dict[str, DataFrame] = {}

    def rows(self, node: Node) -> DataFrame:
        """The rows of a node that follow from the batch."""
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

        Collecting the distinct keys of a batch would read and decode the batch once more.
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
            # Without a key, or where Spark must cast to compare, the batch is joined to the whole table.
            rows = self._evaluation.frame(other.node, "after", None)
            return functions.broadcast(rows) if self._size(other.node) <= _SMALL else rows
        wanted = split_nulls(keys, node.nulls_meet)
        only = Restriction(other.keys, wanted.drop_columns([_COUNT]))
        found = self._evaluation.table(other.node, only)
        if node.word in _COUNTED:
            self.misses += _total(keys) - _total(among(wanted, only.keys.schema.names, keys_of(found, other)))
        return functions.broadcast(arrow_frame(batch.sparkSession, found))

    def _keys(self, batch: DataFrame, mine: Side) -> pa.Table:
        """The distinct keys of the batch, and the number of rows with each."""
        from pyspark.sql import functions

        names = [f"k{number}" for number in range(len(mine.keys))]
        keys = batch.select(*(batch[quote(c)].alias(n) for c, n in zip(mine.keys, names, strict=True)))
        return self._evaluation.runner.rows(keys.groupBy(*names).agg(functions.count("*").alias(_COUNT)))

    def _size(self, node: Node) -> int:
        return self._inputs.size({s.relation: self._end[s.relation] for s in scans(node)})


def _total(keys: pa.Table) -> int:
    return sum(keys.column(_COUNT).to_pylist())


_SMALL = 100_000
"""The most rows of a table that are worth broadcasting to every executor."""
FEW = 1000
"""Rows of a table that cost less to send than the keys of any batch cost to collect."""
_SHARE = 10
"""A table is small beside a batch of so many times its rows."""
