"""Random transactions over orders and customers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

    import psycopg

SCHEMA = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount numeric(12,2), note text)",
    "CREATE TABLE customers (id int PRIMARY KEY, city text)",
    "INSERT INTO customers SELECT n, 'city ' || n % 3 FROM generate_series(0, 9) n",
)


def transaction(connection: psycopg.Connection, rng: random.Random) -> None:
    """One transaction of a few statements, which may be undone."""
    with connection.transaction(force_rollback=rng.random() < 0.15):
        for _ in range(rng.randint(1, 6)):
            connection.execute(statement(rng))


def statement(rng: random.Random) -> str:
    """One statement that is right whatever is there."""
    low = rng.randint(0, 400)
    high = low + rng.randint(0, 40)
    if rng.random() < 0.02:
        return "TRUNCATE orders"
    return rng.choice(
        [
            f"INSERT INTO orders SELECT n, {rng.randint(0, 9)}, {rng.randint(1, 10**6)} / 100.0, 'n' "
            f"FROM generate_series({low}, {high}) n ON CONFLICT (id) DO NOTHING",
            f"INSERT INTO orders SELECT n, n % 10, n, repeat('long ', 2000) "
            f"FROM generate_series({low}, {low + 2}) n ON CONFLICT (id) DO UPDATE SET amount = 0",
            f"UPDATE orders SET amount = amount + 1 WHERE id BETWEEN {low} AND {high}",
            f"UPDATE orders SET customer = NULL WHERE id % 17 = {rng.randint(0, 16)}",
            f"DELETE FROM orders WHERE id BETWEEN {low} AND {high}",
            f"UPDATE orders SET id = id + 1000 WHERE id = {low} "
            f"AND NOT EXISTS (SELECT FROM orders WHERE id = {low + 1000})",
            f"UPDATE customers SET city = 'city {rng.randint(0, 5)}' WHERE id = {rng.randint(0, 9)}",
            f"DELETE FROM customers WHERE id = {rng.randint(0, 9)}",
            f"INSERT INTO customers VALUES ({rng.randint(0, 9)}, 'new') ON CONFLICT (id) DO NOTHING",
        ]
    )
