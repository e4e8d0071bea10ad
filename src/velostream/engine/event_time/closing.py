"""When windows close, when they accept no more rows, and when they are dropped from the state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.rows.group_keys import micros_of

if TYPE_CHECKING:
    from velostream.engine.event_time.clock import EventClock
    from velostream.model.windows import Windowing


class Closing:
    """Decides by the watermark which windows of one statement are closed or forgotten."""

    def __init__(self, windowing: Windowing, clock: EventClock) -> None:
        self.windowing = windowing
        self._clock = clock
        self.forget_after: int | None = None
        """Microseconds after which a closed window is deleted from the table; None: never."""

    @property
    def forgotten_at(self) -> int | None:
        """Windows that closed at this watermark or before are forgotten; None when none are."""
        if self.forget_after is None or self._clock.at is None:
            return None
        return self._clock.at - self.forget_after

    @property
    def over_at(self) -> int | None:
        """Windows that closed at this watermark or before accept no more rows; None when all accept rows.

        Where late rows are accepted, a window accepts them until it is forgotten.
        """
        return self.forgotten_at if self._clock.takes_late else self._clock.at

    def closed(self, groups: pa.Table, at: int | None) -> pa.Array | pa.ChunkedArray:
        """Which windows are closed at a watermark; without bounds, all close when the source has ended."""
        if at is None or not self.windowing.bounded:
            return pa.array([at == FOREVER] * groups.num_rows, pa.bool_())
        ended = pc.less_equal(micros_of(groups.column(self.windowing.end)), at - self.windowing.grace)
        return pc.fill_null(ended, False)

    def open(self, groups: pa.Table, at: int | None) -> pa.Table:
        """The groups whose window is open at a watermark."""
        return groups if at is None else groups.filter(pc.invert(self.closed(groups, at)))
