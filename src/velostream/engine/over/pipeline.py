"""OVER over a source: one step computes the new rows together with the kept rows of their keys.

A step is two commits: the kept rows (the state) first, then the result. The changes of the result follow from
the kept rows alone, so that after a crash between the two they are computed again (`unfinished`). Rows that
arrive in order only add to the result. Where a row arrives before kept ones, or frames look ahead, the
results that it may change are computed before and after the step, and the difference is retracted and added.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.capabilities import Ordered
from velostream.engine.bad_rows.places import rows_found
from velostream.engine.event_time.late_rows import LateRows
from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.over.kept_rows import NEVER, KeptRows, group_numbers, micros
from velostream.engine.over.results import Horizons, OverResults
from velostream.engine.over.step_rows import StepRows, needed
from velostream.engine.rows.group_keys import distinct_keys, micros_of
from velostream.engine.rows.multisets import codes
from velostream.engine.runner import Progress, Runner
from velostream.model.columns import EVENT_TIME, POSITION, POSITION_KEPT, RETRACTED_AT, SEQUENCE, TIME
from velostream.spark.dataframes import checked_cast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.engine.bad_rows.places import Row
    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.over.kept_rows import Flags, Kept, Numbers
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.changes import Commit, SourceOffsets
    from velostream.plan.plans import OverPlan
    from velostream.serving.contract.table import Table

STEP = "__over"
"""Key beside the positions of the inputs: the number of the last step that the result contains."""


@dataclass(frozen=True)
class OverStep:
    """One step, as the commit of its kept rows records it: enough to compute the step again."""

    number: int = 0
    first: int = 0
    """The sequence number of the first row that arrived in the step."""
    next: int = 0
    """The sequence number that the next row will have."""
    before: int | None = None
    """The watermark when the step began."""


class OverPipeline(Pipeline):
    """Runs a plan of OVER: exactly once, whether rows arrive in order, out of order or are retracted."""

    plan: OverPlan
    clock: EventClock

    def __init__(
        self,
        plan: OverPlan,
        shape: ResultShape,
        inputs: Inputs,
        output: JobOutput,
        runner: Runner,
        clock: EventClock,
        state: Table,
    ) -> None:
        super().__init__(plan, shape, inputs, output, runner, clock)
        self._kept = KeptRows(state, plan.keys)
        self._results = OverResults(runner, plan, shape)
        self._late = LateRows(clock, inputs.only, TIME, self._rows_where)
        self._final = plan.windowing is not None and plan.windowing.final
        self._step = OverStep(**self._recorded().get(STEP, {}))
        self._latest = self._kept.latest()
        """The latest event time of all kept rows."""

    def _recorded(self) -> dict[str, Any]:
        last = self._kept.table.last_commit
        return dict(last.extra) if last is not None else {}

    def unfinished(self, have: SourceOffsets | None) -> SourceOffsets | None:
        """The positions that the kept rows contain, when the result is a step behind them; else None."""
        last = self._kept.table.last_commit
        known = int(have[STEP]["n"]) if have is not None and STEP in have else 0
        return last.offsets if last is not None and known < self._step.number else None

    def numbered(self, end: SourceOffsets) -> SourceOffsets:
        """See `Pipeline`: the number of the step tells whether the result contains it."""
        return {**end, STEP: {"n": self._step.number + 1}}

    @property
    def state(self) -> Sequence[Table]:
        """The kept rows, in chunks by key."""
        return (self._kept.table,)

    # --- one step -----------------------------------------------------------------------------------------

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Advance kept rows and result from `start` to `end`; resume a step that the kept rows contain."""
        self.clock.begin_step(start)
        if int(end[STEP]["n"]) <= self._step.number:
            return self._again(commit)
        placed = careful or not self._comes_in_order()
        extra = (POSITION, EVENT_TIME) if placed else (EVENT_TIME,)
        changes = self.feed.changes(start, end, extra, careful=careful)
        plus, minus = self._of_changes(self.plan.placed_sql if placed else self.plan.rows_sql, changes)
        corrects = minus is not None and minus.num_rows > 0
        new = self._in_time(self._numbered(plus), start, end, corrects=corrects)
        self.clock.move(end)
        return self._do(new, minus, plus.num_rows, commit)

    def close(self, at: int, commit: Commit) -> Progress:
        """Move the watermark to `at` without new rows, and add the results that become final."""
        self.clock.begin_step(commit.offsets)
        if int(commit.offsets[STEP]["n"]) <= self._step.number:
            return self._again(commit)
        self.clock.ahead.move_to(at)
        return self._do(self._kept.schema.empty_table(), None, 0, commit)

    def _do(self, new: pa.Table, minus: pa.Table | None, count: int, commit: Commit) -> Progress:
        plan = self.plan
        step = OverStep(
            int(commit.offsets[STEP]["n"]), self._step.next, self._step.next + new.num_rows, self.clock.at
        )
        keys = new.select(plan.keys)
        if minus is not None:
            minus = self._as_kept(minus)
            keys = pa.concat_tables([keys, minus.select(plan.keys)])
        kept = self._kept_for(step, keys)
        if minus is not None:
            kept = self._taken_back(step, kept, minus)
        groups = self._numbered_keys(kept, new)
        fits = self._needed(step, kept, groups)
        # Computed before the state is committed: where a row cannot be computed, nothing has changed yet, and
        # the step is tried again without it.
        added, removed = self._result(step, self._looked_at(step, kept, new, groups, fits))
        most = plan.reach.rows if plan.bounded else None
        sealed = self.clock.sealed(replace(commit, extra={**commit.extra, STEP: vars(step)}))
        # Retraction marks are part of the rows: keys with new ones are rewritten, which stores them.
        rewrite = kept.gone_with(step.number)
        self._kept.put(step.number, new, kept, groups, fits, most, sealed, rewrite=rewrite)
        self.clock.committed()
        self._step = step
        if new.num_rows:
            self._latest = max(int(micros(new).max()), self._latest if self._latest is not None else -FOREVER)
        return self._show(added, removed, count, commit)

    def _again(self, commit: Commit) -> Progress:
        """Commit the result of the last step, which the kept rows contain already.

        Its new rows are told by their sequence numbers, its retractions by their marks; the old watermark
        stands in the step, so that the same rows become final.
        """
        step = self._step
        self.clock.stay()
        found = self._kept_for(step, self._kept.of_step(step.number))
        new = pc.greater_equal(found.rows.column(SEQUENCE), step.first)
        old = pc.invert(new)
        kept = replace(found, rows=found.rows.filter(old), cut=found.cut[np.asarray(old, dtype=bool)])
        came = found.rows.filter(new)
        groups = self._numbered_keys(kept, came)
        rows = self._looked_at(step, kept, came, groups, self._needed(step, kept, groups))
        added, removed = self._result(step, rows)
        return self._show(added, removed, 0, commit)

    def _numbered_keys(self, kept: Kept, new: pa.Table) -> Numbers:
        """For each row the number of its key, kept rows before new ones."""
        keys = self.plan.keys
        return group_numbers(pa.concat_tables([kept.rows.select(keys), new.select(keys)]), keys)

    def _needed(self, step: OverStep, kept: Kept, groups: Numbers) -> Flags:
        """Which kept rows share a frame with a row that is not late; only those stay in the state."""
        if not self.plan.bounded:
            return kept.there(step.number)
        own = groups[: kept.rows.num_rows]
        return needed(kept.rows, own, self.plan.reach, self.clock.horizon(step.before))

    def _looked_at(self, step: OverStep, kept: Kept, new: pa.Table, groups: Numbers, fits: Flags) -> StepRows:
        """The rows that the step computes with: the needed ones, or all where late rows are accepted."""
        windowing = self.plan.windowing
        everything = not self.plan.bounded or (windowing is not None and windowing.late == "update")
        if not everything and not bool(fits.all()):
            groups = np.concatenate([groups[: len(fits)][fits], groups[len(fits) :]])
            kept = replace(kept, rows=kept.rows.filter(pa.array(fits)), cut=kept.cut[fits])
        return StepRows(self.plan, step.number, kept, new, groups)

    def _show(self, added: pa.Table, removed: pa.Table | None, count: int, commit: Commit) -> Progress:
        self._output.rows(added, removed, commit)
        return Progress(count, added.num_rows + (removed.num_rows if removed is not None else 0))

    def _result(self, step: OverStep, rows: StepRows) -> tuple[pa.Table, pa.Table | None]:
        horizons = (
            Horizons(self.clock.horizon(step.before), self.clock.horizon(self.clock.ahead.at))
            if self._final
            else None
        )
        return self._results.of(rows, horizons)

    def _kept_for(self, step: OverStep, keys: pa.Table) -> Kept:
        """The kept rows of keys that changed and, with EMIT FINAL, of keys whose rows may become final."""
        if self._final and self.clock.ahead.at != step.before:
            horizon, reach = self.clock.horizon(step.before), self.plan.reach
            everything = horizon is None or (self.clock.ahead.at == FOREVER and reach.after != 0)
            # Rows before the old horizon, less what frames look ahead in time, are final already or wait for
            # rows to follow: these have a time after the old horizon, which finds their key too. Only the end
            # of the source makes rows final that nothing follows, whatever their time.
            waiting = self._kept.since(NEVER if everything or horizon is None else horizon - reach.ahead)
            keys = pa.concat_tables([keys, waiting])
        return self._kept.of(distinct_keys(keys))

    # --- new and retracted rows ---------------------------------------------------------------------------

    def _comes_in_order(self) -> bool:
        """Whether Spark returns the rows of a partition in the source's order, so that nothing is sorted."""
        (item,) = self.inputs.all.values()
        return item.source.traits.frames_in_order and item.spread is None and self.inputs.again is None

    def _numbered(self, plus: pa.Table) -> pa.Table:
        """The new rows in the schema of kept ones, in order of arrival, with their sequence numbers."""
        if POSITION_KEPT in plus.schema.names:
            (item,) = self.inputs.all.values()
            plus = plus.take(pc.sort_indices(Ordered.of(item.source).order(plus.column(POSITION_KEPT))))
        rows = self._as_kept(plus)
        numbers = pa.array(np.arange(rows.num_rows) + self._step.next)
        return rows.set_column(rows.schema.get_field_index(SEQUENCE), SEQUENCE, numbers)

    def _as_kept(self, rows: pa.Table) -> pa.Table:
        schema = self._kept.schema
        for name in schema.names:
            if name not in rows.schema.names:
                rows = rows.append_column(
                    schema.field(name), pa.nulls(rows.num_rows, schema.field(name).type)
                )
        rows = checked_cast(rows, schema)
        for number, name in enumerate(self.plan.keys):
            if pa.types.is_floating(schema.field(name).type):
                # -0.0 and 0.0 are one key: adding zero turns the former into the latter.
                rows = rows.set_column(number, schema.field(name), pc.add(rows.column(name), 0.0))
        return rows

    def _taken_back(self, step: OverStep, kept: Kept, minus: pa.Table) -> Kept:
        """The kept rows, with a mark on those that the source retracts in this step.

        Rows have no identity at the source: each retraction marks one kept row of equal values. Retractions
        of rows that are not kept, because they were late, match nothing.
        """
        names = [name for name in kept.rows.schema.names if name not in (SEQUENCE, RETRACTED_AT)]
        left = Counter(codes(minus.select(names)))
        gone = np.zeros(kept.rows.num_rows, dtype=bool)
        there = pc.is_null(kept.rows.column(RETRACTED_AT)).to_pylist()
        for number, code in enumerate(codes(kept.rows.select(names))):
            if there[number] and left[code] > 0:
                left[code] -= 1
                gone[number] = True
        place = kept.rows.schema.get_field_index(RETRACTED_AT)
        marks = pc.if_else(pa.array(gone), pa.scalar(step.number, pa.int64()), kept.rows.column(RETRACTED_AT))
        return replace(kept, rows=kept.rows.set_column(place, kept.rows.schema.field(place), marks))

    # --- time -----------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> bool:
        """Whether kept rows have results that are not final and so not visible yet."""
        if not self._final or self._latest is None or self.clock.at == FOREVER:
            return False
        horizon = self.clock.horizon(self.clock.at)
        return (
            self.plan.reach.after != 0 or horizon is None or self._latest >= horizon - self.plan.reach.ahead
        )

    def closes_at(self, *, ended: bool) -> int | None:
        """See `Pipeline`."""
        if not self.waiting:
            return None
        windowing = self.plan.windowing
        after = windowing.close_after if windowing is not None else None
        return self.clock.closes_at(ended=ended, close_after=after, furthest=self._furthest)

    @property
    def _furthest(self) -> int | None:
        """The watermark at which all results are final; None when the watermark has passed it."""
        if self._latest is None or self.plan.windowing is None:
            return None
        at = self._latest + self.plan.reach.ahead + self.plan.windowing.grace + 1
        return at if self.clock.at is None or self.clock.at < at else None

    # --- late rows ------------------------------------------------------------------------------------------

    def _in_time(
        self, new: pa.Table, start: SourceOffsets | None, end: SourceOffsets, *, corrects: bool
    ) -> pa.Table:
        """The new rows without those that are late or have no event time, which are counted and reported.

        Where the source retracts rows in the same step, new rows are corrections and never late.
        """
        if self.plan.windowing is None:
            return new
        timeless, late = self._late.split(micros_of(new.column(TIME)))
        if corrects or self.clock.takes_late:
            late = pa.array([False] * new.num_rows, pa.bool_())
        self._late.refuse(pc.sum(timeless).as_py() or 0, pc.sum(late).as_py() or 0, start, end)
        return new.filter(pc.invert(pc.or_(timeless, late)))

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """See `Pipeline`."""
        return self._late.too_late(at) if self.plan.windowing is not None else {}

    def _rows_where(self, condition: str, start: SourceOffsets | None, end: SourceOffsets) -> list[Row]:
        changes = self.feed.changes(start, end, (POSITION, EVENT_TIME), careful=True)
        views = {key: halves.plus for key, halves in changes.items()}
        found = self._runner.run(f"SELECT * FROM ({self.plan.detail_sql}) WHERE {condition}", views)
        self.clock.forget_observed()
        return rows_found(found)
