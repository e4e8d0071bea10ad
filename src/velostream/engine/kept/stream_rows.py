"""Rows kept by event time: what a stream has shown, until the watermark tells that nothing can concern it.

A table beside the job holds them. Rows that the watermark has passed are forgotten in commits of their own,
which whoever reads the table passes over: what was made of those rows stays. The watermark of each input
stands in the commits of its table; until a step is through, that of the job is what it was when it began.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.located import refused, rows_found
from velostream.engine.event_time.watermark import FOREVER, WATERMARK, Watermarks, take_in
from velostream.engine.inputs.tables import LookedUpSource
from velostream.engine.kept.stream_table import TimedOutput
from velostream.engine.kinds.pipeline import Pipeline, Progress, row_sql
from velostream.engine.stages import AgeingWork, LiveSource
from velostream.engine.step import ContinuousWork
from velostream.errors import InternalError
from velostream.model.columns import EVENT_TIME, POSITION, TIME, UNTIL
from velostream.model.jobs import BatchFigures
from velostream.model.moments import END_OF_TIME, moment
from velostream.spark.failures import translated

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from velostream.engine.bad_rows.located import Row
    from velostream.engine.inputs.inputs import Halves
    from velostream.model.changes import BadRow, Commit, SourceOffsets
    from velostream.model.options import CommonOptions
    from velostream.plan.plans import RowsPlan
    from velostream.serving.table.table import Table


_TIMELESS = f"{EVENT_TIME} IS NULL"


class TimedPipeline(Pipeline):
    """Keeps the rows of one input; those that are late, or have no time, are told and not kept."""

    at: int | None = None
    """The watermark of the job as the step begins."""
    marks = Watermarks({}, None, 0.0)
    """How far the input has come, as of the last commit."""

    def begin(
        self,
        options: CommonOptions,
        now: Callable[[], float],
        keep: Callable[[list[BadRow], str, SourceOffsets | None], None],
    ) -> None:
        """Set out from what the table records; `keep` gets rows that are not taken."""
        self._late, self._grace = options.late_rows, options.grace // timedelta(microseconds=1)
        self._now, self._keep = now, keep
        times = {item.id: item.time for item in self._inputs.all.values()}
        last = self._table.last_commit
        recorded = last.extra.get(WATERMARK) if last is not None else None
        self.marks = self._ahead = Watermarks(times, recorded, now())
        self.late_rows = 0
        self._start: SourceOffsets | None = None

    @property
    def _table(self) -> Table:
        if not isinstance(self._output, TimedOutput):
            raise InternalError("rows by event time are kept in a table of their own")
        return self._output.table

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Bring the table from `start` to `end` in one commit, and the input's watermark with it."""
        self.late_rows = 0
        self._start = start
        self._ahead = self.marks.copy()
        return super().advance(start, end, commit, careful=careful)

    def pass_over(self, commit: Commit) -> Progress:
        """Record positions; the watermark stays."""
        return super().pass_over(self._sealed(commit, self.marks))

    def _ran(self, frame: DataFrame) -> None:
        super()._ran(frame)
        self._inputs.seen.read(frame)

    def _rows(
        self, plan: RowsPlan, changes: dict[str, Halves], end: SourceOffsets, commit: Commit
    ) -> Progress:
        sql = row_sql(plan)
        added = self._shape.stored(self._plus(sql, changes))
        minus = self._minus(sql, changes)
        removed = self._shape.stored(minus) if minus is not None else None
        count = added.num_rows + (removed.num_rows if removed is not None else 0)
        added = self._in_time(added, end)
        take_in(self._ahead, [self._inputs], end, self._now())
        self._ahead.move_to(self.at)
        self._output.rows(added, removed, self._sealed(commit, self._ahead))
        self.marks = self._ahead
        return Progress(count, added.num_rows)

    def _sealed(self, commit: Commit, marks: Watermarks) -> Commit:
        return replace(commit, extra={**commit.extra, WATERMARK: marks.recorded()})

    # --- late rows ----------------------------------------------------------------------------------------

    def _in_time(self, added: pa.Table, end: SourceOffsets) -> pa.Table:
        """The rows but those that are too late, or have no time: these are counted and kept."""
        times = added.column(TIME)
        if times.null_count:
            self._tell(_TIMELESS, "timing", "the event time is null", end)
            added = added.filter(pc.is_valid(times))
        if self.at is None:
            return added
        late = pc.less(added.column(TIME), self.at - self._grace)
        count = pc.sum(late).as_py()
        if not count:
            return added
        if self._late == "update":
            return self._kept_for_once(added)
        self.late_rows += count
        if self._late == "dead_letter":
            self._tell(self._is_late(self.at), "late", self._told_late(self.at), end)
        return added.filter(pc.invert(late))

    def _is_late(self, at: int) -> str:
        return f"unix_micros({EVENT_TIME}) < {at - self._grace}L"

    def _told_late(self, at: int) -> str:
        shown = "at the end" if at >= END_OF_TIME else f"{moment(at):%Y-%m-%d %H:%M:%S.%fZ}"
        return f"late: the watermark was {shown}"

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """See `Pipeline`."""
        found = {position: "the event time is null" for position, _ in self._rows_where(_TIMELESS, at, at)}
        if self.at is not None and self._late != "update":
            late = self._rows_where(self._is_late(self.at), at, at)
            found |= {position: self._told_late(self.at) for position, _ in late}
        return found

    def _kept_for_once(self, added: pa.Table) -> pa.Table:
        """Late rows meet what is still there, and are forgotten with the next step."""
        if UNTIL not in added.schema.names:
            return added
        assert self.at is not None
        later = pc.max_element_wise(added.column(UNTIL), pa.scalar(self.at + 1, pa.int64()))
        return added.set_column(added.schema.get_field_index(UNTIL), added.schema.field(UNTIL), later)

    def _tell(self, condition: str, stage: str, reason: str, end: SourceOffsets) -> None:
        """Hand over the rows of the batch that a condition is true of, read again."""
        item = self._inputs.only
        rows = self._rows_where(condition, self._start, end)
        self._keep(refused(item, reason, rows, end[item.id]), stage, self._start)

    def _rows_where(self, condition: str, start: SourceOffsets | None, end: SourceOffsets) -> list[Row]:
        (halves,) = self._inputs.changes(start, end, (POSITION, EVENT_TIME), careful=True).values()
        with translated():
            chosen = halves.plus.where(condition)
            found = chosen.selectExpr(f"{POSITION} AS __position", "to_json(struct(*)) AS __row").toArrow()
        self._inputs.seen.forget()
        return rows_found(found)


@dataclass
class TimedLiveWork(ContinuousWork):
    """Keeps the rows of one input; see `job.Work` for the contract of its methods."""

    now: Callable[[], float] = field(default=time.time)

    def __post_init__(self) -> None:
        _pipeline(self).begin(self.options, self.now, self.keep_untimely)


@dataclass
class TimedWork(AgeingWork):
    """The work of a statement over rows that are kept by event time; see `job.Work` for its contract.

    A step has one watermark, which follows from what the tables of the inputs record as it begins: no row is
    forgotten that a row of the same step would have met.
    """

    now: Callable[[], float] = field(default=time.time)
    close_after: float | None = None

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """Where the next step goes; `after` when no input moved, nothing is due, the result is complete."""
        at = self.watermark()
        ends = {}
        for number, work in enumerate(self.live):
            have = work.offsets()
            end = work.latest(have)
            if (end is not None and end != have) or _output(work).due(at):
                ends[str(number)] = end or have or {}
        if not ends and not self.untouched() and not any(self._behind(work) for work in self.then):
            return after
        return ends

    def _behind(self, work: ContinuousWork) -> SourceOffsets | None:
        """Where a part of the result goes; None when it is there, or nothing came since."""
        have = work.offsets()
        newest = work.latest(have)
        if newest is None or newest == have:
            return None
        moved = [key for key in newest if have is None or have.get(key) != newest[key]]
        sources = {key: work.inputs.all[key].source for key in moved}
        only_forgot = have is not None and all(
            isinstance(source, LookedUpSource)
            or (isinstance(source, LiveSource) and source.only_forgot(have[key], newest[key]))
            for key, source in sources.items()
        )
        return None if only_forgot else newest

    def watermark(self) -> int | None:
        """How far all inputs have come; None before each of them has had a row."""
        marks = [_pipeline(work).marks for work in self.live]
        if self._ended():
            return FOREVER
        now = self.now()
        reached = [each.reached(now) for each in marks]
        known = [each.at for each in marks if each.at is not None]
        if self.close_after is not None and now - max(each.last_row for each in marks) >= self.close_after:
            known += [each for each in (_output(work).furthest for work in self.live) if each is not None]
        if all(each is not None for each in reached):
            known.append(min(each for each in reached if each is not None))
        return max(known, default=None)

    def _ended(self) -> bool:
        for work in self.live:
            have = work.offsets()
            if have is None or not work.finished(have) or work.latest(have) != have:
                return False
        return True

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Rows that close, then what came, then what is made of it, all by the watermark at the beginning.

        What a crash left is made of the result first: then no row that was kept has been forgotten for it.
        """
        self.forget_untouched()
        figures = [self._results(commit)]
        at = self.watermark()
        for work in self.live:
            _output(work).close_due(at)
        figures.append(self._results(commit))
        for number, work in enumerate(self.live):
            _pipeline(work).at = at
            _output(work).forget_due(at)
            target, have = end.get(str(number)), work.offsets()
            if target is not None and target != have:
                figures.append(work.advance(have, target, replace(commit, offsets=target)))
                figures[-1] = replace(figures[-1], records_out=0, late_rows=_pipeline(work).late_rows)
        figures.append(self._results(commit))
        return BatchFigures(
            sum(each.records_in for each in figures),
            sum(each.records_out for each in figures),
            sum(each.bad_rows for each in figures),
            sum(each.rows_looked_up for each in figures),
            sum(each.lookup_misses for each in figures),
            {part: count for each in figures for part, count in each.by_partition.items()},
            late_rows=sum(each.late_rows for each in figures),
            watermark=self.watermark(),
            event_times={p: t for work in self.live for p, t in _pipeline(work).marks.times().items()},
        )

    def catch_up(self, commit: Commit) -> None:
        """Bring the result to what the tables of the inputs hold, and these to the watermark."""
        self.advance(None, {}, commit)

    def _results(self, commit: Commit) -> BatchFigures:
        """Bring the result to what the tables of the inputs hold."""
        last = BatchFigures(0, 0)
        for work in self.then:
            newest = self._behind(work)
            if newest is not None:
                done = work.advance(work.offsets(), newest, replace(commit, offsets=newest))
                last = replace(done, records_in=0, by_partition={})
        return last

    def settled(self) -> bool:
        """Whether no input leaves anything to a later look, and nothing is due."""
        at = self.watermark()
        quiet = all(work.settled() for work in (*self.live, *self.then))
        return quiet and not any(_output(work).due(at) for work in self.live)

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether nothing can come, and the result is complete."""
        return self._ended() and self.latest(offsets) == offsets

    @property
    def poll_seconds(self) -> float:
        """As often as the inputs ask for."""
        return min(work.poll_seconds for work in (*self.live, *self.then))


def _pipeline(work: ContinuousWork) -> TimedPipeline:
    assert isinstance(work.pipeline, TimedPipeline)
    return work.pipeline


def _output(work: ContinuousWork) -> TimedOutput:
    assert isinstance(work.output, TimedOutput)
    return work.output
