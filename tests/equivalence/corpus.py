"""The SELECTs that stand in the files of other tests, each with tables and rows to be run over."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp

from velostream.sql.parse.dialect import Velostream
from velostream.testing import find_cases
from velostream.testing.cases import Case, ExpectError, Given, Run
from velostream.testing.cells import value_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from velostream.runtime.instance import Instance

TESTS = Path(__file__).parent.parent
_UNSTABLE = (
    "TABLESAMPLE",  # another sample each time
    "collect_list(id)",  # in any order
    "rand()",  # and uuid(), now(): another value each time
    "now()",
    "CURRENT_DATE",
)
_SOURCE = re.compile(r"CREATE\s+SOURCE\s+(\w+)\s*\((.*)\)\s*FROM\s+test://", re.IGNORECASE | re.DOTALL)
_WATERMARK = re.compile(r",\s*WATERMARK\s+FOR\s.*", re.IGNORECASE | re.DOTALL)
_TABLE = re.compile(r"CREATE\s+(?:TABLE|STREAM|VIEW)\s+(\w+)\b", re.IGNORECASE)
_QUERY = re.compile(r"CREATE\s+(?:TABLE|STREAM)\s+\w+\s+AS\s+(.*)", re.IGNORECASE | re.DOTALL)
_ENDING = re.compile(r"\s+(?:EMIT\s+(?:FINAL|CHANGES)|WITH\s*\(\s*[\"']).*", re.IGNORECASE | re.DOTALL)
_STREAM = re.compile(r"CREATE\s+STREAM\b", re.IGNORECASE)
_UNTIMED = re.compile(r"(\bWINDOW\s+\w+\s*\()\s*(?=\d|INTERVAL)", re.IGNORECASE)


@dataclass(frozen=True)
class Corpus:
    """Queries over some tables, and how the tables are made, filled and changed."""

    name: str
    tables: tuple[str, ...]
    queries: tuple[str, ...]
    make: Callable[[Instance], None]
    fill: Callable[[Instance], None]
    change: Callable[[Instance], None]


def lines(name: str) -> list[str]:
    """The statements of a file with one a line; a line that starts with -- is a comment."""
    text = (TESTS / name).read_text(encoding="utf-8")
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("--")]


def of_arrow(name: str, tables: dict[str, pa.Table], queries: Sequence[str]) -> Corpus:
    """Queries over rows that are given as Arrow tables; the last rows come later, and the first goes."""

    def make(database: Instance) -> None:
        for table, rows in tables.items():
            database.create_table(table, rows.slice(0, 0))

    def fill(database: Instance) -> None:
        for table, rows in tables.items():
            database.table(table).insert(rows.slice(0, rows.num_rows - 2))

    def change(database: Instance) -> None:
        for table, rows in tables.items():
            database.table(table).insert(rows.slice(rows.num_rows - 2))
            first = rows.column_names[0]
            database.sql(f"DELETE FROM `{table}` WHERE `{first}` <=> :it", {"it": rows[first][0].as_py()})

    return Corpus(name, tuple(tables), tuple(map(named, queries)), make, fill, change)


def named(sql: str) -> str:
    """The query with a name for each column that has none: engines make up different ones."""
    tree = sqlglot.parse_one(sql, dialect=Velostream)
    first = tree
    while not isinstance(first, exp.Select):
        first = first.this
    for place, item in enumerate(first.expressions):
        if not isinstance(item, exp.Alias | exp.Aliases | exp.Column | exp.Star) and not item.is_star:
            item.replace(exp.alias_(item.copy(), f"column{place}"))
    return tree.sql(dialect="spark")


def fixture_queries() -> list[str]:
    """The queries of tests/sql/parse/queries.sql whose answer is the same each time."""
    text = (TESTS / "sql" / "parse" / "queries.sql").read_text(encoding="utf-8")
    statements = [part.strip() for part in text.split(";\n")]
    return [
        part
        for part in statements
        if part.upper().startswith(("SELECT", "WITH")) and not any(word in part for word in _UNSTABLE)
    ]


def fixture_tables() -> dict[str, pa.Table]:
    """Rows for the tables that these queries are about."""
    days = [datetime(2024, 1, 1, 10), datetime(2024, 1, 1, 11, 30), datetime(2024, 2, 29), None]
    return {
        "orders": pa.table(
            {
                "id": pa.array([1, 2, 3, 4], pa.int64()),
                "customer": pa.array([1, 1, 2, 9], pa.int64()),
                "amount": pa.array(
                    [Decimal("10.50"), Decimal("3.25"), None, Decimal("99.99")], pa.decimal128(10, 2)
                ),
                "status": pa.array(["a", "b", "x", None], pa.string()),
                "tags": pa.array([["x", "y"], ["q"], None, ["b", None]], pa.list_(pa.string())),
                "at": pa.array(days, pa.timestamp("us", tz="UTC")),
            }
        ),
        "customers": pa.table(
            {
                "id": pa.array([1, 2, 3], pa.int64()),
                "name": pa.array(["ann", "bob", None], pa.string()),
                "region": pa.array(["EU", "US", "EU"], pa.string()),
                "info": pa.array(
                    [{"city": "Bern", "zip": "3000"}, None, {"city": None, "zip": "1"}],
                    pa.struct([pa.field("city", pa.string()), pa.field("zip", pa.string())]),
                ),
            }
        ),
    }


def of_cases(folder: Path = TESTS / "velotest") -> list[Corpus]:
    """A corpus for each case whose statements are accepted: its sources are tables filled by hand."""
    cases = find_cases(folder).cases
    found = [
        _of_case(case) for case in cases if not any(isinstance(step, ExpectError) for step in case.steps)
    ]
    return [corpus for corpus in found if corpus.queries]


def _of_case(case: Case) -> Corpus:
    """Tables have no watermark: a window names the column of its time."""
    statements = [
        _UNTIMED.sub(r"\1ts, ", text.strip())
        for step in case.steps
        if isinstance(step, Run)
        for text in step.sql.split(";")
        if text.strip()
    ]
    sources = {
        match[1]: _WATERMARK.sub("", match[2])
        for text in statements
        if (match := _SOURCE.match(text)) is not None
    }
    queries = [
        _ENDING.sub("", match[1]).strip()
        for text in statements
        if (match := _QUERY.match(text)) is not None and "://" not in text
    ]
    below = [
        text
        for number, text in enumerate(statements)
        if (match := _TABLE.match(text)) is not None
        and "://" not in text
        and any(re.search(rf"\b{match[1]}\b", later) for later in statements[number + 1 :])
    ]
    given = [step for step in case.steps if isinstance(step, Given) and step.source in sources]
    half = (len(given) + 1) // 2

    def make(database: Instance) -> None:
        for name, columns in sources.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        for text in below:
            database.sql(_STREAM.sub("CREATE TABLE", _ENDING.sub("", text)))

    def bring(database: Instance, steps: Sequence[Given]) -> None:
        for step in steps:
            _bring(database, step)

    tables = (*sources, *(match[1] for text in below if (match := _TABLE.match(text)) is not None))
    return Corpus(
        f"{Path(case.file).stem}: {case.name}",
        tables,
        tuple(dict.fromkeys(queries)),
        make,
        lambda database: bring(database, given[:half]),
        lambda database: bring(database, given[half:]),
    )


def _bring(database: Instance, step: Given) -> None:
    """Insert the rows of a step; a row that is taken back is deleted."""
    table = database.table(step.source)
    kinds = dict(zip(table.spec.visible_schema.names, table.spec.visible_schema.types, strict=True))
    columns = [name for name in step.rows.columns if name in kinds]
    for line in step.rows.lines:
        cells = dict(zip(step.rows.columns, line.cells, strict=True))
        try:
            row: dict[str, Any] = {name: value_of(cells[name], kinds[name]) for name in columns}
        except ValueError:
            continue  # a cell that is wrong on purpose
        if line.sign == "-":
            same = " AND ".join(f"`{name}` <=> :{name}" for name in columns)
            database.sql(f"DELETE FROM {step.source} WHERE {same}", row)
        else:
            table.insert([row])
