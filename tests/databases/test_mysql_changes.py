"""Tables of MySQL and MariaDB that are followed: every insert, update, delete and truncation arrives."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from mysql_shops import transaction

from refusals import refusal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from mysql_shops import MySqlShop
    from tests.conftest import WaitUntil
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
CDC = 'WITH ("cdc" = "true")'


def test_what_is_there_and_what_comes(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 5000)
    shop.follow(db)
    mysql_same()
    shop.sql.execute("INSERT INTO orders VALUES (9001, 1, 10.10, 'new')")
    shop.sql.execute("UPDATE orders SET amount = amount + 1 WHERE id % 10 = 0")
    shop.sql.execute("DELETE FROM orders WHERE id % 3 = 0")
    mysql_same()
    assert db.table("orders").get(9001) == (9001, 1, Decimal("10.10"), "new")
    # A key that changes, and one that comes again.
    with shop.sql.transaction():
        shop.sql.execute("UPDATE orders SET id = id + 100000 WHERE id < 50")
        shop.sql.execute("DELETE FROM orders WHERE id = 100002")
        shop.sql.execute("INSERT INTO orders VALUES (2, 3, 3, 'again')")
    with shop.sql.transaction(force_rollback=True):
        shop.sql.execute("INSERT INTO orders VALUES (70001, 1, 1, 'no')")
    mysql_same()
    shop.sql.execute("TRUNCATE TABLE orders")
    shop.sql.execute("INSERT INTO orders VALUES (501, 1, 1, 'kept')")
    mysql_same()
    shop.sql.execute("TRUNCATE orders")
    mysql_same()


def test_a_filter_of_the_database(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 30, "n, n % 3, n, 'X%'")
    shop.follow(db, properties='"cdc" = "true", "where" = "orders.customer = 1 AND note LIKE \'x%\'"')
    query = "SELECT * FROM orders WHERE customer = 1 AND note LIKE 'x%'"
    mysql_same(query, "SELECT * FROM orders")
    shop.sql.execute("UPDATE orders SET customer = (customer + 1) % 3")
    shop.sql.execute("UPDATE orders SET note = 'y' WHERE id < 4")
    shop.sql.execute(
        "INSERT INTO orders VALUES (100, 1, 1, 'it''s'), (101, 1, 1, 'x \\\\'), (102, 2, 1, 'x')"
    )
    shop.sql.execute("DELETE FROM orders WHERE id = 9")
    mysql_same(query, "SELECT * FROM orders")


def test_a_seeded_workload_ends_equal(
    db: Database,
    mysql_shop: MySqlShop,
    mysql_same: Same,
    rng: random.Random,
    rounds: Callable[[int, int], int],
) -> None:
    shop = mysql_shop
    shop.fill(1, 200)
    shop.follow(db)
    db.sql(
        "CREATE TABLE by_customer AS SELECT customer, count(*) AS n, sum(amount) AS total "
        f"FROM {shop.uri('orders')} GROUP BY customer {CDC}"
    )
    for _ in range(rounds(20, 600)):
        transaction(shop.sql, rng)
    mysql_same()
    mysql_same(
        "SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer", "SELECT * FROM by_customer"
    )


def test_a_load_while_rows_change(
    db: Database, mysql_shop: MySqlShop, mysql_same: Same, rng: random.Random
) -> None:
    from threading import Event, Thread

    shop = mysql_shop
    shop.fill(1, 30000)
    done = Event()

    def change() -> None:
        with shop.server.connect(shop.name) as other:
            while not done.is_set():
                transaction(other, rng)

    thread = Thread(target=change)
    thread.start()
    try:
        shop.follow(db, properties='"cdc" = "true", "parallel.readers" = "2"')
    finally:
        done.set()
        thread.join()
    mysql_same()


def test_columns_that_change(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 5)
    shop.follow(db)
    mysql_same()
    shop.sql.execute("ALTER TABLE orders ADD COLUMN city text")
    shop.sql.execute("INSERT INTO orders VALUES (6, 6, 6, 'y', 'Rome')")
    mysql_same()
    # Rows that were there get a value that no change tells.
    shop.sql.execute("ALTER TABLE orders ADD COLUMN paid int DEFAULT 7")
    shop.sql.execute("INSERT INTO orders VALUES (7, 7, 7, 'z', 'Bonn', 0)")
    mysql_same()
    shop.sql.execute("ALTER TABLE orders MODIFY customer bigint, MODIFY amount decimal(20,4)")
    shop.sql.execute("INSERT INTO orders VALUES (8, 9007199254740993, 1234567890123456.7891, 'y', NULL, 1)")
    mysql_same()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("DROP COLUMN note", "note"),
        ("CHANGE note remark text", "note"),
        ("MODIFY note int", "note"),
    ],
)
def test_a_column_that_goes_stops_the_job(
    db: Database, maria_shop: MySqlShop, maria_same: Same, change: str, told: str
) -> None:
    shop = maria_shop
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, '1')")
    shop.follow(db)
    maria_same()
    shop.sql.execute(f"ALTER TABLE orders {change}")
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    reason = db.job("orders").reason
    assert reason is not None
    assert f'"{told}"' in reason
    # What was there stays readable.
    assert len(db.table("orders")) == 1


def test_a_table_that_is_swapped(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 50)
    shop.follow(db)
    mysql_same()
    shop.sql.execute("CREATE TABLE other LIKE orders")
    shop.sql.execute("INSERT INTO other SELECT id, customer, amount + 1, note FROM orders WHERE id > 10")
    shop.sql.execute("RENAME TABLE orders TO old, other TO orders")
    mysql_same()
    shop.sql.execute("INSERT INTO orders VALUES (7000, 1, 1, 'x')")
    mysql_same()


def test_a_binlog_that_is_lost_is_made_up_for(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 50)
    shop.follow(db)
    db.sql("CREATE TABLE total AS SELECT count(*) AS n, sum(amount) AS total FROM orders")
    mysql_same()
    before = db.table("orders").version
    shop.server.lose_binlog()
    shop.sql.execute("DELETE FROM orders WHERE id <= 10")
    shop.sql.execute("UPDATE orders SET note = 'y' WHERE id = 20")
    shop.server.cut(shop.sql)
    mysql_same(timeout=60)
    mysql_same("SELECT count(*), sum(amount) FROM orders", "SELECT * FROM total")
    # What is shown is the difference: ten rows that left, and one that changed.
    seen: Counter[int] = Counter()
    for _, rows in db.table("orders").changes(after=before, timeout=1):
        seen.update(rows["_weight"].to_pylist())
    assert seen == {-1: 11, 1: 1}


def test_what_comes_while_we_are_away(
    mysql_shop: MySqlShop, spark: object, tmp_path: Path, wait_until: WaitUntil
) -> None:
    from shops import ours

    import velostream

    shop = mysql_shop
    shop.fill(1, 100)
    everything = "SELECT * FROM orders"
    with velostream.connect(tmp_path / "data") as db:
        shop.follow(db)
        wait_until(lambda: ours(db, everything) == shop.rows(everything))
        version = db.table("orders").version
    shop.sql.execute("DELETE FROM orders WHERE id % 2 = 0")
    shop.sql.execute("FLUSH BINARY LOGS")
    shop.sql.execute("INSERT INTO orders VALUES (200, 2, 2, 'x')")
    with velostream.connect(tmp_path / "data") as db:
        wait_until(lambda: ours(db, everything) == shop.rows(everything))
        seen: Counter[int] = Counter()
        for _, rows in db.table("orders").changes(after=version, timeout=1):
            seen.update(rows["_weight"].to_pylist())
        assert seen == {-1: 50, 1: 1}


def test_a_long_transaction_is_applied_as_a_whole(
    db: Database, maria_shop: MySqlShop, maria_same: Same
) -> None:
    shop = maria_shop
    shop.follow(db)
    maria_same()
    before = db.table("orders").version
    shop.fill(1, 200000, "n, n % 9, n, 'a longer note than usual'")
    maria_same("SELECT count(*), sum(amount) FROM orders", timeout=60)
    sizes = [rows.num_rows for _, rows in db.table("orders").changes(after=before, timeout=1)]
    assert sizes == [200_000]


def test_what_does_not_fit_becomes_a_dead_letter(
    db: Database, mysql_shop: MySqlShop, mysql_same: Same
) -> None:
    shop = mysql_shop
    shop.sql.execute("SET SESSION sql_mode = ''")
    shop.sql.execute("CREATE TABLE odd (id int PRIMARY KEY, d date, t timestamp NULL, n decimal(50,10))")
    shop.sql.execute("INSERT INTO odd VALUES (1, '2024-01-01', NULL, 1), (2, '0000-00-00', NULL, 2)")
    shop.follow(db, "odd")
    db.wait_until(lambda: len(db.table("odd")) == 1, timeout=30)
    # The earlier version of a row that no longer fits is not true any more.
    shop.sql.execute("UPDATE odd SET t = '0000-00-00 00:00:00' WHERE id = 1")
    shop.sql.execute("INSERT INTO odd VALUES (3, NULL, NULL, 1234567890123456789012345678901234567890)")
    db.wait_until(lambda: len(db.sql("SELECT * FROM dead_letters WHERE job = 'odd'").rows()) == 3, timeout=30)
    db.wait_until(lambda: len(db.table("odd")) == 0, timeout=30)
    letters = db.sql("SELECT reason, raw FROM dead_letters WHERE job = 'odd' ORDER BY at").rows()
    assert sorted(json.loads(row.raw)["id"] for row in letters) == ["1", "2", "3"]
    assert sum("0000-00-00" in row.reason for row in letters) == 2
    shop.sql.execute("UPDATE odd SET d = NULL, t = NULL, n = 0")
    mysql_same("SELECT * FROM odd")


def test_what_cannot_be_followed_is_refused(db: Database, maria_shop: MySqlShop) -> None:
    shop = maria_shop
    shop.sql.execute("CREATE TABLE keyless (a int)")
    shop.sql.execute("CREATE VIEW looked AS SELECT * FROM orders")
    shop.sql.execute(
        "CREATE TABLE child (id int PRIMARY KEY, o bigint, "
        "FOREIGN KEY (o) REFERENCES orders (id) ON DELETE CASCADE)"
    )
    for table in ("keyless", "looked", "child"):
        with refusal("source.config", table):
            shop.follow(db, table)
    with refusal("source.missing", "order"):
        shop.follow(db, "order")
    for name, wrong, right in (
        ("binlog_row_image", "MINIMAL", "FULL"),
        ("binlog_row_metadata", "MINIMAL", "FULL"),
        ("binlog_format", "STATEMENT", "ROW"),
    ):
        shop.sql.execute(f"SET GLOBAL {name} = '{wrong}'")
        try:
            with refusal("source.config", name):
                shop.follow(db)
        finally:
            shop.sql.execute(f"SET GLOBAL {name} = '{right}'")


def test_a_gap_that_is_not_to_be_made_up_for(db: Database, maria_shop: MySqlShop, maria_same: Same) -> None:
    shop = maria_shop
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db, properties='"cdc" = "true", "on.gap" = "fail"')
    maria_same()
    shop.server.lose_binlog()
    shop.server.cut(shop.sql)
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    assert len(db.table("orders")) == 1


def test_tables_that_are_made_of_ours_are_others(
    db: Database, mysql_shop: MySqlShop, mysql_same: Same
) -> None:
    """Nothing is lost by them: not even a job that fails for lost changes notices."""
    shop = mysql_shop
    shop.fill(1, 20)
    shop.follow(db, properties='"cdc" = "true", "on.gap" = "fail"')
    mysql_same()
    for statement in (
        "CREATE TABLE alike LIKE orders",
        "CREATE TABLE copied AS SELECT * FROM orders",
        "CREATE TABLE children (o bigint, FOREIGN KEY (o) REFERENCES orders (id))",
        "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY)",
        "CREATE TEMPORARY TABLE orders (id bigint PRIMARY KEY)",
        "INSERT INTO orders VALUES (777)",
        "DROP TEMPORARY TABLE orders",
        "ALTER TABLE alike ADD FOREIGN KEY (id) REFERENCES orders (id)",
        "CREATE VIEW seen AS SELECT * FROM orders",
        "DROP VIEW seen",
    ):
        shop.sql.execute(statement)
    shop.sql.execute("UPDATE orders SET note = 'after' WHERE id > 5")
    mysql_same()
    assert db.job("orders").state == "running"


def test_the_sign_of_columns_after_a_year(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.sql.execute(
        "CREATE TABLE years (id int PRIMARY KEY, y year, n int, u int unsigned, z year, d decimal(9,2), "
        "s point, b bigint)"
    )
    shop.follow(db, "years")
    mysql_same("SELECT id FROM years")
    row = "2024, -5, 4294967295, 1999, -1.25, POINT(1, 2), -7"
    shop.sql.execute(f"INSERT INTO years VALUES (1, {row})")
    mysql_same("SELECT id, y, n, u, z, d, b FROM years")
    shop.sql.execute("ALTER TABLE years ADD COLUMN more int")
    shop.sql.execute(f"INSERT INTO years VALUES (2, {row}, -9)")
    mysql_same("SELECT id, y, n, u, z, d, b, more FROM years")


def test_where_changes_begin(db: Database, mysql_shop: MySqlShop, wait_until: WaitUntil) -> None:
    """From the first binlog, from its beginning, from a place in it, or from now on."""
    shop = mysql_shop
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'first')")
    shop.sql.execute("FLUSH BINARY LOGS")
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'second')")
    ((file, at, *_),) = shop.sql.execute("SHOW MASTER STATUS")
    shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, 'third')")
    starts = [
        ('"cdc.start" = "latest"', {4}),
        ('"cdc.start" = "earliest"', {1, 2, 3, 4}),
        (f'"cdc.start.position" = "{file}:{at}"', {3, 4}),
        (f'"binlog.file" = "{file}"', {2, 3, 4}),
        (f'"binlog.file" = "{file}", "binlog.position" = "auto"', {2, 3, 4}),
        (f'"binlog.file" = "{file}", "binlog.position" = "{at}"', {3, 4}),
        (f'"initial.load" = "full", "binlog.file" = "{file}", "binlog.position" = "{at}"', {1, 2, 3, 4}),
    ]
    for number, (given, _) in enumerate(starts):
        whole = given if "initial.load" in given else f'"initial.load" = "none", {given}'
        db.sql(
            f"CREATE TABLE t{number} AS SELECT id FROM {shop.uri('orders')} "
            f'WITH ("key" = "id", "cdc" = "true", {whole})'
        )
    shop.sql.execute("INSERT INTO orders VALUES (4, 4, 4, 'fourth')")
    for number, (_, expected) in enumerate(starts):
        wait_until(lambda n=number, ids=expected: set(db.table(f"t{n}").column_values("id")) == ids)
    for given, told in (
        ('"binlog.position" = "4"', "binlog.position"),
        ('"binlog.file" = "x.000001", "cdc.start" = "latest"', "binlog.file"),
        ('"cdc.start" = "yesterday"', "cdc.start"),
        ('"binlog.file" = "x.000001", "binlog.position" = "here"', "binlog.position"),
    ):
        with refusal("sql.property", told):
            db.sql(f'CREATE TABLE t AS SELECT id FROM {shop.uri("orders")} WITH ("cdc" = "true", {given})')
    with refusal("source.config", "binlog"):
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {shop.uri('orders')} "
            'WITH ("cdc" = "true", "binlog.file" = "nowhere.000001")'
        )


def test_transactions_of_two_phases(db: Database, mysql_shop: MySqlShop, mysql_same: Same) -> None:
    shop = mysql_shop
    shop.fill(1, 20)
    shop.follow(db)
    mysql_same()
    for number, end in enumerate(("COMMIT", "ROLLBACK")):
        with shop.server.connect(shop.name) as other:
            other.execute(f"XA START 'two{number}'")
            other.execute(f"INSERT INTO orders VALUES ({100 + number}, 1, 1, 'two')")
            other.execute(f"UPDATE orders SET note = '{end}' WHERE id = {number + 1}")
            other.execute(f"XA END 'two{number}'")
            other.execute(f"XA PREPARE 'two{number}'")
            shop.sql.execute(f"INSERT INTO orders VALUES ({200 + number}, 1, 1, 'meanwhile')")
            mysql_same()
            other.execute(f"XA {end} 'two{number}'")
        mysql_same()
    with shop.server.connect(shop.name) as other:
        other.execute("XA START 'one'")
        other.execute("INSERT INTO orders VALUES (300, 1, 1, 'one')")
        other.execute("XA END 'one'")
        other.execute("XA COMMIT 'one' ONE PHASE")
    mysql_same()


def test_the_time_zone_of_the_server_does_not_matter(
    db: Database, mysql_shop: MySqlShop, mysql_same: Same
) -> None:
    shop = mysql_shop
    shop.sql.execute("SET GLOBAL time_zone = '+05:30'")
    try:
        shop.sql.execute("CREATE TABLE moments (id int PRIMARY KEY, t timestamp(6) NULL, d datetime(3))")
        # A session of the server's own zone.
        with shop.server.connect(shop.name) as other:
            other.execute("SET SESSION time_zone = @@GLOBAL.time_zone")
            insert = "INSERT INTO moments VALUES ({}, '2024-07-01 00:15:00.123456', '2024-07-01 00:15:00.5')"
            other.execute(insert.format(1))
            shop.follow(db, "moments")
            other.execute(insert.format(2))
            other.execute("UPDATE moments SET t = '2024-01-01 00:00:00' WHERE id = 1")
        told = "SELECT id, CAST(t AS char(26)), CAST(d AS char(23)) FROM moments"
        mine = (
            "SELECT id, date_format(t, 'yyyy-MM-dd HH:mm:ss.SSSSSS'), "
            "date_format(d, 'yyyy-MM-dd HH:mm:ss.SSS') FROM moments"
        )
        mysql_same(told, mine)
        assert [row[1] for row in sorted(shop.sql.execute(told))] == [
            "2023-12-31 18:30:00.000000",
            "2024-06-30 18:45:00.123456",
        ]
    finally:
        shop.sql.execute("SET GLOBAL time_zone = 'SYSTEM'")
