"""A table of the process that holds the data directory, read and changed through the socket."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import TableError
from velostream.model.tables import TableSpec
from velostream.runtime.socket.protocol import keys_table, row_of, table_stats, values_of
from velostream.serving.columns.values import to_python
from velostream.serving.table.record import row_class
from velostream.serving.table.rows import to_table
from velostream.serving.table.stats import columns_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from velostream.runtime.socket.client import Client
    from velostream.serving.table.record import Row
    from velostream.serving.table.stats import ColumnInfo, TableStats
    from velostream.serving.table.subscription import Changelog

_PATIENCE = 0.5
"""Seconds of one request that waits for a new version, so that a closed subscription ends."""


class RemoteTable:
    """A table by name and identity: ClosedError when another table has the name now."""

    def __init__(self, client: Client, name: str) -> None:
        found, _ = client.ask("table", {"table": name})
        self._client = client
        self._header = {"table": name, "id": found["id"]}
        self.spec = _spec(found["spec"])
        self.identity = str(found["id"])

    def _ask(self, operation: str, *tables: pa.Table, **header: object) -> tuple[Mapping[str, Any], Any]:
        return self._client.ask(operation, {**self._header, **header}, *tables)

    @property
    def name(self) -> str:
        """The table's name."""
        return self.spec.name

    def describe(self) -> list[ColumnInfo]:
        """The visible columns."""
        found, _ = self._ask("table")
        self.spec = _spec(found["spec"])
        return columns_of(self.spec)

    @property
    def version(self) -> int:
        """Number of the newest version."""
        return self.stats().version

    @property
    def health(self) -> tuple[str, str | None]:
        """The health of the table's source, and the reason."""
        stats = self.stats()
        return stats.health, stats.health_reason

    def stats(self) -> TableStats:
        """The current statistics of the table."""
        return table_stats(self._ask("stats")[0]["stats"])

    # --- reading ------------------------------------------------------------------------------------

    def get(self, key: Any, *more: Any) -> Row | None:
        """The row with this key, or None."""
        return self.get_many([(key, *more) if more else key])[0]

    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order; None where there is none."""
        given = [key if isinstance(key, tuple) else (key,) for key in keys]
        if not given:
            return []
        try:
            sent = keys_table(given)
        except TableError:
            # A value that has no type in Arrow is the key of no row.
            if len(given) == 1:
                return [None]
            return [self.get_many([key])[0] for key in given]
        told, (rows,) = self._ask("get", sent)
        found = _rows(rows)
        return [next(found) if there else None for there in told["found"]]

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def __len__(self) -> int:
        return self.stats().record_count

    def snapshot(self) -> pa.Table:
        """All rows as Arrow."""
        return pa.concat_tables(self._batches(None))

    def page(self, limit: int = 1000, offset: int = 0) -> list[Row]:
        """Up to `limit` rows after the first `offset`."""
        return list(_rows(self._ask("page", limit=limit, offset=offset)[1][0]))

    def stream(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one version as record batches."""
        for rows in self._batches(where):
            yield from rows.to_batches()

    def rows(self, where: str | None = None) -> Iterator[Row]:
        """The rows of one version, one by one."""
        for rows in self._batches(where):
            yield from _rows(rows)

    def _batches(self, where: str | None) -> Iterator[pa.Table]:
        for _, (rows,) in self._client.frames("batches", {**self._header, "where": where}):
            yield rows

    def column(self, column: str, where: str | None = None) -> pa.ChunkedArray:
        """One column as Arrow, of the rows for which the condition holds."""
        return self._ask("column", column=column, where=where)[1][0].column("value")

    def column_values(self, column: str, where: str | None = None) -> list[Any]:
        """The values of one column, of the rows for which the condition holds."""
        return to_python(self.column(column, where))

    def scalar(self, expression: str, where: str | None = None) -> Any:
        """The one value of an expression over the rows."""
        return values_of(self._ask("scalar", expression=expression, where=where)[1][0])["value"]

    def count(self, where: str | None = None) -> int:
        """How many rows there are for which the condition holds."""
        return len(self) if where is None else int(self.scalar("COUNT(*)", where))

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows whose `columns` equal a row of `keys`."""
        return self._ask("fetch_where", keys, columns=list(columns))[1][0]

    # --- changes ------------------------------------------------------------------------------------

    @property
    def changelog(self) -> Changelog:
        """The changes, for subscriptions."""
        return self

    def newest(self) -> int:
        """The newest version."""
        return self.version

    def between(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        """The versions after `after` up to `upto` with their changed rows."""
        for told, (rows,) in self._client.frames("changes", {**self._header, "after": after, "upto": upto}):
            yield int(told["version"]), rows

    def wait(self, seen: int, timeout: float | None, ended: Callable[[], bool]) -> bool:
        """Wait for a version beyond `seen`, or until `ended` holds; False when the timeout passed."""
        deadline = None if timeout is None else monotonic() + timeout
        while not ended():
            left = _PATIENCE if deadline is None else min(_PATIENCE, max(0.0, deadline - monotonic()))
            if self._ask("next_version", seen=seen, timeout=left)[0]["version"] > seen:
                return True
            if deadline is not None and monotonic() >= deadline:
                return False
        return True

    def wake(self) -> None:
        """Nothing waits in this process."""

    # --- by hand ------------------------------------------------------------------------------------

    def insert(self, rows: Any) -> int:
        """Add rows; returns how many."""
        return int(self._ask("insert", to_table(rows, self.spec))[0]["count"])

    def upsert(self, rows: Any) -> int:
        """Insert rows, or replace those with the same key; returns how many were given."""
        return int(self._ask("upsert", to_table(rows, self.spec))[0]["count"])

    def update(self, key: Any, /, **columns: Any) -> int:
        """Change columns of the row with this key; returns 1, or 0 when there is none."""
        sent = keys_table([key if isinstance(key, tuple) else (key,)])
        return int(self._ask("update", sent, row_of(columns))[0]["count"])

    def delete(self, keys: Any) -> int:
        """Delete rows by key, or, without a key, one equal row for each row given; returns how many."""
        if not self.spec.key:
            sent = to_table(keys, self.spec)
        else:
            alone = isinstance(keys, str | bytes) or not isinstance(keys, Iterable)
            given = [key if isinstance(key, tuple) else (key,) for key in ([keys] if alone else keys)]
            if not given:
                return 0
            sent = keys_table(given)
        return int(self._ask("delete", sent)[0]["count"])


def _spec(found: Mapping[str, Any]) -> TableSpec:
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"])))
    return TableSpec(**{**found, "schema": schema, "key": tuple(found["key"])})


def _rows(table: pa.Table) -> Iterator[Row]:
    make = row_class(tuple(table.schema.names))
    return (make(values) for values in zip(*map(to_python, table.columns), strict=True))
