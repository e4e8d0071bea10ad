"""Statistics and columns of a table, for users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    import pyarrow as pa

    from velostream.model.tables import TableSpec


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of one version, estimated where Python objects are concerned."""

    columns: int
    """The rows as Arrow columns."""
    indexes: int
    """Equality indexes, built for queries, joins or retractions."""
    keys: int
    """The index from keys to rows."""
    rows: int
    """The cache of rows ready for lookups; dropped first when memory is short."""

    @property
    def needed(self) -> int:
        """The bytes without the cache of rows, which can be dropped."""
        return self.columns + self.indexes + self.keys

    @property
    def total(self) -> int:
        """All bytes, caches included."""
        return self.needed + self.rows


@dataclass(frozen=True)
class TableStats:
    """Statistics of one table."""

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
        """The fraction of all queries that found their answer or plan in a cache."""
        return self.cache_hits / self.queries if self.queries else 0.0


@dataclass(frozen=True)
class ColumnInfo:
    """One column as DESCRIBE shows it."""

    name: str
    type: pa.DataType
    nullable: bool
    key: bool


def columns_of(spec: TableSpec) -> list[ColumnInfo]:
    """The visible columns of a table."""
    return [
        ColumnInfo(field.name, field.type, field.nullable, field.name in spec.lookup_key)
        for field in spec.visible_schema
    ]
