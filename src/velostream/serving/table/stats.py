"""Figures and columns of a table, as users get them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from velostream.serving.table.budget import MemoryUse


@dataclass(frozen=True)
class TableStats:
    """Figures of one table."""

    record_count: int
    last_updated: datetime | None
    datasource_type: str
    health: str
    health_reason: str | None
    version: int
    queries: int
    cache_hits: int
    bytes: int
    """Memory of the rows, their indexes, and the rows kept ready for lookups."""
    disk_bytes: int
    memory: MemoryUse
    """The same bytes, by what they are for."""

    @property
    def bytes_per_row(self) -> float:
        """Memory per row."""
        return self.bytes / self.record_count if self.record_count else 0.0

    @property
    def cache_hit_rate(self) -> float:
        """The part of all questions that found their answer or their plan ready."""
        return self.cache_hits / self.queries if self.queries else 0.0


@dataclass(frozen=True)
class ColumnInfo:
    """One column as DESCRIBE shows it."""

    name: str
    type: pa.DataType
    nullable: bool
    key: bool
