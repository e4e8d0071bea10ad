"""Random queries over the tables `a`, `b` and `c`, drawn from a small grammar."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

TABLES = {
    "a": "id BIGINT PRIMARY KEY, k STRING, n BIGINT, x DECIMAL(10,2)",
    "b": "id BIGINT PRIMARY KEY, k STRING, n BIGINT, x DECIMAL(10,2)",
    "c": "k STRING, n BIGINT, id BIGINT",
}
COLUMNS = ("id", "k", "n")
_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_AGGREGATES = (
    "COUNT(*)",
    "SUM({c})",
    "MIN({c})",
    "MAX({c})",
    "AVG({c})",
    "COUNT(DISTINCT {c})",
    "COUNT({c}) FILTER (WHERE {c} > 2)",
)


class Grammar:
    """Draws queries whose columns are always called c0, c1, …"""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def query(self) -> str:
        rng = self._rng
        shape = rng.random()
        if shape < 0.15:
            word = rng.choice(["UNION", "UNION ALL", "EXCEPT", "INTERSECT", "EXCEPT ALL"])
            return f"{self._rows(2)} {word} {self._rows(2)}"
        if shape < 0.5:
            return self._groups()
        if shape < 0.65:
            return self._windows()
        return self._rows(rng.randint(1, 3))

    # --- what is selected -------------------------------------------------------------------------------

    def _rows(self, width: int) -> str:
        relations, source = self._from()
        kinds = ["k", "n", "id"][:width]
        items = ", ".join(f"{self._value(relations, kind)} AS c{at}" for at, kind in enumerate(kinds))
        distinct = "DISTINCT " if self._rng.random() < 0.2 else ""
        return f"SELECT {distinct}{items} FROM {source}{self._where(relations)}"

    def _groups(self) -> str:
        rng = self._rng
        relations, source = self._from()
        keys = [self._value(relations, kind) for kind in rng.sample(COLUMNS, rng.randint(0, 2))]
        values = [
            rng.choice(_AGGREGATES).format(c=self._column(relations, "n")) for _ in range(rng.randint(1, 3))
        ]
        items = ", ".join(f"{item} AS c{at}" for at, item in enumerate([*keys, *values]))
        group = f" GROUP BY {', '.join(keys)}" if keys else ""
        having = " HAVING COUNT(*) > 1" if keys and rng.random() < 0.3 else ""
        return f"SELECT {items} FROM {source}{self._where(relations)}{group}{having}"

    def _windows(self) -> str:
        relations, source = self._from()
        by, order = self._column(relations, "k"), self._column(relations, "id")
        others = ", ".join(f"{alias}.id" for alias in relations)
        call = self._rng.choice(
            [
                f"row_number() OVER (PARTITION BY {by} ORDER BY {order}, {others})",
                f"rank() OVER (PARTITION BY {by} ORDER BY {order})",
                f"SUM({self._column(relations, 'n')}) OVER (PARTITION BY {by})",
            ]
        )
        inner = f"SELECT {by} AS c0, {order} AS c1, {call} AS c2 FROM {source}{self._where(relations)}"
        return inner if self._rng.random() < 0.5 else f"SELECT c0, c1, c2 FROM ({inner}) WHERE c2 <= 2"

    # --- where it comes from ----------------------------------------------------------------------------

    def _from(self) -> tuple[list[str], str]:
        rng = self._rng
        relations = ["t0"]
        source = self._relation("t0")
        for number in range(1, rng.choice([1, 2, 2, 3])):
            alias = f"t{number}"
            kind = rng.choice(COLUMNS)
            on = f"{self._column(relations, kind)} {rng.choice(['=', '=', '=', '<=>'])} {alias}.{kind}"
            if rng.random() < 0.25:
                on += f" AND {self._column(relations, 'n')} < {alias}.n + 3"
            source += f" {rng.choice(_JOINS)} {self._relation(alias)} ON {on}"
            relations.append(alias)
        return relations, source

    def _relation(self, alias: str) -> str:
        rng = self._rng
        table = rng.choice(list(TABLES))
        shape = rng.random()
        if shape < 0.7:
            return f"{table} {alias}"
        if shape < 0.85:
            return f"(SELECT id, k, n + 1 AS n FROM {table} WHERE n > {rng.randint(0, 3)}) {alias}"
        return f"(SELECT k, MAX(id) AS id, SUM(n) AS n FROM {table} GROUP BY k) {alias}"

    def _where(self, relations: list[str]) -> str:
        rng = self._rng
        shape = rng.random()
        if shape < 0.4:
            return ""
        column = self._column(relations, "n")
        if shape < 0.7:
            return f" WHERE {column} > {rng.randint(0, 4)} OR {self._column(relations, 'k')} IS NULL"
        table = rng.choice(list(TABLES))
        if shape < 0.85:
            return f" WHERE {column} IN (SELECT n FROM {table} WHERE id > {rng.randint(0, 5)})"
        word = rng.choice(["EXISTS", "NOT EXISTS"])
        return (
            f" WHERE {word} (SELECT 1 FROM {table} q WHERE q.k = {self._column(relations, 'k')} AND q.n > 1)"
        )

    def _value(self, relations: list[str], kind: str) -> str:
        column = self._column(relations, kind)
        if self._rng.random() < 0.7:
            return column
        return f"upper({column})" if kind == "k" else f"{column} % 3"

    def _column(self, relations: list[str], kind: str) -> str:
        return f"{self._rng.choice(relations)}.{kind}"
