"""Following a table's changes, from now or from a version."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from velostream.errors import ClosedError, LaggingReaderError
from velostream.model.lifetime import Lifetime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

_GLANCE = 0.5
"""Seconds between two checks of a thread that waits for an event loop, so that a cancelled wait ends."""


class Changelog(Protocol):
    """The changes of one table, in this process or another."""

    def newest(self) -> int:
        """The newest version; raises ClosedError when the table has ended."""

    def between(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The versions after `after` up to `upto` with their changed rows; may raise LaggingReaderError."""

    def wait(self, seen: int, timeout: float | None, ended: Callable[[], bool]) -> bool:
        """Wait until there is a version beyond `seen` or `ended` holds; False when the timeout passed."""

    def wake(self) -> None:
        """Let waiting threads evaluate `ended` again."""


class Subscription:
    """Changes of a table, version by version; blocks until there are some.

    Iterate, or call `next_change` with a timeout. Nothing is buffered: changes are read from the table's
    log. A subscriber may be slow until the log no longer has its next change, which raises
    LaggingReaderError. `version` is where to resume. When the table is closed, dropped or replaced,
    ClosedError is raised, also in a waiting thread.
    """

    def __init__(self, after: int, changelog: Changelog, timeout: float | None) -> None:
        self.version = after
        """Every change up to and including this version was returned."""
        self._lifetime = Lifetime()
        self._changelog = changelog
        self._timeout = timeout
        self._pending: Iterator[tuple[int, pa.Table]] = iter(())

    def __iter__(self) -> Subscription:
        return self

    def __next__(self) -> tuple[int, pa.Table]:
        try:
            change = self.next_change(self._timeout)
        except ClosedError:
            if self._lifetime.ended:
                raise StopIteration from None
            raise
        if change is None:
            raise StopIteration
        return change

    def next_change(self, timeout: float | None = None) -> tuple[int, pa.Table] | None:
        """The next version and its changed rows with `_weight`; None when the timeout passed."""
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            self._lifetime.check()
            newest = self._changelog.newest()
            change = self._next()
            if change is not None:
                self.version = change[0]
                return change
            if newest > self.version:
                self._pending = self._changelog.between(self.version, newest)
            elif not self._wait(deadline):
                return None

    def _next(self) -> tuple[int, pa.Table] | None:
        try:
            return next(self._pending, None)
        except LaggingReaderError:
            # The log may be missing because the table was dropped: that is the error to raise then.
            self._changelog.newest()
            raise

    def _wait(self, deadline: float | None) -> bool:
        """Wait for a new version or the end of the table; False when the deadline passed."""
        left = None if deadline is None else max(0.0, deadline - monotonic())
        return self._changelog.wait(self.version, left, lambda: self._lifetime.ended)

    def close(self) -> None:
        """End the iteration, also one that is waiting in another thread."""
        self._lifetime.end("the subscription is closed", hint="subscribe again: table.changes(after=version)")
        self._changelog.wake()

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> tuple[int, pa.Table]:
        """Iteration for asyncio; waiting does not block the event loop, and can be cancelled."""
        deadline = None if self._timeout is None else monotonic() + self._timeout
        while True:
            left = _GLANCE if deadline is None else min(_GLANCE, max(0.0, deadline - monotonic()))
            try:
                change = await asyncio.to_thread(self.next_change, left)
            except ClosedError:
                if self._lifetime.ended:
                    raise StopAsyncIteration from None
                raise
            if change is not None:
                return change
            if deadline is not None and monotonic() >= deadline:
                raise StopAsyncIteration

    def __enter__(self) -> Subscription:
        self._lifetime.check()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._lifetime.ended else "open"
        return f"<Subscription: the changes after version {self.version}, {state}>"
