"""From accumulators to stored rows: computes visible columns and HAVING, and drops groups without rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.search import Search
from velostream.errors import InternalError
from velostream.model.columns import GROUP_ROWS, POSITION, SHOWN
from velostream.plan.groups import merge as merging
from velostream.plan.plans import GROUPS_VIEW
from velostream.spark.dataframes import arrow_frame, checked_cast

if TYPE_CHECKING:
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.runner import Runner
    from velostream.plan.plans import GroupsPlan


class Finisher:
    """Computes the stored rows of one result's groups from their accumulators."""

    def __init__(self, runner: Runner, shape: ResultShape) -> None:
        self._runner = runner
        self._shape = shape

    def split(
        self, plan: GroupsPlan, state: pa.Table, at: int | None = None
    ) -> tuple[pa.Table, pa.Table | None]:
        """The groups to upsert, with visible columns, and the keys of groups that have no row any more.

        `at` is the watermark as of the end of the step, by which windows are closed.
        """
        counts = state.column(GROUP_ROWS)
        if pc.any(pc.less(counts, 0)).as_py():
            raise InternalError("a group lost more rows than it had")
        if not plan.grouped:
            return self.finished(plan, state, at), None
        alive = pc.greater(counts, 0)
        gone = state.filter(pc.invert(alive)).select(plan.keys)
        return self.finished(plan, state.filter(alive), at), gone if gone.num_rows else None

    def finished(self, plan: GroupsPlan, state: pa.Table, at: int | None = None) -> pa.Table:
        """Groups as they are stored: accumulators and visible columns."""
        values = merging.values(plan, state, self._shape.values)
        if plan.finish_sql is None:
            visible = {o.name: values.column(o.column or "") for o in plan.outputs}
        elif values.num_rows == 0:
            visible = {f.name: pa.array([], f.type) for f in self._shape.visible}
            visible[SHOWN] = pa.chunked_array([], pa.bool_())
        else:
            visible = self._finish_in_spark(plan, values)
        hidden = self.shown(plan, state, visible.pop(SHOWN, None) if plan.having else None, at)
        columns = dict(zip(state.schema.names, state.columns, strict=True)) | visible | hidden
        return checked_cast(pa.table(columns), self._shape.physical)

    def failing(self, plan: GroupsPlan, state: pa.Table) -> dict[int, str]:
        """From the place in `state` of each group whose visible columns or HAVING fail to the reason."""
        alive = (
            state.column(GROUP_ROWS).to_numpy() > 0
            if plan.grouped
            else np.ones(state.num_rows, dtype=np.bool_)
        )
        places = np.flatnonzero(alive)
        if plan.finish_sql is None or not len(places):
            return {}
        values = merging.values(plan, state.take(places), self._shape.values)
        numbered = values.append_column(POSITION, pa.array(places).cast(pa.string()))
        search = Search(self._runner.spark, plan.finish_sql, GROUPS_VIEW, "the table itself")
        found = search.culprits(arrow_frame(self._runner.spark, numbered))
        return {int(culprit.position): culprit.row.reason for culprit in found}

    def shown(
        self, plan: GroupsPlan, state: pa.Table, having: pa.ChunkedArray | None, at: int | None
    ) -> dict[str, pa.ChunkedArray]:
        """The hidden columns that decide which rows are visible; `having` is the value of HAVING, if any."""
        return {} if having is None else {SHOWN: having}

    def _finish_in_spark(self, plan: GroupsPlan, values: pa.Table) -> dict[str, pa.ChunkedArray]:
        # One partition keeps the rows in the order of `values`, so that columns line up again.
        groups = arrow_frame(self._runner.spark, values).coalesce(1)
        rows = self._runner.run(plan.finish_sql or "", {GROUPS_VIEW: groups})
        if rows.num_rows != values.num_rows:
            raise InternalError("finishing the groups changed their number")
        names = [output.name for output in plan.outputs] + ([SHOWN] if plan.having else [])
        return dict(zip(names, rows.columns, strict=True))
