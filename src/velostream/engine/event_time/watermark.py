"""The watermark of a job: the event time that its slowest partition has reached.

Rows before the watermark are late. It never decreases, and each commit records it, so that it survives a
restart. A partition without rows for `idle.timeout` is idle and does not hold the watermark back.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from velostream.connectors.capabilities import Partitioned
from velostream.engine.inputs.event_times import MOST_NAMED
from velostream.model.moments import micros

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from velostream.engine.inputs.inputs import Inputs
    from velostream.model.changes import SourceOffsets
    from velostream.model.windows import EventTime

WATERMARK = "watermark"
"""The key of the watermark in a commit."""
FOREVER = 2**63 - 1
"""The watermark once all inputs have ended."""


class Watermarks:
    """The watermark of one job. Times are in microseconds since 1970; `now` is in seconds of any clock."""

    def __init__(
        self, times: Mapping[str, EventTime], recorded: Mapping[str, Any] | None, now: float
    ) -> None:
        self._times = dict(times)
        recorded = recorded or {}
        self.at: int | None = recorded.get("at")
        self.newest: dict[str, dict[str, int | None]] = {name: {} for name in times}
        """The latest event time of each partition of each input; None for one that had no row yet."""
        for name, parts in recorded.get("newest", {}).items():
            if name in self.newest:
                self.newest[name] = dict(parts)
        self._told: dict[str, int] = dict(recorded.get("told", {}))
        self._heard = {(name, part): now for name, parts in self.newest.items() for part in parts}
        self.last_row = now
        """The time at which the last row arrived."""

    def copy(self) -> Watermarks:
        """A copy that advances independently."""
        return deepcopy(self)

    def tell(self, name: str, at: int) -> None:
        """Set the event time that a source itself declares complete; it overrides that of its rows."""
        self._told[name] = max(at, self._told.get(name, at))

    def saw(self, name: str, seen: Mapping[str, int | None], now: float) -> None:
        """Record the latest event time of rows that arrived, by partition; None: it exists and had no row."""
        parts = self.newest[name]
        for part, at in seen.items():
            known = parts.get(part)
            parts[part] = at if known is None else max(known, at if at is not None else known)
            if at is not None or part not in parts or (name, part) not in self._heard:
                self._heard[name, part] = now
            if at is not None:
                self.last_row = max(self.last_row, now)

    def forget_idle(self, now: float, named: Collection[str] = ()) -> None:
        """Forget idle partitions of inputs with very many, such as files, so that commits stay small.

        Inputs in `named` list their partitions themselves and are left alone.
        """
        for name, parts in self.newest.items():
            if len(parts) <= MOST_NAMED or name in named:
                continue
            furthest = max(parts, key=lambda part: parts[part] or 0)
            idle = [
                p for p in parts if now - self._heard[name, p] >= self._times[name].idle and p != furthest
            ]
            for part in idle:
                del parts[part], self._heard[name, part]

    def reached(self, now: float) -> int | None:
        """The watermark that the partitions allow now; None before every input has one."""
        inputs = [self._of(name, now) for name in self._times]
        known = [each for each in inputs if each is not None]
        if not known or len(known) < len(inputs):
            return self.at
        return max(min(known), self.at if self.at is not None else min(known))

    def move_to(self, at: int | None) -> None:
        """Advance the watermark; an earlier time changes nothing."""
        if at is not None:
            self.at = max(at, self.at if self.at is not None else at)

    def times(self) -> dict[str, int]:
        """The latest event time of each partition that had a row."""
        return {part: at for parts in self.newest.values() for part, at in parts.items() if at is not None}

    def recorded(self) -> Mapping[str, Any]:
        """The watermark as a commit records it."""
        return {"at": self.at, "newest": self.newest, **({"told": self._told} if self._told else {})}

    def _of(self, name: str, now: float) -> int | None:
        """The watermark of one input: that of its slowest partition that is not idle."""
        if name in self._told:
            return self._told[name]
        time, parts = self._times[name], self.newest[name]
        live = {part: at for part, at in parts.items() if now - self._heard[name, part] < time.idle}
        if not live:
            # All partitions are idle: none holds the others back, so the furthest decides.
            known = [at for at in parts.values() if at is not None]
            return max(known) - time.delay if known else None
        if None in live.values():
            return None
        return min(at for at in live.values() if at is not None) - time.delay


def take_in(marks: Watermarks, watched: Iterable[Inputs], end: SourceOffsets, now: float) -> None:
    """Record in `marks` the event times that were observed while the inputs were read up to `end`."""
    named: set[str] = set()
    for inputs in watched:
        named |= inputs.seen.named
        for name, parts in inputs.seen.take().items():
            marks.saw(name, parts, now)
        for item in inputs.all.values():
            if item.watched and item.id in end:
                told = Partitioned.of(item.source).watermark(end[item.id])
                if told is not None:
                    marks.tell(item.id, micros(told))
    marks.forget_idle(now, named)
