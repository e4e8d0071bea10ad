"""Which names are being changed, so that two statements never change the same thing at a time."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING

from velostream.errors import DuplicateNameError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from velostream.location import Location


class Claims:
    """Names that statements in progress make, change or build on. Thread safe.

    A name is made or changed by one statement at a time. What is being changed is not built on meanwhile, and
    what is being built on is not changed; what is being made may be built on, for instance while it loads.
    """

    def __init__(self) -> None:
        self._made: set[str] = set()
        self._changed: set[str] = set()
        self._used: Counter[str] = Counter()
        self._lock = Lock()

    def __bool__(self) -> bool:
        with self._lock:
            return bool(self._made or self._changed)

    @contextmanager
    def making(self, name: str, uses: Iterable[str], location: Location | None) -> Iterator[None]:
        """Reserve a new name, and what is used of others, until the block has ended."""
        folded, used = name.casefold(), {each.casefold() for each in uses} - {name.casefold()}
        with self._lock:
            self._refuse(folded in self._made | self._changed, name, "created", location)
            for each in used & self._changed:
                self._refuse(True, each, "changed", location)
            self._made.add(folded)
            self._used.update(used)
        try:
            yield
        finally:
            with self._lock:
                self._made.discard(folded)
                self._used.subtract(used)

    @contextmanager
    def changing(self, names: Iterable[str], location: Location | None) -> Iterator[None]:
        """Reserve everything that a statement changes, until the block has ended."""
        folded = {name.casefold() for name in names}
        with self._lock:
            for each in sorted(folded):
                self._refuse(each in self._changed | self._made, each, "changed", location)
                self._refuse(self._used[each] > 0, each, "built on", location)
            self._changed |= folded
        try:
            yield
        finally:
            with self._lock:
                self._changed -= folded

    def _refuse(self, taken: bool, name: str, how: str, location: Location | None) -> None:
        if taken:
            raise DuplicateNameError(
                f'"{name}" is being {how} already',
                hint="try again when the other statement has ended",
                location=location,
            )
