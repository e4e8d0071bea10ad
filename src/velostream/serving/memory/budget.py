"""Memory that tables use, and the budget that limits it."""

from __future__ import annotations

from sys import getsizeof
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from velostream.errors import MemoryBudgetError
from velostream.model.table_storage import outside_memory
from velostream.serving.table.stats import MemoryUse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.serving.memory.version import MemoryVersion

_DICT_ENTRY = 90
"""Bytes per key of a dict, including its spare slots."""


def memory_of(version: MemoryVersion) -> MemoryUse:
    """The memory that a version uses now, including what it shares with other versions."""
    segments = [view.segment for view in version.views]
    indexes = sum(index.nbytes for segment in segments for index in list(segment.indexes.values()))
    return MemoryUse(version.nbytes, indexes, _of_keys(version), _of_rows(version))


def _of_keys(version: MemoryVersion) -> int:
    index = version.index
    if index is None or not index.built or not index.slots:
        return 0
    return len(index.slots) * (_DICT_ENTRY + _size(_any_of(index.slots)) + 32)


def _of_rows(version: MemoryVersion) -> int:
    ready = version.link.ready.by_key
    row = ready.get(_any_of(ready)) if ready else None
    return len(ready) * (_DICT_ENTRY + (0 if row is None else _size(row)))


def _any_of(held: Mapping[Any, Any]) -> Any:
    """An arbitrary key; tried again when the writer changed the dict meanwhile."""
    while True:
        try:
            return next(iter(held), None)
        except RuntimeError:
            continue


def _size(value: Any) -> int:
    """Bytes of a key or row with what it holds; texts that rows share count each time."""
    inner = sum(_size(each) for each in value) if isinstance(value, tuple) else 0
    return getsizeof(value) + inner


class Holder(Protocol):
    """An open table, represented by its writer."""

    @property
    def version(self) -> MemoryVersion:
        """The newest version."""


class MemoryBudget:
    """The memory that all tables together may use. Thread safe."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        """Bytes; None for no limit."""
        self._holders: tuple[Holder, ...] = ()
        self._lock = Lock()

    def enter(self, holder: Holder) -> None:
        """Count a table that was opened."""
        with self._lock:
            self._holders = (*self._holders, holder)

    def leave(self, holder: Holder) -> None:
        """No longer count a table, which was closed or dropped."""
        with self._lock:
            self._holders = tuple(each for each in self._holders if each is not holder)

    def check(self, holder: Holder, more: int) -> None:
        """Raise MemoryBudgetError when `more` bytes do not fit; where they only just do, drop ready rows."""
        version = holder.version
        spec = version.spec
        limits = []
        use = memory_of(version)
        wanted = use.needed + more
        own = int(spec.options.get("memory.budget", 0))
        if own:
            if wanted > own:
                raise MemoryBudgetError(
                    f'table "{spec.name}" would take {wanted:,} bytes of its budget of {own:,}',
                    hint=f'raise "memory.budget", narrow the query, or keep the table in {outside_memory()}',
                )
            limits.append(own)
        if self.total is not None:
            others = sum(memory_of(each.version).needed for each in self._holders if each is not holder)
            if others + wanted > self.total:
                raise MemoryBudgetError(
                    f"all tables would take {others + wanted:,} bytes of the {self.total:,} that they may",
                    detail=f'table "{spec.name}" takes {use.needed:,} and wants {more:,} more',
                    hint=f"raise memory_total, drop a table, or keep large ones in {outside_memory()}",
                )
            limits.append(self.total - others)
        if limits and wanted + use.rows > min(limits):
            version.link.ready.give_up()
