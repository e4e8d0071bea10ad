"""Following a table's changes, from now or from a version."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from threading import Condition

    import pyarrow as pa

_GLANCE = 0.5
"""A thread that waits for an event loop looks up this often, so that a cancelled wait ends."""


class Subscription:
    """Changes of a table, version by version; blocks until there are some.

    Iterate, or call `next_change` with a timeout. Nothing is buffered: changes come from the table's
    log, so a subscriber may take its time until the log no longer reaches back, which raises
    LaggingReaderError. `version` is where to resume.
    """

    def __init__(
        self,
        after: int,
        newest: Callable[[], int],
        read: Callable[[int, int], Iterator[tuple[int, pa.Table]]],
        published: Condition,
        ended: Callable[[], bool],
        timeout: float | None,
    ) -> None:
        self.version = after
        """Every change up to and including this version was handed out."""
        self._newest = newest
        self._read = read
        self._published = published
        self._ended = ended
        self._timeout = timeout
        self._pending: Iterator[tuple[int, pa.Table]] = iter(())
        self._closed = False

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> tuple[int, pa.Table]:
        change = self.next_change(self._timeout)
        if change is None:
            raise StopIteration
        return change

    def next_change(self, timeout: float | None = None) -> tuple[int, pa.Table] | None:
        """The next version and its changed rows with `_weight`.

        None when nothing came in time, when the subscription was closed, and when the table was.
        """
        deadline = None if timeout is None else monotonic() + timeout
        while not self._closed:
            change = next(self._pending, None)
            if change is not None:
                self.version = change[0]
                return change
            if not self._wait(deadline):
                return None
            self._pending = self._read(self.version, self._newest())
        return None

    def _wait(self, deadline: float | None) -> bool:
        with self._published:
            while self._newest() <= self.version and not self._closed:
                if self._ended():
                    return False
                left = None if deadline is None else deadline - monotonic()
                if left is not None and left <= 0:
                    return False
                self._published.wait(left)
        return not self._closed

    def close(self) -> None:
        """End the iteration, also one that is waiting in another thread."""
        self._closed = True
        with self._published:
            self._published.notify_all()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> tuple[int, pa.Table]:
        """The same for asyncio; the event loop stays free while it waits, and may cancel it."""
        deadline = None if self._timeout is None else monotonic() + self._timeout
        while True:
            left = _GLANCE if deadline is None else min(_GLANCE, max(0.0, deadline - monotonic()))
            change = await asyncio.to_thread(self.next_change, left)
            if change is not None:
                return change
            over = deadline is not None and monotonic() >= deadline
            if over or self._closed or (self._ended() and self._newest() <= self.version):
                raise StopAsyncIteration

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
