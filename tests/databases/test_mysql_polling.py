"""Tables, views and queries of MySQL and MariaDB that are asked again and again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from mysql_shops import numbers, transaction
from shops import ours

from refusals import refusal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from mysql_shops import MySqlShop
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
OFTEN = '"poll.interval" = "50ms"'


def test_the_difference_is_what_changed(
    db: Database,
    mysql_shop: MySqlShop,
    mysql_same: Same,
    rng: random.Random,
    rounds: Callable[[int, int], int],
) -> None:
    shop = mysql_shop
    shop.fill(1, 300)
    shop.follow(db, properties=f'{OFTEN}, "pool.validation.query" = "SELECT 2", "query.timeout" = "20s"')
    db.sql("CREATE TABLE total AS SELECT count(*) AS n, sum(amount) AS total FROM orders")
    for _ in range(rounds(8, 100)):
        transaction(shop.sql, rng)
    mysql_same()
    mysql_same("SELECT count(*), sum(amount) FROM orders", "SELECT * FROM total")


def test_rows_without_a_key(db: Database, maria_shop: MySqlShop, maria_same: Same) -> None:
    shop = maria_shop
    shop.sql.execute("CREATE TABLE plain (a int, b text)")
    shop.sql.execute("INSERT INTO plain VALUES (1, 'x'), (1, 'x'), (NULL, NULL)")
    shop.follow(db, "plain", OFTEN)
    db.wait_until(lambda: len(db.table("plain")) == 3, timeout=30)
    shop.sql.execute("DELETE FROM plain WHERE a = 1 LIMIT 1")
    db.wait_until(lambda: len(db.table("plain")) == 2, timeout=30)
    shop.sql.execute("INSERT INTO plain SELECT a, b FROM plain")
    shop.sql.execute("UPDATE plain SET b = 'y' WHERE a IS NULL")
    maria_same("SELECT a, b, count(*) FROM plain GROUP BY a, b")


def test_views_and_queries_with_parameters(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 30, "n, n % 3, n, '100%'")
    shop.sql.execute(
        "CREATE VIEW sums AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
    )
    shop.follow(db, "sums", OFTEN)
    query = (
        "SELECT id, amount / 3 AS third, note FROM orders WHERE note LIKE '%0\\\\%' AND customer = ? LIMIT ?"
    )
    base = shop.uri("x").partition("?")[0]
    db.sql(
        f'CREATE TABLE some AS SELECT * FROM {base}?query="{query}" '
        f"WITH ({OFTEN}, 'query.params' = '[1, 100]', 'fetch.size' = '7')"
    )
    mysql_same("SELECT * FROM sums")
    asked = "SELECT id, amount / 3, note FROM orders WHERE customer = 1"
    mysql_same(asked, "SELECT * FROM some")
    shop.sql.execute("UPDATE orders SET customer = (customer + 1) % 3")
    mysql_same("SELECT * FROM sums")
    mysql_same(asked, "SELECT * FROM some")


def test_a_column_that_grows(db: Database, maria_shop: MySqlShop) -> None:
    shop = maria_shop
    shop.sql.execute("CREATE TABLE log (n bigint, line text)")
    numbers(shop.sql, 1, 10, "INSERT INTO log SELECT n, 'line' FROM")
    query = "SELECT * FROM log WHERE n > ? ORDER BY n LIMIT 3"
    shop.follow(db, "log", f'{OFTEN}, "incremental.column" = "n", "poll.query" = "{query}"')
    numbers(shop.sql, 11, 20, "INSERT INTO log SELECT n, 'more' FROM")
    db.wait_until(lambda: ours(db, "SELECT * FROM log") == shop.rows("SELECT * FROM log"), timeout=30)
    shop.fill(1, 5)
    shop.follow(db, properties=f'{OFTEN}, "incremental.column" = "amount", "where" = "id <> 3"')
    shop.fill(6, 9)
    asked = "SELECT * FROM orders WHERE id <> 3"
    db.wait_until(lambda: ours(db, "SELECT * FROM orders") == shop.rows(asked), timeout=30)


@pytest.mark.parametrize(
    ("grows", "later"), [("n", (50, 50, 51, 51)), ("at", (50, 50, 51, 51)), ("line", (51, 52))]
)
def test_rows_without_a_key_by_a_column_that_grows(
    db: Database, maria_shop: MySqlShop, maria_same: Same, grows: str, later: tuple[int, ...]
) -> None:
    """Later rows may have the last value of before, unless that is a text: the server knows what is equal."""
    sql = maria_shop.sql
    sql.execute("CREATE TABLE log (n decimal(9,2), at datetime(6), line varchar(9))")
    numbers(
        sql,
        1,
        50,
        "INSERT INTO log SELECT n / 4, '2024-01-01' + INTERVAL n SECOND, CONCAT('B', n + 100) FROM",
    )
    readers = '"parallel.readers" = "4"'
    maria_shop.follow(db, "log", f'{OFTEN}, "incremental.column" = "{grows}", {readers}')
    maria_same("SELECT n, line FROM log")
    for late in later:
        numbers(
            sql,
            late,
            late,
            "INSERT INTO log SELECT n / 4, '2024-01-01' + INTERVAL n SECOND, CONCAT('b', n + 100) FROM",
        )
        maria_same("SELECT n, line FROM log")


def test_by_a_query_whose_columns_have_another_order(
    db: Database, maria_shop: MySqlShop, maria_same: Same
) -> None:
    maria_shop.fill(1, 5)
    query = "SELECT note, amount, 1 AS other, customer, id FROM orders WHERE id > ?"
    maria_shop.follow(db, properties=f'{OFTEN}, "incremental.column" = "id", "poll.query" = "{query}"')
    maria_same()
    maria_shop.fill(6, 9)
    maria_same()


@pytest.mark.parametrize("more", ["", ', "incremental.column" = "id"'])
def test_columns_that_are_altered(db: Database, maria_shop: MySqlShop, maria_same: Same, more: str) -> None:
    maria_shop.fill(1, 5)
    maria_shop.follow(db, properties=OFTEN + more)
    maria_same()
    maria_shop.sql.execute("ALTER TABLE orders ADD more int DEFAULT 7, MODIFY customer bigint")
    maria_same()
    maria_shop.sql.execute("ALTER TABLE orders DROP note")
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    assert '"note"' in (db.job("orders").reason or "")


def test_once_in_order(db: Database, maria_shop: MySqlShop) -> None:
    shop = maria_shop
    shop.fill(1, 20)
    isolation = '"transaction.isolation" = "read_committed", "parallel.readers" = "3"'
    shop.follow(db, properties=f'"where" = "id < 10", {isolation}')
    db.wait_until(lambda: db.job("orders").state == "finished", timeout=30)
    assert len(db.table("orders")) == 9
    db.sql(
        f"CREATE TABLE top AS SELECT * FROM {shop.uri('orders')} "
        'WITH ("order.by" = "id DESC", "limit" = "3", "batch.size" = "2")'
    )
    db.wait_until(lambda: db.job("top").state == "finished", timeout=30)
    assert sorted(row.id for row in db.sql("SELECT id FROM top").rows()) == [18, 19, 20]


def test_polling_goes_on_after_a_restart(maria_shop: MySqlShop, spark: object, tmp_path: Path) -> None:
    import velostream

    shop = maria_shop
    shop.fill(1, 10)
    with velostream.connect(tmp_path / "data") as db:
        shop.follow(db, properties=OFTEN)
        db.wait_until(lambda: len(db.table("orders")) == 10, timeout=30)
    shop.sql.execute("DELETE FROM orders WHERE id = 3")
    shop.sql.execute("UPDATE orders SET note = 'y' WHERE id = 4")
    shop.server.cut(shop.sql)
    with velostream.connect(tmp_path / "data") as db:
        everything = "SELECT * FROM orders"
        db.wait_until(lambda: ours(db, everything) == shop.rows(everything), timeout=30)


def test_mistakes_are_named(db: Database, maria_shop: MySqlShop) -> None:
    shop = maria_shop
    with refusal("source.config", "incremental.column", "nothing"):
        shop.follow(db, properties=f'{OFTEN}, "incremental.column" = "nothing"')
    with refusal("source.config", "nothing"):
        shop.follow(db, properties=f'{OFTEN}, "where" = "nothing = 1"')
    with refusal("source.config"):
        shop.follow(db, properties=f'{OFTEN}, "where" = "1 = 1); DROP TABLE orders; --"')
    with refusal("source.missing", "there_is_none"):
        db.sql(f"CREATE TABLE o AS SELECT * FROM {shop.server.uri('there_is_none', 'orders')}")
    with refusal("source.network"):
        db.sql("CREATE TABLE o AS SELECT * FROM mysql://u@127.0.0.1:1/db?table=orders")
    with refusal("source.auth"):
        db.sql(f"CREATE TABLE o AS SELECT * FROM {shop.uri('orders').replace('secret', 'wrong')}")
    with refusal("sql.property", "table"):
        db.sql("CREATE TABLE o AS SELECT * FROM mysql://127.0.0.1:1/db")
    assert shop.rows("SELECT count(*) FROM orders") == Counter([(0,)])
