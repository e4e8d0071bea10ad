"""kill -9 of the application and of the broker while tables follow a topic: nothing is lost or doubled.

What must be true is computed from the topic itself, in Python, when everything has come to rest.
"""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import kafka_clients as clients
import pyarrow.parquet as pq
import pytest
from kafka_clients import Sent

from restart.lives import Runner

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from kafka_clients import Received

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]
PLACES = {"table computed, not logged": 12, "table logged, not published": 12, "before a snapshot": 1}
APP = """
CREATE SOURCE events (id BIGINT, symbol STRING, price DECIMAL(10,2)) FROM {uri};
CREATE TABLE counts AS SELECT symbol, COUNT(*) AS n, SUM(price) AS total FROM events
  WHERE id IS NOT NULL GROUP BY symbol WITH ("on.error" = "dead_letter");
CREATE TABLE newest AS SELECT id, symbol, price FROM events;
CREATE TABLE live AS SELECT symbol, COUNT(*) AS n, MAX(price) AS top FROM {uri} GROUP BY symbol
  WITH ("changelog" = "upsert", "schema" = "id BIGINT, symbol STRING, price DECIMAL(10,2)");
INSERT INTO {brokers}/copied SELECT id, symbol, price FROM {uri} WHERE id % 2 = 0
  WITH ("delivery" = "exactly_once", "auto.offset.reset" = "earliest",
        "schema" = "id BIGINT, symbol STRING, price DECIMAL(10,2)");
"""


class World:
    """A topic, an application over it, and both their deaths."""

    def __init__(self, folder: Path, broker: BrokerProcess, rng: random.Random) -> None:
        self._folder, self._broker, self._rng = folder, broker, rng
        self._written = 0
        self._deaths: list[str] = []
        clients.make_topic(broker.address, "events", 3)
        clients.make_topic(broker.address, "copied", 2)
        folder.mkdir(exist_ok=True)
        self._app = folder / "app.sql"
        self._app.write_text(
            APP.format(brokers=f"kafka://{broker.address}", uri=f"kafka://{broker.address}/events")
        )
        self._dump = folder / "dump"
        self._dump.mkdir()

    def write(self) -> None:
        """Some records: new, changed, gone, bad, with a key and without."""
        records = []
        for _ in range(self._rng.randint(1, 400)):
            self._written += 1
            key = f"k{self._rng.randint(0, 60)}"
            value: object = {
                "id": self._written,
                "symbol": f"S{self._rng.randint(0, 5)}",
                "price": self._rng.randint(1, 10_000) / 100,
            }
            chance = self._rng.random()
            if chance < 0.15:
                value = None
            elif chance < 0.18:
                value = b"{broken"
            records.append(Sent(value, key if self._rng.random() < 0.9 else None))
        clients.produce(self._broker.address, "events", records)

    def live(self) -> None:
        """One life of the application, with its end."""
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        if self._rng.random() < 0.5:
            place = f"{(name := self._rng.choice(sorted(PLACES)))} {self._rng.randint(1, PLACES[name])}"
            assert runner.ask(f"die {place}") == "done"
            self._deaths.append(place)
        else:
            self._deaths.append("any moment")
        for _ in range(self._rng.randint(1, 4)):
            self.write()
            if self._rng.random() < 0.3:
                self._deaths.append("broker")
                self._broker.kill()
                self._broker.start()
            if runner.process.poll() is not None:
                break
        if self._rng.random() < 0.5:
            runner.ask("idle", 200)
        runner.kill()

    def check(self) -> None:
        """The last life: everything is right."""
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        assert runner.ask("idle", 200) == "True", (self._deaths, runner.ask("jobs"))
        states = json.loads(runner.ask("jobs"))
        assert {name: job for name, job in states.items() if job[0] != "running"} == {}, self._deaths
        assert runner.ask(f"dump {self._dump}") == "done"
        records = clients.consume(self._broker.address, "events")
        good = [value for record in records if (value := _value(record)) is not None]
        self._same("newest", _newest(records))
        self._same("counts", _groups(good, sum))
        self._same("live", _groups(_newest(records), max))
        copied = [value for r in clients.consume(self._broker.address, "copied") if (value := _value(r))]
        assert sorted(copied) == sorted(value for value in good if value[0] % 2 == 0), self._deaths
        letters = Counter((r["job"], r["partition"], r["offset"]) for r in self._rows("dead_letters"))
        bad = [(f"events/{r.partition}", str(r.offset)) for r in records if r.value == b"{broken"]
        for job in ("counts", "newest", "live"):
            told = {(p, o) for (j, p, o) in letters if j == job}
            assert told >= set(bad), (job, self._deaths)
        assert max(letters.values(), default=1) == 1, self._deaths
        assert runner.ask("quit") == "closed"
        runner.ended()

    def _rows(self, name: str) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = pq.read_table(self._dump / f"{name}.parquet").to_pylist()
        return rows

    def _same(self, name: str, expected: list[tuple[object, ...]]) -> None:
        found = sorted(tuple(row.values()) for row in self._rows(name))
        assert found == sorted(expected), (name, self._deaths)


def _value(record: Received) -> tuple[object, ...] | None:
    """The row of a record; None for a tombstone and for what cannot be decoded."""
    if record.value is None or record.value == b"{broken":
        return None
    parsed = json.loads(record.value, parse_float=Decimal)
    return parsed["id"], parsed["symbol"], Decimal(parsed["price"]).quantize(Decimal("0.01"))


def _newest(records: list[Received]) -> list[tuple[object, ...]]:
    """The last row of each key; a record without a key stands by itself."""
    last: dict[object, tuple[object, ...]] = {}
    for record in records:
        key = (record.partition, record.offset) if record.key is None else record.key
        value = _value(record)
        if value is not None:
            last[key] = value
        elif record.value is None:
            last.pop(key, None)
    return list(last.values())


def _groups(
    rows: list[tuple[object, ...]], combine: Callable[[list[Any]], object]
) -> list[tuple[object, ...]]:
    by_symbol: dict[object, list[object]] = {}
    for _, symbol, price in rows:
        by_symbol.setdefault(symbol, []).append(price)
    return [(symbol, len(prices), combine(prices)) for symbol, prices in by_symbol.items()]


@pytest.mark.timeout(7200)
def test_tables_over_a_topic_survive_kills(tmp_path, own_broker, rng, rounds):
    world = World(tmp_path / "world", own_broker, rng)
    world.write()
    for _ in range(rounds(2, 50)):
        world.live()
    world.check()
