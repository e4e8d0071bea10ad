"""Statements in real-time mode: rows in milliseconds, bad ones kept, nothing lost by stops and kills."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import kafka_clients as clients
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from velostream.model.jobs import JobState
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kafka_clients import Consume, Produce, Topics
    from tests.conftest import WaitUntil

    from velostream.devtools.broker.process import BrokerProcess
    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

COLUMNS = "id BIGINT, price DECIMAL(10,2), name STRING"
REALTIME = (
    '"latency" = "realtime", "auto.offset.reset" = "earliest", '
    # A broker may say that a topic is made before it finds it.
    '"topic.wait.timeout" = "30s", "sink.topic.wait.timeout" = "30s", '
)
DECLARED = f'{REALTIME}"schema" = "{COLUMNS}"'


def trade(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "price": number + 0.25, "name": f"n{number}", **more}


@pytest.fixture
def started(database: Instance) -> Iterator[Callable[..., str]]:
    """`started(source, sink, select, more, columns)`: a realtime stream, its name; dropped after the test."""
    names: list[str] = []

    def start(
        source: str, sink: str, select: str = "id, price * 2 AS p", more: str = "", columns: str = COLUMNS
    ) -> str:
        name = f"rt_{sink}"
        database.sql(
            f"CREATE STREAM {name} AS SELECT {select} FROM kafka://{source} WHERE price > 10 "
            f'WITH ("sink" = "kafka://{sink}", {REALTIME}"schema" = "{columns}"{more})'
        )
        names.append(name)
        return name

    yield start
    for name in names:
        database.sql(f"DROP STREAM {name}")


def letters(database: Instance, name: str) -> list[tuple[Any, ...]]:
    return database.sql(f"SELECT reason, raw FROM dead_letters WHERE job = '{name}'").rows()


def ids(consume: Consume, topic: str) -> set[int]:
    return {record.json["id"] for record in consume(topic)}


def test_rows_arrive_with_their_key_and_every_digit(
    database: Instance, topic: Topics, produce: Produce, consume: Consume, wait_until: WaitUntil
) -> None:
    source, sink = topic(2), topic(2)
    produce(source, [trade(n) for n in range(5, 15)])
    database.sql(
        f"INSERT INTO kafka://{sink} SELECT id, price * 2 AS p, name FROM kafka://{source} WHERE price > 10 "
        f'WITH ("key" = "id", {DECLARED})'
    )
    wait_until(lambda: len(consume(sink)) >= 5, 60)
    produce(source, [trade(20, name='quo"te'), trade(1), trade(21, name=None)])
    wait_until(lambda: len(consume(sink)) >= 7, 30)
    found = {record.key: record.value for record in consume(sink)}
    assert found == {
        **{
            f"{n}".encode(): f'{{"id":{n},"p":{2 * n + 0.5:.2f},"name":"n{n}"}}'.encode()
            for n in range(10, 15)
        },
        b"20": b'{"id":20,"p":40.50,"name":"quo\\"te"}',
        b"21": b'{"id":21,"p":42.50,"name":null}',
    }
    assert database.wait_idle(60)
    (job,) = [job for job in database.jobs() if sink in job.statement]
    assert (job.state, job.stats.records_in, job.stats.records_out) == (JobState.RUNNING, 13, 7)
    assert job.stats.lag == 0


def test_keys_with_a_format_of_their_own(
    database: Instance, topic: Topics, produce: Produce, consume: Consume, started, wait_until: WaitUntil
) -> None:
    source, sink = topic(1), topic(1)
    columns = f"key STRUCT<region: STRING, n: BIGINT>, {COLUMNS}"
    select = "id, key.region AS region, key.n AS n"
    name = started(source, sink, select, ', "key.format" = "json"', columns)
    keys = ['{"region":"eu","n":1}', None, "no json", '{"n":4}']
    produce(source, [(key, trade(number)) for number, key in enumerate(keys, start=11)])
    wait_until(lambda: ids(consume, sink) >= {11, 12, 14}, 60)
    ((reason, _),) = wait_until(lambda: letters(database, name), 60)
    assert reason.startswith("the key: not JSON")
    found = [(record.json["id"], record.json["region"], record.json["n"]) for record in consume(sink)]
    assert sorted(found) == [(11, "eu", 1), (12, None, None), (14, None, 4)]


def test_a_record_takes_milliseconds(
    broker: BrokerProcess, topic: Topics, started, consume: Consume, wait_until: WaitUntil
) -> None:
    """Every record, not only the best: the median is far below what any micro-batch takes."""
    source, sink = topic(2), topic(1)
    started(source, sink, "id")
    sent: dict[int, float] = {}
    arrived: dict[int, float] = {}
    total, warm = 1000, 400
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": "rt", "fetch.wait.max.ms": 5})
    consumer.assign([TopicPartition(sink, 0, 0)])

    def listen() -> None:
        while len(arrived) < total:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                number = int(message.value().partition(b":")[2].rstrip(b"}"))
                arrived.setdefault(number, time.perf_counter())
            elif done.is_set():
                return

    done = threading.Event()
    listener = threading.Thread(target=listen)
    listener.start()
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 0})
    try:
        for number in range(total):
            sent[number] = time.perf_counter()
            producer.produce(source, b'{"id":%d,"price":11.0}' % number, partition=number % 2)
            producer.flush(10)
            if number == warm // 2:
                # What Spark compiles for the first records is not what a record takes.
                wait_until(lambda: len(arrived) > warm // 2, 60)
            done.wait(0.005)
        wait_until(lambda: len(arrived) == total, 60)
    finally:
        done.set()
        listener.join()
        consumer.close()
    took = sorted((arrived[n] - sent[n]) * 1000 for n in range(warm, total))
    p50, p99 = statistics.median(took), took[len(took) * 99 // 100]
    print(f"realtime: p50 {p50:.1f} ms, p99 {p99:.1f} ms, longest {took[-1]:.1f} ms")
    assert p50 < 150


def test_what_cannot_be_used_is_a_dead_letter_and_nothing_stops(
    database: Instance, topic: Topics, produce: Produce, consume: Consume, started, wait_until: WaitUntil
) -> None:
    source, sink = topic(1), topic(1, {"max.message.bytes": "20000"})
    name = started(source, sink, "id, 100 DIV (id - 13) AS q, name")
    produce(
        source,
        [
            trade(11),
            "no json",
            {"id": "text", "price": 11},
            trade(13),
            None,
            trade(14, name="x" * 30_000),
            b'{"id": 15, "price": 11, "name": "\xff"}',
            trade(12),
        ],
    )
    wait_until(lambda: ids(consume, sink) >= {11, 12}, 60)
    found = wait_until(lambda: (found := letters(database, name)) and len(found) >= 6 and found, 60)
    assert ids(consume, sink) == {11, 12}
    reasons = sorted(reason for reason, _ in found)
    assert len(reasons) == 6, reasons
    for part in (
        "not JSON",
        'column "id"',
        "ivision by zero",
        "no value",
        "bytes with its key",
        "not valid UTF-8",
    ):
        assert any(part in reason for reason in reasons), (part, reasons)
    assert (b"no json",) in [(raw,) for _, raw in found]
    produce(source, [trade(30)])
    wait_until(lambda: 30 in ids(consume, sink), 30)
    job = database.job(name)
    wait_until(lambda: (job.stats.records_in, job.stats.records_out) == (9, 3), 30)
    assert (job.stats.bad_rows, job.state) == (6, JobState.RUNNING)


def test_a_bad_record_may_fail_the_job_or_be_skipped(
    database: Instance, topic: Topics, produce: Produce, consume: Consume, started, wait_until: WaitUntil
) -> None:
    source, failing, skipping = topic(1), topic(1), topic(1)
    fails = started(source, failing, more=', "on.error" = "fail"')
    skips = started(source, skipping, more=', "on.error" = "skip"')
    produce(source, ["no json", trade(11)])
    wait_until(lambda: database.job(fails).state is JobState.FAILED, 60)
    assert "not JSON" in (database.job(fails).info.reason or "")
    wait_until(lambda: ids(consume, skipping) == {11}, 60)
    wait_until(lambda: database.job(skips).stats.bad_rows == 1, 30)
    assert letters(database, fails) == letters(database, skips) == []


def test_pause_and_new_partitions(
    broker: BrokerProcess,
    database: Instance,
    topic: Topics,
    produce: Produce,
    consume: Consume,
    started,
    wait_until: WaitUntil,
) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    source, sink = topic(6), topic(1)
    name = started(source, sink)
    produce(source, [clients.Sent(trade(100 + n), partition=n) for n in range(6)])
    wait_until(lambda: ids(consume, sink) >= set(range(100, 106)), 60)
    database.sql(f"PAUSE JOB {name}")
    produce(source, [clients.Sent(trade(200 + n), partition=n) for n in range(6)])
    assert database.job(name).state is JobState.PAUSED
    database.sql(f"RESUME JOB {name}")
    wait_until(lambda: ids(consume, sink) >= set(range(200, 206)), 60)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_partitions([NewPartitions(source, 8)])[source].result()
    wait_until(lambda: len(admin.list_topics(source).topics[source].partitions) == 8, 30)
    produce(source, [clients.Sent(trade(300 + n), partition=n) for n in range(8)])
    wait_until(lambda: ids(consume, sink) >= set(range(300, 308)), 60)
    assert database.wait_idle(60)
    assert database.job(name).state is JobState.RUNNING
    assert ids(consume, sink) == {*range(100, 106), *range(200, 206), *range(300, 308)}


def test_what_was_recorded_is_not_written_again(
    database: Instance, topic: Topics, produce: Produce, consume: Consume, started, wait_until: WaitUntil
) -> None:
    source, sink = topic(1), topic(1)
    name = started(source, sink, more=', "trigger.interval" = "5s"')
    produce(source, [trade(n) for n in range(20, 40)])
    wait_until(lambda: len(consume(sink)) == 20, 60)
    job = database.job(name)
    folder = database.directory.job(job.id)
    wait_until(lambda: f'"written":{{"{source}/0":20}}' in _journal(folder), 60)
    job.stop()
    produce(source, [trade(50)])
    job.start()
    wait_until(lambda: 50 in ids(consume, sink), 60)
    assert len(consume(sink)) == 21


def _journal(folder: Path) -> str:
    return "".join((folder / "sink" / "realtime.json").read_text().split())


def test_a_broker_that_goes_away(
    spark, tmp_path: Path, own_broker: BrokerProcess, wait_until: WaitUntil
) -> None:
    address = own_broker.address
    for name in ("a", "b"):
        clients.make_topic(address, name, 1)
    with open_instance(tmp_path / "data") as database:
        database.sql(
            f"CREATE STREAM s AS SELECT id FROM kafka://{address}/a "
            f'WITH ("sink" = "kafka://{address}/b", {DECLARED})'
        )
        clients.produce(address, "a", [trade(n) for n in range(10)])
        wait_until(lambda: len(clients.consume(address, "b")) >= 10, 60)
        own_broker.kill()
        wait_until(lambda: database.job("s").state is JobState.DEGRADED, 60)
        # Spark may have been reading when it went, and says so first.
        wait_until(lambda: "cannot be reached" in (database.job("s").info.reason or ""), 60)
        own_broker.start()
        clients.produce(address, "a", [trade(n) for n in range(10, 20)])
        wait_until(lambda: {r.json["id"] for r in clients.consume(address, "b")} == set(range(20)), 120)
        wait_until(lambda: database.job("s").state is JobState.RUNNING, 60)


LIFE = """
import sys, velostream
database = velostream.connect(sys.argv[1])
if not database.jobs():
    database.sql(sys.argv[2])
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_kill_loses_nothing(
    broker: BrokerProcess,
    topic: Topics,
    produce: Produce,
    consume: Consume,
    tmp_path: Path,
    wait_until: WaitUntil,
    rounds: Callable[[int, int], int],
) -> None:
    source, sink = topic(2), topic(2)
    statement = (
        f"CREATE STREAM s AS SELECT id FROM kafka://{source} "
        f'WITH ("sink" = "kafka://{sink}", {DECLARED}, "trigger.interval" = "5s")'
    )
    total = 0
    for number in range(rounds(1, 10) + 1):
        process = subprocess.Popen(
            [sys.executable, "-c", LIFE, str(tmp_path / "data"), statement],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "VELOSTREAM_KAFKA_BROKERS": broker.address},
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        for _ in range(3):
            produce(source, [trade(total + n) for n in range(200)])
            total += 200
            # In the first lives the last records have come when it is killed, or have not.
            wait_until(lambda: len(ids(consume, sink)) > total - (150 if number % 2 else 600), 90)  # noqa: B023
        process.send_signal(signal.SIGKILL)
        process.communicate()
        produce(source, [trade(total)])
        total += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VELOSTREAM_KAFKA_BROKERS", broker.address)
        with open_instance(tmp_path / "data"):
            wait_until(lambda: ids(consume, sink) == set(range(total)), 90)
