"""Switch interval of the interpreter: how long a thread may run while others wait.

Python gives a busy thread 5 ms before another can run, and does not queue the waiting ones: with four readers
and a writer, one was seen to wait 90 ms for a single row. While a commit is applied the interval is 1 ms, and
the longest wait about 50 ms. Short intervals cost throughput, which is why they are not permanent.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SHORT = 0.001


class _Turns:
    """How many writers of this process want short intervals, and the interval before the first."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._writers = 0
        self._usual = 0.0

    def shorten(self) -> None:
        with self._lock:
            if not self._writers:
                self._usual = sys.getswitchinterval()
                sys.setswitchinterval(min(self._usual, _SHORT))
            self._writers += 1

    def restore(self) -> None:
        with self._lock:
            self._writers -= 1
            if not self._writers:
                sys.setswitchinterval(self._usual)


_TURNS = _Turns()


@contextmanager
def short_turns() -> Iterator[None]:
    """Switch threads more often, until the last writer has left."""
    _TURNS.shorten()
    try:
        yield
    finally:
        _TURNS.restore()
