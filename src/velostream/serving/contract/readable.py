"""The contract of tables for readers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from velostream.errors import TableError
from velostream.model.table_storage import storage_of
from velostream.serving.table.stats import columns_of
from velostream.serving.table.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from velostream.model.changes import Commit
    from velostream.model.lifetime import Lifetime
    from velostream.model.table_storage import StorageTraits
    from velostream.model.tables import TableSpec
    from velostream.serving.contract.version import TableVersion
    from velostream.serving.table.record import Row
    from velostream.serving.table.stats import ColumnInfo, TableStats
    from velostream.serving.table.subscription import Changelog

FOUND = "__found"
"""Column of `fetch`: whether the table has the key."""


class ReadableTable(ABC):
    """Rows that any number of threads read, whatever their storage.

    Every call reads one whole version, the newest at the time of the call; readers never wait for the writer.
    A table with a key has one row per key; one without is a multiset. After the end of its `lifetime` every
    member raises ClosedError.
    """

    lifetime: Lifetime
    """Ends when the table is closed, dropped or replaced."""

    # --- what it is ---------------------------------------------------------------------------------

    @property
    @abstractmethod
    def spec(self) -> TableSpec:
        """Name, columns, key and options."""

    @property
    def name(self) -> str:
        """The table's name."""
        return self.spec.name

    @property
    def traits(self) -> StorageTraits:
        """The capabilities of the table's storage."""
        return storage_of(self.spec.options)

    def describe(self) -> list[ColumnInfo]:
        """The visible columns."""
        return columns_of(self.spec)

    @property
    @abstractmethod
    def version(self) -> int:
        """Number of the newest version: counts commits that changed rows; 0 when nothing was ever written."""

    @property
    @abstractmethod
    def version_object(self) -> TableVersion:
        """The newest version; it stays readable and unchanged as long as it is held."""

    @property
    @abstractmethod
    def last_commit(self) -> Commit | None:
        """The newest commit, with the source offsets that the table contains; None before the first."""

    @property
    @abstractmethod
    def health(self) -> tuple[str, str | None]:
        """The health of the table's source, and the reason."""

    @abstractmethod
    def set_health(self, health: str, reason: str | None = None) -> None:
        """Set the health of the table's source: healthy, degraded, disconnected, "file not found", failed."""

    @abstractmethod
    def stats(self) -> TableStats:
        """The current statistics of the table."""

    @property
    @abstractmethod
    def held(self) -> tuple[int, int]:
        """The number of stored rows, and the bytes of this process's memory that they need without caches."""

    # --- by key -------------------------------------------------------------------------------------

    @abstractmethod
    def get(self, key: Any, *more: Any) -> Row | None:
        """The row with this key, or None. Several key columns: `get(a, b)`.

        A value that does not fit the type of the column is the key of no row. Raises TableError where the
        table has no visible key.
        """

    @abstractmethod
    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order, all of one version; None where there is none.

        A key of several columns is a tuple.
        """

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    @abstractmethod
    def fetch(self, keys: pa.Table) -> pa.Table:
        """Physical rows for rows of key columns, in their order.

        A key that the table lacks gives a row of nulls; the boolean column `__found` is false for it.
        """

    @abstractmethod
    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows whose `columns` equal a row of `keys`; see TableVersion.fetch_where."""

    # --- many rows ----------------------------------------------------------------------------------

    @abstractmethod
    def __len__(self) -> int:
        """The number of visible rows; without a scan."""

    def __bool__(self) -> bool:
        return True

    @abstractmethod
    def snapshot(self) -> pa.Table:
        """All rows as Arrow, in memory."""

    @abstractmethod
    def page(self, limit: int = 1000, offset: int = 0) -> list[Row]:
        """Up to `limit` rows after the first `offset`, in the order in which they were written."""

    @abstractmethod
    def stream(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one version as record batches of bounded size."""

    @abstractmethod
    def rows(self, where: str | None = None) -> Iterator[Row]:
        """The rows of one version, one by one; a batch of them is in memory at a time."""

    # --- queries ------------------------------------------------------------------------------------

    @abstractmethod
    def column(self, column: str, where: str | None = None) -> pa.ChunkedArray:
        """One column as Arrow, of the rows for which the SQL condition holds."""

    @abstractmethod
    def column_values(self, column: str, where: str | None = None) -> list[Any]:
        """The values of one column, of the rows for which the SQL condition holds."""

    @abstractmethod
    def scalar(self, expression: str, where: str | None = None) -> Any:
        """The one value of a SQL expression over the rows, usually an aggregate: `SUM(volume)`."""

    @abstractmethod
    def count(self, where: str | None = None) -> int:
        """How many rows there are for which the SQL condition holds."""

    # --- changes ------------------------------------------------------------------------------------

    def changes(self, after: int | None = None, *, timeout: float | None = None) -> Subscription:
        """Follow the changes after a version (None: from now on); see Subscription."""
        return Subscription(self.version if after is None else after, self.changelog, timeout)

    @property
    @abstractmethod
    def changelog(self) -> Changelog:
        """The changes, for subscriptions."""

    @abstractmethod
    def changes_between(self, after: int, upto: int, *, forgotten: bool = True) -> pa.Table:
        """The changes after version `after` up to `upto`, in order: visible columns and `_weight`.

        An update is the old row with weight -1 and the new one with +1; equal rows of a multiset may be
        combined into one row of greater weight. Without `forgotten`, commits that only forgot rows
        (`FORGETS`) are skipped. Raises LaggingReaderError when the changes are no longer retained.
        """

    def only_forgot(self, after: int, upto: int) -> bool:
        """Whether all commits between two versions only forgot rows (`FORGETS`).

        False for storages without expiry; see `StorageTraits.expires`.
        """
        self.lifetime.check()
        return False

    @abstractmethod
    def register_reader(self, reader: str, version: int) -> None:
        """Retain the changes after `version` for a named reader, also across restarts, up to a size."""

    @abstractmethod
    def release_reader(self, reader: str) -> None:
        """Stop retaining changes for a named reader."""

    def _keyless(self) -> TableError:
        spec = self.spec
        hidden = "select all columns of GROUP BY, and both bounds where the query has a WINDOW"
        return TableError(
            f'table "{spec.name}" has no key',
            hint=hidden if spec.key else 'declare one with PRIMARY KEY or WITH ("key" = "…")',
        )
