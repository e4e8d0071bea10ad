"""What tables take of the memory, and how much they may."""

from __future__ import annotations

from dataclasses import dataclass
from sys import getsizeof
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from velostream.errors import MemoryBudgetError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.serving.table.version import TableVersion

_DICT_ENTRY = 90
"""Bytes of a dict per key, spare room included."""


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of one version, estimated where Python objects are concerned."""

    columns: int
    """The rows as Arrow columns."""
    indexes: int
    """Equality indexes that questions or joins asked for, or rows that were taken back."""
    keys: int
    """The index from keys to rows."""
    rows: int
    """Rows kept ready for lookups; given up first when memory is short."""

    @property
    def needed(self) -> int:
        """What cannot be given up."""
        return self.columns + self.indexes + self.keys

    @property
    def total(self) -> int:
        """All of it."""
        return self.needed + self.rows


def memory_of(version: TableVersion) -> MemoryUse:
    """What a version takes now. What it shares with other versions counts too."""
    segments = [view.segment for view in version.views]
    indexes = sum(index.nbytes for segment in segments for index in list(segment.indexes.values()))
    return MemoryUse(version.nbytes, indexes, _of_keys(version), _of_rows(version))


def _of_keys(version: TableVersion) -> int:
    index = version.index
    if index is None or not index.built or not index.slots:
        return 0
    return len(index.slots) * (_DICT_ENTRY + _size(_any_of(index.slots)) + 32)


def _of_rows(version: TableVersion) -> int:
    ready = version.link.ready.by_key
    row = ready.get(_any_of(ready)) if ready else None
    return len(ready) * (_DICT_ENTRY + (0 if row is None else _size(row)))


def _any_of(held: Mapping[Any, Any]) -> Any:
    """One of the keys, whichever comes; asked again when a writer came in between."""
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
    """A table in use, as its writer."""

    @property
    def version(self) -> TableVersion:
        """The newest version."""


class MemoryBudget:
    """How much all tables together may take. Thread safe."""

    def __init__(self, total: int | None = None) -> None:
        self.total = total
        """Bytes; None for no limit."""
        self._holders: tuple[Holder, ...] = ()
        self._lock = Lock()

    def enter(self, holder: Holder) -> None:
        """A table was opened."""
        with self._lock:
            self._holders = (*self._holders, holder)

    def leave(self, holder: Holder) -> None:
        """A table was closed or dropped."""
        with self._lock:
            self._holders = tuple(each for each in self._holders if each is not holder)

    def check(self, holder: Holder, more: int) -> None:
        """Raise MemoryBudgetError when `more` bytes do not fit; give up rows kept ready before that."""
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
                    hint='raise "memory.budget", narrow the query, or keep the table in Delta Lake',
                )
            limits.append(own)
        if self.total is not None:
            others = sum(memory_of(each.version).needed for each in self._holders if each is not holder)
            if others + wanted > self.total:
                raise MemoryBudgetError(
                    f"all tables would take {others + wanted:,} bytes of the {self.total:,} that they may",
                    detail=f'table "{spec.name}" takes {use.needed:,} and wants {more:,} more',
                    hint="raise memory_total, drop a table, or keep large ones in Delta Lake",
                )
            limits.append(self.total - others)
        if limits and wanted + use.rows > min(limits):
            version.link.ready.give_up()
