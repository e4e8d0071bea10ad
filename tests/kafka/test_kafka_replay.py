"""Dead letters of topics: which record it was, and what a replay makes of it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from kafka_clients import Sent

from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kafka_clients import Consume, Produce, Topics
    from tests.conftest import WaitUntil

    from velostream.devtools.broker.process import BrokerProcess
    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


FITS = "element_at(map_from_arrays(array(a, b), array({0}, {0})), a)"
"""Fails where a and b are equal, until Spark is told that the last of equal keys wins."""


@pytest.fixture(autouse=True)
def strict(database: Instance) -> Iterator[None]:
    yield
    database.spark().conf.set("spark.sql.mapKeyDedupPolicy", "EXCEPTION")


def mend(database: Instance, job: str) -> None:
    """Have rows that failed work, in a job that is opened again."""
    database.spark().conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    reopen(database, job)


def reopen(database: Instance, job: str) -> None:
    database.sql(f"PAUSE JOB {job}")
    database.sql(f"RESUME JOB {job}")


def letters(database: Instance, job: str) -> list[Any]:
    return database.sql(f"SELECT * FROM dead_letters WHERE job = '{job}' ORDER BY partition, offset").rows()


def replayed(database: Instance, job: str) -> tuple[int, int, int]:
    (row,) = database.sql(f"REPLAY DEAD LETTERS WHERE job = '{job}'").rows()
    return row.tried, row.taken, row.left


def test_groups_take_records_in_that_work_by_now(
    database: Instance, topic: Topics, produce: Produce, wait_until: WaitUntil
) -> None:
    name = topic(2)
    now = int(time.time()) * 1000
    values = [
        Sent({"g": "a", "v": v, "a": v // 5, "b": 1, "z": 7 - v}, partition=v % 2, timestamp=now + v)
        for v in (1, 5, 2, 7)
    ]
    produce(name, values)
    fits = FITS.format("v")
    database.sql(
        f"CREATE TABLE k_sums AS SELECT g, SUM({fits}) AS s FROM kafka://{name} WHERE 1 / z > 0 GROUP BY g"
    )
    wait_until(lambda: database.table("k_sums").get("a").s == 3)
    five, seven = letters(database, "k_sums")
    assert (five.kind, five.source, five.partition, five.offset) == (
        "compute",
        f"kafka://{name}",
        f"{name}/1",
        "1",
    )
    assert json.loads(five.raw) == {"g": "a", "v": 5, "a": 1, "b": 1, "z": 2}
    assert (seven.offset, seven.event_time.timestamp()) == ("2", (now + 7) / 1000)
    mend(database, "k_sums")
    assert replayed(database, "k_sums") == (2, 1, 1)
    assert database.table("k_sums").get("a").s == 8
    assert [letter.offset for letter in letters(database, "k_sums")] == ["2"]


def test_windows_that_are_open_take_records_in(
    database: Instance, topic: Topics, produce: Produce, wait_until: WaitUntil
) -> None:
    """What is too late by now stays a letter, and what windows that keep their rows could not compute."""
    name = topic(1)
    at = "2026-01-01T00:00:{:02d}Z"
    produce(
        name, [{"ts": at.format(t), "v": t, "a": a, "b": 1} for t, a in ((1, 0), (2, 1), (11, 0), (12, 1))]
    )
    windows = (
        f"SELECT window_start, {{}}{FITS.format('v')}) AS s FROM kafka://{name} "
        'WINDOW TUMBLING(10s) EMIT CHANGES WITH ("event.time.column" = "ts", "changelog" = "append", '
        '"max_out_of_orderness_ms" = "0")'
    )
    database.sql(f"CREATE TABLE w_sums AS {windows.format('SUM(')}")
    database.sql(f"CREATE TABLE w_kept AS {windows.format('COUNT(DISTINCT ')}")

    def found(table: str) -> list[int]:
        return [s for (s,) in database.sql(f"SELECT s FROM {table} ORDER BY window_start").rows()]

    wait_until(lambda: found("w_sums") == [1, 11])
    wait_until(lambda: found("w_kept") == [1, 1])
    mend(database, "w_sums")
    assert replayed(database, "w_sums") == (2, 1, 1)
    assert found("w_sums") == [1, 23]
    (late,) = letters(database, "w_sums")
    assert late.reason.startswith("late: its window had closed")
    assert json.loads(late.raw)["v"] == 2
    with refusal("job.replay", "w_kept", why="not known"):
        replayed(database, "w_kept")


def test_a_final_window_with_a_replayed_record_goes_to_a_sink(
    database: Instance, topic: Topics, produce: Produce, consume: Consume, wait_until: WaitUntil
) -> None:
    name, sink = topic(1), topic(1)
    at = "2026-01-01T00:00:{:02d}Z"
    produce(name, [{"ts": at.format(t), "v": t, "a": a, "b": 1} for t, a in ((1, 0), (11, 0), (12, 1))])
    database.sql(
        f"CREATE STREAM w_final AS SELECT window_start, SUM({FITS.format('v')}) AS s FROM kafka://{name} "
        'WINDOW TUMBLING(10s) EMIT FINAL WITH ("event.time.column" = "ts", "changelog" = "append", '
        f'"max_out_of_orderness_ms" = "0", "auto.offset.reset" = "earliest", "sink" = "kafka://{sink}")'
    )

    def written() -> list[int]:
        return [record.json["s"] for record in consume(sink)]

    wait_until(lambda: written() == [1], 60)
    mend(database, "w_final")
    assert replayed(database, "w_final") == (1, 1, 0)
    produce(name, [{"ts": at.format(25), "v": 25, "a": 0, "b": 1}])
    wait_until(lambda: written() == [1, 23], 60)
    assert letters(database, "w_final") == []


def test_an_old_message_does_not_replace_a_newer_one(
    database: Instance, topic: Topics, produce: Produce, wait_until: WaitUntil
) -> None:
    name = topic(1)
    values = [("a", 1, 1), ("b", 3, 1), ("a", 2, 2), ("c", 4, 2), ("d", 5, 1)]
    produce(name, [(key, {"v": v, "a": 1, "b": b}) for key, v, b in values])
    produce(name, [("d", None)])
    database.sql(f"CREATE TABLE k_last AS SELECT _key AS k, {FITS.format('v')} AS v FROM kafka://{name}")
    table = database.table("k_last")
    wait_until(lambda: {row.k: row.v for row in table.rows()} == {"a": 2, "c": 4})
    assert [letter.offset for letter in letters(database, "k_last")] == ["0", "1", "4"]
    mend(database, "k_last")
    assert replayed(database, "k_last") == (3, 3, 0)
    assert {row.k: row.v for row in table.rows()} == {"a": 2, "b": 3, "c": 4}


def test_a_record_that_is_gone_cannot_be_replayed(
    database: Instance, broker: BrokerProcess, topic: Topics, produce: Produce, wait_until: WaitUntil
) -> None:
    name = topic(1)
    produce(name, ['{"n": 1}', '{"n": "x"}', "{", '{"n": 2}'])
    database.sql(f"CREATE SOURCE k_gone_in (n INT) FROM kafka://{name}")
    database.sql("CREATE TABLE k_gone AS SELECT n FROM k_gone_in")
    wait_until(lambda: len(database.table("k_gone")) == 2)
    assert [(each.kind, each.offset, each.raw) for each in letters(database, "k_gone")] == [
        ("decode", "1", b'{"n": "x"}'),
        ("decode", "2", b"{"),
    ]
    assert replayed(database, "k_gone") == (2, 0, 2)
    assert all(each.reason for each in letters(database, "k_gone"))
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.delete_records([TopicPartition(name, 0, 2)]).values():
        done.result(30)
    with refusal("job.replay", "k_gone", why="gone"):
        database.sql("REPLAY DEAD LETTERS WHERE job = 'k_gone' AND offset = '1'")
    (row,) = database.sql("REPLAY DEAD LETTERS WHERE job = 'k_gone'").rows()
    assert (row.tried, row.taken, row.left) == (1, 0, 2)
    assert len(letters(database, "k_gone")) == 2


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_was_too_large_is_written_once_it_may_be(
    database: Instance,
    broker: BrokerProcess,
    topic: Topics,
    consume: Consume,
    wait_until: WaitUntil,
    tmp_path: Path,
    delivery: str,
) -> None:
    name, job = topic(1, {"max.message.bytes": "2000"}), f"k_large_{delivery}"
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"t": text}) + "\n" for text in ("short", "x" * 5_000, "y" * 50_000)))
    database.sql(
        f"CREATE STREAM {job} AS SELECT t FROM file://{path} "
        f'WITH ("sink" = "kafka://{name}", "delivery" = "{delivery}")'
    )
    wait_until(lambda: len(consume(name)) == 1)
    assert [each.kind for each in letters(database, job)] == ["write", "write"]
    assert database.job(job).stats.bad_rows == 2
    assert replayed(database, job) == (2, 0, 2)
    admin = AdminClient({"bootstrap.servers": broker.address})
    wider = ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[wider])
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
    reopen(database, job)
    assert replayed(database, job) == (2, 1, 1)
    assert [record.json["t"][:5] for record in consume(name)] == ["short", "xxxxx"]
    (left,) = letters(database, job)
    assert "10000 may be written" in left.reason
    assert database.job(job).stats.bad_rows == 2
