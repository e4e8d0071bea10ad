"""The storage of tables in memory: creates, opens and verifies them for the store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from velostream.model.table_storage import MEMORY
from velostream.serving.durable.table_files import Journal
from velostream.serving.durable.verification import TableReport, verify
from velostream.serving.memory.budget import MemoryBudget
from velostream.serving.memory.table import MemoryTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from velostream.model.table_storage import StorageTraits
    from velostream.model.tables import TableSpec
    from velostream.serving.sql.questions import Questions


@dataclass
class MemoryStorage:
    """The default storage: that of tables which name none."""

    questions: Questions
    clock: Callable[[], datetime]
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    """The memory that all tables of this storage share."""

    @property
    def traits(self) -> StorageTraits:
        """The capabilities of tables in memory."""
        return MEMORY

    def create(self, folder: Path, spec: TableSpec) -> None:
        """Create the folder of a new, empty table."""
        Journal.create(folder, spec)

    def open(self, folder: Path, *, read_only: bool) -> MemoryTable:
        """The table, recovered from its snapshot and log."""
        journal = Journal(folder, read_only=read_only)
        return MemoryTable(journal, self.questions, self.budget, self.clock)

    def verify(self, folder: Path) -> TableReport:
        """Check the files of a table."""
        return verify(folder)
