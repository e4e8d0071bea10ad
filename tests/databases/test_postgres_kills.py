"""kill -9 of the application and the server, cut connections, lost slots, while tables follow a database.

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
from workloads import SCHEMA, transaction

from database_servers import running
from restart.lives import Runner

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import WaitUntil

    from database_servers import Postgres

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
EVENTS = ("cut", "restart", "crash", "gone", "slot", "column", "wider")
MOST_COLUMNS = 3
"""How many columns are added to the orders in all."""
APP = """
CREATE TABLE orders AS SELECT * FROM {orders} WITH ("cdc" = "true");
CREATE TABLE customers AS SELECT * FROM {customers} WITH ("cdc" = "true");
CREATE TABLE polled AS SELECT * FROM {customers} WITH ("poll.interval" = "100ms");
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
    "polled": "SELECT * FROM customers",
    "by_customer": "SELECT customer, count(*), sum(amount), max(amount) FROM orders GROUP BY customer",
    "by_city": "SELECT city, count(*), sum(amount) "
    "FROM orders JOIN customers c ON customer = c.id GROUP BY city",
}


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """A server that the test stops, kills and starts again."""
    with running() as server:
        yield server


class World:
    """A database, an application over it, and what happens to both."""

    def __init__(
        self,
        folder: Path,
        server: Postgres,
        rng: random.Random,
        wait_until: WaitUntil,
        absence: float,
    ) -> None:
        folder.mkdir()
        self._absence, self._columns, self._digits = absence, 0, 12
        self._folder, self._server, self._rng, self._wait = folder, server, rng, wait_until
        self._deaths: list[str] = []
        self.happened: Counter[str] = Counter()
        """Disruptions that took place, by kind."""
        self._app = folder / "app.sql"
        uris = {name: server.uri("postgres", name) for name in ("orders", "customers", "copy", "cities")}
        self._app.write_text(APP.format(**uris))
        with server.connect() as connection:
            for statement in SCHEMA:
                connection.execute(statement)
            connection.execute(
                "INSERT INTO orders SELECT n, n %% 10, n / 100.0, 'n' FROM generate_series(1000, %s) n",
                (999 + ROWS,),
            )
        self.change(5)

    def change(self, transactions: int) -> None:
        with self._server.connect() as connection:
            for _ in range(transactions):
                transaction(connection, self._rng)

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
            self._server.stop(signal.SIGKILL if event == "crash" else signal.SIGINT)
            self._server.start()
        elif event == "gone":
            self._server.stop(signal.SIGINT)
            threading.Event().wait(self._absence)
            self._server.start()
        elif event == "wider":
            with self._server.connect() as admin:
                self._digits += 1
                admin.execute(f"ALTER TABLE orders ALTER COLUMN amount TYPE numeric({self._digits}, 2)")
        elif event == "column":
            self._columns += 1
            with self._server.connect() as admin:
                default = self._rng.choice(["", f"DEFAULT {self._columns}"])
                admin.execute(f"ALTER TABLE orders ADD COLUMN extra{self._columns} int {default}")
        elif event == "cut":
            with self._server.connect() as admin:
                admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = 'velostream'"
                )
        elif event == "slot":
            self._wait(lambda: self._server.drop_slots("postgres"))

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
        with self._server.connect() as connection:
            for name, question in QUESTIONS.items():
                expected = Counter(connection.execute(question).fetchall())
                rows = pq.read_table(dump / f"{name}.parquet").to_pylist()
                found: Counter[tuple[Any, ...]] = Counter(tuple(row.values()) for row in rows)
                assert found == expected, (name, self._deaths)
            copied = Counter(connection.execute("SELECT id, customer, amount, note FROM copy").fetchall())
            origin = connection.execute("SELECT id, customer, amount, note FROM orders").fetchall()
            assert copied == Counter(origin), self._deaths
            cities = Counter(connection.execute("SELECT city, n, total FROM cities").fetchall())
            assert cities == Counter(connection.execute(QUESTIONS["by_city"]).fetchall()), self._deaths
        assert runner.ask("quit") == "closed"
        runner.ended()


@pytest.mark.timeout(7200)
def test_everything_ends_equal_to_the_database(
    tmp_path: Path,
    own_postgres: Postgres,
    rng: random.Random,
    rounds: Callable[[int, int], int],
    wait_until: WaitUntil,
) -> None:
    world = World(tmp_path / "world", own_postgres, rng, wait_until, rounds(3, 60))
    world.begin()
    for _ in range(rounds(2, 40)):
        world.live()
    world.check()
    if rounds(0, 1):
        assert world.happened.total() >= 30
        assert set(EVENTS) | {"killed", "killed at a place", "killed while loading"} <= set(world.happened)
