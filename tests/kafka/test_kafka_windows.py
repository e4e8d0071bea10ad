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
    monkeypatch.setattr("velostream.engine.inputs.event_times.MOST_NAMED", most_named)
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


def test_windows_written_to_a_topic_and_the_rows_they_are_made_of_are_forgotten(
    database, topic, produce, consume, broker, wait_until
):
    name, out = topic(1), topic(1)
    job = f"forgets_{name}"

    def written() -> list[tuple[str, int]]:
        found = consume(out)
        assert all(record.value is not None for record in found)
        return sorted((record.json["symbol"], record.json["d"]) for record in found)

    def take(*rows: Sent) -> None:
        produce(name, rows)
        assert database.wait_idle(60)

    database.sql(
        f"CREATE STREAM {job} AS SELECT symbol, COUNT(DISTINCT quantity) AS d "
        f"FROM kafka://{broker.address}/{name} WINDOW TUMBLING(INTERVAL '1' MINUTE) GROUP BY symbol "
        'WITH ("event.time.column" = "ts", "schema" = "symbol STRING, quantity BIGINT, ts STRING", '
        f"\"sink\" = 'kafka://{broker.address}/{out}', \"key\" = 'symbol')"
    )
    take(trade("A", 1, 0, 0), trade("A", 1, 1, 0), trade("B", 1, 2, 0))
    take(trade("A", 2, 3, 0), trade("A", 7, 60, 0))
    assert written() == [("A", 2), ("B", 1)]
    take(trade("A", 7, 150, 0))
    database.sql(f"PAUSE JOB {job}")
    database.sql(f"RESUME JOB {job}")
    take(trade("C", 7, 210, 0), trade("A", 9, 30, 0))
    take(trade("C", 7, 211, 0))
    assert written() == [("A", 1), ("A", 1), ("A", 2), ("B", 1)]
    # The window that is open with its two rows, and the row of the one that closed last.
    wait_until(lambda: database.job(job).stats.state_rows == 4)
    assert [row.kind for row in database.table("dead_letters").rows() if row.job == job] == ["late"]
