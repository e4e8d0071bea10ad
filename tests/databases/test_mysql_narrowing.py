"""Rows and columns that a statement does not need are not asked of MySQL, and the result is the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from mysql_shops import MySqlShop, numbers
from shops import ours

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.conftest import WaitUntil
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = pytest.mark.spark

CONDITIONS = (
    "id > 3",
    "5 >= id",
    "customer = 2",
    "customer IN (0, 2)",
    "customer <> 1",
    "amount < 4.5",
    "amount <> 3",
    "note = 'first'",
    "note = 'FIRST'",
    "note IN ('first', 'it''s 100 %', 'Ωμέγα')",
    "note <> 'first'",
    "note IS NOT NULL",
    "note IS NULL",
    "note > 'b'",
    "greek = 'Ωμέγα'",
    "greek IN ('x', 'y')",
    "latin = 'e'",
    "greek = '日本語'",
    "latin IN ('é', 'e', '日本語')",
    "at >= TIMESTAMP '2024-01-03 00:00:00'",
    "at < TIMESTAMP '2024-01-04 12:00:00.5'",
    "day < DATE '2024-01-04'",
    "done = 1",
    "kind = 'b'",
    "x > 2.5",
    "id = '4'",
    "y = 24",
    "upper(note) = 'FIRST'",
    "(id > 2 AND id < 6)",
    "id > 2 OR customer = 1",
)


@pytest.fixture(autouse=True)
def orders(mysql_shop: MySqlShop) -> None:
    mysql_shop.sql.execute(
        "ALTER TABLE orders ADD at datetime(6), ADD day date, ADD done boolean, ADD x double, "
        "ADD greek varchar(20) CHARACTER SET greek, ADD latin char(10) CHARACTER SET latin1, "
        "ADD kind enum('a', 'b'), ADD y year"
    )
    numbers(
        mysql_shop.sql,
        1,
        8,
        "INSERT INTO orders SELECT n, n % 3, n * 0.75, "
        "CASE n % 5 WHEN 0 THEN NULL WHEN 1 THEN 'first' WHEN 2 THEN 'it''s 100 %' WHEN 3 THEN 'First ' "
        "ELSE 'Second' END, '2024-01-01' + INTERVAL n DAY, DATE '2024-01-01' + INTERVAL n DAY, n % 2, "
        "n * 0.5, IF(n % 2, 'Ωμέγα', 'x'), IF(n % 3, 'é', 'e'), IF(n % 2, 'a', 'b'), 2020 + n FROM",
    )


@pytest.mark.parametrize("cdc", [True, False], ids=["followed", "loaded"])
def test_conditions_give_the_same_rows(
    db: Database,
    mysql_shop: MySqlShop,
    rng: random.Random,
    rounds: Callable[[int, int], int],
    wait_until: WaitUntil,
    cdc: bool,
) -> None:
    shop = mysql_shop
    shop.follow(db)
    how = 'WITH ("cdc" = "true")' if cdc else ""
    chosen = rng.sample(CONDITIONS, rounds(6, len(CONDITIONS)))
    where = {f"t{n}": " AND ".join([*rng.sample(CONDITIONS, 1), each]) for n, each in enumerate(chosen)}
    for name, condition in where.items():
        db.sql(
            f"CREATE TABLE {name} AS SELECT id, customer FROM {shop.uri('orders')} WHERE {condition} {how}"
        )
    if cdc:
        shop.sql.execute("UPDATE orders SET id = id + 100, customer = 1, note = 'first' WHERE id IN (2, 3)")
        shop.sql.execute(
            "UPDATE orders SET amount = 3, done = NOT done, at = at + INTERVAL 1 DAY WHERE id > 4"
        )
        shop.sql.execute("DELETE FROM orders WHERE id = 1")
        wait_until(lambda: ours(db, "SELECT id FROM orders") == shop.rows("SELECT id FROM orders"))
        assert db.wait_idle(60)
    for name, condition in where.items():
        expected = ours(db, f"SELECT id, customer FROM orders WHERE {condition}")
        assert ours(db, f"SELECT * FROM {name}") == expected, condition


def test_what_is_asked(db: Database, mysql_shop: MySqlShop, wait_until: WaitUntil) -> None:
    shop, uri = mysql_shop, mysql_shop.uri("orders")
    shop.sql.execute("SET GLOBAL log_output = 'TABLE'")
    shop.sql.execute("SET GLOBAL general_log = 'ON'")
    try:
        db.sql(f"CREATE TABLE t AS SELECT customer FROM {uri} WHERE amount > 2 AND upper(note) = 'FIRST'")
        assert len(db.sql(f"SELECT id FROM {uri} WHERE customer = 1 LIMIT 2").rows()) == 2
        # A collation takes more texts for equal, so that two rows need not be enough.
        assert ours(db, f"SELECT id FROM {uri} WHERE note = 'First ' LIMIT 1") == Counter([(3,)])
        said = [
            str(text)
            for (text,) in shop.sql.execute("SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log")
        ]
    finally:
        shop.sql.execute("SET GLOBAL general_log = 'OFF'")
        shop.sql.execute("SET GLOBAL log_output = 'FILE'")
    assert [
        each
        for each in said
        if "SELECT `id`, `customer`, `amount`, `note` FROM" in each and "WHERE `amount` > 2" in each
    ]
    assert [each for each in said if each.endswith("WHERE `customer` = 1 LIMIT 2")]
    assert not [each for each in said if "_ascii" in each and "LIMIT 1" in each]
    lines = db.sql(f"EXPLAIN SELECT id FROM {uri} WHERE customer = 1 AND note IN ('a', 'b') LIMIT 2").rows()
    expected = (
        "  asks: SELECT customer, id, note FROM orders WHERE customer = 1 AND note IN ('a', 'b') LIMIT 2"
    )
    assert expected in [line for (line,) in lines]


def test_columns_that_are_not_needed_may_change(
    db: Database, mysql_shop: MySqlShop, wait_until: WaitUntil
) -> None:
    """They are neither loaded nor followed, so their changes stop nothing and load nothing again."""
    shop = mysql_shop
    db.sql(f'CREATE TABLE t AS SELECT id, amount FROM {shop.uri("orders")} WITH ("cdc" = "true")')
    same = lambda: ours(db, "SELECT * FROM t") == shop.rows("SELECT id, amount FROM orders")  # noqa: E731
    wait_until(same)
    shop.sql.execute("ALTER TABLE orders DROP COLUMN x, MODIFY note varchar(10), ADD paid int DEFAULT 7")
    shop.sql.execute("UPDATE orders SET amount = amount + 1 WHERE id < 4")
    shop.sql.execute("UPDATE orders SET id = 50 WHERE id = 8")
    shop.sql.execute("DELETE FROM orders WHERE id = 5")
    wait_until(same)
    assert db.job("t").state == "running"


def test_columns_that_were_added_one_after_the_other(
    db: Database, mysql_shop: MySqlShop, mysql_same: Same
) -> None:
    """The catalogue may have columns that the changes which come first do not have yet."""
    shop = mysql_shop
    query = "SELECT id, customer, amount FROM orders"
    shop.follow(db)
    mysql_same(query)
    db.sql("PAUSE JOB orders")
    shop.sql.execute("ALTER TABLE orders ADD first int, MODIFY customer bigint")
    shop.sql.execute("UPDATE orders SET first = id WHERE id < 3")
    shop.sql.execute("ALTER TABLE orders ADD second int")
    shop.sql.execute("UPDATE orders SET second = id WHERE id > 6")
    db.sql("RESUME JOB orders")
    mysql_same("SELECT id, first, second FROM orders")
