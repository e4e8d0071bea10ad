"""kill -9 of the application and the server, cut connections, lost binlogs, while tables follow a database.

When everything is at rest, our tables, what is computed from them, and the sinks equal the database's own
answers.
"""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from mysql_shops import CITIES, SCHEMA, numbers, transaction

from mysql_servers import running_mysql
from restart.lives import Runner

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from mysql_servers import MySqlServer

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

PLACES = {
    "changes received, not in their log": 12,
    "changes logged, not acknowledged": 12,
    "everything is to be read again": 2,
    "changes committed, their log not told": 6,
    "table computed, not logged": 12,
    "table logged, not published": 12,
    "sink written, not recorded": 4,
    "sink recorded": 4,
}
LOADING = "changes received, not in their log"
"""Where the first life ends, in the middle of the first load."""
ROWS = 50_000
"""Rows that are there before the first life."""
EVENTS = ("cut", "restart", "crash", "gone", "lost", "rotated", "column", "wider", "swapped")
MOST_COLUMNS = 3
"""How many columns are added to the orders in all."""
APP = """
CREATE TABLE orders AS SELECT * FROM {orders} WITH ("cdc" = "true");
CREATE TABLE customers AS SELECT * FROM {customers} WITH ("cdc" = "true");
CREATE TABLE by_customer AS SELECT customer, COUNT(*) AS n, SUM(amount) AS total, MAX(amount) AS top
  FROM {orders} GROUP BY customer WITH ("cdc" = "true");
CREATE TABLE by_city AS SELECT city, COUNT(*) AS n, SUM(amount) AS total
  FROM orders o JOIN customers c ON o.customer = c.id GROUP BY city;
INSERT INTO {copy} SELECT * FROM orders EMIT CHANGES WITH ("table.create.if.missing" = "true");
INSERT INTO {cities} SELECT * FROM by_city EMIT CHANGES WITH ("table.create.if.missing" = "true");
"""
QUESTIONS = {
    "orders": "SELECT * FROM orders",
    "customers": "SELECT * FROM customers",
    "by_customer": "SELECT customer, count(*), sum(amount), max(amount) FROM orders GROUP BY customer",
    "by_city": "SELECT city, count(*), sum(amount) "
    "FROM orders JOIN customers c ON customer = c.id GROUP BY city",
}


class World:
    """A database, an application over it, and what happens to both."""

    def __init__(self, folder: Path, server: MySqlServer, rng: random.Random, absence: float) -> None:
        folder.mkdir()
        self._absence, self._columns, self._digits = absence, 0, 12
        self._folder, self._server, self._rng = folder, server, rng
        self._deaths: list[str] = []
        self.happened: Counter[str] = Counter()
        """Disruptions that took place, by kind."""
        self._app = folder / "app.sql"
        uris = {name: server.uri("shop", name) for name in ("orders", "customers", "copy", "cities")}
        self._app.write_text(APP.format(**uris))
        with server.connect() as sql:
            sql.execute("CREATE DATABASE shop")
        with server.connect("shop") as sql:
            for statement in (*SCHEMA, CITIES):
                sql.execute(statement)
            numbers(sql, 1000, 999 + ROWS, "INSERT INTO orders SELECT n, n % 10, n / 100, 'n' FROM")
        self.change(5)

    def change(self, transactions: int) -> None:
        with self._server.connect("shop") as sql:
            for _ in range(transactions):
                transaction(sql, self._rng)

    def begin(self) -> None:
        """The first life ends while everything is read."""
        place = f"{LOADING} {self._rng.randint(1, 4)}"
        runner = Runner(self._folder / "data", self._app, place)
        assert runner.process.wait(150) == -signal.SIGKILL
        runner.ended()
        self._deaths.append(f"first: {place}")
        self.happened["killed while loading"] += 1

    def live(self) -> None:
        """One life of the application, with its end."""
        runner = Runner(self._folder / "data", self._app, None)
        if self._rng.random() < 0.15:
            self._deaths.append("while it starts")
            self.happened["killed while starting"] += 1
            runner.kill()
            return
        runner.ready()
        if self._rng.random() < 0.6:
            place = f"{(name := self._rng.choice(sorted(PLACES)))} {self._rng.randint(1, PLACES[name])}"
            runner.ask(f"die {place}")
            self._deaths.append(place)
        else:
            self._deaths.append("any moment")
        for _ in range(self._rng.randint(1, 3)):
            self.change(self._rng.randint(1, 8))
            self.disrupt()
            if runner.process.poll() is not None:
                break
        if self._rng.random() < 0.5:
            runner.ask("idle", 200)
        self.happened["killed" if runner.process.poll() is None else "killed at a place"] += 1
        runner.kill()

    def disrupt(self) -> None:
        """What servers and networks do."""
        event = self._rng.choice(["nothing", "nothing", *EVENTS])
        if event == "column" and self._columns == MOST_COLUMNS:
            event = "nothing"
        self._deaths.append(event)
        if event != "nothing":
            self.happened[event] += 1
        if event in ("restart", "crash"):
            self._server.stop(signal.SIGKILL if event == "crash" else signal.SIGTERM)
            self._server.start()
        elif event == "gone":
            self._server.stop()
            threading.Event().wait(self._absence)
            self._server.start()
        elif event == "wider":
            with self._server.connect("shop") as sql:
                self._digits += 1
                sql.execute(f"ALTER TABLE orders MODIFY amount decimal({self._digits}, 2)")
        elif event == "swapped":
            with self._server.connect("shop") as sql:
                sql.execute("CREATE TABLE other LIKE orders")
                sql.execute("INSERT INTO other SELECT * FROM orders WHERE id % 11 > 0")
                sql.execute("RENAME TABLE orders TO old, other TO orders")
                sql.execute("DROP TABLE old")
        elif event == "column":
            self._columns += 1
            with self._server.connect("shop") as sql:
                default = self._rng.choice(["", f"DEFAULT {self._columns}"])
                sql.execute(f"ALTER TABLE orders ADD COLUMN extra{self._columns} int {default}")
        elif event == "cut":
            self._server.cut()
        elif event == "lost":
            self._server.lose_binlog()
        elif event == "rotated":
            with self._server.connect() as sql:
                sql.execute("FLUSH BINARY LOGS")

    def check(self) -> None:
        """The last life: everything is right."""
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        assert runner.ask("idle", 200) == "True", (self._deaths, runner.ask("jobs"))
        states = json.loads(runner.ask("jobs"))
        assert {name: job for name, job in states.items() if job[0] != "running"} == {}, self._deaths
        dump = self._folder / "dump"
        dump.mkdir()
        assert runner.ask(f"dump {dump}") == "done"
        with self._server.connect("shop") as sql:
            for name, question in QUESTIONS.items():
                rows = pq.read_table(dump / f"{name}.parquet").to_pylist()
                found: Counter[tuple[Any, ...]] = Counter(tuple(row.values()) for row in rows)
                assert found == Counter(sql.execute(question)), (name, self._deaths)
            copied = Counter(sql.execute("SELECT id, customer, amount, note FROM copy"))
            assert copied == Counter(sql.execute("SELECT id, customer, amount, note FROM orders")), (
                self._deaths
            )
            cities = Counter(sql.execute("SELECT city, n, total FROM cities"))
            assert cities == Counter(sql.execute(QUESTIONS["by_city"])), self._deaths
        assert runner.ask("quit") == "closed"
        runner.ended()


@pytest.mark.timeout(7200)
def test_everything_ends_equal_to_the_database(
    tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    with running_mysql(rng.choice(["mariadb", "mysql"])) as server:
        world = World(tmp_path / "world", server, rng, rounds(3, 60))
        world.begin()
        for _ in range(rounds(2, 40)):
            world.live()
        world.check()
        if rounds(0, 1):
            assert world.happened.total() >= 30
            assert set(EVENTS) | {"killed", "killed at a place", "killed while loading"} <= set(
                world.happened
            )
