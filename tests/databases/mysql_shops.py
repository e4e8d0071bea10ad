"""A database of MySQL or MariaDB with orders, and random transactions over it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

    from shops import Rows

    from mysql_servers import MySqlServer, Session
    from velostream import Database

SCHEMA = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer int, amount decimal(12,2), note text)",
    "CREATE TABLE customers (id int PRIMARY KEY, city varchar(40))",
)
CITIES = "INSERT INTO customers VALUES " + ", ".join(f"({n}, 'city {n % 3}')" for n in range(10))


class MySqlShop:
    """Orders and customers in a database."""

    def __init__(self, server: MySqlServer, name: str, sql: Session) -> None:
        self.server, self.name, self.sql = server, name, sql
        for statement in SCHEMA:
            sql.execute(statement)

    def uri(self, table: str) -> str:
        return self.server.uri(self.name, table)

    def follow(self, db: Database, table: str = "orders", properties: str = '"cdc" = "true"') -> None:
        """Make a table of the same name here."""
        db.sql(f"CREATE TABLE {table} AS SELECT * FROM {self.uri(table)} WITH ({properties})")

    def rows(self, query: str) -> Rows:
        return Counter(self.sql.execute(query))

    def fill(self, low: int, high: int, values: str = "n, n % 9, n * 1.25, 'x'") -> None:
        """Insert orders with numbers from `low` to `high`."""
        numbers(self.sql, low, high, f"INSERT INTO orders SELECT {values} FROM")


def numbers(sql: Session, low: int, high: int, before: str, after: str = "") -> Any:
    """Run a statement over the numbers `n` from `low` to `high`."""
    digits = " CROSS JOIN ".join(
        "(SELECT 0 d" + "".join(f" UNION ALL SELECT {digit * 10**k}" for digit in range(1, 10)) + f") d{k}"
        for k in range(len(str(high - low)))
    )
    total = " + ".join(f"d{k}.d" for k in range(len(str(high - low))))
    return sql.execute(
        f"{before} (SELECT {low} + {total} AS n FROM {digits}) numbers WHERE n <= {high} {after}"
    )


def transaction(sql: Session, rng: random.Random) -> None:
    """One transaction of a few statements, which may be undone."""
    if rng.random() < 0.02:
        sql.execute("TRUNCATE orders")
    with sql.transaction(force_rollback=rng.random() < 0.15):
        for _ in range(rng.randint(1, 6)):
            statement(sql, rng)


def statement(sql: Session, rng: random.Random) -> None:
    """One statement that is right whatever is there."""
    low = rng.randint(0, 400)
    high = low + rng.randint(0, 40)
    kind = rng.randrange(9)
    if kind == 0:
        numbers(
            sql,
            low,
            high,
            "INSERT IGNORE INTO orders (id, customer, amount, note) "
            f"SELECT n, {rng.randint(0, 9)}, n / 100, 'n' FROM",
        )
    elif kind == 1:
        numbers(
            sql,
            low,
            low + 2,
            "INSERT INTO orders (id, customer, amount, note) SELECT n, n % 10, n, REPEAT('long ', 2000) FROM",
            "ON DUPLICATE KEY UPDATE amount = 0",
        )
    else:
        sql.execute(
            [
                f"UPDATE orders SET amount = amount + 1 WHERE id BETWEEN {low} AND {high}",
                f"UPDATE orders SET customer = NULL WHERE id % 17 = {rng.randint(0, 16)}",
                f"DELETE FROM orders WHERE id BETWEEN {low} AND {high}",
                f"UPDATE IGNORE orders SET id = id + 1000 WHERE id = {low}",
                f"UPDATE customers SET city = 'city {rng.randint(0, 5)}' WHERE id = {rng.randint(0, 9)}",
                f"DELETE FROM customers WHERE id = {rng.randint(0, 9)}",
                f"INSERT IGNORE INTO customers VALUES ({rng.randint(0, 9)}, 'new')",
            ][kind - 2]
        )
