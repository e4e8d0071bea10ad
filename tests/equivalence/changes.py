"""Random changes of the tables of the grammar, as SQL, and what the tables hold after them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from equivalence.grammar import TABLES

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

Row = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """One statement, and all rows of its table when it has been executed."""

    table: str
    sql: str
    rows: list[Row]


class Contents:
    """Three tables filled by hand, and what is in them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 0
        self.rows: dict[str, list[Row]] = {name: [] for name in TABLES}

    def draw(self) -> Change:
        """A change, which has not happened yet."""
        rng = self._rng
        name = rng.choice(list(TABLES))
        rows = self.rows[name]
        shape = rng.random()
        if shape < 0.5 or not rows:
            fresh = [self._row(name) for _ in range(rng.randint(1, 6))]
            columns = ", ".join(fresh[0])
            values = ", ".join(f"({', '.join(_literal(value) for value in row.values())})" for row in fresh)
            return Change(name, f"INSERT INTO {name} ({columns}) VALUES {values}", rows + fresh)
        if shape < 0.75:
            value, limit = rng.randint(0, 5), rng.randint(0, 5)
            updated = [
                row | {"n": value} if row["n"] is not None and row["n"] <= limit else row for row in rows
            ]
            return Change(name, f"UPDATE {name} SET n = {value} WHERE n <= {limit}", updated)
        key = rng.choice(["x", "y", "z", ""])
        left = [row for row in rows if row["k"] != key]
        return Change(name, f"DELETE FROM {name} WHERE k = '{key}'", left)

    def happened(self, change: Change) -> None:
        self.rows[change.table] = change.rows

    def arrow(self, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
        return {name: pa.Table.from_pylist(self.rows[name], schemas[name]) for name in TABLES}

    def _row(self, name: str) -> Row:
        rng = self._rng
        self._next += 1
        row = {
            "id": self._next if name != "c" else rng.randint(1, 12),
            "k": rng.choice(["x", "y", "z", "", None]),
            "n": rng.choice([None, *range(6)]),
        }
        return row if name == "c" else row | {"x": Decimal(rng.randint(0, 999)).scaleb(-2)}


def same_rows(one: list[Row], other: list[Row]) -> bool:
    """Whether two lists hold the same rows, in any order."""
    return Counter(map(_frozen, one)) == Counter(map(_frozen, other))


def _frozen(row: Row) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(row.items()))


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return f"'{value}'" if isinstance(value, str) else str(value)
