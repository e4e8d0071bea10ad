"""Queries by function and by clause, over small tables with nulls and duplicates, and the rows of these."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

FOLDER = Path(__file__).parent / "kept"
TABLES = {
    "t": "id BIGINT PRIMARY KEY, g STRING, n BIGINT, i INT, d DECIMAL(12,2), x DOUBLE, b BOOLEAN, day DATE, "
    "ts TIMESTAMP, s STRING, arr ARRAY<INT>, m MAP<STRING, INT>, st STRUCT<a: INT, b: STRING>, bin BINARY",
    "u": "g STRING, v BIGINT, w DECIMAL(10,2)",
    "e": "id BIGINT PRIMARY KEY, g STRING, n BIGINT",
}
FILL = (
    """INSERT INTO t VALUES
    (1, 'a', 3, 1, 1.50, 1.5D, true, DATE'2024-01-31', TIMESTAMP'2024-01-31 10:00:00', 'hello',
     array(1, 2), map('k', 1), named_struct('a', 1, 'b', 'x'), X'01'),
    (2, 'a', 3, 2, 2.25, 2.5D, false, DATE'2024-02-29', TIMESTAMP'2024-02-29 23:59:59.123456', 'World',
     array(2, null, 3), map('k', 2, 'l', 3), named_struct('a', 2, 'b', 'y'), X'02'),
    (3, 'a', null, 3, null, null, null, null, null, null, null, null, null, null),
    (4, 'b', 7, 4, -4.00, -4.0D, true, DATE'1999-12-31', TIMESTAMP'1999-12-31 00:00:01', 'a,b',
     array(5), map(), named_struct('a', null, 'b', null), X'FF'),
    (5, 'b', 7, 4, -4.00, -4.0D, true, DATE'1999-12-31', TIMESTAMP'1999-12-31 00:00:01', 'a,b',
     array(5), map(), named_struct('a', 5, 'b', 'z'), X'FF'),
    (6, null, 1, 6, 0.00, 0.0D, false, DATE'2024-03-15', TIMESTAMP'2024-03-15 12:30:00', 'ünï',
     array(), map('q', null), named_struct('a', 6, 'b', 'q'), X''),
    (7, 'c', null, null, 10.00, 10.25D, null, DATE'2024-03-15', TIMESTAMP'2024-03-15 12:30:00', '',
     array(1, 1), map('k', 7), named_struct('a', 7, 'b', 's'), X'0A0B')""",
    "INSERT INTO u VALUES ('a', 1, 1.00), ('a', 2, 2.00), ('b', 3, null), ('c', null, 3.50), (null, 5, 5.00),"
    " ('z', 9, 9.00), ('a', 1, 1.00)",
)
CHANGE = (
    "DELETE FROM t WHERE id IN (2, 4)",
    "UPDATE t SET n = 11, day = DATE'2023-05-31', g = 'b' WHERE id = 3",
    "INSERT INTO t VALUES (8, 'c', 3, 8, 1.50, 1.5D, true, DATE'2024-01-31', TIMESTAMP'2024-01-31 10:00:00',"
    " 'hello', array(1, 2), map('k', 1), named_struct('a', 1, 'b', 'x'), X'01')",
    "DELETE FROM u WHERE v = 2",
    "INSERT INTO u VALUES ('b', 4, 4.00)",
)
_TOGETHER = 8
"""Expressions that one query computes."""


def lines(name: str) -> list[str]:
    """What a file of cases holds, without comments."""
    text = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line and not line.startswith("--")]


def queries() -> list[str]:
    """Every clause by itself, every function among some others."""
    scalar, aggregate, over = lines("functions"), lines("aggregates"), lines("over")
    return [
        *lines("clauses"),
        *_packed("SELECT id, {} FROM t", scalar),
        *_packed("SELECT g, {} FROM t GROUP BY g", aggregate),
        *_packed("SELECT {} FROM t", aggregate),
        *_packed("SELECT id, {} FROM t", [f"{each} OVER (PARTITION BY g)" for each in over]),
    ]


def _packed(query: str, expressions: list[str]) -> list[str]:
    parts = [expressions[at : at + _TOGETHER] for at in range(0, len(expressions), _TOGETHER)]
    named = (", ".join(f"{each} AS c{number}" for number, each in enumerate(part)) for part in parts)
    return [query.format(columns) for columns in named]


def difference(found: pa.Table, wanted: pa.Table) -> str | None:
    """How two results differ as multisets of rows, columns by position; None when they do not."""
    if _types(found) != _types(wanted):
        return f"types {_types(found)} where {_types(wanted)} are right"
    extra, missing = _rows(found), _rows(wanted)
    if extra == missing:
        return None
    return f"has {list((extra - missing).elements())[:3]}, lacks {list((missing - extra).elements())[:3]}"


def _types(table: pa.Table) -> list[str]:
    return [str(kind).replace("element: ", "item: ").replace(" not null", "") for kind in table.schema.types]


def _rows(table: pa.Table) -> Counter[str]:
    columns = [[repr(_rounded(value)) for value in column.to_pylist()] for column in table.columns]
    return Counter(", ".join(row) for row in zip(*columns, strict=True))


def _rounded(value: Any) -> Any:
    """Doubles without the digits that depend on the order of adding."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value:.9g}"
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return {key: _rounded(item) for key, item in value.items()} if isinstance(value, dict) else value
