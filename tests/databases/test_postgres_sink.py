"""Writing to PostgreSQL: exactly once, by key, with the rows that the server refuses set aside."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from shops import Shop
    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = pytest.mark.spark


@pytest.fixture
def totals(db: Database) -> None:
    db.sql("CREATE TABLE totals (city STRING PRIMARY KEY, total DECIMAL(15,2), n INT)")
    db.sql("INSERT INTO totals VALUES ('Rome', 12345.67, 3), ('Bonn', 0.01, 1)")


def test_a_table_is_mirrored(db: Database, shop: Shop, totals: None, wait_until: WaitUntil) -> None:
    db.sql(
        f"INSERT INTO {shop.uri('mirrored')} SELECT * FROM totals EMIT CHANGES "
        'WITH ("table.create.if.missing" = "true")'
    )

    def same() -> bool:
        return shop.rows("SELECT * FROM mirrored") == Counter(
            tuple(row) for row in db.sql("SELECT * FROM totals").rows()
        )

    wait_until(same)
    table = db.table("totals")
    table.update("Rome", total=Decimal("99999999999.99"))
    table.delete(["Bonn"])
    table.insert([{"city": "Oslo \"'\\,\n", "total": None, "n": 0}])
    wait_until(same)
    types = shop.rows(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
        "WHERE attrelid = 'mirrored'::regclass AND attnum > 0"
    )
    assert types == Counter([("text",), ("numeric(15,2)",), ("integer",)])
    assert shop.rows("SELECT count(*) FROM velostream_sinks") == Counter([(1,)])


def test_every_type_is_written(db: Database, shop: Shop, wait_until: WaitUntil) -> None:
    db.sql(
        "CREATE TABLE kinds (id INT PRIMARY KEY, b BOOLEAN, f DOUBLE, d DATE, t TIMESTAMP, y BINARY, "
        "a ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<x: INT>)"
    )
    db.sql(
        "INSERT INTO kinds VALUES (1, true, 1.5, DATE'2024-02-29', TIMESTAMP'2024-01-02 03:04:05.678901', "
        "X'00FF', "
        "array('a \"b\"', '', NULL, 'c\\\\d'), map('k', 1), named_struct('x', 1)), "
        "(2, NULL, double('NaN'), NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    db.sql(
        f"INSERT INTO {shop.uri('kinds')} SELECT * FROM kinds EMIT CHANGES "
        'WITH ("table.create.if.missing" = "true")'
    )
    query = "SELECT id, b, f::text, d::text, t::text, y, a, m, s FROM kinds"
    wait_until(lambda: len(shop.rows("SELECT id FROM kinds")) == 2)
    found = sorted(shop.sql.execute(query).fetchall())
    assert found[0] == (
        1, True, "1.5", "2024-02-29", "2024-01-02 03:04:05.678901+00", b"\x00\xff",
        ['a "b"', "", None, "c\\d"], {"k": 1}, {"x": 1},
    )  # fmt: skip
    assert found[1] == (2, None, "NaN", *[None] * 6)


def test_rows_that_the_server_refuses(db: Database, shop: Shop, totals: None, wait_until: WaitUntil) -> None:
    shop.sql.execute(
        "CREATE TABLE strict (city varchar(6) PRIMARY KEY, total numeric(6,2), n int CHECK (n < 99))"
    )
    db.sql(f"INSERT INTO {shop.uri('strict')} SELECT * FROM totals EMIT CHANGES")
    table = db.table("totals")
    table.insert([{"city": "Reykjavik", "total": 1, "n": 1}, {"city": "Lima", "total": 1, "n": 100}])
    table.insert([{"city": "Paris", "total": 1, "n": 1}])
    wait_until(lambda: ("Paris",) in shop.rows("SELECT city FROM strict"))
    assert shop.rows("SELECT city FROM strict") == Counter([("Bonn",), ("Paris",)])
    letters = [row.reason for row in db.sql("SELECT reason FROM dead_letters").rows()]
    assert len(letters) == 3
    assert any("numeric field overflow" in reason for reason in letters)
    assert any("too long" in reason for reason in letters)
    assert any("check constraint" in reason for reason in letters)


def test_a_target_without_a_key(db: Database, shop: Shop, totals: None, wait_until: WaitUntil) -> None:
    shop.sql.execute("CREATE TABLE loose (city text, total numeric, n bigint, more text)")
    db.sql(f"INSERT INTO {shop.uri('loose')} SELECT * FROM totals EMIT CHANGES")
    wait_until(lambda: len(shop.rows("SELECT city FROM loose")) == 2)
    db.table("totals").update("Rome", n=4)
    wait_until(lambda: shop.rows("SELECT n FROM loose") == Counter([(4,), (1,)]))


def test_rows_are_appended(db: Database, shop: Shop, tmp_path: Path, wait_until: WaitUntil) -> None:
    lines = tmp_path / "lines.csv"
    lines.write_text("a,b\n1,x\n2,y\n")
    shop.sql.execute("CREATE TABLE lines (a bigint, b text)")
    db.sql(f"INSERT INTO {shop.uri('lines')} SELECT * FROM file://{lines}")
    wait_until(lambda: shop.rows("SELECT * FROM lines") == Counter([(1, "x"), (2, "y")]))
    with lines.open("a") as out:
        out.write("3,z\n")
    wait_until(lambda: len(shop.rows("SELECT * FROM lines")) == 3)


def test_mistakes_are_named(db: Database, shop: Shop, totals: None) -> None:
    with refusal("sink.missing", "nowhere"):
        db.sql(f"INSERT INTO {shop.uri('nowhere')} SELECT * FROM totals EMIT CHANGES")
    with refusal("sink.config", "city"):
        db.sql(f"INSERT INTO {shop.uri('orders')} SELECT * FROM totals EMIT CHANGES")
    with refusal("sink.auth"):
        uri = shop.uri("orders").replace("secret", "wrong")
        db.sql(f"INSERT INTO {uri} SELECT * FROM totals EMIT CHANGES")


def test_columns_that_are_new_are_added_where_the_table_was_made(
    db: Database, shop: Shop, tmp_path: Path, wait_until: WaitUntil
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"id":1,"a":1}\n')
    db.sql(f'CREATE TABLE events AS SELECT * FROM file://{events} WITH ("key" = "id")')
    copy = f"INSERT INTO {shop.uri('wide')} SELECT * FROM events EMIT CHANGES "
    db.sql(copy + 'WITH ("table.create.if.missing" = "true")')
    wait_until(lambda: shop.rows("SELECT id, a FROM wide") == Counter([(1, 1)]))
    with events.open("a") as file:
        file.write('{"id":2,"a":2,"z":"new"}\n')
    wait_until(lambda: shop.rows("SELECT id, a, z FROM wide") == Counter([(1, 1, None), (2, 2, "new")]))
    with events.open("a") as file:
        file.write('{"id":1,"a":7,"z":"late"}\n')
    wait_until(lambda: shop.rows("SELECT id, a, z FROM wide") == Counter([(1, 7, "late"), (2, 2, "new")]))
