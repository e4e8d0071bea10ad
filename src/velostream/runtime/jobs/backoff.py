"""Retries: how long to wait before the next attempt."""

from __future__ import annotations

import random


class Backoff:
    """Exponential backoff: delays grow by half each time, with jitter so that jobs do not retry in step."""

    def __init__(self, first: float = 0.5, most: float = 30.0, factor: float = 1.5) -> None:
        self._first = first
        self._most = most
        self._factor = factor
        self._delay = first

    def next(self) -> float:
        """The next delay in seconds."""
        delay = self._delay
        self._delay = min(self._most, self._delay * self._factor)
        return delay * random.uniform(0.8, 1.2)

    def reset(self) -> None:
        """Start again with the first delay, after a success."""
        self._delay = self._first
