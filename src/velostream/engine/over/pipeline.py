"""OVER over a source: one step computes the rows that came with the kept rows of their keys.

Two commits make a step: the kept rows first, then the result. What the result gains follows from the kept
rows alone, so that a crash between the two is made good by computing it again (`unfinished`). Rows that came
in order only add to the result; where one came before kept rows, or frames look ahead, those are computed as
they were and as they are, and the difference is the correction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.capabilities import Ordered
from velostream.engine.bad_rows.located import refused, rows_found
from velostream.engine.event_time.watermark import FOREVER, WATERMARK, Watermarks, take_in
from velostream.engine.kinds.pipeline import Pipeline, Progress
from velostream.engine.over.results import Horizons, OverResults
from velostream.engine.over.state import NEVER, KeptRows, group_numbers, micros
from velostream.engine.over.step_rows import StepRows, needed
from velostream.engine.rows.groups import distinct_keys
from velostream.engine.rows.multisets import codes
from velostream.model.columns import EVENT_TIME, POSITION, RETRACTED_AT, SEQUENCE, TIME
from velostream.model.moments import END_OF_TIME, moment
from velostream.spark.dataframes import checked_cast, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.bad_rows.located import Row
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.over.state import Flags, Kept, Numbers
    from velostream.engine.result_schema import ResultShape
    from velostream.model.changes import BadRow, Commit, SourceOffsets
    from velostream.plan.plans import OverPlan
    from velostream.serving.table.table import Table

_TIMELESS = f"{TIME} IS NULL"
STEP = "__over"
"""Beside the positions of inputs: the number of the step that the result contains."""


@dataclass(frozen=True)
class OverStep:
    """What the last commit of the kept rows says of itself."""

    number: int = 0
    first: int = 0
    """The number of the first row that came with it."""
    next: int = 0
    """The number of the next row to come."""
    before: int | None = None
    """The watermark as it began."""


class OverPipeline(Pipeline):
    """Runs a plan of OVERs."""

    def __init__(
        self,
        spark: SparkSession,
        plan: OverPlan,
        shape: ResultShape,
        inputs: Inputs,
        output: JobOutput,
        state: Table,
    ) -> None:
        super().__init__(spark, plan, shape, inputs, output)
        self._over = plan
        self._kept = KeptRows(state, plan.keys)
        self._results = OverResults(spark, plan, shape)
        self._final = plan.windowing is not None and plan.windowing.final
        self._watched: list[Inputs] = [inputs]
        self.marks = self._ahead = Watermarks({}, None, 0.0)
        self._step = OverStep()
        self._latest: int | None = None
        """The latest event time of all kept rows."""
        self._start: SourceOffsets | None = None
        self.keep_late: Callable[[list[BadRow], str], None] = lambda rows, stage: None
        """Does with rows that were not taken in what the statement says."""
        self.late_rows = 0
        """Rows that came too late, since this was last asked."""
        self.now: Callable[[], float] = lambda: 0.0

    def begin(self, watched: Iterable[Inputs], now: Callable[[], float]) -> None:
        """Set out from what the kept rows record; `watched` are the inputs whose event times count."""
        self._watched, self.now = list(watched), now
        times = {i.id: i.time for inputs in self._watched for i in inputs.all.values() if i.watched}
        extra = self._recorded()
        self.marks = self._ahead = Watermarks(times, extra.get(WATERMARK), now())
        self._step = OverStep(**extra.get(STEP, {}))
        self._latest = self._kept.latest()

    def _recorded(self) -> dict[str, Any]:
        last = self._kept.table.last_commit
        return dict(last.extra) if last is not None else {}

    def unfinished(self, have: SourceOffsets | None) -> SourceOffsets | None:
        """Where the kept rows are, when the result is a step behind them."""
        last = self._kept.table.last_commit
        known = int(have[STEP]["n"]) if have is not None and STEP in have else 0
        return last.offsets if last is not None and known < self._step.number else None

    @property
    def next_step(self) -> int:
        """The number of the step that comes."""
        return self._step.number + 1

    # --- one step -----------------------------------------------------------------------------------------

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Bring kept rows and result from `start` to `end`."""
        self.late_rows, self._start = 0, start
        if int(end[STEP]["n"]) <= self._step.number:
            return self._again(commit)
        self._ahead = self.marks.copy()
        placed = careful or not self._comes_in_order()
        extra = (POSITION, EVENT_TIME) if placed else (EVENT_TIME,)
        changes = self.feed.changes(start, end, extra, careful=careful)
        sql = self._over.placed_sql if placed else self._over.rows_sql
        plus, minus = self._plus(sql, changes), self._minus(sql, changes)
        new = self._in_time(self._numbered(plus), end, corrects=minus is not None and minus.num_rows > 0)
        self._move(end)
        return self._do(new, minus, plus.num_rows, commit)

    def close_windows(self, at: int, commit: Commit) -> Progress:
        """Show what the watermark has passed though no row came."""
        if int(commit.offsets[STEP]["n"]) <= self._step.number:
            return self._again(commit)
        self._ahead = self.marks.copy()
        self._ahead.move_to(at)
        return self._do(self._kept.schema.empty_table(), None, 0, commit)

    def _do(self, new: pa.Table, minus: pa.Table | None, count: int, commit: Commit) -> Progress:
        plan = self._over
        step = OverStep(
            int(commit.offsets[STEP]["n"]), self._step.next, self._step.next + new.num_rows, self.marks.at
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
        # Before anything is kept: a row that cannot be computed is set aside, and the step done again.
        added, removed = self._result(step, self._looked_at(step, kept, new, groups, fits))
        extra = {**commit.extra, WATERMARK: self._ahead.recorded(), STEP: vars(step)}
        most = plan.reach.rows if plan.bounded else None
        sealed = replace(commit, extra=extra)
        rewrite = kept.gone_with(step.number)
        self._kept.put(step.number, new, kept, groups, fits, most, sealed, rewrite=rewrite)
        self.marks, self._step = self._ahead, step
        if new.num_rows:
            self._latest = max(int(micros(new).max()), self._latest if self._latest is not None else -FOREVER)
        return self._show(added, removed, count, commit)

    def _again(self, commit: Commit) -> Progress:
        """The result of the step that the kept rows contain already."""
        self._ahead, step = self.marks, self._step
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
        """A number for the key of each row, first of the kept ones."""
        keys = self._over.keys
        return group_numbers(pa.concat_tables([kept.rows.select(keys), new.select(keys)]), keys)

    def _needed(self, step: OverStep, kept: Kept, groups: Numbers) -> Flags:
        """Which kept rows a row that is not late can reach, or is reached by."""
        if not self._over.bounded:
            return kept.there(step.number)
        own = groups[: kept.rows.num_rows]
        return needed(kept.rows, own, self._over.reach, self._horizon(step.before))

    def _looked_at(self, step: OverStep, kept: Kept, new: pa.Table, groups: Numbers, fits: Flags) -> StepRows:
        """The rows that are computed with; late rows, where they are taken, meet all that are kept."""
        windowing = self._over.windowing
        everything = not self._over.bounded or (windowing is not None and windowing.late == "update")
        if not everything and not bool(fits.all()):
            groups = np.concatenate([groups[: len(fits)][fits], groups[len(fits) :]])
            kept = replace(kept, rows=kept.rows.filter(pa.array(fits)), cut=kept.cut[fits])
        return StepRows(self._over, step.number, kept, new, groups)

    def _show(self, added: pa.Table, removed: pa.Table | None, count: int, commit: Commit) -> Progress:
        self._output.rows(added, removed, commit)
        return Progress(count, added.num_rows + (removed.num_rows if removed is not None else 0))

    def _result(self, step: OverStep, rows: StepRows) -> tuple[pa.Table, pa.Table | None]:
        horizons = (
            Horizons(self._horizon(step.before), self._horizon(self._ahead.at)) if self._final else None
        )
        return self._results.of(rows, horizons)

    def _kept_for(self, step: OverStep, keys: pa.Table) -> Kept:
        """The kept rows that a step looks at: of the keys that came and, where rows wait, of those."""
        if self._final and self._ahead.at != step.before:
            horizon, reach = self._horizon(step.before), self._over.reach
            everything = horizon is None or (self._ahead.at == FOREVER and reach.after != 0)
            waiting = self._kept.since(NEVER if everything or horizon is None else horizon - reach.ahead)
            keys = pa.concat_tables([keys, waiting])
        return self._kept.of(distinct_keys(keys))

    def _horizon(self, at: int | None) -> int | None:
        """The event time before which rows are late when the watermark is there."""
        grace = self._over.windowing.grace if self._over.windowing is not None else 0
        return at if at is None or at >= END_OF_TIME else at - grace

    # --- rows that come -----------------------------------------------------------------------------------

    def _comes_in_order(self) -> bool:
        """Whether rows of a partition follow each other as they do at the source, without being sorted."""
        (item,) = self._inputs.all.values()
        return item.source.traits.frames_in_order and item.spread is None and self._inputs.again is None

    def _numbered(self, plus: pa.Table) -> pa.Table:
        """The rows as they are kept, in the order in which they came, with their numbers."""
        if "__position" in plus.schema.names:
            (item,) = self._inputs.all.values()
            plus = plus.take(pc.sort_indices(Ordered.of(item.source).order(plus.column("__position"))))
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
        for number, name in enumerate(self._over.keys):
            if pa.types.is_floating(schema.field(name).type):
                # -0.0 and 0.0 are one key.
                rows = rows.set_column(number, schema.field(name), pc.add(rows.column(name), 0.0))
        return rows

    def _taken_back(self, step: OverStep, kept: Kept, minus: pa.Table) -> Kept:
        """The kept rows, with a mark on those that the source takes back now."""
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

    def _ran(self, frame: DataFrame) -> None:
        super()._ran(frame)
        for inputs in self._watched:
            inputs.seen.read(frame)

    def _move(self, end: SourceOffsets) -> None:
        """Where the watermark is once the batch is in."""
        now = self.now()
        take_in(self._ahead, self._watched, end, now)
        self._ahead.move_to(self._ahead.reached(now))

    @property
    def waiting(self) -> bool:
        """Whether rows are kept that nobody sees yet."""
        if not self._final or self._latest is None or self.marks.at == FOREVER:
            return False
        horizon = self._horizon(self.marks.at)
        return (
            self._over.reach.after != 0 or horizon is None or self._latest >= horizon - self._over.reach.ahead
        )

    @property
    def close_after(self) -> float | None:
        """Seconds without rows after which rows are shown though no later one came."""
        return self._over.windowing.close_after if self._over.windowing is not None else None

    @property
    def furthest(self) -> int | None:
        """The watermark that shows all that wait for it."""
        if self._latest is None or self._over.windowing is None:
            return None
        at = self._latest + self._over.reach.ahead + self._over.windowing.grace + 1
        return at if self.marks.at is None or self.marks.at < at else None

    # --- late rows ------------------------------------------------------------------------------------------

    def _in_time(self, new: pa.Table, end: SourceOffsets, *, corrects: bool) -> pa.Table:
        """The rows but those that are too late, or have no time: these are counted and kept.

        What takes the place of rows that were taken back is a correction, and not late.
        """
        windowing = self._over.windowing
        if windowing is None:
            return new
        times = new.column(TIME)
        if times.null_count:
            self.keep_late(self._told(_TIMELESS, "the event time is null", self._start, end), "timing")
            new = new.filter(pc.is_valid(times))
        horizon = self._horizon(self.marks.at)
        if horizon is None or corrects or windowing.late == "update":
            return new
        late = micros(new) < horizon
        count = int(late.sum())
        if not count:
            return new
        self.late_rows += count
        if windowing.late == "dead_letter":
            told = self._told(f"unix_micros({TIME}) < {horizon}L", self._told_late, self._start, end)
            self.keep_late(told, "late")
        return new.filter(pa.array(~late))

    @property
    def _told_late(self) -> str:
        at = self.marks.at
        assert at is not None
        shown = "at the end" if at >= END_OF_TIME else f"{moment(at):%Y-%m-%d %H:%M:%S.%fZ}"
        return f"late: the watermark was {shown}"

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """See `Pipeline`."""
        windowing, horizon = self._over.windowing, self._horizon(self.marks.at)
        if windowing is None:
            return {}
        found = {position: "the event time is null" for position, _ in self._rows_where(_TIMELESS, at, at)}
        if horizon is not None and windowing.late != "update":
            late = self._rows_where(f"unix_micros({TIME}) < {horizon}L", at, at)
            found |= {position: self._told_late for position, _ in late}
        return found

    def _told(
        self, condition: str, reason: str, start: SourceOffsets | None, end: SourceOffsets
    ) -> list[BadRow]:
        """The rows of the batch that a condition is true of, as their source knows them."""
        item = self._inputs.only
        return refused(item, reason, self._rows_where(condition, start, end), end[item.id])

    def _rows_where(self, condition: str, start: SourceOffsets | None, end: SourceOffsets) -> list[Row]:
        changes = self.feed.changes(start, end, (POSITION, EVENT_TIME), careful=True)
        self.feed.register({key: halves.plus for key, halves in changes.items()})
        found = rows_of(self._spark, f"SELECT * FROM ({self._over.detail_sql}) WHERE {condition}")
        for inputs in self._watched:
            inputs.seen.forget()
        return rows_found(found)
