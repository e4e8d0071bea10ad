"""Steps without aggregation: plain rows, rows of a derived relation with a key, rows of a lookup join."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.inputs.lookups import LookupFeed
from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.rows.group_keys import absent, distinct_keys, in_order
from velostream.engine.rows.multisets import net
from velostream.engine.runner import Progress
from velostream.model.columns import POSITION_KEPT

if TYPE_CHECKING:
    from velostream.model.changes import Commit, SourceOffsets
    from velostream.plan.plans import RowsPlan


class RowsPipeline(Pipeline):
    """A multiset of rows: the query's result for added rows is added, that for retracted rows retracted."""

    by_row = True
    plan: RowsPlan

    @property
    def row_sql(self) -> str:
        """See `Pipeline`."""
        return self.plan.below_sql if self.plan.below is not None else self.plan.sql

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        if not careful and self._cheaper_whole(start, end):
            return self.rebuild(end, commit)
        added, removed = self._halves(start, end, careful=careful)
        if self.plan.appends and removed is not None:
            # A step by affected keys retracts and adds rows that stay as they are. They cancel out, so that
            # a result that only appends has no retractions.
            added, removed = net(added, removed)
        self._output.rows(added, removed, commit)
        count = added.num_rows + (removed.num_rows if removed is not None else 0)
        return Progress(count, count)

    def _halves(
        self, start: SourceOffsets | None, end: SourceOffsets, *, careful: bool
    ) -> tuple[pa.Table, pa.Table | None]:
        """The rows that the result gains and those that it loses, as they are stored."""
        plus, minus = self._of_changes(self.row_sql, self.feed.changes(start, end, (), careful=careful))
        return self._shape.stored(plus), None if minus is None else self._shape.stored(minus)


class KeyedRowsPipeline(RowsPipeline):
    """Rows of a derived relation by key: when a row is retracted, another of its key may replace it."""

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        plan = self.plan
        if not careful and self._cheaper_whole(start, end):
            return self.rebuild(end, commit)
        added, removed = self._halves(start, end, careful=careful)
        came, went = net(added, removed if removed is not None else added.slice(0, 0))
        lost = absent(distinct_keys(went.select(plan.key)), came)
        if lost.num_rows:
            self._runner.show(self.feed.restricted(end, plan.below_keys, lost, careful=False))
            found = self._shape.stored(self._only(lost, self.row_sql, plan.key))
            came = pa.concat_tables([came, found])
        self._table.commit_keyed(came, absent(lost, came), commit)
        return Progress(added.num_rows, came.num_rows + went.num_rows)


class JoinedRowsPipeline(RowsPipeline):
    """Lookup join: rows of a stream joined to tables; retracted rows are found by their source position.

    They cannot be computed again, since the tables may have changed since the rows were joined.
    """

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        assert isinstance(self.feed, LookupFeed)
        changes = self.feed.changes(start, end, (), careful=careful)
        gone = self.feed.gone
        # Retracted rows are looked up by their positions, all at once.
        came, _ = self._of_changes(self.row_sql, changes, divisible=gone is None)
        if self.plan.key:
            rows = self._shape.stored(in_order(came))
            self._table.commit_keyed(rows, None, commit)
            return Progress(came.num_rows, rows.num_rows)
        removed = None
        if gone is not None:
            places = gone.rename_columns([POSITION_KEPT])
            removed = self._table.version_object.physical_where((POSITION_KEPT,), places)
        self._output.rows(self._shape.stored(came), removed, commit)
        return Progress(came.num_rows, came.num_rows)
