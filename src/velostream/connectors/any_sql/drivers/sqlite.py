"""SQLite: a file, opened for reading only.

A column of SQLite holds values of any type, whatever it declares: a value that does not fit what the column
declares sets its row aside.
"""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import pyarrow as pa

from velostream.connectors.any_sql.drivers.base import Address, Connection, Driver
from velostream.connectors.any_sql.drivers.files import file_of
from velostream.connectors.any_sql.values import LOOSE_DECIMAL, decoded, type_of
from velostream.connectors.databases.rows import UTC_TIME

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.connectors.databases.text_rows import Decoded

_SAMPLE = 1000
"""Rows that are looked at for the type of a column that declares none."""
_DIGITS = re.compile(r"\((\d+)(?:\s*,\s*(\d+))?\)")
_MOMENT = "%Y-%m-%d %H:%M:%f"
_NAMES: tuple[tuple[tuple[str, ...], pa.DataType], ...] = (
    (("BOOL",), pa.bool_()),
    (("INT",), pa.int64()),
    (("CHAR", "CLOB", "TEXT", "JSON", "UUID"), pa.string()),
    (("BLOB", "BINARY"), pa.binary()),
    (("REAL", "FLOA", "DOUB"), pa.float64()),
    (("DATETIME", "TIMESTAMP"), UTC_TIME),
    (("DATE",), pa.date32()),
)


class SqliteDriver(Driver):
    """`sql://sqlite:/path/app.db`."""

    name = "sqlite"
    takes: ClassVar[frozenset[str]] = frozenset({"database", "connect_timeout"})

    def connect(self, address: Address) -> Connection:
        """See `Driver`."""
        path = file_of(address, "sqlite")
        timeout = address.options.connect_timeout.total_seconds()
        opened = sqlite3.connect(
            f"file:{quote(str(path))}?mode=ro", uri=True, timeout=timeout, check_same_thread=False
        )
        opened.set_authorizer(_only_this_file)
        return SqliteConnection(opened)


def _only_this_file(action: int, *_: Any) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_ATTACH else sqlite3.SQLITE_OK


class SqliteConnection(Connection):
    """An open file."""

    def __init__(self, opened: sqlite3.Connection) -> None:
        self._opened = opened

    def columns(self, query: str, values: Sequence[Any]) -> pa.Schema:
        """See `Connection`: from what the first rows hold."""
        with closing(self._opened.execute(query, values)) as cursor:
            names = [each[0] for each in cursor.description]
            rows = cursor.fetchmany(_SAMPLE)
        return pa.schema(
            [pa.field(name, type_of([row[place] for row in rows])) for place, name in enumerate(names)]
        )

    def table_columns(self, table: str, schema: str | None) -> pa.Schema:
        """See `Connection`: as declared; a column that declares nothing is what it holds."""
        found = self._opened.execute(
            "SELECT name, type FROM pragma_table_info(?, ?)", (table, schema or "main")
        ).fetchall()
        if not found:
            return super().table_columns(table, schema)
        held = None if all(type_ for _, type_ in found) else super().table_columns(table, schema)
        fields = []
        for name, written in found:
            kind = declared(written)
            if kind is None:
                assert held is not None
                kind = held.field(name).type
            fields.append(pa.field(name, kind))
        return pa.schema(fields)

    def key(self, table: str, schema: str | None) -> tuple[str, ...]:
        """See `Connection`."""
        query = "SELECT name FROM pragma_table_info(?, ?) WHERE pk > 0 ORDER BY pk"
        return tuple(row[0] for row in self._opened.execute(query, (table, schema or "main")))

    def tables(self) -> list[str]:
        """See `Connection`."""
        query = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') ORDER BY name"
        return [row[0] for row in self._opened.execute(query)]

    def rows(self, query: str, values: Sequence[Any], schema: pa.Schema, size: int) -> Iterator[Decoded]:
        """See `Connection`: within one statement, everything is as it was when it began."""
        with closing(self._opened.execute(query, values)) as cursor:
            while rows := cursor.fetchmany(size):
                yield decoded(schema, rows)

    def grows(self, column: pa.Field, sign: str, mark: str) -> str:
        """See `Connection`: moments are texts of several forms, or numbers."""
        if not pa.types.is_timestamp(column.type):
            return super().grows(column, sign, mark)
        name = self.quoted(column.name)
        return f"strftime('{_MOMENT}', {name}, 'auto') {sign} strftime('{_MOMENT}', {mark})"

    def after(self, column: pa.Field, text: str) -> Any:
        """See `Connection`: what is no number is its text."""
        if pa.types.is_timestamp(column.type):
            return text.removesuffix("Z").removesuffix(".000000")
        if pa.types.is_decimal(column.type):
            return float(text)
        return text if pa.types.is_date(column.type) else super().after(column, text)

    def interrupt(self) -> None:
        """See `Connection`."""
        self._opened.interrupt()

    def sampled(self, table: str | None, schema: str | None) -> bool:
        """See `Connection`: of queries, and of columns that declare nothing."""
        if table is None:
            return True
        query = "SELECT 1 FROM pragma_table_info(?, ?) WHERE type = ''"
        return self._opened.execute(query, (table, schema or "main")).fetchone() is not None

    def close(self) -> None:
        """See `Connection`."""
        self._opened.close()


def declared(written: str) -> pa.DataType | None:
    """The type that a column declares; None where it declares nothing."""
    name = written.upper()
    if not name:
        return None
    if "DEC" in name or "NUMERIC" in name or "MONEY" in name:
        digits = _DIGITS.search(name)
        if digits is None:
            return LOOSE_DECIMAL
        return pa.decimal128(min(int(digits[1]), 38), int(digits[2] or 0))
    return next((kind for words, kind in _NAMES if any(word in name for word in words)), pa.string())
