"""Rows and columns that a statement does not need are not asked for, and the result is the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from shops import ours

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from shops import Shop
    from tests.conftest import WaitUntil

    from conftest import Same
    from velostream import Database

pytestmark = pytest.mark.spark

CONDITIONS = (
    "id > 3",
    "5 >= id",
    "customer = 2",
    "customer IN (0, 2)",
    "amount < 4.5",
    "amount <> 3",
    "note = 'first'",
    "note IN ('first', 'it''s 100 %')",
    "note IS NOT NULL",
    "note IS NULL",
    "at >= TIMESTAMP '2024-01-03 00:00:00'",
    "day < DATE '2024-01-04'",
    "done",
    "done = TRUE",
    "NOT done",
    "note > 'b'",
    "amount + 1 > 4",
    "x > 2.5",
    "char = 'a'",
    "id = '4'",
    "upper(note) = 'FIRST'",
    "(id > 2 AND id < 6)",
    "id > 2 OR customer = 1",
)


@pytest.fixture(autouse=True)
def orders(shop: Shop) -> None:
    shop.sql.execute(
        "ALTER TABLE orders ADD at timestamptz, ADD day date, ADD done boolean, "
        "ADD x float8, ADD char char(3)"
    )
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n % 3, n * 0.75, "
        "CASE n % 4 WHEN 0 THEN NULL WHEN 1 THEN 'first' WHEN 2 THEN 'it''s 100 %' ELSE 'Second' END, "
        "timestamptz '2024-01-01 00:00:00+00' + n * interval '1 day', date '2024-01-01' + n, n % 2 = 0, "
        "CASE WHEN n = 5 THEN 'NaN' ELSE n * 0.5 END, 'a' FROM generate_series(1, 8) n"
    )


def asked(shop: Shop, since: int) -> str:
    """What the server was asked, from a place in its log on."""
    return (shop.postgres.folder / "log").read_text()[since:]


@pytest.mark.parametrize("cdc", [True, False], ids=["followed", "loaded"])
def test_conditions_give_the_same_rows(
    db: Database,
    shop: Shop,
    rng: random.Random,
    rounds: Callable[[int, int], int],
    wait_until: WaitUntil,
    cdc: bool,
) -> None:
    shop.follow(db, properties='"cdc" = "true"')
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
            "UPDATE orders SET amount = 3, done = NOT done, at = at + interval '1 day' WHERE id > 4"
        )
        shop.sql.execute("DELETE FROM orders WHERE id = 1")
        wait_until(lambda: ours(db, "SELECT id FROM orders") == shop.rows("SELECT id FROM orders"))
        assert db.wait_idle(60)
    for name, condition in where.items():
        expected = ours(db, f"SELECT id, customer FROM orders WHERE {condition}")
        assert ours(db, f"SELECT * FROM {name}") == expected, condition


def test_what_is_asked(db: Database, shop: Shop, same: Same) -> None:
    uri = shop.uri("orders")
    shop.sql.execute("ALTER SYSTEM SET log_statement = 'all'")
    shop.sql.execute("SELECT pg_reload_conf()")
    try:
        since = len(asked(shop, 0))
        db.sql(f"CREATE TABLE t AS SELECT customer FROM {uri} WHERE amount > 2 AND upper(note) = 'FIRST'")
        said = asked(shop, since)
        assert 'COPY (SELECT "id", "customer", "amount", "note" FROM ONLY' in said
        assert 'WHERE "amount" > 2' in said
        since = len(asked(shop, 0))
        assert len(db.sql(f"SELECT id FROM {uri} WHERE customer = 1 LIMIT 2").rows()) == 2
        assert """WHERE "customer" = 1 LIMIT 2""" in asked(shop, since)
    finally:
        shop.sql.execute("ALTER SYSTEM RESET log_statement")
        shop.sql.execute("SELECT pg_reload_conf()")
    lines = db.sql(f"EXPLAIN SELECT id FROM {uri} WHERE customer = 1 AND note IN ('a', 'b') LIMIT 2").rows()
    expected = (
        "  asks: SELECT customer, id, note FROM orders WHERE customer = 1 AND note IN ('a', 'b') LIMIT 2"
    )
    assert expected in [line for (line,) in lines]
    assert ours(db, "SELECT * FROM t") == Counter([(2,)])
