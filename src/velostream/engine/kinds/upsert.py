"""Steps of rows with a key: a later row replaces the earlier one of its key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.capabilities import Ordered
from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.outputs.outputs import table_output
from velostream.engine.rows.group_keys import absent, distinct_keys, in_order, key_schema, last_of_each
from velostream.engine.runner import Progress
from velostream.model.columns import KEY, MESSAGE_KEY, NO_ROW, POSITION, POSITION_KEPT, TOMBSTONE
from velostream.spark.dataframes import checked_cast

if TYPE_CHECKING:
    from velostream.model.changes import Commit, SourceOffsets
    from velostream.plan.plans import UpsertPlan


class UpsertPipeline(Pipeline):
    """Upserts by key; for keys that lost a row, the last of their remaining rows is looked up."""

    plan: UpsertPlan

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        plan = self.plan
        if not careful and self._cheaper_whole(start, end):
            return self.rebuild(end, commit)
        changes = self.feed.changes(start, end, plan.asked, careful=careful)
        plus, minus = self._of_changes(plan.ordered_sql, changes)
        if minus is None and self.inputs.again is not None:
            # A replayed record may be older than the current row of its key: its key is looked up.
            minus = plus.slice(0, 0)
        elif minus is None or minus.num_rows == 0:
            upserts = self._shape.stored(self._in_order(plus))
            self._table.commit_keyed(upserts, None, commit)
            return Progress(plus.num_rows, upserts.num_rows)
        touched = distinct_keys(pa.concat_tables([plus.select(plan.key), minus.select(plan.key)]))
        self._runner.show(self.feed.restricted(end, plan.below_keys, touched, (POSITION,), careful=careful))
        live = self._in_order(self._only(touched, plan.ordered_sql, plan.key))
        upserts = self._shape.stored(live)
        keys = checked_cast(touched, key_schema(self._table.spec.schema, plan.key))
        self._table.commit_keyed(upserts, absent(keys, upserts), commit)
        return Progress(plus.num_rows + minus.num_rows, touched.num_rows)

    def _whole(self, end: SourceOffsets) -> str:
        self._runner.show(self.feed.snapshot(end, (POSITION,), careful=True))
        return self.plan.ordered_sql

    def _finished(self, found: pa.Table) -> pa.Table:
        return self._shape.stored(self._in_order(found))

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """The rows in the order of their source, without their position."""
        sources = [item.source for item in self.inputs.all.values()]
        if len(sources) == 1:
            place = rows.schema.get_field_index(POSITION_KEPT)
            rows = rows.set_column(
                place, POSITION_KEPT, Ordered.of(sources[0]).order(rows.column(POSITION_KEPT))
            )
        return in_order(rows)


class MessagesPipeline(UpsertPipeline):
    """Upserts by message key: the last message of each key wins; one without a value is a tombstone."""

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        plan = self.plan
        handed_on = self._handed_on(start, end)
        if handed_on is not None:
            upserts, deletes = self._parted(last_of_each(handed_on, plan.key))
            self._table.commit_keyed(upserts, deletes if deletes.num_rows else None, commit)
            return Progress(handed_on.num_rows, upserts.num_rows + deletes.num_rows)
        changes = self.feed.changes(start, end, plan.asked, careful=careful)
        rows, _ = self._of_changes(plan.ordered_sql, changes)
        if self.inputs.again is not None:
            # Replayed messages do not replace later ones of the same key.
            keys = distinct_keys(rows.select(plan.key))
            self._runner.show(self.feed.snapshot(end, plan.asked, careful=True))
            rows = self._only(keys, plan.ordered_sql, plan.key)
        upserts, deletes = self._last(rows)
        self._table.commit_keyed(upserts, deletes if deletes.num_rows else None, commit)
        return Progress(rows.num_rows, upserts.num_rows + deletes.num_rows)

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """See `Pipeline`."""
        handed_on = self._handed_on(None, end)
        if handed_on is None:
            return super().rebuild(end, commit)
        upserts, _ = self._parted(last_of_each(handed_on, self.plan.key))
        table_output(self._output).replace_all(upserts, commit)
        return Progress(handed_on.num_rows, upserts.num_rows)

    def _handed_on(self, start: SourceOffsets | None, end: SourceOffsets) -> pa.Table | None:
        """The rows of a source in Arrow, where nothing is computed of them: they need not go through Spark.

        In the order of the source, with the columns of `ordered_sql` but for the position.
        """
        if self.plan.plain is None or not self._runner.in_memory or len(self.inputs.all) != 1:
            return None
        (name,) = self.inputs.all
        rows = self.inputs.arrow_rows(name, start.get(name) if start else None, end[name])
        if rows is None:
            return None
        by_name = {column.casefold(): column for column in rows.schema.names}
        columns = [by_name.get(column.casefold()) for column in self.plan.plain]
        if None in columns or TOMBSTONE not in rows.schema.names:
            return None
        found = [rows[column] for column in columns]
        names = [*self._shape.physical.names[: len(found)], NO_ROW]
        if MESSAGE_KEY in self.plan.key:
            alone = pc.binary_join_element_wise("\x00", rows[POSITION], "")
            found.append(pc.coalesce(rows[KEY], alone))
            names.insert(-1, MESSAGE_KEY)
        return pa.table([*found, rows[TOMBSTONE]], names=names)

    def _last(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The last row of each key as it is stored, and the keys whose last message deletes them."""
        return self._parted(last_of_each(self._in_order(rows), self.plan.key))

    def _parted(self, last: pa.Table) -> tuple[pa.Table, pa.Table]:
        gone = last.column(NO_ROW)
        upserts = self._shape.stored(last.filter(pc.invert(gone)).drop_columns([NO_ROW]))
        return upserts, last.filter(gone).select(self.plan.key)

    def _whole(self, end: SourceOffsets) -> str:
        self._runner.show(self.feed.snapshot(end, self.plan.asked, careful=True))
        return self.plan.ordered_sql

    def _finished(self, found: pa.Table) -> pa.Table:
        upserts, _ = self._last(found)
        return upserts
