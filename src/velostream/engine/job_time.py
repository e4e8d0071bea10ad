"""The time of a job that keeps rows: the wall clock, or the watermark of its slowest stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.kept.source import KeptSource
from velostream.engine.kept.stream_rows import StreamRows
from velostream.engine.kept.table import KeptTable
from velostream.model.moments import micros, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.stage import Stage
    from velostream.model.changes import Commit


class JobTime(ABC):
    """The time by which a job's kept rows are due. Times are in microseconds."""

    closes_first = False
    """Whether a step closes rows before it reads new ones."""

    @abstractmethod
    def at(self) -> int | None:
        """The current time; None before it is known. It never decreases."""

    @abstractmethod
    def stamped(self, commit: Commit, at: int | None) -> Commit:
        """The commit of a step at this time."""

    @abstractmethod
    def ended(self) -> bool:
        """Whether all inputs have ended, and no row will appear or be retracted by time."""


@dataclass
class ByClock(JobTime):
    """Rows appear and are retracted by the wall clock."""

    stages: Sequence[Stage]
    clock: Callable[[], datetime]

    def at(self) -> int:
        """See `JobTime`: no earlier than the last commit, even when the system's clock was set back."""
        known = [table.clock for table in map(kept_table, self._keeping) if table.clock is not None]
        return max([micros(self.clock()), *known])

    def stamped(self, commit: Commit, at: int | None) -> Commit:
        """See `JobTime`."""
        return commit if at is None else replace(commit, at=moment(at))

    def ended(self) -> bool:
        """See `JobTime`."""
        if any(kept_table(stage).next_due is not None for stage in self._keeping):
            return False
        return all(_inputs_ended(stage) for stage in self.stages)

    @property
    def _keeping(self) -> list[Stage]:
        return [stage for stage in self.stages if isinstance(stage.output, KeptTable)]


def _inputs_ended(stage: Stage) -> bool:
    have = stage.offsets()
    outside = [key for key, item in stage.inputs.all.items() if not isinstance(item.source, KeptSource)]
    return have is not None and all(stage.inputs.all[key].source.finished(have[key]) for key in outside)


@dataclass
class ByWatermark(JobTime):
    """Rows close and are forgotten by event time.

    A step has one watermark, computed when it begins from what the tables of the inputs record: so no row is
    forgotten that a row of the same step would have matched.
    """

    closes_first = True
    stages: Sequence[Stage]
    """The stages that keep the rows of one stream each."""
    now: Callable[[], float]
    close_after: float | None = None
    """Seconds without new rows after which kept rows close: `window.close.timeout`."""

    def at(self) -> int | None:
        """See `JobTime`: None before each stream has had a row."""
        if self.ended():
            return FOREVER
        marks = [_clock(stage).marks for stage in self.stages]
        now = self.now()
        reached = [each.reached(now) for each in marks]
        known = [each.at for each in marks if each.at is not None]
        if self.close_after is not None and now - max(each.last_row for each in marks) >= self.close_after:
            ends = [stage.output.furthest for stage in self.stages if isinstance(stage.output, StreamRows)]
            known += [each for each in ends if each is not None]
        if all(each is not None for each in reached):
            known.append(min(each for each in reached if each is not None))
        return max(known, default=None)

    def stamped(self, commit: Commit, at: int | None) -> Commit:
        """See `JobTime`; also sets the watermark by which rows of this step are late."""
        for stage in self.stages:
            _clock(stage).marks.move_to(at)
        return commit

    def ended(self) -> bool:
        """See `JobTime`."""
        for stage in self.stages:
            have = stage.offsets()
            if have is None or not stage.finished(have) or stage.latest(have) != have:
                return False
        return True


def kept_table(stage: Stage) -> KeptTable:
    """The rows that a stage keeps for the stages after it."""
    assert isinstance(stage.output, KeptTable)
    return stage.output


def _clock(stage: Stage) -> EventClock:
    assert stage.pipeline.clock is not None
    return stage.pipeline.clock
