"""Records that the broker deletes after a step was planned and before Spark has read them."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_clients import Sent

from velostream.config import load
from velostream.connectors.kafka.read import few_records
from velostream.connectors.kafka.read.source import KafkaSource
from velostream.model.jobs import JobState
from velostream.runtime.instance import Instance, open_instance

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from velostream.devtools.broker.process import BrokerProcess

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

SCHEMA = "id BIGINT, k STRING, ts STRING"


def record(number: int) -> Sent:
    return Sent({"id": number, "k": f"k{number % 2}", "ts": f"2026-05-01T12:00:{number:02}Z"}, f"m{number}")


def delete(broker: BrokerProcess, topic: str, upto: int) -> None:
    place = TopicPartition(topic, 0, upto)
    # The client must live until the answer is there, and may not know the leader of a new topic at first.
    client = AdminClient({"bootstrap.servers": broker.address})
    deadline = time.monotonic() + 30
    while True:
        try:
            client.delete_records([place])[place].result(30)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
        else:
            return


@pytest.fixture(params=["driver", "spark"])
def deletes(broker, monkeypatch, request: pytest.FixtureRequest) -> Callable[..., list[int]]:
    """`deletes(topic, upto, …)`: each time the driver or Spark is about to read it, more of it is deleted."""
    waiting: dict[str, list[int]] = {}
    frame = KafkaSource.frame
    driver = request.param == "driver"
    monkeypatch.setattr(few_records, "MOST_RECORDS", 1000 if driver else 0)

    def held(self: KafkaSource, *arguments: Any, **named: Any) -> Any:
        # The driver reads small ranges at once, Spark when the frame is used.
        planned = None if driver else frame(self, *arguments, **named)
        topic = self._options.topic
        if waiting.get(topic):
            delete(broker, topic, waiting[topic].pop(0))
        return frame(self, *arguments, **named) if driver else planned

    monkeypatch.setattr(KafkaSource, "frame", held)

    def later(topic: str, *upto: int) -> list[int]:
        waiting[topic] = list(upto)
        return waiting[topic]

    return later


STATEMENTS: dict[str, tuple[str, list[tuple[Any, ...]]]] = {
    "rows": ("SELECT id FROM {s} WITH (\"changelog\" = 'append')", [(4,), (5,)]),
    "messages": ("SELECT id FROM {s}", [(4,), (5,)]),
    "groups": ("SELECT k, SUM(id) AS n FROM {s} GROUP BY k", [("k0", 4), ("k1", 5)]),
    "distinct": ("SELECT k, COUNT(DISTINCT id) AS n FROM {s} GROUP BY k", [("k0", 1), ("k1", 1)]),
    "windows": (
        "SELECT k, SUM(id) AS n FROM {s} WINDOW TUMBLING(INTERVAL '1' MINUTE) GROUP BY k EMIT CHANGES",
        [("k0", 4), ("k1", 5)],
    ),
    "over": (
        "SELECT id, SUM(id) OVER (PARTITION BY k ORDER BY _event_time ROWS 9 PRECEDING) AS n FROM {s}",
        [(4, 4), (5, 5)],
    ),
    "streams": (
        "SELECT a.id FROM {s} a JOIN {s} b ON a.k = b.k AND b._event_time BETWEEN a._event_time "
        "AND a._event_time + INTERVAL '10' SECOND",
        [(4,), (5,)],
    ),
    "lookups": ("SELECT a.id, n.title FROM {s} a JOIN names n ON n.k = a.k", [(4, "even"), (5, "odd")]),
    "clock": ("SELECT id FROM {s} WHERE ts > now() - INTERVAL 36500 DAYS", [(4,), (5,)]),
}


@pytest.fixture(scope="module")
def names(database) -> None:
    database.sql("CREATE TABLE names (k STRING PRIMARY KEY, title STRING)")
    database.sql("INSERT INTO names VALUES ('k0', 'even'), ('k1', 'odd')")


def test_what_is_deleted_while_it_is_read_is_one_letter_and_the_step_is_done_again(
    database, names, topic, produce, broker, wait_until, monkeypatch
):
    """All kinds of statements plan to read the same six records, of which four are gone when Spark does."""
    monkeypatch.setattr(few_records, "MOST_RECORDS", 0)
    name = topic(2)
    database.sql(
        f"CREATE SOURCE s_{name} (id BIGINT, k STRING, ts TIMESTAMP) FROM kafka://{name} "
        'WITH ("event.time.column" = "ts", "auto.offset.reset" = "earliest")'
    )
    planned = threading.Barrier(len(STATEMENTS), lambda: delete(broker, name, 4))
    here: set[Path] = set()
    frame = KafkaSource.frame

    def held(self: KafkaSource, spark: Any, start: Any, end: Any, *others: Any, **named: Any) -> Any:
        found = frame(self, spark, start, end, *others, **named)
        job = next(each for each in self._context.spool.parents if each.parent.name == "jobs")
        if self._options.topic == name and end[f"{name}/0"] == 6 and job not in here:
            here.add(job)
            planned.wait(120)
        return found

    monkeypatch.setattr(KafkaSource, "frame", held)
    for kind, (query, _) in STATEMENTS.items():
        database.sql(f"CREATE TABLE {kind}_{name} AS {query.format(s=f's_{name}')}")
    assert database.wait_idle(60)
    # The producer sends them together: no statement sees a part of them.
    produce(
        name, [Sent(each.value, each.key, partition=0) for each in map(record, range(6))], {"linger.ms": 100}
    )
    for kind, (_, expected) in STATEMENTS.items():
        table = database.table(f"{kind}_{name}")
        wait_until(lambda table=table, rows=expected: sorted(map(tuple, table.rows())) == rows, 120)
    assert database.wait_idle(60)
    for kind in STATEMENTS:
        job = f"{kind}_{name}"
        told = database.sql(f"SELECT kind, partition, offset FROM dead_letters WHERE job = '{job}'").rows()
        sources = 2 if kind == "streams" else 1
        assert [tuple(each) for each in told] == [("lost", f"{name}/0", "0-3")] * sources
        assert (database.job(job).state, database.job(job).errors_by_code) == (JobState.RUNNING, {})


def test_a_gap_is_told_once_by_a_job_that_takes_little_at_a_time_and_starts_again(
    spark, tmp_path, topic, produce, broker, deletes, wait_until
):
    name = topic()
    produce(name, [record(number) for number in range(30)])
    deletes(name, 20, 22)
    with open_instance(tmp_path / "data") as first:
        first.sql(
            f"CREATE TABLE c AS SELECT id FROM kafka://{broker.address}/{name} "
            'WITH ("changelog" = "append", "max.rows.per.batch" = "4", "on.error" = "dead_letter")'
        )
        wait_until(lambda: sorted(row.id for row in first.table("c").rows()) == list(range(22, 30)), 60)
        told = first.sql("SELECT offset FROM dead_letters").rows()
        assert first.job("c").errors_by_code == {}
    with open_instance(tmp_path / "data") as again:
        produce(name, [record(30)])
        wait_until(lambda: len(again.table("c")) == 9, 60)
        assert again.sql("SELECT offset FROM dead_letters").rows() == told
    # What one step had planned is told by it; what was deleted beyond that, by the next.
    bounds = [tuple(map(int, row.offset.split("-"))) for row in told]
    lost = [number for first, last in bounds for number in range(first, last + 1)]
    assert lost == list(range(22))


def test_a_topic_that_is_read_once_is_read_to_its_end(spark, tmp_path, topic, produce, broker, deletes):
    name = topic()
    produce(name, [record(number) for number in range(6)])
    deletes(name, 4)
    with Instance(load(None, data_dir=tmp_path / "data"), once=True) as database:
        database.sql(
            f'CREATE TABLE c AS SELECT id FROM kafka://{broker.address}/{name} WITH ("changelog" = "append")'
        )
        assert database.wait_idle(60)
        assert sorted(row.id for row in database.table("c").rows()) == [4, 5]
        assert [row.offset for row in database.table("dead_letters").rows()] == ["0-3"]


def test_a_statement_in_real_time_mode_tells_what_it_could_not_look_at(
    database, topic, produce, consume, broker, deletes, wait_until
):
    name, out = topic(), topic()
    job = f"rt_{name}"
    produce(name, [record(number) for number in range(6)])
    left = deletes(name, 4)
    database.sql(
        f"CREATE STREAM {job} AS SELECT id FROM kafka://{broker.address}/{name} "
        f'WITH ("sink" = "kafka://{broker.address}/{out}", "latency" = "realtime", '
        f'"auto.offset.reset" = "earliest", "schema" = "{SCHEMA}")'
    )
    wait_until(lambda: {row.json["id"] for row in consume(out)} >= {4, 5}, 60)
    wait_until(lambda: [row for row in database.table("dead_letters").rows() if row.job == job], 60)
    assert not left
    assert database.wait_idle(60)
    told = database.sql(f"SELECT kind, partition, offset FROM dead_letters WHERE job = '{job}'").rows()
    assert [tuple(each) for each in told] == [("lost", f"{name}/0", "0-3")]
    assert database.job(job).state is JobState.RUNNING
    database.sql(f"DROP STREAM {job}")


def test_records_that_were_read_and_deleted_are_not_asked_for_again(
    database, topic, produce, broker, wait_until
):
    """A sum that outgrows its type has all that is there looked at, which begins later by then."""
    name = topic()
    produce(name, [{"k": "a", "v": number} for number in range(3)])
    database.sql(
        f"CREATE TABLE {name} AS SELECT k, SUM(v) AS n FROM kafka://{name} GROUP BY k "
        'WITH ("schema" = "k STRING, v DECIMAL(38,0)")'
    )
    assert database.wait_idle(60)
    delete(broker, name, 3)
    produce(name, [f'{{"k": "b", "v": {"9" * 38}}}'] * 2)
    wait_until(lambda: database.job(name).stats.lag == 0, 60)
    assert database.wait_idle(60)
    assert database.job(name).state is JobState.RUNNING
    assert database.job(name).errors_by_code == {}
    assert [row.kind for row in database.table("dead_letters").rows() if row.job == name] == ["overflow"]
