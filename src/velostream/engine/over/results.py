"""What a step of OVER makes of its result: rows that come, and corrections of those that are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.over.frames import framed
from velostream.engine.rows.multisets import net
from velostream.model.columns import GROUP, ORDER, SEQUENCE
from velostream.plan.over.plan import ROWS_VIEW
from velostream.spark.dataframes import arrow_frame, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from velostream.engine.over.state import Flags, Numbers
    from velostream.engine.over.step_rows import Correction, StepRows
    from velostream.engine.result_schema import ResultShape
    from velostream.plan.plans import OverPlan


@dataclass(frozen=True)
class Horizons:
    """The event times before which rows were late when a step began, and are once it is done."""

    before: int | None
    after: int | None


@dataclass(frozen=True)
class OverResults:
    """Computes the result of one plan."""

    spark: SparkSession
    plan: OverPlan
    shape: ResultShape

    def of(self, rows: StepRows, final: Horizons | None) -> tuple[pa.Table, pa.Table | None]:
        """The rows that come into the result with a step, and those that go.

        `final` where rows are shown when nothing can change them any more.
        """
        had, comes, correction = self._shown(rows, final)
        wanted = np.bincount(rows.groups[comes], minlength=rows.count) > 0
        if correction is not None:
            wanted |= correction.groups
        computed = self._computed(rows, rows.after & wanted[rows.groups])
        came, more, removed = computed.of(comes), None, None
        if correction is not None and bool((changed := correction.rows & had).any()):
            was = self._computed(rows, rows.before & correction.groups[rows.groups]).of(changed)
            more, fewer = net(self._table(rows, computed.of(changed)), self._table(rows, was))
            removed = self.shape.stored(fewer.drop_columns([SEQUENCE]))
        if more is None:
            numbers = rows.numbers[came.places]
            by = (numbers, rows.times[came.places]) if final is not None else (numbers,)
            added = self._table(rows, came.at(np.lexsort(by)))
        else:
            added = pa.concat_tables([self._table(rows, came), more]).sort_by(SEQUENCE)
        return self.shape.stored(added.drop_columns([SEQUENCE])), removed

    def _shown(self, rows: StepRows, final: Horizons | None) -> tuple[Flags, Flags, Correction | None]:
        """Which rows the result has, which it gets, and which of those it has may be other than they were."""
        if final is None:
            return rows.before, rows.new, rows.disturbed()
        had = rows.ready(rows.before, final.before)
        comes = rows.ready(rows.after, final.after) & ~had
        late = final.before is not None and bool((rows.new & (rows.times < final.before)).any())
        return had, comes, rows.disturbed() if late or bool(rows.gone.any()) else None

    def _computed(self, rows: StepRows, which: Flags) -> _Computed:
        """What the query computes of these rows."""
        places = rows.order[which[rows.order]]
        calls = self.plan.calls
        if calls is not None:
            names = sorted({call.column for call in calls if call.column is not None})
            found = framed(calls, rows.rows.select(names).take(pa.array(places)), rows.groups[places])
            if found is not None:
                return _Computed(places, found)
        return self._by_spark(rows, places)

    def _by_spark(self, rows: StepRows, places: Numbers) -> _Computed:
        plan, taken = self.plan, pa.array(places)
        given = {name: rows.rows.column(kept).take(taken) for name, kept in plan.columns.items()}
        given |= {GROUP: pa.array(rows.groups[places]), ORDER: pa.array(np.arange(len(places)))}
        frame = arrow_frame(self.spark, pa.table(given))
        if plan.peers:
            # Rows of equal times stay in the order that they have here: doubles add up the same each time.
            frame = frame.coalesce(1)
        frame.createOrReplaceTempView(ROWS_VIEW)
        *values, order = rows_of(self.spark, plan.over_sql).columns
        return _Computed(places[np.asarray(order.to_numpy(), dtype=np.int64)], values)

    def _table(self, rows: StepRows, computed: _Computed) -> pa.Table:
        """Rows of the result, each with the number of the row that it is of."""
        places, values = computed.places, iter(computed.values)
        taken = pa.array(places)
        columns = [
            rows.rows.column(kept).take(taken) if kept is not None else next(values)
            for kept in self.plan.shown
        ]
        if self.plan.positioned:
            place = (_place(rows.times[places]), _place(rows.numbers[places]))
            columns.append(pc.binary_join_element_wise(*place, "-"))
        numbers = pa.array(rows.numbers[places])
        return pa.table([*columns, numbers], [*self.shape.physical.names, SEQUENCE])


@dataclass(frozen=True)
class _Computed:
    """Values, and the place among the rows of the step that each belongs to."""

    places: Numbers
    values: Sequence[pa.Array | pa.ChunkedArray]

    def of(self, rows: Flags) -> _Computed:
        """The values of the rows that are marked."""
        return self.at(np.flatnonzero(rows[self.places]))

    def at(self, order: Numbers) -> _Computed:
        """The values at these places, in their order."""
        taken = pa.array(order)
        return replace(self, places=self.places[order], values=[each.take(taken) for each in self.values])


def _place(numbers: Numbers) -> pa.Array:
    """Texts that sort as the numbers do."""
    return pc.utf8_lpad(pa.array(numbers.astype(np.uint64) ^ np.uint64(1 << 63)).cast(pa.string()), 20, "0")
