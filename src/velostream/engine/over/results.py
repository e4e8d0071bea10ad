"""The changes of the result in one step of OVER: rows that are added, and corrections of earlier results.

Earlier results are not read back from the table. They are computed from the kept rows as they were before the
step, and again as they are after it; rows that differ are retracted and added.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.over.window_frames import framed
from velostream.engine.rows.multisets import net
from velostream.model.columns import GROUP, ORDER, SEQUENCE
from velostream.plan.over.plan import ROWS_VIEW
from velostream.spark.dataframes import arrow_frame

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.engine.over.kept_rows import Flags, Numbers
    from velostream.engine.over.step_rows import Correction, StepRows
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.runner import Runner
    from velostream.plan.plans import OverPlan


@dataclass(frozen=True)
class Horizons:
    """The event times before which rows are late: at the beginning of a step, and at its end."""

    before: int | None
    after: int | None


@dataclass(frozen=True)
class OverResults:
    """Computes the changes of one statement's result, in NumPy where that is exact, else in Spark."""

    runner: Runner
    plan: OverPlan
    shape: ResultShape

    def of(self, rows: StepRows, final: Horizons | None) -> tuple[pa.Table, pa.Table | None]:
        """The rows that a step adds to the result, and those that it retracts (None: none).

        With `final` (EMIT FINAL) a row is added once its result can no longer change.
        """
        had, comes, correction = self._shown(rows, final)
        wanted = np.bincount(rows.groups[comes], minlength=rows.count) > 0
        if correction is not None:
            wanted |= correction.groups
        # Keys are computed whole: the rows of a key are each other's frames.
        computed = self._computed(rows, rows.after & wanted[rows.groups])
        came, more, removed = computed.of(comes), None, None
        if correction is not None and bool((changed := correction.rows & had).any()):
            was = self._computed(rows, rows.before & correction.groups[rows.groups]).of(changed)
            # Most compared rows have the result that they had: equal rows cancel out. The sequence number is
            # part of the comparison, so that equal rows of different input rows stay apart.
            more, fewer = net(self._table(rows, computed.of(changed)), self._table(rows, was))
            removed = self.shape.stored(fewer.drop_columns([SEQUENCE]))
        if more is None:
            numbers = rows.numbers[came.places]
            # EMIT FINAL adds rows in the order of event time, EMIT CHANGES in the order of arrival.
            by = (numbers, rows.times[came.places]) if final is not None else (numbers,)
            added = self._table(rows, came.at(np.lexsort(by)))
        else:
            added = pa.concat_tables([self._table(rows, came), more]).sort_by(SEQUENCE)
        return self.shape.stored(added.drop_columns([SEQUENCE])), removed

    def _shown(self, rows: StepRows, final: Horizons | None) -> tuple[Flags, Flags, Correction | None]:
        """Which rows the result contains, which it gains, and which of the former may need correction."""
        if final is None:
            return rows.before, rows.new, rows.disturbed()
        had = rows.ready(rows.before, final.before)
        comes = rows.ready(rows.after, final.after) & ~had
        # Final results change only by late rows that the statement accepts, or by retractions.
        late = final.before is not None and bool((rows.new & (rows.times < final.before)).any())
        return had, comes, rows.disturbed() if late or bool(rows.gone.any()) else None

    def _computed(self, rows: StepRows, which: Flags) -> _Computed:
        """The values that the query computes over these rows, as if there were no others."""
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
        frame = arrow_frame(self.runner.spark, pa.table(given))
        if plan.peers:
            # One partition keeps rows of equal times in this order. Sums of doubles depend on the order, and
            # a result that is computed again has to be equal to the digit to be recognised as unchanged.
            frame = frame.coalesce(1)
        *values, order = self.runner.run(plan.over_sql, {ROWS_VIEW: frame}).columns
        return _Computed(places[np.asarray(order.to_numpy(), dtype=np.int64)], values)

    def _table(self, rows: StepRows, computed: _Computed) -> pa.Table:
        """Rows of the result, each with the sequence number of the input row that it belongs to."""
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
    """Computed values, and for each the place of its row among the rows of the step."""

    places: Numbers
    values: Sequence[pa.Array | pa.ChunkedArray]

    def of(self, rows: Flags) -> _Computed:
        """The values of the flagged rows."""
        return self.at(np.flatnonzero(rows[self.places]))

    def at(self, order: Numbers) -> _Computed:
        """The values at these places, in their order."""
        taken = pa.array(order)
        return replace(self, places=self.places[order], values=[each.take(taken) for each in self.values])


def _place(numbers: Numbers) -> pa.Array:
    """Texts that sort as the numbers do."""
    # Flipping the sign bit maps int64 to uint64 in the same order; 20 digits hold the largest.
    return pc.utf8_lpad(pa.array(numbers.astype(np.uint64) ^ np.uint64(1 << 63)).cast(pa.string()), 20, "0")
