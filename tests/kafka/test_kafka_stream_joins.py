"""Topics joined to each other, into a table and into a topic."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka_clients import Sent

pytestmark = pytest.mark.spark

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def event(number: int, key: str, seconds: float, partition: int = 0) -> Sent:
    at = (NOON + timedelta(seconds=seconds)).isoformat()
    return Sent({"n": number, "k": key, "ts": at}, partition=partition)


def pairs(database: Any, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(table).rows()), key=str)


def test_topics_are_joined_into_a_table_and_a_topic(database, topic, produce, consume, broker):
    one, other, out = topic(2), topic(2), topic(1)
    for name in (one, other):
        database.sql(
            f"CREATE SOURCE {name} (n INT, k STRING, ts TIMESTAMP) FROM kafka://{broker.address}/{name} "
            'WITH ("event.time.column" = "ts", "auto.offset.reset" = "earliest")'
        )
    joined = (
        f"SELECT a.n, b.n AS m FROM {one} a LEFT JOIN {other} b "
        "ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '10' SECOND"
    )
    table = f"joined_{out}"
    database.sql(f"CREATE TABLE {table} AS {joined} EMIT FINAL")
    database.sql(f'INSERT INTO kafka://{broker.address}/{out} {joined} WITH ("delivery" = "exactly_once")')
    produce(one, [event(1, "x", 0, 0), event(2, "y", 0, 1), event(3, "z", 1, 0)])
    produce(other, [event(11, "x", 5, 0), event(12, "y", 10.5, 1), event(13, "x", 10, 1)])
    assert database.wait_idle(60)
    assert pairs(database, table) == [(1, 11), (1, 13)]
    # The slowest partition of both topics decides: it is at 10.5 seconds.
    produce(one, [event(4, "w", 60, 0), event(5, "w", 60, 1)])
    produce(other, [event(14, "v", 60, 0)])
    assert database.wait_idle(60)
    assert pairs(database, table) == [(1, 11), (1, 13), (2, None)]
    produce(other, [event(15, "v", 60, 1)])
    assert database.wait_idle(60)
    whole = [(1, 11), (1, 13), (2, None), (3, None)]
    assert pairs(database, table) == whole
    produce(other, [event(16, "y", 9, 1)])
    assert database.wait_idle(60)
    assert [row.reason[:4] for row in database.table("dead_letters").rows()] == ["late", "late"]
    assert pairs(database, table) == whole
    assert sorted(((each.json["n"], each.json["m"]) for each in consume(out)), key=str) == whole
