"""The stage that keeps the rows of one joined stream; late rows and rows without a time are rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.places import rows_found
from velostream.engine.event_time.late_rows import LateRows
from velostream.engine.kinds.rows import RowsPipeline
from velostream.engine.runner import Progress, Runner
from velostream.model.columns import EVENT_TIME, POSITION, POSITION_KEPT, ROW_AS_JSON, TIME, UNTIL

if TYPE_CHECKING:
    from velostream.engine.bad_rows.places import Row
    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.kept.stream_rows import StreamRows
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.changes import Commit, SourceOffsets
    from velostream.plan.plans import RowsPlan


class StreamPipeline(RowsPipeline):
    """Keeps the rows of one input. The job advances the watermark, which is that of its slowest stream."""

    clock: EventClock

    def __init__(
        self,
        plan: RowsPlan,
        shape: ResultShape,
        inputs: Inputs,
        output: StreamRows,
        runner: Runner,
        clock: EventClock,
    ) -> None:
        super().__init__(plan, shape, inputs, output, runner, clock)
        self._late = LateRows(clock, inputs.only, EVENT_TIME, self._rows_where)

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        self.clock.begin_step(start)
        added, removed = self._halves(start, end, careful=careful)
        count = added.num_rows + (removed.num_rows if removed is not None else 0)
        added = self._in_time(added, start, end)
        self.clock.take_in(end)
        self._output.rows(added, removed, self.clock.sealed(commit))
        self.clock.committed()
        return Progress(count, added.num_rows)

    def pass_over(self, commit: Commit) -> Progress:
        """Record positions without reading rows; the watermark stays."""
        self.clock.stay()
        return super().pass_over(self.clock.sealed(commit))

    def _in_time(self, added: pa.Table, start: SourceOffsets | None, end: SourceOffsets) -> pa.Table:
        """The rows without late ones and those without an event time, which are counted and reported."""
        timeless, late = self._late.split(added.column(TIME))
        if self.clock.takes_late:
            self._late.refuse(pc.sum(timeless).as_py(), 0, start, end)
            return self._kept_for_once(added.filter(pc.invert(timeless)), late.filter(pc.invert(timeless)))
        self._late.refuse(pc.sum(timeless).as_py(), pc.sum(late).as_py(), start, end)
        return added.filter(pc.invert(pc.or_(timeless, late)))

    def _kept_for_once(self, added: pa.Table, late: pa.Array) -> pa.Table:
        """Rows of which accepted late ones stay for this step only, to be joined with what is still kept.

        By their own event time they would have been forgotten before they could be joined.
        """
        at = self.clock.at
        if UNTIL not in added.schema.names or at is None or not pc.any(late).as_py():
            return added
        later = pc.max_element_wise(added.column(UNTIL), pa.scalar(at + 1, pa.int64()))
        return added.set_column(added.schema.get_field_index(UNTIL), added.schema.field(UNTIL), later)

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """See `Pipeline`."""
        return self._late.too_late(at)

    def _rows_where(self, condition: str, start: SourceOffsets | None, end: SourceOffsets) -> list[Row]:
        (halves,) = self.inputs.changes(start, end, (POSITION, EVENT_TIME), careful=True).values()
        columns = f"{POSITION} AS {POSITION_KEPT}", f"to_json(struct(*)) AS {ROW_AS_JSON}"
        found = self._runner.rows(halves.plus.where(condition).selectExpr(*columns))
        self.clock.forget_observed()
        return rows_found(found)
