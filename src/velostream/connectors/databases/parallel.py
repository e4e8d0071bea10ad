"""Parts of a relation, read by some threads at the same time."""

from __future__ import annotations

import queue
import threading
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

Part = TypeVar("Part")
Item = TypeVar("Item")
_AHEAD = 4
"""Items that are read before they are taken."""


@contextmanager
def released(items: Iterator[Item]) -> Iterator[Iterator[Item]]:
    """Items of a generator, which lets go of its cursors and threads also where the loop is left early.

    Otherwise it would when it is collected, which is late: the traceback of the error holds it.
    """
    try:
        yield items
    finally:
        close = getattr(items, "close", None)
        if close is not None:
            close()


def in_parallel(
    read: Callable[[Iterator[Part]], Iterator[Item]], parts: Sequence[Part], readers: int, ahead: int | None
) -> Iterator[Item]:
    """What `read` makes of all parts, in any order. Each thread calls it, with the parts that are left.

    When the caller stops taking, the threads end at their next item.
    """
    reading = _Reading(read, parts, _AHEAD if ahead is None else ahead)
    threads = [
        threading.Thread(target=reading.run, name=f"load {number}", daemon=True)
        for number in range(min(readers, len(parts)))
    ]
    for thread in threads:
        thread.start()
    try:
        running = len(threads)
        while running:
            item = reading.came.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        reading.stop.set()
        for thread in threads:
            thread.join()


class _Reading(Generic[Part, Item]):
    def __init__(
        self, read: Callable[[Iterator[Part]], Iterator[Item]], parts: Sequence[Part], ahead: int
    ) -> None:
        self._read = read
        self._left = deque(parts)
        self.came: queue.Queue[Item | BaseException | None] = queue.Queue(max(ahead, 1))
        """What was read, an error, and None at the end of each thread."""
        self.stop = threading.Event()

    def run(self) -> None:
        """Read parts until none is left."""
        try:
            for item in self._read(self._parts()):
                self._put(item)
            self._put(None)
        except _StoppedError:
            pass
        except BaseException as exc:
            with suppress(_StoppedError):
                self._put(exc)

    def _parts(self) -> Iterator[Part]:
        while True:
            try:
                yield self._left.popleft()
            except IndexError:
                return

    def _put(self, item: Item | BaseException | None) -> None:
        while not self.stop.is_set():
            try:
                self.came.put(item, timeout=0.2)
            except queue.Full:
                continue
            return
        raise _StoppedError


class _StoppedError(Exception):
    """Nobody takes the rows any more."""
