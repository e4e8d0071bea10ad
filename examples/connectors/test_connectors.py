"""The contracts of sources and sinks, kept by the connectors of this folder; and both in one application."""

import sqlite3
from collections import Counter
from contextlib import closing

import pytest
from ledger import LedgerConnector
from outbox import OutboxConnector

import velostream
from velostream.testing.contract import Place, SinkContract, SourceContract, World, sink_of, source_of

velostream.register(OutboxConnector)
velostream.register(LedgerConnector)


def run(database, statement, rows=()):
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany(statement, rows) if rows else connection.execute(statement)


class Shop(World):
    """An outbox whose ids are given by SQLite: rows come with ids of their own."""

    def __init__(self, folder):
        self._folder, self._count = folder, 0
        run(folder / "shop.db", "CREATE TABLE outbox (id INTEGER PRIMARY KEY, name TEXT)")

    def open(self, *, resumed=False, missing=False):
        name = "nowhere.db" if missing else "shop.db"
        return source_of(f"outbox://{self._folder}/{name}", self._folder, resumed=resumed)

    def give(self, rows):
        run(
            self._folder / "shop.db",
            "INSERT INTO outbox (name) VALUES (?)",
            [(name,) for _, name in rows],
        )
        first, self._count = self._count + 1, self._count + len(rows)
        return [(first + at, name) for at, (_, name) in enumerate(rows)]


class TestOutbox(SourceContract):
    @pytest.fixture
    def world(self, tmp_path):
        return Shop(tmp_path)


class Report(Place):
    def __init__(self, folder):
        self._folder = folder

    def open(self, *, resumed=False):
        uri = f"ledger://{self._folder}/report.db?table=totals"
        return sink_of(uri, self._folder, resumed=resumed)

    def there(self):
        with closing(sqlite3.connect(self._folder / "report.db")) as report:
            return Counter(report.execute("SELECT id, name FROM totals").fetchall())


class TestLedger(SinkContract):
    @pytest.fixture
    def place(self, tmp_path):
        return Report(tmp_path)


def test_a_report_follows_the_shop(velostream_db, tmp_path):
    shop, report = tmp_path / "shop.db", tmp_path / "report.db"
    run(shop, "CREATE TABLE outbox (id INTEGER PRIMARY KEY, customer TEXT, cents INTEGER)")
    add = "INSERT INTO outbox (customer, cents) VALUES (?, ?)"
    run(shop, add, [("ann", 1250), ("bob", 725), ("ann", 300)])
    velostream_db.sql(
        f"CREATE TABLE totals AS SELECT customer, SUM(cents) AS cents FROM outbox://{shop} GROUP BY customer;"
        f"INSERT INTO ledger://{report}?table=totals SELECT customer, cents FROM totals EMIT CHANGES"
    )
    run(shop, add, [("bob", 75)])
    velostream_db.table("totals").wait_for("cents = 800")
    assert velostream_db.wait_idle()
    with closing(sqlite3.connect(report)) as reader:
        found = reader.execute("SELECT customer, cents FROM totals ORDER BY customer").fetchall()
    assert found == [("ann", 1550), ("bob", 800)]


def test_a_column_that_is_added_widens_the_table(velostream_db, tmp_path):
    shop = tmp_path / "shop.db"
    run(shop, "CREATE TABLE outbox (id INTEGER PRIMARY KEY, customer TEXT)")
    run(shop, "INSERT INTO outbox (customer) VALUES (?)", [("ann",)])
    velostream_db.sql(f"CREATE TABLE events AS SELECT * FROM outbox://{shop}")
    run(shop, "ALTER TABLE outbox ADD COLUMN city TEXT")
    run(shop, "INSERT INTO outbox (customer, city) VALUES (?, ?)", [("bob", "Rome")])
    velostream_db.table("events").wait_for(lambda events: len(events) == 2)
    assert velostream_db.table("events").count("city = 'Rome'") == 1
