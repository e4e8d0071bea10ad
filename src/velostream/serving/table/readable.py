"""The contract of tables for readers."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from velostream.errors import DeadlineError, TableError
from velostream.model.lifetime import waited
from velostream.model.table_storage import storage_of
from velostream.serving.columns.html import html_table
from velostream.serving.table.stats import ColumnInfo

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from velostream.model.changes import Commit
    from velostream.model.lifetime import Lifetime
    from velostream.model.table_storage import StorageTraits
    from velostream.model.tables import TableSpec
    from velostream.serving.table.record import Row
    from velostream.serving.table.stats import TableStats
    from velostream.serving.table.subscription import Subscription
    from velostream.serving.table.version import TableVersion

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
        spec = self.spec
        return [
            ColumnInfo(field.name, field.type, field.nullable, field.name in spec.lookup_key)
            for field in spec.visible_schema
        ]

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

    def __repr__(self) -> str:
        if self.lifetime.ended:
            return "<Table: closed>"
        spec = self.spec
        key = f", key {', '.join(spec.lookup_key)}" if spec.lookup_key else ""
        count = len(self)
        return f"<Table {spec.name}: {count:,} row{'' if count == 1 else 's'}{key}, version {self.version}>"

    def _repr_html_(self) -> str:
        """The first rows, in a notebook."""
        batches = self.stream()
        first = next(batches, None)
        rows = self.spec.visible_schema.empty_table() if first is None else pa.Table.from_batches([first])
        return html_table(rows, len(self), repr(self).strip("<>"))

    @abstractmethod
    def snapshot(self) -> pa.Table:
        """All rows as Arrow, in memory."""

    @abstractmethod
    def page(self, limit: int = 1000, offset: int = 0) -> list[Row]:
        """Up to `limit` rows after the first `offset`, in the order in which they were written."""

    @abstractmethod
    def stream(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one version as record batches of bounded size."""

    async def astream(self, where: str | None = None) -> AsyncIterator[pa.RecordBatch]:
        """`stream` for asyncio: the event loop stays free while a batch is made."""
        batches = self.stream(where)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch

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

    def wait_for(self, condition: str | Callable[[Self], Any], timeout: float = 60.0) -> Self:
        """Wait until a row satisfies an SQL condition, or a function of the table returns something true.

        Returns the table. Raises DeadlineError when that has not happened after `timeout` seconds.
        """
        holds = (lambda: self.count(condition) > 0) if isinstance(condition, str) else lambda: condition(self)
        if not waited(holds, timeout):
            what = condition if isinstance(condition, str) else "the condition"
            health, reason = self.health
            raise DeadlineError(
                f'table "{self.name}": {what} does not hold after {timeout:g} s',
                detail=f"the table is {health}" + (f": {reason}" if reason else ""),
                hint="give it more time: wait_for(…, timeout=…)",
            )
        return self

    # --- changes ------------------------------------------------------------------------------------

    @abstractmethod
    def changes(self, after: int | None = None, *, timeout: float | None = None) -> Subscription:
        """Follow the changes after a version (None: from now on); see Subscription."""

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
