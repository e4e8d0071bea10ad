"""Late rows of steps that handle single rows instead of groups: OVER and joins of streams."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.places import refused
from velostream.engine.event_time.clock import TIMELESS

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.engine.bad_rows.places import Row
    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.inputs.inputs import Input
    from velostream.model.changes import SourceOffsets

    RowsWhere = Callable[[str, SourceOffsets | None, SourceOffsets], list[Row]]
    """Reads a range again and returns the rows for which an SQL condition is true."""


class LateRows:
    """Rejects rows that are late or have no event time, and reports them with their source position."""

    def __init__(self, clock: EventClock, item: Input, time: str, rows_where: RowsWhere) -> None:
        """`time` is the column with the event time in the frames of `rows_where`."""
        self._clock = clock
        self._item = item
        self._time = time
        self._rows_where = rows_where

    def split(self, times: pa.ChunkedArray) -> tuple[pa.Array, pa.Array]:
        """Which rows have no event time, and which are late; `times` are microseconds."""
        timeless = pc.is_null(times)
        horizon = self._clock.horizon(self._clock.at)
        if horizon is None:
            return timeless, pa.array([False] * len(times), pa.bool_())
        return timeless, pc.fill_null(pc.less(times, horizon), False)

    def refuse(self, timeless: int, late: int, start: SourceOffsets | None, end: SourceOffsets) -> None:
        """Count the late rows of a step, and report rejected rows; their range is read again for it."""
        if timeless:
            self._hand_over(self._is_timeless, "timing", TIMELESS, start, end)
        if late:
            self._clock.count_late(late)
            if self._clock.tells_late:
                self._hand_over(self._is_late, "late", self._reason, start, end)

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """From the position of each replayed record that is rejected to the reason."""
        found = {position: TIMELESS for position, _ in self._rows_where(self._is_timeless, at, at)}
        if self._clock.at is not None and not self._clock.takes_late:
            late = self._rows_where(self._is_late, at, at)
            found |= {position: self._reason for position, _ in late}
        return found

    @property
    def _is_timeless(self) -> str:
        return f"{self._time} IS NULL"

    @property
    def _is_late(self) -> str:
        return f"unix_micros({self._time}) < {self._clock.horizon(self._clock.at)}L"

    @property
    def _reason(self) -> str:
        return f"late: the watermark was {self._clock.shown}"

    def _hand_over(
        self, condition: str, stage: str, reason: str, start: SourceOffsets | None, end: SourceOffsets
    ) -> None:
        rows = self._rows_where(condition, start, end)
        self._clock.refuse(refused(self._item, reason, rows, end[self._item.id]), stage)
