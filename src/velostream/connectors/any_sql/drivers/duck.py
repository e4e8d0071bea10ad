"""DuckDB: a file, opened for reading only. Its results are Arrow already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import duckdb
import pyarrow as pa

from velostream.connectors.any_sql.drivers.base import Address, Connection, Driver
from velostream.connectors.any_sql.drivers.files import file_of
from velostream.connectors.any_sql.values import plain_type
from velostream.connectors.databases.text_rows import TextColumn, decode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.connectors.databases.text_rows import Decoded

_KEY = """
SELECT unnest(constraint_column_names) FROM duckdb_constraints()
WHERE table_name = ? AND constraint_type = 'PRIMARY KEY' AND (? IS NULL OR schema_name = ?)
"""
_HOPELESS = (
    "INTERVAL",
    "TIME",
    "TIME WITH TIME ZONE",
    "TIME_NS",
    "UUID",
    "BIT",
    "UHUGEINT",
    "BIGNUM",
    "VARIANT",
)
"""Types that are sent as text; UNION, of which there are many, is another."""


class DuckDriver(Driver):
    """`sql://duckdb:/path/app.duckdb`."""

    name = "duckdb"
    takes: ClassVar[frozenset[str]] = frozenset({"database"})

    def connect(self, address: Address) -> Connection:
        """See `Driver`: it can reach no other file than this one, and load nothing."""
        path = file_of(address, "duckdb")
        shut: dict[str, str | bool | int | float | list[str]] = {
            "enable_external_access": "false",
            "lock_configuration": "true",
        }
        return DuckConnection(duckdb.connect(str(path), read_only=True, config=shut))


class DuckConnection(Connection):
    """An open file."""

    shuts_out: ClassVar[bool] = True

    def __init__(self, opened: duckdb.DuckDBPyConnection) -> None:
        self._opened = opened

    def columns(self, query: str, values: Sequence[Any]) -> pa.Schema:
        """See `Connection`."""
        found = self._sql(f"SELECT * FROM ({query}\n) AS q LIMIT 0", values).to_arrow_reader(1).schema
        return pa.schema([pa.field(field.name, plain_type(field.type)) for field in found])

    def key(self, table: str, schema: str | None) -> tuple[str, ...]:
        """See `Connection`."""
        return tuple(row[0] for row in self._sql(_KEY, (table, schema, schema)).fetchall())

    def tables(self) -> list[str]:
        """See `Connection`."""
        return [
            row[0] for row in self._sql("SELECT table_name FROM information_schema.tables", ()).fetchall()
        ]

    def rows(self, query: str, values: Sequence[Any], schema: pa.Schema, size: int) -> Iterator[Decoded]:
        """See `Connection`."""
        told = self._sql(f"DESCRIBE {query}", values).fetchall()
        chosen = ", ".join(
            f"CAST({self.quoted(name)} AS VARCHAR) AS {self.quoted(name)}"
            if kind in _HOPELESS or kind.startswith("UNION")
            else self.quoted(name)
            for name, kind, *_ in told
        )
        columns = [TextColumn(f.name, f.type, _to(f.type), str(f.type)) for f in schema]
        for batch in self._sql(f"SELECT {chosen} FROM ({query}\n) AS q", values).to_arrow_reader(size):
            yield decode(columns, batch.columns)

    def interrupt(self) -> None:
        """See `Connection`."""
        self._opened.interrupt()

    def close(self) -> None:
        """See `Connection`."""
        self._opened.close()

    def _sql(self, query: str, values: Sequence[Any]) -> duckdb.DuckDBPyRelation:
        return self._opened.sql(query, params=list(values)) if values else self._opened.sql(query)


def _to(target: pa.DataType) -> Any:
    """What DuckDB sends as this type; nanoseconds are cut off."""

    def convert(array: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(array.type):
            return array.cast(pa.timestamp("us", array.type.tz), safe=False).cast(target)
        return array if array.type == target else array.cast(target)

    return convert
