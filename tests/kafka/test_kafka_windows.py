"""Windows over a topic: each partition has its own event time, and the slowest decides."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kafka_clients import Sent

pytestmark = pytest.mark.spark

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def trade(symbol: str, quantity: int, seconds: int, partition: int) -> Sent:
    at = (NOON + timedelta(seconds=seconds)).isoformat()
    return Sent({"symbol": symbol, "quantity": quantity, "ts": at}, partition=partition)


def seen(database: Any, table: str) -> list[tuple[Any, ...]]:
    rows = database.table(table).rows()
    return sorted((r.symbol, r.c, r.q, int((r.window_start - NOON).total_seconds())) for r in rows)


def test_partitions_of_a_topic_have_their_own_time(database, topic, produce, broker):
    name = topic(2)
    database.sql(
        f"CREATE TABLE {name} AS SELECT symbol, COUNT(*) AS c, SUM(quantity) AS q, window_start "
        f"FROM kafka://{broker.address}/{name} WINDOW TUMBLING(INTERVAL '1' MINUTE) GROUP BY symbol "
        'WITH ("event.time.column" = "ts", "schema" = "symbol STRING, quantity BIGINT, ts STRING")'
    )
    produce(name, [trade("A", 1, 0, 0), trade("A", 2, 300, 0), trade("B", 4, 10, 1)])
    assert database.wait_idle(60)
    assert seen(database, name) == []
    produce(name, [trade("B", 8, 130, 1)])
    assert database.wait_idle(60)
    assert seen(database, name) == [("A", 1, 1, 0), ("B", 1, 4, 0)]
    produce(name, [trade("A", 16, 59, 0)])
    assert database.wait_idle(60)
    assert seen(database, name) == [("A", 1, 1, 0), ("B", 1, 4, 0)]
    (letter,) = database.table("dead_letters").rows()
    assert letter.reason.startswith("late: its window had closed")
    job = next(row for row in database.sql("SHOW JOBS").rows() if row.name == name)
    assert job.watermark == NOON + timedelta(seconds=130)
    assert job.late_rows == 1
    assert {part["partition"]: part["event_time"] for part in job.partitions} == {
        f"{name}/0": NOON + timedelta(seconds=300),
        f"{name}/1": NOON + timedelta(seconds=130),
    }


@pytest.mark.parametrize("most_named", [64, 1], ids=["named", "found by reading"])
def test_partitions_of_several_topics_are_told_apart(
    database, topic, produce, broker, monkeypatch, most_named
):
    monkeypatch.setattr("velostream.runtime.seen.MOST_NAMED", most_named)
    one, other = topic(1), topic(1)
    table = f"both_{one}"
    database.sql(
        f"CREATE TABLE {table} AS SELECT symbol, COUNT(*) AS c, SUM(quantity) AS q, window_start "
        f"FROM 'kafka://{broker.address}/{one},{other}' WINDOW TUMBLING(INTERVAL '1' MINUTE) GROUP BY symbol "
        'WITH ("event.time.column" = "ts", "schema" = "symbol STRING, quantity BIGINT, ts STRING")'
    )
    produce(one, [trade("A", 1, 0, 0), trade("A", 2, 300, 0)])
    produce(other, [trade("B", 4, 10, 0)])
    assert database.wait_idle(60)
    assert seen(database, table) == []
    produce(other, [trade("B", 8, 130, 0)])
    assert database.wait_idle(60)
    assert seen(database, table) == [("A", 1, 1, 0), ("B", 1, 4, 0)]
    job = next(row for row in database.sql("SHOW JOBS").rows() if row.name == table)
    assert {part["partition"]: part["event_time"] for part in job.partitions} == {
        f"{one}/0": NOON + timedelta(seconds=300),
        f"{other}/0": NOON + timedelta(seconds=130),
    }
