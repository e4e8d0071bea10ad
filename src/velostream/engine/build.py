"""From what was opened to the work of a job, for every kind of plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.engine.delta.pipeline import DeltaPipeline
from velostream.engine.delta.table import DeltaTable
from velostream.engine.event_time.closing import WindowWork
from velostream.engine.event_time.windows import WindowPipeline
from velostream.engine.kept.stream_rows import TimedLiveWork, TimedPipeline, TimedWork
from velostream.engine.kept.stream_table import TimedOutput
from velostream.engine.kinds.follow import FollowPipeline
from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.opened import Opened
from velostream.engine.outputs.outputs import TableOutput
from velostream.engine.over.pipeline import OverPipeline
from velostream.engine.over.step import OverWork
from velostream.engine.stages import AgeingWork
from velostream.engine.step import ContinuousWork
from velostream.plan.plans import GroupsPlan, OverPlan, RowsPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    import pyarrow as pa

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.stages import LiveInput
    from velostream.model.options import CommonOptions


def continuous_work(
    job: str,
    part: Opened | LiveInput,
    output: JobOutput,
    options: CommonOptions,
    letters: DeadLetters,
    remember: Callable[[str, pa.Schema], None],
    *,
    clock: Callable[[], datetime],
    patient: bool = True,
    watched: Sequence[Inputs] = (),
    every: timedelta | None = None,
) -> ContinuousWork:
    """The work that brings `output` up to date; `watched` are inputs below whose event times count too."""
    plan, pace = part.plan, every.total_seconds() if every is not None else 0.0
    common = (part.inputs, output, options, letters, remember, patient)

    def now() -> float:
        return clock().timestamp()

    if isinstance(plan, GroupsPlan) and plan.windowing is not None:
        windows = WindowPipeline(part.spark, plan, part.shape, part.inputs, output)
        work = WindowWork(job, windows, *common, every=pace, watched=watched, now=now)
        if plan.windowing.ttl is not None:
            windows.forgets(plan.windowing.ttl)
        return work
    if isinstance(plan, OverPlan):
        assert isinstance(part, Opened)
        assert part.state is not None
        rows = OverPipeline(part.spark, plan, part.shape, part.inputs, output, part.state)
        return OverWork(job, rows, *common, every=pace, now=now, store=part.store, kept=part.state)
    if isinstance(output, TimedOutput):
        live = TimedPipeline(part.spark, plan, part.shape, part.inputs, output)
        return TimedLiveWork(job, live, *common, now=now)
    in_delta = isinstance(output, TableOutput) and isinstance(output.table, DeltaTable)
    kind = DeltaPipeline if in_delta else Pipeline
    if isinstance(part, Opened) and part.follows:
        kind = FollowPipeline
    pipeline = kind(part.spark, plan, part.shape, part.inputs, output)
    return ContinuousWork(job, pipeline, *common, every=pace)


def whole_work(
    opened: Opened,
    output: JobOutput,
    options: CommonOptions,
    clock: Callable[[], datetime],
    make: Callable[[Opened | LiveInput, JobOutput], ContinuousWork],
) -> ContinuousWork | AgeingWork:
    """The work of a statement and of all that it keeps beside it; `make` makes each part."""
    work = make(opened, output)
    if opened.store is None or isinstance(work, OverWork):
        return work
    live = [make(each, each.output) for each in opened.live]
    then = [work]
    if opened.below is not None and opened.table is not None:
        kept = make(opened.below, TableOutput(opened.table))
        if isinstance(opened.plan, RowsPlan) and opened.plan.below is None:
            _let_forget(kept, opened.below, lambda: work.offsets() is not None)
        then = [kept, work]
    if live and all(isinstance(each, TimedLiveWork) for each in live):
        wait = options.window_close_timeout
        after = wait.total_seconds() if wait is not None else None
        now = lambda: clock().timestamp()  # noqa: E731
        return TimedWork(live, then, clock, opened.store, opened.table, now=now, close_after=after)
    return AgeingWork(live, then, clock, opened.store, opened.table)


def _let_forget(kept: ContinuousWork, opened: Opened, followed: Callable[[], bool]) -> None:
    """Let windows that have closed leave a result that is kept beside the job, once they are followed."""
    plan, windows = opened.plan, kept.pipeline
    if not isinstance(windows, WindowPipeline) or not isinstance(plan, GroupsPlan) or plan.windowing is None:
        return
    after = plan.windowing.ttl
    if after is None and plan.windowing.late != "update" and opened.only_grows:
        after = 0
    if after is not None:
        windows.forgets(after, followed)
