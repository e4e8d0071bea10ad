"""INSERT … VALUES: any number of rows, constants without an engine, each value as its column has it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

import velostream
from refusals import refusal
from velostream.errors import VelostreamError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance

COLUMNS = "id BIGINT PRIMARY KEY, d DATE, t TIMESTAMP, x DOUBLE, m DECIMAL(10,2), s STRING, b BOOLEAN"
NOON = datetime(2026, 7, 1, 12, tzinfo=UTC)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Instance]:
    with velostream.connect(tmp_path / "data") as database:
        database.sql(f"CREATE TABLE t ({COLUMNS})")
        yield database


@pytest.mark.parametrize("count", [100, 3000])
def test_many_rows_of_every_type(database, count):
    rows = (
        f"({n}, DATE '2026-07-01', TIMESTAMP '2026-07-01 12:00:00', {n}.5, -{n}.25, 's{n}', true)"
        for n in range(count)
    )
    database.sql(f"INSERT INTO t VALUES {', '.join(rows)}")
    table = database.table("t")
    assert len(table) == count
    assert table.get(99) == (99, date(2026, 7, 1), NOON, 99.5, Decimal("-99.25"), "s99", True)


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("d", "'2026-07-01'", date(2026, 7, 1)),
        ("d", "CAST('2026-07-01' AS DATE)", date(2026, 7, 1)),
        ("t", "'2026-07-01 12:00:00'", NOON),
        ("t", "'2026-07-01T12:00:00.000000Z'", NOON),
        ("t", "TIMESTAMP '2026-07-01 14:00:00+02:00'", NOON),
        ("t", "TIMESTAMP_NTZ '2026-07-01 12:00:00'", NOON),
        ("x", "1", 1.0),
        ("x", "-1e3", -1000.0),
        ("x", "1.5D", 1.5),
        ("m", "7", Decimal("7.00")),
        ("s", "NULL", None),
        ("b", "FALSE", False),
        ("id", "-9223372036854775807", -9223372036854775807),
    ],
)
def test_constants(database, column, text, value):
    names = ("id", column) if column != "id" else ("id",)
    database.sql(f"INSERT INTO t ({', '.join(names)}) VALUES ({'1, ' if column != 'id' else ''}{text})")
    assert [row[column] for row in database.table("t").rows()] == [value]


def test_rows_that_an_engine_computes_among_constants(database):
    rows = [f"({n}, {n} * 2)" if n % 3 == 0 else f"({n}, {n}.5)" for n in range(2000)]
    database.sql(f"INSERT INTO t (id, x) VALUES {', '.join(rows)}")
    expected = [(n, n * 2.0 if n % 3 == 0 else n + 0.5) for n in range(2000)]
    assert database.sql("SELECT id, x FROM t ORDER BY id").rows() == expected


def test_parameters(database):
    given = [(n, date(2026, 7, 1), NOON, n / 4, Decimal(n), f"s{n}", None) for n in range(500)]
    marks = ", ".join("(?, ?, ?, ?, ?, ?, ?)" for _ in given)
    database.sql(f"INSERT INTO t VALUES {marks}", [value for row in given for value in row])
    assert sorted(database.table("t").rows()) == given
    database.sql("INSERT INTO t (id, x) VALUES (:a + 1000, :b), (:a, 1)", {"a": 1000, "b": 2})
    assert database.sql("SELECT id, x FROM t WHERE id >= 1000 ORDER BY id").rows() == [
        (1000, 1.0),
        (2000, 2.0),
    ]


@pytest.mark.parametrize("row", ["300, 1e400", "1, 2.345", "1.5, 1", "'x', 1", "1, 'x'"])
def test_a_value_that_does_not_fit(database, row):
    database.sql("CREATE TABLE narrow (n TINYINT, m DECIMAL(4,2))")
    with pytest.raises(VelostreamError):
        database.sql(f"INSERT INTO narrow VALUES (1, 1), ({row})")
    assert len(database.table("narrow")) == 0


def test_whole_numbers_of_a_query_fit_a_decimal(database):
    database.sql("INSERT INTO t (id, m) SELECT 1, 7")
    assert database.table("t").get(1).m == Decimal("7.00")
    with refusal("sql", "m"):
        database.sql("INSERT INTO t (id, m) SELECT 2, 123456789")
