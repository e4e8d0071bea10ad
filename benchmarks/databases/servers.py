"""The databases that are measured: orders, and the changes that are made to them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from velostream.devtools.postgres import PostgresServer

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator

    import psycopg

TRANSACTION = 1_000
"""Rows that one transaction of the backlog changes."""


@dataclass(frozen=True)
class PostgresOrders:
    """Orders in PostgreSQL."""

    address: str
    """As libpq takes it."""
    uri: str

    def __str__(self) -> str:
        return self.address

    def connect(self) -> psycopg.Connection:
        import psycopg

        return psycopg.connect(self.address, autocommit=True)

    def fill(self, rows: int) -> None:
        """A new table of orders."""
        with self.connect() as connection:
            connection.execute("DROP TABLE IF EXISTS orders")
            connection.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, "
                "amount numeric(12,2) NOT NULL, status text NOT NULL, note text, "
                "changed_at timestamptz NOT NULL)"
            )
            connection.execute(f"INSERT INTO orders {_rows(1, rows)}")
            connection.execute("VACUUM ANALYZE orders")
            connection.execute("CHECKPOINT")

    def change(self, changes: int) -> None:
        """Updates, inserts and deletes, 8, 1 and 1 of ten, in transactions of a thousand."""
        with self.connect() as connection:
            found = connection.execute("SELECT min(id), max(id) FROM orders").fetchone()
            assert found is not None
            low, high = found
            part = TRANSACTION // 10
            for number in range(changes // TRANSACTION):
                first = low + number * part * 9
                with connection.transaction():
                    connection.execute(f"DELETE FROM orders WHERE id >= {first} AND id < {first + part}")
                    connection.execute(
                        "UPDATE orders SET amount = amount + 1, status = 'paid', changed_at = now() "
                        f"WHERE id >= {first + part} AND id < {first + part * 9}"
                    )
                    connection.execute(f"INSERT INTO orders {_rows(high + 1, high + part)}")
                    high += part

    def checksum(self) -> tuple[int, str]:
        """The number of orders, and the sum of their amounts."""
        with self.connect() as connection:
            found = connection.execute("SELECT count(*), sum(amount)::text FROM orders").fetchone()
        assert found is not None
        return int(found[0]), str(found[1])

    def steadily(self, rate: int, stop: threading.Event, marks: dict[int, float]) -> None:
        """Transactions of ten updates; `marks` has when each was committed, by its number."""
        number, due = 0, time.monotonic()
        with self.connect() as connection:
            (least,) = connection.execute("SELECT min(id) FROM orders").fetchone() or (1,)
            while not stop.is_set():
                number += 1
                with connection.transaction():
                    connection.execute(f"UPDATE orders SET customer = {number} WHERE id = {least}")
                    first = least + 1 + number % 1000 * 9
                    connection.execute(
                        f"UPDATE orders SET amount = amount + 1 WHERE id >= {first} AND id < {first + 9}"
                    )
                marks[number] = time.monotonic()
                due += 10 / rate
                time.sleep(max(due - time.monotonic(), 0))


def _rows(low: int, high: int) -> str:
    return (
        "SELECT n, (n % 10000)::int, (n % 100000) / 100.0, "
        "(ARRAY['new','paid','sent','done'])[1 + n % 4], 'note of order ' || n, now() "
        f"FROM generate_series({low}::bigint, {high}) n"
    )


@dataclass(frozen=True)
class MariaDbOrders:
    """Orders in MariaDB."""

    port: int
    uri: str

    def connect(self) -> Any:
        import pymysql

        address = {"host": "127.0.0.1", "port": self.port, "user": "app", "password": "secret"}
        return pymysql.connect(**address, database="shop", autocommit=True)

    def fill(self, rows: int) -> None:
        """A new table of orders."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS orders")
            cursor.execute(
                "CREATE TABLE orders (id bigint PRIMARY KEY, customer int NOT NULL, "
                "amount decimal(12,2) NOT NULL, status varchar(10) NOT NULL, note text, "
                "changed_at datetime(6) NOT NULL)"
            )
            cursor.execute(f"INSERT INTO orders {_mariadb_rows(1, rows)}")

    def change(self, changes: int) -> None:
        """As of PostgreSQL."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT MIN(id), MAX(id) FROM orders")
            low, high = cursor.fetchone()
            part = TRANSACTION // 10
            for number in range(changes // TRANSACTION):
                first = low + number * part * 9
                connection.begin()
                cursor.execute(f"DELETE FROM orders WHERE id >= {first} AND id < {first + part}")
                cursor.execute(
                    "UPDATE orders SET amount = amount + 1, status = 'paid', changed_at = NOW(6) "
                    f"WHERE id >= {first + part} AND id < {first + part * 9}"
                )
                cursor.execute(f"INSERT INTO orders {_mariadb_rows(high + 1, high + part)}")
                connection.commit()
                high += part

    def checksum(self) -> tuple[int, str]:
        """The number of orders, and the sum of their amounts."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT COUNT(*), CAST(SUM(amount) AS CHAR) FROM orders")
            count, total = cursor.fetchone()
        return int(count), str(total)


def _mariadb_rows(low: int, high: int) -> str:
    return (
        "SELECT seq, seq % 10000, seq % 100000 / 100, ELT(1 + seq % 4, 'new', 'paid', 'sent', 'done'), "
        f"CONCAT('note of order ', seq), NOW(6) FROM seq_{low}_to_{high}"
    )


KINDS: dict[str, Any] = {"postgres": PostgresOrders, "mariadb": MariaDbOrders}


@contextmanager
def mariadb() -> Iterator[MariaDbOrders]:
    """A MariaDB of its own, as the tests start it, but durable."""
    import importlib

    servers: Any = importlib.import_module("tests.mysql_servers")
    durable = {"sync-binlog": "1", "innodb-flush-log-at-trx-commit": "1", "innodb-buffer-pool-size": "512M"}
    with servers.running_mysql("mariadb", **durable) as server:
        with server.connect() as session:
            session.execute("CREATE DATABASE shop")
        yield MariaDbOrders(server.port, f"mysql://app:secret@127.0.0.1:{server.port}/shop")


@contextmanager
def postgres() -> Iterator[PostgresOrders]:
    """A PostgreSQL of its own, as the tests start it, but durable."""
    server = PostgresServer(
        "secret", fsync="on", shared_buffers="512MB", max_wal_size="8GB", checkpoint_timeout="30min"
    )
    server.make()
    server.start()
    try:
        yield PostgresOrders(
            f"host=127.0.0.1 port={server.port} user=postgres password=secret dbname=postgres",
            f"postgresql://postgres:secret@127.0.0.1:{server.port}/postgres",
        )
    finally:
        server.stop()
        server.remove()
