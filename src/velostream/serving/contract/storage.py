"""The contract of storages, which create, open and verify the files of tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.model.table_storage import StorageTraits
    from velostream.model.tables import TableSpec
    from velostream.serving.contract.table import Table
    from velostream.serving.durable.verification import TableReport


class Storage(Protocol):
    """Creates and opens tables of one kind, each in its own folder."""

    @property
    def traits(self) -> StorageTraits:
        """The capabilities of its tables."""

    def create(self, folder: Path, spec: TableSpec) -> None:
        """Create the folder of a new, empty table, atomically."""

    def open(self, folder: Path, *, read_only: bool) -> Table:
        """The table in the newest version that its files hold."""

    def verify(self, folder: Path) -> TableReport:
        """Check the files of a table, even if it is too damaged to open."""
