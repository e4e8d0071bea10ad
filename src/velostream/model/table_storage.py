"""Where tables can live, and what each place can do: known by name, without opening anything.

A storage is registered here with its traits, and in `engine/storages.py` with what makes its tables. Whoever
plans, explains or refuses asks for traits, and names no storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

STORAGE = "table.storage"
"""Property of a statement, and option of a table that is not in memory."""


@dataclass(frozen=True)
class StorageTraits:
    """What a storage can do, and what EXPLAIN says of it."""

    name: str
    """As users write it."""
    title: str
    """As messages call it."""
    durable: str
    """What makes its commits durable."""
    in_memory: bool = False
    """Whether rows are in this process: lookups take microseconds, an engine here answers questions, the
    memory budget counts them, and jobs may keep further rows in memory beside them. Where not, Spark reads
    and writes the rows, in a session of the storage's own."""
    expires: bool = False
    """Whether rows can leave by the clock (`retention`, `state.ttl`), and commits can forget (`FORGETS`)."""
    lookups: str | None = None
    """What a lookup costs, where that is worth a word."""
    commits: str | None = None
    """What a commit costs, likewise."""

    def options(self) -> dict[str, str]:
        """Of a table that lives there."""
        return {} if self is MEMORY else {STORAGE: self.name}


MEMORY = StorageTraits("memory", "memory", "snapshot and log", in_memory=True, expires=True)

STORAGES: Mapping[str, StorageTraits] = {
    each.name: each
    for each in (
        MEMORY,
        StorageTraits(
            "delta",
            "Delta Lake",
            "Delta Lake's own log",
            lookups="a lookup is a Spark job of up to a second, and more as the table grows",
            commits="one append or MERGE for each micro-batch, some seconds",
        ),
    )
}
"""All storages, by name."""


def storage_of(options: Mapping[str, str]) -> StorageTraits:
    """The storage that the options of a table name; memory where they name none."""
    return STORAGES[options.get(STORAGE, MEMORY.name)]


def outside_memory() -> str:
    """The storages that take a table which outgrows memory, as a hint names them."""
    return " or ".join(each.title for each in STORAGES.values() if not each.in_memory)
