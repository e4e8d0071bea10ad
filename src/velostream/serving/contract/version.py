"""The contract of versions: the immutable content of a table as of one commit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec


class TableVersion(ABC):
    """All rows of a table as of one commit.

    Later commits do not change it, however long it is held. *Physical* rows are all that are stored, with all
    columns; *visible* rows lack hidden columns, and rows that HAVING or an open window hides.
    """

    spec: TableSpec
    """Name, columns, key and options at this version."""
    number: int
    """Counts commits that changed rows; 0 is the empty table."""
    commit: Commit | None
    """The newest commit it contains, also one that only advanced offsets."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of visible rows."""

    @abstractmethod
    def snapshot(self) -> pa.Table:
        """The visible rows, in the order they were written."""

    @abstractmethod
    def slice(self, offset: int, limit: int) -> pa.Table:
        """Up to `limit` rows of the snapshot after the first `offset`; the others are not read."""

    @abstractmethod
    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The visible rows whose `columns` equal a row of `keys`, in the order they were written.

        `keys` has these columns; null equals nothing, NaN equals NaN, equal keys count once. The cost follows
        the keys and the rows found where the storage has an index or statistics of these columns.
        """

    @abstractmethod
    def physical(self) -> pa.Table:
        """All physical rows."""

    @abstractmethod
    def physical_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """As `fetch_where`, of the physical rows."""

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """These columns of all physical rows, in batches as stored; texts may be dictionary-encoded."""
        yield from self.physical().select(list(columns)).to_batches()


class Columnar(TableVersion):
    """A version whose rows are in the memory of this process, so that DuckDB can scan them."""

    @property
    @abstractmethod
    def encoded(self) -> pa.Table:
        """The visible rows as stored: repeated texts are dictionary-encoded."""
