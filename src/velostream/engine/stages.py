"""A job of several stages: first those that keep rows as state, then those that compute the result from them.

A step first advances the kept rows to the newest positions of their inputs and to the job's time, then the
result to the kept rows, each in a commit of its own. A crash between two commits leaves a later stage behind
a complete table, and the next start continues from there: exactly once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from velostream.engine.event_time.origin import Origin
from velostream.engine.event_time.windows import WindowPipeline
from velostream.engine.inputs.tables import LookedUpSource
from velostream.engine.job_time import kept_table
from velostream.engine.kept.source import KeptSource
from velostream.model.health import worst
from velostream.model.jobs import BatchFigures
from velostream.model.moments import micros
from velostream.plan.time.kept_rows import RESULT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime
    from threading import Event

    from velostream.engine.job_time import JobTime
    from velostream.engine.stage import Stage
    from velostream.model.changes import Commit, SourceOffsets
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore

CLOCK = "clock"
"""Key in the end of a step: the job's time, by the wall clock or the watermark."""
_SHORTEST_WAIT = 0.01


@dataclass
class Stages:
    """The work of a job with state beside its result; see `work.Work` for the contract of its methods."""

    keeping: Sequence[Stage]
    """Each keeps the rows of one input; their outputs are `KeptTable`."""
    then: Sequence[Stage]
    """Compute the result, each from the output of the stage before it; the last writes the job's output."""
    time: JobTime
    clock: Callable[[], datetime]
    store: TableStore
    kept: Table | None = None
    """The result that the last stage follows, if it is kept beside the job."""

    def offsets(self) -> SourceOffsets | None:
        """The positions that the kept rows and the results of all stages contain."""
        found = {str(number): stage.offsets() or {} for number, stage in enumerate(self.keeping)}
        return {**found, RESULT: {str(n): stage.offsets() or {} for n, stage in enumerate(self.then)}}

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """The end of the next step; `after` when no input has news, no row is due and no stage is behind."""
        at = self.time.at()
        ends = {}
        for number, stage in enumerate(self.keeping):
            have = stage.offsets()
            end = stage.latest(have)
            if (end is not None and end != have) or kept_table(stage).due(at):
                ends[str(number)] = end or have or {}
        following = self.then
        if not self.keeping:
            # The first stage of the result reads the sources.
            first, following = _behind(self.then[0]), self.then[1:]
            if first is not None:
                ends[RESULT] = first
        if not ends and not self._untouched() and not any(_behind(stage) for stage in following):
            return after
        return {**ends, CLOCK: {"at": at}}

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Close rows that are due, keep new rows, then compute the result."""
        at = end[CLOCK]["at"] if CLOCK in end else self.time.at()
        commit = self.time.stamped(commit, at)
        done = BatchFigures(0, 0)
        self._forget_untouched()
        if self.time.closes_first:
            # First the result of a step that a crash interrupted, before rows that it needs are forgotten.
            done += self._results(end, commit)
            for stage in self.keeping:
                kept_table(stage).close_due(at)
            done += self._results(end, commit)
        origin: Origin | None = None
        behind, settled = self.keeping and self._result_behind(), self.then[0].pipeline.settled_at
        for number, stage in enumerate(self.keeping):
            table = kept_table(stage)
            table.forget_due(at, settled)
            have, target = stage.offsets(), end.get(str(number))
            if target is None:
                continue
            if target == have:
                table.age(replace(commit, offsets=have or {}))
            else:
                figures = stage.advance(have, target, replace(commit, offsets=target))
                done += replace(figures, records_out=0)
                origin = Origin(stage.pipeline, have, target)
        first = self.then[0].pipeline
        if isinstance(first, WindowPipeline):
            # Late rows are reported with the positions of this step's rows. After a crash the result may be
            # several steps behind, and its rows are of other steps too.
            first.late.origin = origin if not behind and len(self.keeping) == 1 else None
        done += self._results(end, commit)
        return replace(done, watermark=self.time.at()) if self.time.closes_first else done

    def _results(self, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Advance each stage of the result to the newest version of the table that it reads.

        One that reads sources advances to the end of the step, for which they were asked.
        """
        done = BatchFigures(0, 0)
        for stage in self.then:
            asked = stage is self.then[0] and not self.keeping and CLOCK in end
            newest = end.get(RESULT) if asked else _behind(stage)
            if newest is None:
                continue
            figures = stage.advance(stage.offsets(), newest, replace(commit, offsets=newest))
            if self.keeping or stage is not self.then[0]:
                figures = replace(figures, records_in=0, by_partition={})
            done += figures if stage is self.then[-1] else replace(figures, records_out=0)
        return done

    def catch_up(self, commit: Commit) -> None:
        """Advance the result to the kept rows, and those to the job's time, without reading new rows."""
        self.advance(None, {}, commit)

    def _result_behind(self) -> bool:
        """Whether kept rows arrived that the result does not contain."""
        if self.then[0].offsets() is None:
            return any(stage.offsets() is not None for stage in self.keeping)
        return _behind(self.then[0]) is not None

    def _untouched(self) -> bool:
        """Whether rows of the kept result are to be forgotten, as nothing changed them for `state.ttl`.

        Not before the last stage has its first position: it would start from a snapshot without those rows.
        Afterwards it reads changes from the log, in which the rows are.
        """
        due = self.kept.next_due if self.kept is not None else None
        return due is not None and due <= micros(self.clock()) and self.then[-1].offsets() is not None

    def _forget_untouched(self) -> None:
        if self.kept is not None and self._untouched():
            self.kept.expire(forget=True)

    # --- status -------------------------------------------------------------------------------------------

    def state(self) -> Sequence[Table]:
        """The kept rows and the state of the first stage over them, from which the rest can be recomputed."""
        return (*(kept_table(stage).table for stage in self.keeping), *self.then[0].state())

    def lags(self) -> dict[str, int]:
        """The lag behind each partition of all inputs."""
        return {part: lag for stage in self._all for part, lag in stage.lags().items()}

    def settled(self) -> bool:
        """Whether all inputs have reported all their data and no row is due."""
        at = self.time.at()
        still = all(stage.settled() for stage in self._all) and not self._untouched()
        return still and not any(kept_table(stage).due(at) for stage in self.keeping)

    def health(self) -> tuple[str, str | None]:
        """The worst health of the inputs, with its reason."""
        return worst(stage.health() for stage in self._all)

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether all inputs have ended, no row will appear or expire, and the result is complete."""
        return self.time.ended() and self.latest(offsets) == offsets

    def listen(self, news: Event) -> None:
        """See `Work`."""
        for stage in self._all:
            stage.listen(news)

    @property
    def poll_seconds(self) -> float:
        """The shortest poll interval of the inputs, or the time until the next row is due if shorter."""
        waits = [stage.poll_seconds for stage in self._all]
        due = [at for at in (kept_table(stage).next_due for stage in self.keeping) if at is not None]
        if self.kept is not None and self.kept.next_due is not None:
            due.append(self.kept.next_due)
        if due:
            waits.append(max(_SHORTEST_WAIT, (min(due) - micros(self.clock())) / 1_000_000))
        return min(waits)

    @property
    def trigger_seconds(self) -> float:
        """The statement's `trigger.interval`."""
        return self.then[-1].trigger_seconds

    def close(self) -> None:
        """Close inputs, kept rows and output."""
        for stage in self._all:
            stage.close()
        self.store.close()

    @property
    def _all(self) -> Sequence[Stage]:
        return (*self.keeping, *self.then)


def _behind(stage: Stage) -> SourceOffsets | None:
    """The positions to which a stage of the result has to advance; None when no change concerns it."""
    have = stage.offsets()
    newest = stage.latest(have)
    if newest is None or newest == have:
        return None
    if have is None:
        return newest
    moved = {key: at for key, at in newest.items() if have.get(key) != at}
    changed = [
        key
        for key, at in moved.items()
        if key not in stage.inputs.all or not _passed_over(stage, key, have, at)
    ]
    return newest if changed else None


def _passed_over(stage: Stage, key: str, have: SourceOffsets, at: SourceOffsets) -> bool:
    """Whether the news of an input changes no result: a looked-up table, or rows that were only forgotten."""
    source = stage.inputs.all[key].source
    if key not in have or isinstance(source, LookedUpSource):
        return key in have
    return isinstance(source, KeptSource) and source.only_forgot(have[key], at)
