"""The work of a statement with windows: beside what comes, the clock and the end of the source close them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.event_time.windows import WindowPipeline
from velostream.engine.step import ContinuousWork
from velostream.model.jobs import BatchFigures

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from velostream.engine.inputs.inputs import Inputs
    from velostream.model.changes import BadRow, Commit, SourceOffsets

_CLOSE = "__close"
"""In place of an input: windows close though nothing came."""


@dataclass
class WindowWork(ContinuousWork):
    """See `job.Work` for the contract of its methods; the pipeline is a WindowPipeline."""

    watched: Iterable[Inputs] = ()
    """Inputs whose event times count, where they are not its own."""
    now: Callable[[], float] = field(default=time.time)
    _from: SourceOffsets | None = None

    def __post_init__(self) -> None:
        self._windows.begin([self.inputs, *self.watched], self.now)
        self._windows.keep_late = self._keep_late

    @property
    def _windows(self) -> WindowPipeline:
        assert isinstance(self.pipeline, WindowPipeline)
        return self.pipeline

    def latest(self, after: SourceOffsets | None) -> SourceOffsets | None:
        """Where the inputs are; or, when nothing came, that windows close by themselves."""
        end = super().latest(after)
        if end != after or after is None:
            return end
        closes = self._closes(after)
        return after if closes is None else {**after, _CLOSE: {"at": closes}}

    def _closes(self, after: SourceOffsets) -> int | None:
        """The watermark that the clock asks for; None when it asks for none."""
        windows = self._windows
        marks, now = windows.marks, self.now()
        if not windows.waiting:
            return None
        if super().finished(after):
            return FOREVER
        wait = windows.close_after
        if wait is not None and now - marks.last_row >= wait and windows.furthest is not None:
            return windows.furthest
        reached = marks.reached(now)
        return reached if reached is not None and reached != marks.at else None

    def advance(self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit) -> BatchFigures:
        """Take in what came, or close windows."""
        windows = self._windows
        if _CLOSE in end:
            at = end[_CLOSE]["at"]
            rest = {key: offset for key, offset in end.items() if key != _CLOSE}
            closed = windows.close_windows(at, replace(commit, offsets=rest))
            figures = BatchFigures(0, closed.rows_out)
        else:
            self._from = start
            figures = super().advance(start, end, commit)
        late, windows.late_rows = windows.late_rows, 0
        return replace(figures, late_rows=late, watermark=windows.marks.at, event_times=windows.marks.times())

    def settled_at(self) -> int | None:
        """The latest end of windows that take no row any more."""
        return self._windows.settled_at

    def _keep_late(self, rows: list[BadRow], reason: str) -> None:
        self.keep_untimely(rows, reason, self._from)

    def finished(self, offsets: SourceOffsets) -> bool:
        """Whether nothing can come, and every window has closed."""
        return super().finished(offsets) and not self._windows.waiting
