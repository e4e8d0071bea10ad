"""kill -9 of one application of everything: files, tables filled by hand, topics, windows and all sinks.

At rest, DuckDB computes every table and every sink anew from what went in.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import kafka_clients as clients
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from kafka_clients import Sent

from equivalence.truth import differences
from restart.lives import Runner
from restart.runner import PLACES

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]
TRADES = "id BIGINT, cust BIGINT, amount DECIMAL(10,2), at TIMESTAMP"
APP = """
CREATE SOURCE trades ({trades}) FROM {brokers}/trades
  WITH ("event.time.column" = "at", "idle.timeout" = "1d", "auto.offset.reset" = "earliest");
CREATE TABLE customers (cust BIGINT PRIMARY KEY, city STRING);
INSERT INTO customers VALUES (1, 'Bern'), (2, 'Rome');
CREATE TABLE orders AS SELECT id, cust, amount FROM file://{orders} WITH ("file.debounce" = "20ms");
CREATE TABLE per_cust AS SELECT cust, COUNT(*) AS n, SUM(amount) AS total, MAX(amount) AS top FROM file://{orders}
  GROUP BY cust WITH ("file.debounce" = "20ms");
CREATE TABLE cities AS SELECT c.city, COUNT(*) AS n, SUM(o.amount) AS total FROM orders o
  JOIN customers c ON o.cust = c.cust GROUP BY c.city;
CREATE TABLE traded AS SELECT cust, COUNT(*) AS n, SUM(amount) AS total, COUNT(DISTINCT amount) AS prices
  FROM trades GROUP BY cust;
CREATE TABLE minutes AS SELECT cust, window_start, COUNT(*) AS n, SUM(amount) AS total FROM trades
  WINDOW TUMBLING(INTERVAL '1' MINUTE) GROUP BY cust EMIT CHANGES;
CREATE TABLE closed AS SELECT cust, window_start, COUNT(*) AS n, MAX(amount) AS top FROM trades
  WINDOW SLIDING(INTERVAL '2' MINUTE, INTERVAL '1' MINUTE) GROUP BY cust EMIT FINAL;
CREATE TABLE both AS SELECT p.cust, p.total AS ordered, t.total AS traded FROM per_cust p
  LEFT JOIN traded t ON p.cust = t.cust;
INSERT INTO file://{out}/trades.jsonl SELECT id, amount FROM trades WHERE id % 3 = 0;
INSERT INTO {brokers}/copied SELECT id, amount FROM trades WHERE id % 2 = 0
  WITH ("delivery" = "exactly_once");
INSERT INTO {brokers}/shut SELECT cust, window_start, SUM(amount) AS total FROM trades
  WINDOW TUMBLING(INTERVAL '1' MINUTE) GROUP BY cust EMIT FINAL WITH ("delivery" = "exactly_once");
"""
WANTED = {
    "orders": "SELECT id, cust, amount FROM orders_in",
    "per_cust": "SELECT cust, COUNT(*) AS n, SUM(amount) AS total, MAX(amount) AS top"
    " FROM orders_in GROUP BY cust",
    "cities": "SELECT c.city, COUNT(*) AS n, SUM(o.amount) AS total FROM orders_in o"
    " JOIN customers_in c ON o.cust = c.cust GROUP BY c.city",
    "traded": "SELECT cust, COUNT(*) AS n, SUM(amount) AS total, COUNT(DISTINCT amount) AS prices"
    " FROM trades_in GROUP BY cust",
    "minutes": "SELECT cust, date_trunc('minute', \"at\") AS window_start, COUNT(*) AS n,"
    " SUM(amount) AS total FROM trades_in GROUP BY ALL",
    "closed": "SELECT cust, date_trunc('minute', \"at\") - to_minutes(back) AS window_start, COUNT(*) AS n,"
    " MAX(amount) AS top FROM trades_in, (VALUES (0), (1)) v(back)"
    " WHERE date_trunc('minute', \"at\") - to_minutes(back) + INTERVAL 2 MINUTE"
    " <= (SELECT mark FROM watermark) GROUP BY ALL",
    "both": "SELECT p.cust, p.total AS ordered, t.total AS traded FROM"
    " (SELECT cust, SUM(amount) AS total FROM orders_in GROUP BY cust) p LEFT JOIN"
    " (SELECT cust, SUM(amount) AS total FROM trades_in GROUP BY cust) t ON p.cust = t.cust",
    "trades.jsonl": "SELECT id, amount FROM trades_in WHERE id % 3 = 0",
    "copied": "SELECT id, amount FROM trades_in WHERE id % 2 = 0",
    "shut": "SELECT cust, date_trunc('minute', \"at\") AS window_start, SUM(amount) AS total FROM trades_in"
    " WHERE date_trunc('minute', \"at\") + INTERVAL 1 MINUTE <= (SELECT mark FROM watermark) GROUP BY ALL",
}
PARTITIONS = 2
MONEY = pa.decimal128(10, 2)
TIME = pa.timestamp("us")
"""Times without a zone, which DuckDB compares without an extension; all are in UTC."""


class World:
    """What goes into the application, and its lives."""

    def __init__(self, folder: Path, broker: BrokerProcess, rng: random.Random) -> None:
        self._folder, self._broker, self._rng = folder, broker, rng
        self._next = 0
        self._orders: dict[int, tuple[int, Decimal]] = {}
        self._trades: list[dict[str, Any]] = []
        self._clock = [datetime(2026, 5, 1, 12)] * PARTITIONS
        self._cities = {1: "Bern", 2: "Rome"}
        self._deaths: list[str] = []
        for name in ("trades", "copied", "shut"):
            clients.make_topic(broker.address, name, PARTITIONS)
        self._file, self._out, self._dump = folder / "orders.csv", folder / "out", folder / "dump"
        self._app = folder / "app.sql"
        self._dump.mkdir(parents=True)
        brokers = f"kafka://{broker.address}"
        self._app.write_text(APP.format(trades=TRADES, brokers=brokers, orders=self._file, out=self._out))
        self.feed(None)

    def feed(self, runner: Runner | None) -> None:
        """Change every input a little; a table filled by hand only while its application runs."""
        rng = self._rng
        for _ in range(rng.randint(1, 5)):
            self._orders[self._number()] = (rng.randint(1, 5), self._amount())
        for number in rng.sample(sorted(self._orders), min(2, len(self._orders) - 1)):
            if rng.random() < 0.5:
                del self._orders[number]
            else:
                self._orders[number] = (rng.randint(1, 5), self._amount())
        lines = [f"{number},{cust},{amount}" for number, (cust, amount) in self._orders.items()]
        other = self._file.with_suffix(".new")
        other.write_text("\n".join(["id,cust,amount", *lines, ""]))
        other.replace(self._file)
        clients.produce(self._broker.address, "trades", [self._trade() for _ in range(rng.randint(1, 60))])
        if runner is not None:
            self._by_hand(runner)

    def _by_hand(self, runner: Runner) -> None:
        """A statement that is acknowledged has happened; one that is cut off may have."""
        cust, city = self._rng.randint(1, 5), self._rng.choice(["Bern", "Rome", "Oslo"])
        if runner.ask(f"sql INSERT OR REPLACE INTO customers VALUES ({cust}, '{city}')") == "done":
            self._cities[cust] = city
        else:
            self._cities.pop(cust, None)

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _amount(self) -> Decimal:
        return Decimal(self._rng.randint(1, 9999)).scaleb(-2)

    def _trade(self) -> Sent:
        """A trade; times of a partition never go back, so that none is late."""
        part = self._rng.randrange(PARTITIONS)
        self._clock[part] += timedelta(seconds=self._rng.choice([0, 1, 10, 40]))
        row = {
            "id": self._number(),
            "cust": self._rng.randint(1, 5),
            "amount": self._amount(),
            "at": self._clock[part],
        }
        self._trades.append(row)
        # Decimals are written as JSON numbers with all their digits.
        texts = [f'"id": {row["id"]}', f'"cust": {row["cust"]}', f'"amount": {row["amount"]}']
        return Sent(f'{{{", ".join(texts)}, "at": "{row["at"].isoformat()}Z"}}', None, part)

    def live(self) -> None:
        """One life: fed until it dies at its place, or is killed at any moment."""
        name = self._rng.choice(sorted(PLACES)) if self._rng.random() < 0.6 else None
        kill = f"{name} {self._rng.randint(1, PLACES[name])}" if name else None
        runner = Runner(self._folder / "data", self._app, kill)
        started = runner.lines.get(timeout=150) == "ready"
        for _ in range(self._rng.randint(1, 5)):
            if not started or runner.process.poll() is not None:
                break
            self.feed(runner)
            if self._rng.random() < 0.2:
                runner.ask("snapshot")
        self._deaths.append(kill if kill and runner.process.poll() is not None else "any moment")
        runner.kill()

    def check(self) -> None:
        """The last life: every table and sink is what DuckDB makes of the inputs."""
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        assert runner.ask("idle", 200) == "True", (self._deaths, runner.ask("jobs"))
        states = json.loads(runner.ask("jobs"))
        assert {name: job for name, job in states.items() if job[0] != "running"} == {}, self._deaths
        assert runner.ask(f"dump {self._dump}") == "done"
        assert runner.ask("quit") == "closed"
        runner.ended()
        customers = pq.read_table(self._dump / "customers.parquet")
        assert self._cities.items() <= {row["cust"]: row["city"] for row in customers.to_pylist()}.items()
        engine = self._engine(customers)
        for name, sql in WANTED.items():
            found = self._found(name)
            wanted = engine.sql(sql).to_arrow_table()
            assert differences(found, wanted.select(found.schema.names).cast(found.schema)) == [], (
                name,
                self._deaths,
            )
        letters = pq.read_table(self._dump / "dead_letters.parquet").to_pylist()
        assert letters == [], self._deaths

    def _engine(self, customers: pa.Table) -> duckdb.DuckDBPyConnection:
        engine = duckdb.connect()
        orders = [{"id": i, "cust": cust, "amount": amount} for i, (cust, amount) in self._orders.items()]
        kinds = [("id", pa.int64()), ("cust", pa.int64()), ("amount", MONEY)]
        times = [*kinds, ("at", TIME)]
        engine.register("orders_in", pa.Table.from_pylist(orders, pa.schema(kinds)))
        engine.register("trades_in", pa.Table.from_pylist(self._trades, pa.schema(times)))
        engine.register("customers_in", customers)
        engine.register("watermark", pa.table({"mark": pa.array([min(self._clock)], times[-1][1])}))
        return engine

    def _found(self, name: str) -> pa.Table:
        """The rows of a table, or of a sink in the types that its query has."""
        if name.endswith(".jsonl"):
            lines = (self._out / name).read_text().splitlines()
            return pa.Table.from_pylist(
                [json.loads(line, parse_float=Decimal) for line in lines],
                pa.schema([("id", pa.int64()), ("amount", MONEY)]),
            )
        if name not in ("copied", "shut"):
            rows = pq.read_table(self._dump / f"{name}.parquet")
            fields = [
                field.with_type(TIME) if pa.types.is_timestamp(field.type) else field for field in rows.schema
            ]
            return rows.cast(pa.schema(fields))
        records = [
            json.loads(record.value or b"", parse_float=Decimal)
            for record in clients.consume(self._broker.address, name)
        ]
        if name == "copied":
            return pa.Table.from_pylist(records, pa.schema([("id", pa.int64()), ("amount", MONEY)]))
        for row in records:
            row["window_start"] = datetime.fromisoformat(row["window_start"]).replace(tzinfo=None)
        kinds = [
            ("cust", pa.int64()),
            ("window_start", TIME),
            ("total", pa.decimal128(20, 2)),
        ]
        return pa.Table.from_pylist(records, pa.schema(kinds))


@pytest.mark.timeout(7200)
def test_everything_at_once_survives_kills(tmp_path, own_broker, rng, rounds):
    world = World(tmp_path / "world", own_broker, rng)
    for _ in range(rounds(1, 30)):
        world.live()
    world.check()
