"""Writing to ClickHouse: once, by key where the table replaces rows, with refused rows set aside."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import WaitUntil
    from warehouses import Warehouse

    from velostream import Database

pytestmark = pytest.mark.spark


@pytest.fixture
def totals(db: Database) -> None:
    db.sql("CREATE TABLE totals (city STRING PRIMARY KEY, total DECIMAL(15,2), n INT)")
    db.sql("INSERT INTO totals VALUES ('Rome', 12345.67, 3), ('Bonn', 0.01, 1)")


def test_a_table_is_mirrored(db: Database, warehouse: Warehouse, totals: None, wait_until: WaitUntil) -> None:
    db.sql(
        f"INSERT INTO {warehouse.uri('mirrored')} SELECT * FROM totals EMIT CHANGES "
        'WITH ("table.create.if.missing" = "true")'
    )

    def same() -> bool:
        return warehouse.rows("SELECT city, total, n FROM @mirrored FINAL") == Counter(
            tuple(row) for row in db.sql("SELECT * FROM totals").rows()
        )

    wait_until(same)
    table = db.table("totals")
    table.update("Rome", total=Decimal("99999999999.99"))
    table.delete(["Bonn"])
    table.insert([{"city": "Oslo \"'\\,\n", "total": None, "n": 0}])
    wait_until(same)
    table.insert([{"city": "Bonn", "total": 2, "n": 2}])
    wait_until(same)
    # What was written is read back by key, without the columns that keep track.
    db.sql(f"CREATE TABLE back AS SELECT * FROM {warehouse.uri('mirrored')}")
    wait_until(lambda: db.table("back").get("Bonn") == ("Bonn", Decimal("2.00"), 2))


def test_every_type_is_written(db: Database, warehouse: Warehouse, wait_until: WaitUntil) -> None:
    db.sql(
        "CREATE TABLE kinds (id INT PRIMARY KEY, b BOOLEAN, f DOUBLE, d DATE, t TIMESTAMP, y BINARY, "
        "a ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<x: INT>)"
    )
    db.sql(
        "INSERT INTO kinds VALUES (1, true, 1.5, DATE'2024-02-29', TIMESTAMP'2024-01-02 03:04:05.678901', "
        "X'00FF', array('a \"b\"', '', NULL, 'c\\\\d'), map('k', 1), named_struct('x', 1)), "
        "(2, NULL, NULL, NULL, NULL, NULL, array(), map(), named_struct('x', NULL)), "
        "(3, NULL, NULL, NULL, NULL, NULL, NULL, map(), named_struct('x', NULL))"
    )
    db.sql(
        f"INSERT INTO {warehouse.uri('kinds')} SELECT * FROM kinds EMIT CHANGES "
        'WITH ("table.create.if.missing" = "true")'
    )
    wait_until(lambda: len(warehouse.rows("SELECT id FROM @kinds")) == 2)
    query = (
        f"SELECT * EXCEPT (_velostream_version, _velostream_deleted, y), hex(y) FROM {warehouse.name}.kinds"
    )
    found = sorted(warehouse.server.rows(f"{query} ORDER BY id"))
    moment = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert found[0][4].replace(tzinfo=UTC) == moment
    assert (*found[0][:4], *found[0][5:]) == (
        1, True, 1.5, date(2024, 2, 29), ['a "b"', "", None, "c\\d"], {"k": 1}, {"x": 1}, "00FF",
    )  # fmt: skip
    assert found[1] == (2, None, None, None, None, [], {}, {"x": None}, None)
    (letter,) = db.sql("SELECT reason FROM dead_letters").rows()
    assert '"a"' in letter.reason


def test_rows_that_are_refused(
    db: Database, warehouse: Warehouse, totals: None, wait_until: WaitUntil
) -> None:
    warehouse.run(
        "CREATE TABLE @strict (city FixedString(6), total Nullable(Decimal(6, 2)), n Int8, "
        "CONSTRAINT few CHECK n < 99) ENGINE = ReplacingMergeTree ORDER BY city"
    )
    db.sql(f"INSERT INTO {warehouse.uri('strict')} SELECT * FROM totals EMIT CHANGES")
    table = db.table("totals")
    table.insert(
        [
            {"city": "Reykjavik", "total": 1, "n": 1},
            {"city": "Lima", "total": 1, "n": 100},
            {"city": "Kyoto", "total": 1, "n": 300},
            {"city": "Cairo", "total": 1, "n": None},
        ]
    )
    table.insert([{"city": "Paris", "total": 1, "n": 1}])
    cities = "SELECT trim(TRAILING '\\0' FROM CAST(city AS String)) FROM @strict"
    wait_until(lambda: ("Paris",) in warehouse.rows(cities))
    assert warehouse.rows(cities) == Counter([("Bonn",), ("Paris",)])
    letters = [row.reason for row in db.sql("SELECT reason FROM dead_letters").rows()]
    assert len(letters) == 5
    for words in ("12345.67", "300", "too long", "Constraint", "NULL"):
        assert any(words in reason for reason in letters), (words, letters)


def test_rows_are_appended(db: Database, warehouse: Warehouse, tmp_path: Path, wait_until: WaitUntil) -> None:
    lines = tmp_path / "lines.csv"
    lines.write_text("a,b\n1,x\n2,y\n")
    warehouse.run(
        "CREATE TABLE @lines (a Int64, b LowCardinality(String)) ENGINE = MergeTree ORDER BY a",
        "CREATE MATERIALIZED VIEW @counted ENGINE = SummingMergeTree ORDER BY b AS "
        "SELECT b, count() AS n FROM @lines GROUP BY b",
    )
    db.sql(f"INSERT INTO {warehouse.uri('lines')} SELECT * FROM file://{lines}")
    wait_until(lambda: warehouse.rows("SELECT * FROM @lines") == Counter([(1, "x"), (2, "y")]))
    with lines.open("a") as out:
        out.write("3,y\n")
    wait_until(lambda: len(warehouse.rows("SELECT * FROM @lines")) == 3)
    assert warehouse.rows("SELECT b, sum(n) FROM @counted GROUP BY b") == Counter([("x", 1), ("y", 2)])


def test_retractions_of_a_collapsing_table(
    db: Database, warehouse: Warehouse, totals: None, wait_until: WaitUntil
) -> None:
    warehouse.run(
        "CREATE TABLE @states (city String, total Decimal(15, 2), n Int32, sign Int8) "
        "ENGINE = CollapsingMergeTree(sign) ORDER BY city"
    )
    db.sql(f"INSERT INTO {warehouse.uri('states')} SELECT * FROM totals EMIT CHANGES")
    query = "SELECT city, n FROM @states FINAL"
    wait_until(lambda: warehouse.rows(query) == Counter([("Rome", 3), ("Bonn", 1)]))
    db.table("totals").update("Rome", n=4)
    db.table("totals").delete(["Bonn"])
    wait_until(lambda: warehouse.rows(query) == Counter([("Rome", 4)]))


def test_mistakes_are_named(db: Database, warehouse: Warehouse, totals: None) -> None:
    warehouse.run("CREATE TABLE @orders (id Int32) ENGINE = MergeTree ORDER BY id")
    with refusal("sink.missing", "nowhere"):
        db.sql(f"INSERT INTO {warehouse.uri('nowhere')} SELECT * FROM totals EMIT CHANGES")
    with refusal("sink.config", "city"):
        db.sql(f"INSERT INTO {warehouse.uri('orders')} SELECT * FROM totals EMIT CHANGES")
    with refusal("sink.auth"):
        uri = warehouse.uri("orders").replace("secret", "wrong")
        db.sql(f"INSERT INTO {uri} SELECT * FROM totals EMIT CHANGES")
    warehouse.run(
        "CREATE TABLE @loose (city String, total Decimal(15, 2), n Int32) ENGINE = MergeTree ORDER BY n"
    )
    with refusal("sink.config", "loose", why="comes again"):
        db.sql(
            f"INSERT INTO {warehouse.uri('loose')} SELECT * FROM totals EMIT CHANGES "
            'WITH ("delivery" = "exactly_once")'
        )


def test_columns_that_are_new_are_added_where_the_table_was_made(
    db: Database, warehouse: Warehouse, tmp_path: Path, wait_until: WaitUntil
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"id":1,"a":1}\n')
    db.sql(f'CREATE TABLE events AS SELECT * FROM file://{events} WITH ("key" = "id")')
    copy = f"INSERT INTO {warehouse.uri('wide')} SELECT * FROM events EMIT CHANGES "
    db.sql(copy + 'WITH ("table.create.if.missing" = "true")')
    wait_until(lambda: warehouse.rows("SELECT id, a FROM @wide FINAL") == Counter([(1, 1)]))
    with events.open("a") as file:
        file.write('{"id":2,"a":2,"z":"new"}\n')
    wait_until(
        lambda: warehouse.rows("SELECT id, a, z FROM @wide FINAL") == Counter([(1, 1, None), (2, 2, "new")])
    )
    with events.open("a") as file:
        file.write('{"id":1,"a":7,"z":"late"}\n')
    wait_until(
        lambda: warehouse.rows("SELECT id, a, z FROM @wide FINAL") == Counter([(1, 7, "late"), (2, 2, "new")])
    )
