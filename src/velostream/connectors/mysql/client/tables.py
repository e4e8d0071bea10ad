"""What the server's catalogue says about a table: its columns and its key."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pymysql.constants import FIELD_TYPE, FLAG

from velostream.connectors.databases.text_rows import TextColumn
from velostream.connectors.mysql.client.connections import quoted, run
from velostream.connectors.mysql.client.types import Type, type_of
from velostream.errors import SourceConfigError, SourceMissingError, did_you_mean

if TYPE_CHECKING:
    from pymysql.connections import Connection

_RELATION = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, COALESCE(TABLE_ROWS, 0) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, NUMERIC_PRECISION, NUMERIC_SCALE, IS_NULLABLE,
    COLUMN_DEFAULT, EXTRA
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_KEY = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""
_NEAR = "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
_BITS = re.compile(r"\((\d+)\)")
OLD_UUID = "old uuid"
"""A UUID of a table that MariaDB made before 10.11.5."""
_BINARY = 63
"""The number of the character set of bytes."""


@dataclass(frozen=True)
class Column:
    """One column of a table."""

    name: str
    type: Type
    told: str
    """Its type as the server writes it, such as `int(10) unsigned`."""
    filled: bool
    """Whether rows that were there when it was added have a value in it that no change told."""
    generated: bool

    @property
    def asked(self) -> str:
        """The expression that a load selects."""
        return self.type.asked.format(quoted(self.name))


@dataclass(frozen=True)
class Relation:
    """A table or a view."""

    schema: str
    name: str
    kind: str
    """`BASE TABLE`, `VIEW`, `SYSTEM VERSIONED`, …"""
    rows: int
    """About how many rows it has."""
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    @property
    def identifier(self) -> str:
        """Its quoted name."""
        return quoted(self.schema, self.name)

    def __str__(self) -> str:
        return f'table "{self.schema}.{self.name}"'


def relation(connection: Connection, schema: str | None, name: str) -> Relation:
    """What the catalogue says about a table; SourceMissingError with the nearest name otherwise."""
    if schema is None:
        schema = run(connection, "SELECT DATABASE()")[0][0]
    if schema is None:
        raise SourceConfigError(
            f'table "{name}" is in no database', hint="name one: mysql://host/database?table=name"
        )
    found = run(connection, _RELATION, (schema, name))
    if not found and "." in name:
        space, _, rest = name.partition(".")
        found = run(connection, _RELATION, (space, rest))
    if not found:
        near = [row[0] for row in run(connection, _NEAR, (schema,))]
        raise SourceMissingError(
            f'table "{name}" does not exist in database "{schema}"',
            hint=did_you_mean(name, near) or f"there are: {', '.join(sorted(near)[:20]) or 'none'}",
        )
    # Where names differ in case only, the one that is written is meant.
    space, table, kind, rows = next((row for row in found if row[1] == name), found[0])
    columns = tuple(_column(*row) for row in run(connection, _COLUMNS, (space, table)))
    key = tuple(row[0] for row in run(connection, _KEY, (space, table)))
    return Relation(space, table, kind, int(rows), columns, key)


def _column(
    name: str,
    kind: str,
    told: str,
    precision: int | None,
    scale: int | None,
    nullable: str,
    default: str | None,
    extra: str,
) -> Column:
    kind, told = str(kind).lower(), str(told).lower()
    if kind == "bit" and (bits := _BITS.search(told)):
        precision = int(bits[1])
    if kind == "uuid" and "old" in told:
        kind = OLD_UUID
    made = type_of(kind, unsigned="unsigned" in told, precision=int(precision or 0), scale=int(scale or 0))
    generated = "GENERATED" in extra.upper() and "DEFAULT_GENERATED" not in extra.upper()
    # MariaDB writes a missing default of a column that may be null as the word.
    filled = nullable == "NO" or default not in (None, "NULL") or generated
    return Column(name, made, told, filled, generated)


_TYPES = {
    FIELD_TYPE.TINY: "tinyint",
    FIELD_TYPE.SHORT: "smallint",
    FIELD_TYPE.INT24: "mediumint",
    FIELD_TYPE.LONG: "int",
    FIELD_TYPE.LONGLONG: "bigint",
    FIELD_TYPE.YEAR: "year",
    FIELD_TYPE.FLOAT: "float",
    FIELD_TYPE.DOUBLE: "double",
    FIELD_TYPE.NEWDECIMAL: "decimal",
    FIELD_TYPE.DECIMAL: "decimal",
    FIELD_TYPE.BIT: "bit",
    FIELD_TYPE.DATE: "date",
    FIELD_TYPE.DATETIME: "datetime",
    FIELD_TYPE.TIMESTAMP: "timestamp",
    FIELD_TYPE.TIME: "time",
    FIELD_TYPE.JSON: "json",
    FIELD_TYPE.GEOMETRY: "geometry",
}


def result_column(field: Any) -> Column:
    """A column of a query's result, as the protocol describes it."""
    kind = _TYPES.get(field.type_code)
    unsigned = bool(field.flags & FLAG.UNSIGNED)
    precision, scale = field.length, field.scale
    if kind is None:
        kind = "blob" if field.charsetnr == _BINARY else "text"
    elif kind == "decimal":
        precision = field.length - (scale > 0) - (not unsigned)
    return Column(
        field.name, type_of(kind, unsigned=unsigned, precision=precision, scale=scale), kind, False, False
    )


def text_column(column: Column) -> TextColumn:
    """A column whose values come as text."""
    return TextColumn(column.name, column.type.arrow, column.type.decode, column.told)
