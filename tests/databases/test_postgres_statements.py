"""Statements other than CREATE TABLE over a database: a later row of a key retracts the earlier one."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from shops import Shop
    from tests.conftest import WaitUntil

    from conftest import Same
    from velostream import Database

pytestmark = pytest.mark.spark
SLOTS = "SELECT count(*) FROM pg_replication_slots WHERE database = %s"


def changed(shop: Shop) -> None:
    """Rows are added, updated, moved and deleted."""
    shop.sql.execute("INSERT INTO orders SELECT n, n % 3, n, 'later' FROM generate_series(10, 14) n")
    shop.sql.execute("UPDATE orders SET amount = 1000, customer = 2 WHERE id = 2")
    shop.sql.execute("UPDATE orders SET id = 30 WHERE id = 3")
    shop.sql.execute("DELETE FROM orders WHERE id = 1")


@pytest.fixture(autouse=True)
def some_orders(shop: Shop) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n % 3, n * 1.5, 'first' FROM generate_series(1, 5) n")


def test_a_sink_over_the_source_itself_is_a_copy(db: Database, shop: Shop, wait_until: WaitUntil) -> None:
    db.sql(
        f"INSERT INTO {shop.uri('copy')} SELECT * FROM {shop.uri('orders')} "
        'WITH ("cdc" = "true", "sink.table.create.if.missing" = "true")'
    )

    def same() -> bool:
        return shop.rows("SELECT * FROM copy") == shop.rows("SELECT * FROM orders")

    wait_until(same)
    changed(shop)
    wait_until(same)
    shop.sql.execute("TRUNCATE orders")
    shop.sql.execute("INSERT INTO orders VALUES (7, 7, 7, 'after')")
    wait_until(same)
    wait_until(lambda: shop.postgres.drop_slots(shop.name))
    shop.sql.execute("INSERT INTO orders VALUES (8, 8, 8, 'while the slot was gone')")
    wait_until(same)


def test_groups_into_a_sink(db: Database, shop: Shop, wait_until: WaitUntil) -> None:
    db.sql(
        f"INSERT INTO {shop.uri('totals')} "
        f"SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM {shop.uri('orders')} GROUP BY customer "
        'WITH ("cdc" = "true", "sink.table.create.if.missing" = "true")'
    )
    query = "SELECT customer, count(*), sum(amount) FROM orders GROUP BY customer"
    wait_until(lambda: shop.rows("SELECT * FROM totals") == shop.rows(query))
    changed(shop)
    shop.sql.execute("DELETE FROM orders WHERE customer = 0")
    wait_until(lambda: shop.rows("SELECT * FROM totals") == shop.rows(query))


def test_a_select_retracts_rows(db: Database, shop: Shop, wait_until: WaitUntil) -> None:
    found: Counter[tuple[Any, ...]] = Counter()
    stop = threading.Event()

    with db.stream(f'SELECT * FROM {shop.uri("orders")} WITH ("cdc" = "true")') as stream:

        def read() -> None:
            for added, removed in stream:
                for rows, weight in ((removed, -1), (added, 1)):
                    for row in rows.to_pylist() if rows is not None else ():
                        found[tuple(row.values())] += weight
                if stop.is_set():
                    return

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until(lambda: +found == shop.rows("SELECT * FROM orders"))
        changed(shop)
        wait_until(lambda: +found == shop.rows("SELECT * FROM orders"))
        stop.set()
        shop.sql.execute("DELETE FROM orders")
        reader.join(30)
    assert shop.sql.execute("SELECT count(*) FROM pg_publication").fetchone() == (0,)
    wait_until(lambda: shop.sql.execute(SLOTS, (shop.name,)).fetchone() == (0,))


def test_a_filter_on_the_clock_is_for_a_table(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("ALTER TABLE orders ADD COLUMN at timestamptz NOT NULL DEFAULT now()")
    recent = "WHERE at > now() - INTERVAL 1 HOUR"
    with refusal("sql.unsupported", "clock"):
        db.sql(f'CREATE TABLE recent AS SELECT id FROM {shop.uri("orders")} {recent} WITH ("cdc" = "true")')
    shop.follow(db)
    db.sql(
        f"CREATE TABLE recent AS SELECT customer, SUM(amount) AS total FROM orders {recent} GROUP BY customer"
    )
    late = "SELECT customer, sum(amount) FROM orders WHERE at > now() - interval '1 hour' GROUP BY 1"
    same(late, "SELECT * FROM recent")
    changed(shop)
    shop.sql.execute("UPDATE orders SET at = at - interval '2 hours' WHERE id IN (2, 10)")
    same(late, "SELECT * FROM recent")
