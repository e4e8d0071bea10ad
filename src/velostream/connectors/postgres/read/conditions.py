"""Comparisons that PostgreSQL applies itself: those that mean there what they mean in Spark."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.connectors.databases.text_rows import TextColumn
    from velostream.connectors.narrowing import Comparison, Narrowing

_TEXTS = ("text", "varchar")
"""Types whose equality is that of their characters; `bpchar` ignores spaces, others are no texts."""


def conditions(narrowing: Narrowing, columns: Sequence[TextColumn]) -> tuple[list[sql.Composed], bool]:
    """The comparisons as SQL, and whether these are all of them."""
    by_name = {column.name.casefold(): column for column in columns}
    found = [_condition(each, by_name.get(each.column.casefold())) for each in narrowing.comparisons]
    made = [each for each in found if each is not None]
    return made, len(made) == len(found)


def _condition(comparison: Comparison, column: TextColumn | None) -> sql.Composed | None:
    if column is None or not all(_same_meaning(column, comparison.operator, v) for v in comparison.values):
        return None
    name = sql.Identifier(column.name)
    if not comparison.values:
        return sql.SQL("{} {}").format(name, sql.SQL(comparison.operator))
    values = sql.SQL(", ").join(sql.Literal(value) for value in comparison.values)
    listed = sql.SQL("({})").format(values) if comparison.operator == "IN" else values
    return sql.SQL("{} {} {}").format(name, sql.SQL(comparison.operator), listed)


def _same_meaning(column: TextColumn, operator: str, value: object) -> bool:
    """Whether a comparison gives the same in both: the order of texts does not, nor does a cast."""
    kind = column.type
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(value, int | Decimal):
        return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))
    if isinstance(value, str):
        # What the server cannot hold it has in no row, but refuses in a query.
        return column.told in _TEXTS and operator in ("=", "<>", "IN") and "\x00" not in value
    if isinstance(value, datetime):
        return bool(pa.types.is_timestamp(kind))
    return isinstance(value, date) and bool(pa.types.is_date(kind))
