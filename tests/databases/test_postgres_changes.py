"""Tables of PostgreSQL that are followed: every insert, update, delete and truncation arrives."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from threading import Event, Thread
from typing import TYPE_CHECKING

import pytest
from workloads import transaction

from refusals import refusal

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from shops import Shop
    from tests.conftest import WaitUntil
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = pytest.mark.spark
CDC = 'WITH ("cdc" = "true")'


def test_what_is_there_and_what_comes(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n % 7, n * 1.25, 'note ' || n FROM generate_series(1, 5000) n"
    )
    shop.follow(db)
    same()
    shop.sql.execute("INSERT INTO orders VALUES (9001, 1, 10.10, 'new')")
    shop.sql.execute("UPDATE orders SET amount = amount + 1 WHERE id % 10 = 0")
    shop.sql.execute("DELETE FROM orders WHERE id % 3 = 0")
    same()
    assert db.table("orders").get(9001) == (9001, 1, Decimal("10.10"), "new")


def test_a_key_that_changes_and_one_that_comes_again(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'a'), (2, 2, 2, 'b')")
    shop.follow(db)
    same()
    shop.sql.execute("UPDATE orders SET id = 10 WHERE id = 1")
    same()
    with shop.sql.transaction():
        shop.sql.execute("UPDATE orders SET id = id + 100")
        shop.sql.execute("DELETE FROM orders WHERE id = 110")
        shop.sql.execute("INSERT INTO orders VALUES (10, 3, 3, 'again')")
    same()


def test_groups_and_joins_over_the_source_itself(db: Database, shop: Shop, same: Same) -> None:
    uri = shop.uri("orders")
    shop.sql.execute("INSERT INTO orders SELECT n, n % 5, n, NULL FROM generate_series(1, 300) n")
    shop.sql.execute("INSERT INTO customers SELECT n, 'city ' || n % 2 FROM generate_series(0, 6) n")
    groups = (
        "SELECT customer, count(*), sum(amount), max(amount), count(DISTINCT amount) FROM {} "
        "GROUP BY customer"
    )
    db.sql(
        "CREATE TABLE by_customer AS SELECT customer, count(*) AS n, sum(amount) AS total, "
        f"max(amount) AS top, count(DISTINCT amount) AS different FROM {uri} GROUP BY customer {CDC}"
    )
    shop.follow(db)
    shop.follow(db, "customers")
    db.sql(
        "CREATE TABLE by_city AS SELECT city, sum(amount) AS total FROM orders o JOIN customers c "
        "ON o.customer = c.id GROUP BY city"
    )
    joined = "SELECT city, sum(amount) FROM orders o JOIN customers c ON o.customer = c.id GROUP BY city"

    def all_same() -> None:
        same(groups.format("orders"), "SELECT * FROM by_customer")
        same(joined, "SELECT * FROM by_city")

    all_same()
    shop.sql.execute("DELETE FROM orders WHERE amount > 250")
    shop.sql.execute("UPDATE orders SET customer = 6 WHERE id < 50")
    shop.sql.execute("UPDATE customers SET city = 'Rome' WHERE id IN (1, 6)")
    all_same()
    shop.sql.execute("DELETE FROM customers")
    shop.sql.execute("DELETE FROM orders")
    all_same()


def test_a_filter_of_the_statement(db: Database, shop: Shop, same: Same) -> None:
    uri = shop.uri("orders")
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 20) n")
    db.sql(f"CREATE TABLE large AS SELECT id, amount * 2 AS twice FROM {uri} WHERE amount > 10 {CDC}")
    query = "SELECT id, amount * 2 FROM orders WHERE amount > 10"
    same(query, "SELECT * FROM large")
    shop.sql.execute("UPDATE orders SET amount = 21 - amount")
    same(query, "SELECT * FROM large")
    assert db.table("large").get(1) == (1, Decimal("40.00"))


def test_truncate(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 100) n")
    shop.follow(db)
    db.sql("CREATE TABLE total AS SELECT count(*) AS n, sum(amount) AS total FROM orders")
    same()
    with shop.sql.transaction():
        shop.sql.execute("INSERT INTO orders VALUES (500, 1, 1, 'lost')")
        shop.sql.execute("TRUNCATE orders")
        shop.sql.execute("INSERT INTO orders VALUES (501, 1, 1, 'kept')")
    same()
    same("SELECT count(*), sum(amount) FROM orders", "SELECT * FROM total")
    shop.sql.execute("TRUNCATE orders")
    same()


def test_a_rollback_is_nothing(db: Database, shop: Shop, same: Same) -> None:
    shop.follow(db)
    with shop.sql.transaction(force_rollback=True):
        shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'no')")
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'yes')")
    same()


def test_large_values_that_do_not_change(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("ALTER TABLE orders ALTER note SET STORAGE EXTERNAL")
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, repeat(n::text, 5000) FROM generate_series(1, 5) n")
    shop.follow(db)
    same()
    shop.sql.execute("UPDATE orders SET amount = amount + 1")
    same()
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.sql.execute("UPDATE orders SET amount = amount + 1, id = id + 10 WHERE id < 3")
    same()


def test_every_common_type(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE TYPE mood AS ENUM ('sad', 'it''s \"fine\"')")
    shop.sql.execute("CREATE DOMAIN positive AS numeric(8,3) CHECK (VALUE > 0)")
    shop.sql.execute(
        """CREATE TABLE kinds (id uuid PRIMARY KEY, b boolean, i2 smallint, i4 int, i8 bigint, f4 real, f8
        double precision, n numeric(20,5), d date, t time, ts timestamp, tz timestamptz, txt text, c char(4),
        v varchar(9), m mood, by bytea, js json, jb jsonb, ints int[], texts text[], span int4range, iv
        interval, ip inet, p positive)"""
    )
    insert = """INSERT INTO kinds VALUES (%s, true, -3, 7, 9007199254740993, 0.1, 1e300,
        12345678901234.56789, '2024-02-29',
        '12:30:01.5', '2024-01-02 03:04:05.678901', '2024-01-02 03:04:05+02', E'a "b", \\n é', 'ab', 'v',
        'sad', '\\x00ff', '{"a":  1}', '{"a": 1}', '{1,NULL,3}', ARRAY['x y', 'a"b', '', NULL, 'NULL',
        E'c\\\\d'], '[1,5)',
        '1 day 2 hours', '10.0.0.1', 1.5)"""
    ids = [f"00000000-0000-0000-0000-00000000000{n}" for n in range(3)]
    shop.sql.execute(insert, (ids[0],))
    shop.follow(db, "kinds")
    shop.sql.execute(insert, (ids[1],))
    shop.sql.execute("INSERT INTO kinds (id, txt) VALUES (%s, '')", (ids[2],))
    expected = (
        True, -3, 7, 9007199254740993, pytest.approx(0.1), 1e300, Decimal("12345678901234.56789"), date(2024,
        2, 29), "12:30:01.5", datetime(2024, 1, 2, 3, 4, 5, 678901, UTC), datetime(2024, 1, 2, 1, 4, 5,
        tzinfo=UTC), 'a "b", \n é', "ab  ", "v", "sad", b"\x00\xff", '{"a":  1}', '{"a": 1}', [1, None, 3],
        ["x y", 'a"b', "", None, "NULL", "c\\d"], "[1,5)", "P1DT2H", "10.0.0.1", Decimal("1.500"),
    )  # fmt: skip
    table = db.table("kinds")
    db.wait_until(lambda: len(table) == 3, timeout=30)
    for id_ in ids[:2]:
        row = table.get(id_)
        assert row is not None
        assert tuple(row)[1:] == expected
    assert table.get(ids[2]) == (ids[2], *[None] * 11, "", *[None] * 12)


def test_numbers_that_are_none_become_dead_letters(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE TABLE odd (id int PRIMARY KEY, n numeric(10,2), d date)")
    shop.sql.execute("INSERT INTO odd VALUES (1, 1, '2024-01-01'), (2, 'NaN', NULL), (3, 3, NULL)")
    shop.follow(db, "odd")
    db.wait_until(lambda: len(db.table("odd")) == 2, timeout=30)
    # The earlier version of a row that no longer fits is not true any more.
    shop.sql.execute("UPDATE odd SET d = 'infinity' WHERE id = 1")
    db.wait_until(lambda: len(db.table("odd")) == 1, timeout=30)
    letters = db.sql("SELECT reason, raw FROM dead_letters WHERE job = 'odd' ORDER BY at").rows()
    assert [json.loads(row.raw)["id"] for row in letters] == ["2", "1"]
    assert "NaN" in letters[0].reason
    assert "infinity" in letters[1].reason
    shop.sql.execute("UPDATE odd SET d = NULL, n = 0")
    same("SELECT * FROM odd")


def test_a_table_that_is_dropped_leaves_nothing_behind(db: Database, shop: Shop, same: Same) -> None:
    shop.follow(db)
    same()
    assert (
        len(shop.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")) == 1
    )
    db.sql("DROP TABLE orders")
    assert not shop.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    assert not shop.rows("SELECT pubname FROM pg_publication")


def test_a_slot_that_is_lost_is_made_up_for(
    db: Database, shop: Shop, same: Same, wait_until: WaitUntil
) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 50) n")
    shop.follow(db)
    db.sql("CREATE TABLE total AS SELECT count(*) AS n, sum(amount) AS total FROM orders")
    same()
    before = db.table("orders").version
    wait_until(lambda: shop.postgres.drop_slots(shop.name))
    shop.sql.execute("DELETE FROM orders WHERE id <= 10")
    shop.sql.execute("UPDATE orders SET note = 'y' WHERE id = 20")
    same(timeout=60)
    same("SELECT count(*), sum(amount) FROM orders", "SELECT * FROM total")
    # What is shown is the difference: ten rows that left, and one that changed.
    seen: Counter[int] = Counter()
    for _, rows in db.table("orders").changes(after=before, timeout=1):
        seen.update(rows["_weight"].to_pylist())
    assert seen == {-1: 11, 1: 1}


def test_a_seeded_workload_ends_equal(
    db: Database, shop: Shop, same: Same, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n % 9, n, 'x' FROM generate_series(1, 200) n")
    shop.follow(db)
    uri = shop.uri("orders")
    db.sql(
        "CREATE TABLE by_customer AS SELECT customer, count(*) AS n, sum(amount) AS total "
        f"FROM {uri} GROUP BY customer {CDC}"
    )
    for _ in range(rounds(30, 600)):
        transaction(shop.sql, rng)
    same()
    same("SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer", "SELECT * FROM by_customer")


def test_a_table_is_made_while_rows_change(db: Database, shop: Shop, same: Same, rng: random.Random) -> None:
    """The slot waits for transactions that are under way; the load reads what was there at its first LSN."""
    shop.sql.execute("INSERT INTO orders SELECT n, n % 9, n, 'x' FROM generate_series(1, 30000) n")
    done = Event()

    def change() -> None:
        with shop.postgres.connect(shop.name) as other:
            while not done.is_set():
                transaction(other, rng)

    thread = Thread(target=change)
    thread.start()
    try:
        shop.follow(db, properties='"cdc" = "true", "parallel.readers" = "2"')
    finally:
        done.set()
        thread.join()
    same()


def test_a_column_that_is_added(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 5) n")
    shop.follow(db)
    same()
    shop.sql.execute("ALTER TABLE orders ADD COLUMN city text")
    shop.sql.execute("INSERT INTO orders VALUES (6, 6, 6, 'y', 'Rome')")
    same()
    # Rows that were there get a value that no change tells.
    shop.sql.execute("ALTER TABLE orders ADD COLUMN paid boolean DEFAULT true")
    shop.sql.execute("INSERT INTO orders VALUES (7, 7, 7, 'z', 'Bonn', false)")
    same()


def test_a_type_that_becomes_wider(db: Database, shop: Shop, same: Same) -> None:
    shop.follow(db)
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    same()
    shop.sql.execute("ALTER TABLE orders ALTER customer TYPE bigint, ALTER amount TYPE numeric(20,4)")
    shop.sql.execute("INSERT INTO orders VALUES (2, 9007199254740993, 1234567890123456.7891, 'y')")
    same()


def test_columns_that_were_added_one_after_the_other(db: Database, shop: Shop, same: Same) -> None:
    """The catalogue may have columns that the changes which come first do not have yet."""
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x'), (2, 2, 2, 'y')")
    shop.follow(db)
    same()
    db.sql("PAUSE JOB orders")
    shop.sql.execute("ALTER TABLE orders ADD first int, ALTER customer TYPE bigint")
    shop.sql.execute("UPDATE orders SET first = id WHERE id = 1")
    shop.sql.execute("ALTER TABLE orders ADD second int")
    shop.sql.execute("UPDATE orders SET second = id WHERE id = 2")
    db.sql("RESUME JOB orders")
    same()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("DROP COLUMN note", "note"),
        ("RENAME COLUMN note TO remark", "note"),
        ("ALTER note TYPE int USING 1", "note"),
    ],
)
def test_a_column_that_goes_stops_the_job(
    db: Database, shop: Shop, same: Same, change: str, told: str
) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db)
    same()
    shop.sql.execute(f"ALTER TABLE orders {change}")
    shop.sql.execute("INSERT INTO orders (id) VALUES (2)")
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    reason = db.job("orders").reason
    assert reason is not None
    assert f'"{told}"' in reason
    # What was there stays readable.
    assert len(db.table("orders")) == 1


def test_a_partitioned_table(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE TABLE parted (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)")
    for low in (0, 100):
        shop.sql.execute(
            f"CREATE TABLE part_{low} PARTITION OF parted FOR VALUES FROM ({low}) TO ({low + 100})"
        )
    shop.sql.execute("INSERT INTO parted SELECT n, n FROM generate_series(0, 199) n")
    shop.follow(db, "parted")
    same("SELECT * FROM parted")
    shop.sql.execute("DELETE FROM parted WHERE id > 150")
    # To another partition.
    shop.sql.execute("UPDATE parted SET id = 199 - id, n = -n WHERE id < 10")
    shop.sql.execute("DELETE FROM parted WHERE id % 7 = 0")
    same("SELECT * FROM parted")


def test_a_filter_of_the_database(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("ALTER TABLE orders REPLICA IDENTITY FULL")
    shop.sql.execute("INSERT INTO orders SELECT n, n % 3, n, 'x%' FROM generate_series(1, 30) n")
    shop.follow(db, properties='"cdc" = "true", "where" = "customer = 1 AND note LIKE \'x%\'"')
    query = "SELECT * FROM orders WHERE customer = 1"
    same(query, "SELECT * FROM orders")
    shop.sql.execute("UPDATE orders SET customer = (customer + 1) % 3")
    same(query, "SELECT * FROM orders")


def test_a_long_transaction_is_applied_as_a_whole(db: Database, shop: Shop, same: Same) -> None:
    shop.follow(db)
    same()
    before = db.table("orders").version
    shop.sql.execute("INSERT INTO orders SELECT n, n % 9, n, 'n' FROM generate_series(1, 60000) n")
    same(timeout=60)
    sizes = [rows.num_rows for _, rows in db.table("orders").changes(after=before, timeout=1)]
    assert sizes == [60_000]


def test_what_cannot_be_followed_is_refused(db: Database, shop: Shop) -> None:
    shop.sql.execute("CREATE TABLE keyless (a int)")
    shop.sql.execute("CREATE VIEW looked AS SELECT * FROM orders")
    for table in ("keyless", "looked"):
        with refusal("source.config", table):
            shop.follow(db, table)
    with refusal("source.missing", "order"):
        shop.follow(db, "order")
    assert not shop.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    assert not shop.rows("SELECT pubname FROM pg_publication")


def test_a_gap_that_is_not_to_be_made_up_for(
    db: Database, shop: Shop, same: Same, wait_until: WaitUntil
) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db, properties='"cdc" = "true", "on.gap" = "fail"')
    same()
    wait_until(lambda: shop.postgres.drop_slots(shop.name))
    db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
    assert len(db.table("orders")) == 1


def test_a_slot_and_a_publication_of_ones_own(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.sql.execute("CREATE PUBLICATION mine FOR TABLE orders")
    shop.sql.execute("SELECT pg_create_logical_replication_slot('own', 'pgoutput')")
    shop.sql.execute("UPDATE orders SET note = 'y'")
    shop.follow(db, properties='"cdc" = "true", "slot.name" = "own", "publication.name" = "mine"')
    same()
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'z')")
    same()
    db.sql("DROP TABLE orders")
    assert shop.rows("SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'own'")
    assert shop.rows("SELECT pubname FROM pg_publication") == Counter([("mine",)])


def test_where_changes_begin(db: Database, shop: Shop, wait_until: WaitUntil) -> None:
    """Changes that a slot has kept are followed from its beginning, from an LSN, or not at all."""
    names = [f"{shop.name}_{number}" for number in range(4)]
    for name in names:
        shop.sql.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))
    shop.sql.execute("CREATE PUBLICATION given FOR TABLE orders")
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'first')")
    (between,) = shop.sql.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'second')")
    starts = {"latest": {3}, "earliest": {1, 2, 3}, between: {2, 3}, None: {1, 2, 3}}
    given = '"cdc" = "true", "initial.load" = "none", "publication.name" = "given"'
    for number, (start, slot) in enumerate(zip(starts, names, strict=True)):
        begins = f', "cdc.start" = "{start}"' if start is not None else ""
        db.sql(
            f"CREATE TABLE t{number} AS SELECT id FROM {shop.uri('orders')} "
            f'WITH ({given}, "slot.name" = "{slot}"{begins})'
        )
    shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, 'third')")
    for number, expected in enumerate(starts.values()):
        wait_until(lambda n=number, ids=expected: set(db.table(f"t{n}").column_values("id")) == ids)
    for number in range(len(starts)):
        db.sql(f"DROP TABLE t{number}")
    with refusal("source.config", "0/1"):
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {shop.uri('orders')} "
            f'WITH ({given}, "slot.name" = "{names[0]}", "cdc.start.position" = "0/1")'
        )
    with refusal("source.config", "nowhere"):
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {shop.uri('orders')} "
            f'WITH ({given}, "slot.name" = "nowhere", "cdc.start" = "earliest")'
        )
    with refusal("sql.property", "slot.name"):
        db.sql(
            f"CREATE TABLE t AS SELECT id FROM {shop.uri('orders')} "
            'WITH ("cdc" = "true", "cdc.start" = "earliest")'
        )
