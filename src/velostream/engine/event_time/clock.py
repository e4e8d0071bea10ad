"""Event time of a stage: its watermark, which rows are late, and what happens to late rows.

Windows, OVER and joins of streams share it. A step advances a copy of the watermark, which replaces the
watermark with the commit: until then another attempt at the same step finds the same rows late.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from velostream.engine.event_time.watermark import FOREVER, WATERMARK, Watermarks, take_in
from velostream.model.moments import END_OF_TIME, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame

    from velostream.engine.bad_rows.dead_letters import Untimely
    from velostream.engine.inputs.inputs import Inputs
    from velostream.model.changes import BadRow, Commit, SourceOffsets

TIMELESS = "the event time is null"


class EventClock:
    """The watermark of one stage, as of its last commit and as of the current step."""

    def __init__(
        self,
        watched: Sequence[Inputs],
        recorded: Mapping[str, Any] | None,
        *,
        late: str,
        grace: int,
        now: Callable[[], float],
        untimely: Untimely,
    ) -> None:
        """`watched` are the inputs that drive the watermark, `recorded` is that of the last commit."""
        self._watched = list(watched)
        self._now = now
        self._untimely = untimely
        self._start: SourceOffsets | None = None
        times = {item.id: item.time for inputs in watched for item in inputs.all.values() if item.watched}
        self.marks = self.ahead = Watermarks(times, recorded, now())
        """`marks` as of the last commit, `ahead` as of the current step."""
        self.takes_late = late == "update"
        """Whether late rows are accepted and correct earlier results, instead of being rejected."""
        self.tells_late = late != "drop"
        """Whether rejected late rows become dead letters; otherwise they are only counted."""
        self.grace = grace
        self._late_rows = 0

    # --- a step -------------------------------------------------------------------------------------------

    def begin_step(self, start: SourceOffsets | None) -> None:
        """Begin a step with the watermark of the last commit."""
        self._start, self._late_rows = start, 0
        self.ahead = self.marks.copy()

    def observed(self, frame: DataFrame) -> None:
        """Read the event times that Spark observed while it computed a frame."""
        for inputs in self._watched:
            if inputs.seen.unread:
                inputs.seen.read(frame)

    def forget_observed(self) -> None:
        """Discard the event times of frames that were read for another purpose than a step."""
        for inputs in self._watched:
            inputs.seen.forget()

    @property
    def saw_timeless(self) -> bool:
        """Whether the current step read rows without an event time."""
        return any(inputs.seen.timeless for inputs in self._watched)

    def take_in(self, end: SourceOffsets) -> None:
        """Record the latest event time of each partition that the step read; the watermark stays."""
        take_in(self.ahead, self._watched, end, self._now())

    def move(self, end: SourceOffsets) -> None:
        """Record the latest event times, and advance the watermark to that of the slowest partition."""
        self.take_in(end)
        self.ahead.move_to(self.ahead.reached(self._now()))

    def stay(self) -> None:
        """Make the step leave the watermark unchanged."""
        self.ahead = self.marks

    def sealed(self, commit: Commit) -> Commit:
        """The commit with the watermark as of the end of the step."""
        return replace(commit, extra={**commit.extra, WATERMARK: self.ahead.recorded()})

    def committed(self) -> None:
        """The step was committed: its watermark is the stage's."""
        self.marks = self.ahead

    # --- closing windows while no row arrives -------------------------------------------------------------

    def closes_at(self, *, ended: bool, close_after: float | None, furthest: int | None) -> int | None:
        """The watermark to advance to because wall-clock time has passed; None when it stays.

        `ended`: no input can have another row. `close_after`: seconds without a row after which everything
        up to `furthest` closes.
        """
        if ended:
            return FOREVER
        now = self._now()
        if close_after is not None and now - self.marks.last_row >= close_after and furthest is not None:
            return furthest
        reached = self.marks.reached(now)
        return reached if reached is not None and reached != self.marks.at else None

    # --- late rows ----------------------------------------------------------------------------------------

    @property
    def at(self) -> int | None:
        """The watermark of the last commit, by which the current step tells which rows are late."""
        return self.marks.at

    def horizon(self, at: int | None) -> int | None:
        """The event time before which rows are late when the watermark is `at`."""
        return at if at is None or at >= END_OF_TIME else at - self.grace

    @property
    def shown(self) -> str:
        """The watermark as text, for messages."""
        at = self.marks.at
        return "at the end" if at is None or at >= END_OF_TIME else f"{moment(at):%Y-%m-%d %H:%M:%S.%fZ}"

    def count_late(self, rows: int) -> None:
        """Count rows of the step as late."""
        self._late_rows += rows

    def take_late(self) -> int:
        """The number of late rows since the last call; resets it."""
        count, self._late_rows = self._late_rows, 0
        return count

    def refuse(self, rows: list[BadRow], stage: str) -> None:
        """Hand rejected rows to the statement's policy for bad rows."""
        if rows:
            self._untimely.refuse(rows, stage, self._start)
