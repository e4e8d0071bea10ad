"""Comparisons that the server applies itself: no row that passes them in Spark fails them there."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from velostream.connectors.mysql.client.connections import quoted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.connectors.mysql.client.tables import Column
    from velostream.connectors.narrowing import Comparison, Narrowing, Value

_NUMBERS = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "numeric"})
_MOMENTS = frozenset({"datetime", "timestamp"})
_TEXTS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})


def conditions(narrowing: Narrowing, columns: Sequence[Column]) -> tuple[list[str], bool]:
    """The comparisons as SQL, and whether these are all of them and let no other row pass.

    Texts are compared by the collation of the column, which takes more of them for equal than Spark does.
    """
    by_name = {column.name.casefold(): column for column in columns}
    made, exact = [], True
    for each in narrowing.comparisons:
        found = _condition(each, by_name.get(each.column.casefold()))
        exact = exact and found is not None and not any(isinstance(value, str) for value in each.values)
        made += [found] if found is not None else []
    return made, exact


def _condition(comparison: Comparison, column: Column | None) -> str | None:
    if column is None or not all(_comparable(column, comparison.operator, v) for v in comparison.values):
        return None
    name = quoted(column.name)
    if not comparison.values:
        return f"{name} {comparison.operator}"
    values = ", ".join(_literal(value) for value in comparison.values)
    return f"{name} {comparison.operator} {f'({values})' if comparison.operator == 'IN' else values}"


def _comparable(column: Column, operator: str, value: Value) -> bool:
    """Whether what passes a comparison in Spark passes it there; the server may take a text for a number."""
    kind = column.type.name
    if isinstance(value, bool):
        return False
    if isinstance(value, int | Decimal):
        return kind in _NUMBERS
    if isinstance(value, str):
        # Other texts have no meaning in some character sets, and are an error there.
        return kind in _TEXTS and operator in ("=", "IN") and value.isascii()
    return kind in _MOMENTS if isinstance(value, datetime) else kind == "date"


def _literal(value: Value) -> str:
    if isinstance(value, datetime):
        return f"TIMESTAMP'{value.astimezone(UTC).replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
    if isinstance(value, date):
        return f"DATE'{value.isoformat()}'"
    if isinstance(value, str):
        # The bytes of a text mean the same whatever the modes and the character set of the session are.
        return f"_ascii X'{value.encode().hex()}'"
    return format(value, "f") if isinstance(value, Decimal) else str(value)
