"""Writing to MySQL and MariaDB: exactly once, by key, with the rows that the server refuses set aside."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from mysql_shops import MySqlShop
    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


@pytest.fixture
def totals(db: Database) -> None:
    db.sql("CREATE TABLE totals (city STRING PRIMARY KEY, total DECIMAL(15,2), n INT)")
    db.sql("INSERT INTO totals VALUES ('Rome', 12345.67, 3), ('Bonn', 0.01, 1)")


def test_a_table_is_mirrored(
    db: Database, mysql_shop: MySqlShop, totals: None, wait_until: WaitUntil
) -> None:
    shop = mysql_shop
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
    table.insert([{"city": "Oslo \"'\\,\n% \0", "total": None, "n": 0}, {"city": "oslo", "total": 1, "n": 0}])
    wait_until(same)
    types = shop.rows(
        "SELECT DATA_TYPE FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'mirrored'"
    )
    assert types == Counter([("varchar",), ("decimal",), ("int",)])
    assert shop.rows("SELECT count(*) FROM velostream_sinks") == Counter([(1,)])


def test_every_type_is_written(db: Database, mysql_shop: MySqlShop, wait_until: WaitUntil) -> None:
    shop = mysql_shop
    db.sql(
        "CREATE TABLE kinds (id INT PRIMARY KEY, b BOOLEAN, f DOUBLE, d DATE, t TIMESTAMP, y BINARY, "
        "a ARRAY<STRING>, m MAP<STRING, INT>, s STRUCT<x: INT>, big DECIMAL(38,10))"
    )
    db.sql(
        "INSERT INTO kinds VALUES (1, true, 1.5, DATE'2024-02-29', TIMESTAMP'2024-01-02 03:04:05.678901', "
        "X'00FF27', array('a \"b\"', '', NULL, 'c\\\\d'), map('k', 1), named_struct('x', 1), "
        "1234567890123456789012345678.0123456789), (0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    db.sql(
        f"INSERT INTO {shop.uri('kinds')} SELECT * FROM kinds EMIT CHANGES "
        'WITH ("table.create.if.missing" = "true")'
    )
    wait_until(lambda: len(shop.rows("SELECT id FROM kinds")) == 2)
    found = sorted(shop.sql.execute("SELECT id, b, f, d, t, y, big FROM kinds"))
    assert found[1] == (
        1, 1, 1.5, date(2024, 2, 29), datetime(2024, 1, 2, 3, 4, 5, 678901), b"\x00\xff'",
        Decimal("1234567890123456789012345678.0123456789"),
    )  # fmt: skip
    assert found[0] == (0, *[None] * 6)
    nested = "JSON_EXTRACT(a, '$[3]'), JSON_EXTRACT(m, '$.k'), JSON_EXTRACT(s, '$.x')"
    assert shop.sql.execute(f"SELECT {nested} FROM kinds WHERE id = 1") == [('"c\\\\d"', "1", "1")]


def test_rows_that_the_server_refuses(
    db: Database, mysql_shop: MySqlShop, totals: None, wait_until: WaitUntil
) -> None:
    shop = mysql_shop
    shop.sql.execute(
        "CREATE TABLE strict (city varchar(6) PRIMARY KEY, total decimal(6,2), n int, code int DEFAULT 1)"
    )
    shop.sql.execute("CREATE TABLE parents (n int PRIMARY KEY)")
    shop.sql.execute("INSERT INTO parents VALUES (1), (3)")
    shop.sql.execute("ALTER TABLE strict ADD FOREIGN KEY (n) REFERENCES parents (n)")
    db.sql(f"INSERT INTO {shop.uri('strict')} SELECT * FROM totals EMIT CHANGES")
    table = db.table("totals")
    table.insert([{"city": "Reykjavik", "total": 1, "n": 1}, {"city": "Lima", "total": 1, "n": 100}])
    table.insert([{"city": "Paris", "total": 1, "n": 1}])
    wait_until(lambda: ("Paris",) in shop.rows("SELECT city FROM strict"))
    assert shop.rows("SELECT city FROM strict") == Counter([("Bonn",), ("Paris",)])
    letters = [row.reason for row in db.sql("SELECT reason FROM dead_letters").rows()]
    assert len(letters) == 3
    assert any("Out of range" in reason for reason in letters)
    assert any("too long" in reason for reason in letters)
    assert any("foreign key" in reason for reason in letters)


def test_other_keys_and_none(
    db: Database, maria_shop: MySqlShop, totals: None, tmp_path: Path, wait_until: WaitUntil
) -> None:
    shop = maria_shop
    shop.sql.execute("CREATE TABLE loose (city varchar(99), total decimal(20,2), n bigint, more text)")
    db.sql(f"INSERT INTO {shop.uri('loose')} SELECT * FROM totals EMIT CHANGES")
    wait_until(lambda: len(shop.rows("SELECT city FROM loose")) == 2)
    db.table("totals").update("Rome", n=4)
    wait_until(lambda: shop.rows("SELECT n FROM loose") == Counter([(4,), (1,)]))
    lines = tmp_path / "lines.csv"
    lines.write_text("a,b\n1,x\n2,y\n")
    shop.sql.execute("CREATE TABLE `odd ``name` (a bigint, b text)")
    uri = shop.uri('"odd `name"')
    db.sql(f"INSERT INTO {uri} SELECT * FROM file://{lines}")
    wait_until(lambda: shop.rows("SELECT * FROM `odd ``name`") == Counter([(1, "x"), (2, "y")]))
    with lines.open("a") as out:
        out.write("3,z\n")
    wait_until(lambda: len(shop.rows("SELECT * FROM `odd ``name`")) == 3)


def test_mistakes_are_named(db: Database, maria_shop: MySqlShop, totals: None) -> None:
    shop = maria_shop
    with refusal("sink.missing", "nowhere"):
        db.sql(f"INSERT INTO {shop.uri('nowhere')} SELECT * FROM totals EMIT CHANGES")
    with refusal("sink.config", "city"):
        db.sql(f"INSERT INTO {shop.uri('orders')} SELECT * FROM totals EMIT CHANGES")
    with refusal("sink.auth"):
        uri = shop.uri("orders").replace("secret", "wrong")
        db.sql(f"INSERT INTO {uri} SELECT * FROM totals EMIT CHANGES")
    shop.sql.execute(
        "CREATE TABLE old (city varchar(9) PRIMARY KEY, total decimal(9,2), n int) ENGINE = MyISAM"
    )
    with refusal("sink.config", "transactions"):
        db.sql(f"INSERT INTO {shop.uri('old')} SELECT * FROM totals EMIT CHANGES")


def test_columns_that_are_new_are_added_where_the_table_was_made(
    db: Database, mysql_shop: MySqlShop, tmp_path: Path, wait_until: WaitUntil
) -> None:
    shop = mysql_shop
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
