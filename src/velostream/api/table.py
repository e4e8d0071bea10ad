"""A table, as users hold it."""

from __future__ import annotations

import asyncio
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ClosedError, DeadlineError, VelostreamError
from velostream.model.lifetime import waited
from velostream.serving.columns.html import html_table
from velostream.serving.table.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

    from velostream.api.access import TableAccess
    from velostream.serving.table.record import Row
    from velostream.serving.table.stats import ColumnInfo, TableStats
    from velostream.serving.table.subscription import Changelog


class Table:
    """Rows that any number of threads read, while a job or statements change them.

    Every call reads one whole version, the newest at the time of the call; readers never wait for the writer.
    A table with a key has one row per key; one without is a multiset. When it was closed, dropped or
    replaced, every use raises ClosedError.
    """

    def __init__(
        self, access: Callable[[], TableAccess], changelog: Changelog, *, same: TableAccess | None = None
    ) -> None:
        self._access = access
        self._changelog = changelog
        if same is not None:
            # `get` takes less than a microsecond: one more call in between would be a fifth of it.
            self.__dict__["get"] = same.get

    # --- what it is ---------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The table's name."""
        return self._access().name

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return self._access().spec.visible_schema

    @property
    def key(self) -> tuple[str, ...]:
        """The key columns, by which `get` finds rows; empty where there is no key."""
        return self._access().spec.lookup_key

    @property
    def version(self) -> int:
        """Number of the newest version: counts commits that changed rows; 0 when nothing was ever written."""
        return self._access().version

    @property
    def health(self) -> tuple[str, str | None]:
        """The health of the table's source, and the reason."""
        return self._access().health

    def describe(self) -> list[ColumnInfo]:
        """The columns: name, type, whether it may be NULL, whether it is part of the key."""
        return self._access().describe()

    def stats(self) -> TableStats:
        """The current statistics of the table."""
        return self._access().stats()

    # --- by key -------------------------------------------------------------------------------------

    def get(self, key: Any, *more: Any) -> Row | None:
        """The row with this key, or None. Several key columns: `get(a, b)`.

        A value that does not fit the type of the column is the key of no row. Raises TableError where the
        table has no key.
        """
        return self._access().get(key, *more)

    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order, all of one version; None where there is none.

        A key of several columns is a tuple.
        """
        return self._access().get_many(keys)

    def __contains__(self, key: Any) -> bool:
        return self._access().get(key) is not None

    # --- many rows ----------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._access())

    def __bool__(self) -> bool:
        return True

    def snapshot(self) -> pa.Table:
        """All rows as Arrow, in memory."""
        return self._access().snapshot()

    def page(self, limit: int = 1000, offset: int = 0) -> list[Row]:
        """Up to `limit` rows after the first `offset`, in the order in which they were written."""
        return self._access().page(limit, offset)

    def stream(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one version as record batches of bounded size."""
        return self._access().stream(where)

    async def astream(self, where: str | None = None) -> AsyncIterator[pa.RecordBatch]:
        """`stream` for asyncio: the event loop stays free while a batch is made."""
        batches = self.stream(where)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch

    def rows(self, where: str | None = None) -> Iterator[Row]:
        """The rows of one version, one by one; a batch of them is in memory at a time."""
        return self._access().rows(where)

    # --- queries ------------------------------------------------------------------------------------

    def column(self, column: str, where: str | None = None) -> pa.ChunkedArray:
        """One column as Arrow, of the rows for which the SQL condition holds."""
        return self._access().column(column, where)

    def column_values(self, column: str, where: str | None = None) -> list[Any]:
        """The values of one column, of the rows for which the SQL condition holds."""
        return self._access().column_values(column, where)

    def scalar(self, expression: str, where: str | None = None) -> Any:
        """The one value of a SQL expression over the rows, usually an aggregate: `SUM(volume)`."""
        return self._access().scalar(expression, where)

    def count(self, where: str | None = None) -> int:
        """How many rows there are for which the SQL condition holds."""
        return self._access().count(where)

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows whose `columns` equal a row of `keys`, at a cost that follows what is found."""
        return self._access().fetch_where(columns, keys)

    def wait_for(self, condition: str | Callable[[Table], Any], timeout: float = 60.0) -> Table:
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

    def changes(self, after: int | None = None, *, timeout: float | None = None) -> Subscription:
        """Follow the changes after a version (None: from now on): pairs of a version and its changed rows.

        Each row has its `_weight`: 1 where it was added, -1 where it was retracted; an update is both.
        Without a change for `timeout` seconds the iteration ends.
        """
        return Subscription(self.version if after is None else after, self._changelog, timeout)

    # --- by hand ------------------------------------------------------------------------------------

    def insert(self, rows: Any) -> int:
        """Add rows; returns how many. A key that exists raises KeyExistsError, and nothing is kept."""
        return self._access().insert(rows)

    def upsert(self, rows: Any) -> int:
        """Insert rows, or replace those with the same key; returns how many were given."""
        return self._access().upsert(rows)

    def update(self, key: Any, /, **columns: Any) -> int:
        """Change columns of the row with this key; returns 1, or 0 when there is none."""
        return self._access().update(key, **columns)

    def delete(self, keys: Any) -> int:
        """Delete rows by key, or, without a key, one equal row for each row given; returns how many."""
        return self._access().delete(keys)

    # --- shown --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        try:
            stats, key = self.stats(), self.key
            shown = f", key {', '.join(key)}" if key else ""
            count = stats.record_count
            rows = f"{count:,} row{'' if count == 1 else 's'}"
        except ClosedError:
            return "<Table: closed>"
        except VelostreamError as error:
            return f"<Table: {error.message}>"
        return f"<Table {self.name}: {rows}{shown}, version {stats.version}>"

    def _repr_html_(self) -> str:
        """The first rows, in a notebook."""
        try:
            first = next(self.stream(), None)
            rows = self.schema.empty_table() if first is None else pa.Table.from_batches([first])
            return html_table(rows, len(self), repr(self).strip("<>"))
        except VelostreamError:
            return escape(repr(self))
