"""Moments as whole microseconds since 1970, and queues of moments to wait for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

END_OF_TIME = 253_402_300_800_000_000
"""The end of the year 9999, the last that calendars can represent."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros(at: datetime) -> int:
    """A time in microseconds since 1970, exactly."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """The time of these microseconds."""
    return _EPOCH + timedelta(microseconds=at)


class DueMoments:
    """Distinct moments in order. A moment whose rows were all deleted stays until it is due."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._known: set[int] = set()

    @property
    def first(self) -> int | None:
        """The earliest."""
        return self._heap[0] if self._heap else None

    @property
    def last(self) -> int | None:
        """The latest."""
        return max(self._heap, default=None)

    def add(self, moments: Iterable[int]) -> None:
        """Add moments."""
        new = [each for each in moments if each not in self._known]
        self._known.update(new)
        if len(new) > len(self._heap) // 8:
            self._heap += new
            heapify(self._heap)
            return
        for each in new:
            heappush(self._heap, each)

    def take(self, at: int) -> list[int]:
        """Remove and return the moments that are due at a time."""
        taken = []
        while self._heap and self._heap[0] <= at:
            taken.append(heappop(self._heap))
        self._known.difference_update(taken)
        return taken
