"""Builds the work of a job from an opened statement: each part becomes a stage of the kind of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from velostream.engine.bad_rows.dead_letters import Untimely
from velostream.engine.event_time.clock import EventClock
from velostream.engine.event_time.watermark import WATERMARK
from velostream.engine.event_time.windows import WindowPipeline
from velostream.engine.job_time import ByClock, ByWatermark
from velostream.engine.kept.stream import StreamPipeline
from velostream.engine.kept.stream_rows import StreamRows
from velostream.engine.kinds.follow import FollowPipeline
from velostream.engine.kinds.groups import GroupsPipeline
from velostream.engine.kinds.recompute import RecomputePipeline
from velostream.engine.kinds.rows import JoinedRowsPipeline, KeyedRowsPipeline, RowsPipeline
from velostream.engine.kinds.upsert import MessagesPipeline, UpsertPipeline
from velostream.engine.on_spark import SparkTable
from velostream.engine.opening.opened_query import Opened
from velostream.engine.outputs.outputs import TableOutput, table_of
from velostream.engine.over.pipeline import OverPipeline
from velostream.engine.runner import Runner
from velostream.engine.stage import Stage
from velostream.engine.stages import Stages
from velostream.plan.plans import GroupsPlan, Kind, OverPlan, RowsPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    import pyarrow as pa

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.job_time import JobTime
    from velostream.engine.kinds.pipeline import Pipeline
    from velostream.engine.opening.kept_inputs import KeptInput
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.model.options import CommonOptions


@dataclass(frozen=True)
class Building:
    """Builds the stages of one job, which share these settings."""

    job: str
    options: CommonOptions
    letters: DeadLetters
    remember: Callable[[str, pa.Schema], None]
    """Makes wider columns of a source durable."""
    clock: Callable[[], datetime]
    patient: bool = True
    """Whether to wait until tables over one source are at the same position of it."""
    every: timedelta | None = None
    """EMIT CHANGES EVERY."""

    def work(self, opened: Opened, output: JobOutput) -> Stage | Stages:
        """The stages of a statement, including those that keep state beside it."""
        result = self._stage(opened, output, opened, self.letters)
        if opened.store is None:
            return result
        keeping = [self._beside(each, each.output, opened) for each in opened.kept]
        then, part = [result], opened
        while part.below is not None and part.table is not None:
            kept, follower = self._beside(part.below, TableOutput(part.table), opened), then[0]
            if part.plan.kind is Kind.ROWS and part.plan.below is None:
                _let_forget(kept.pipeline, part.below, follower)
            then, part = [kept, *then], part.below
        time = self._time(keeping, then)
        return Stages(keeping, then, time, self.clock, opened.store, opened.table)

    def _time(self, keeping: list[Stage], then: list[Stage]) -> JobTime:
        if not keeping or not all(isinstance(stage.output, StreamRows) for stage in keeping):
            return ByClock([*keeping, *then], self.clock)
        wait = self.options.window_close_timeout
        after = wait.total_seconds() if wait is not None else None
        return ByWatermark(keeping, self._now, after)

    def _now(self) -> float:
        return self.clock().timestamp()

    def _beside(self, part: Opened | KeptInput, output: TableOutput, opened: Opened) -> Stage:
        """A stage whose result is kept beside the job, with its own dead letters."""
        return self._stage(part, output, opened, self.letters.of_part(output.table.name))

    def _stage(
        self, part: Opened | KeptInput, output: JobOutput, opened: Opened, letters: DeadLetters
    ) -> Stage:
        pipeline = self._pipeline(part, output, [each.inputs for each in opened.kept], letters)
        return Stage(
            self.job,
            pipeline,
            part.inputs,
            output,
            self.options,
            letters,
            self.remember,
            self.patient,
            self.every.total_seconds() if self.every is not None else 0.0,
        )

    def _pipeline(
        self, part: Opened | KeptInput, output: JobOutput, kept: list[Inputs], letters: DeadLetters
    ) -> Pipeline:
        """The pipeline of the kind of a part's plan; `kept` are the inputs whose rows the job keeps."""
        given = part.plan, part.shape, part.inputs, output
        plain = _PLAIN.get(part.kind)
        if plain is not None:
            return plain(*given, self._runner(part, output))
        clock = self._clock(part, output, kept, letters)
        return _TIMED[part.kind](part, output, Runner(part.spark), clock)

    def _runner(self, part: Opened | KeptInput, output: JobOutput) -> Runner:
        if isinstance(output, TableOutput) and isinstance(output.table, SparkTable):
            return output.table.runner(part.spark, part.plan, part.shape)
        return Runner(part.spark)

    def _clock(
        self, part: Opened | KeptInput, output: JobOutput, kept: list[Inputs], letters: DeadLetters
    ) -> EventClock:
        """The event clock of a stage, with the watermark that its state records."""
        late, grace = self.options.late_rows, self.options.grace // timedelta(microseconds=1)
        if isinstance(part.plan, GroupsPlan | OverPlan):
            windowing = part.plan.windowing
            late, grace = (windowing.late, windowing.grace) if windowing is not None else (late, 0)
        state = part.state if isinstance(part, Opened) and part.state is not None else table_of(output)
        last = state.last_commit
        return EventClock(
            [part.inputs, *(kept if part.kind is Kind.WINDOWS else ())],
            last.extra.get(WATERMARK) if last is not None else None,
            late=late,
            grace=grace,
            now=self._now,
            untimely=Untimely(letters, self.job, self.options),
        )


def _windows(part: Opened | KeptInput, output: JobOutput, runner: Runner, clock: EventClock) -> Pipeline:
    assert isinstance(part.plan, GroupsPlan)
    made = WindowPipeline(part.plan, part.shape, part.inputs, output, runner, clock)
    if part.plan.windowing is not None and part.plan.windowing.ttl is not None:
        made.forgets(part.plan.windowing.ttl)
    return made


def _over(part: Opened | KeptInput, output: JobOutput, runner: Runner, clock: EventClock) -> Pipeline:
    assert isinstance(part, Opened)
    assert isinstance(part.plan, OverPlan)
    assert part.state is not None
    return OverPipeline(part.plan, part.shape, part.inputs, output, runner, clock, part.state)


def _stream(part: Opened | KeptInput, output: JobOutput, runner: Runner, clock: EventClock) -> Pipeline:
    assert isinstance(part.plan, RowsPlan)
    assert isinstance(output, StreamRows)
    return StreamPipeline(part.plan, part.shape, part.inputs, output, runner, clock)


_PLAIN: Mapping[Kind, type[Pipeline]] = {
    Kind.ROWS: RowsPipeline,
    Kind.KEYED_ROWS: KeyedRowsPipeline,
    Kind.JOINED_ROWS: JoinedRowsPipeline,
    Kind.UPSERT: UpsertPipeline,
    Kind.MESSAGES: MessagesPipeline,
    Kind.GROUPS: GroupsPipeline,
    Kind.RECOMPUTE: RecomputePipeline,
    Kind.FOLLOW: FollowPipeline,
}
_TIMED = {Kind.WINDOWS: _windows, Kind.OVER: _over, Kind.STREAM: _stream}


def _let_forget(kept: Pipeline, opened: Opened, follower: Stage) -> None:
    """Let a result that is kept beside the job for a sink forget closed windows, once the sink follows it."""
    if not isinstance(kept, WindowPipeline):
        return
    windowing = kept.windowing
    after = windowing.ttl
    if after is None and windowing.late != "update" and opened.only_grows:
        after = 0
    if after is not None:
        kept.forgets(after, follower)
