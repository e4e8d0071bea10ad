"""Small ranges are read in the driver, large ones by Spark: both give the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka_clients import Sent

from velostream.connectors.kafka.read import few_records
from velostream.connectors.kafka.read.few_records import FewRecords

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafka_clients import Produce, Topics

    from velostream.devtools.broker.process import BrokerProcess
    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

EVERYTHING = "*, _key, _timestamp, _headers, _partition, _offset, _topic, HEADER('trace') AS trace"
HOSTILE = [
    Sent({"id": 1, "price": 10.5}),
    Sent({"id": 2}, key="clé", headers={"trace": "a", "empty": "", "none": None}),
    Sent({"id": 3}, key=b"\xff\x00", headers={"bytes": b"\xfe\xff"}),
    Sent({"id": 4, "price": 0.1}, key="", timestamp=0),
    Sent({"id": 5}, key="k" * 3000, timestamp=946_684_800_000),
    Sent({"id": 6, "price": 12345678.12}, partition=2),
]


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], tuple[Any, Any]]:
    """What a function gives where the driver reads, and where Spark does."""
    done: list[bool] = []
    read = FewRecords.read

    def spied(self: FewRecords, *args: Any, **more: Any) -> Any:
        found = read(self, *args, **more)
        done.append(found is not None)
        return found

    def run(ask: Callable[[], Any]) -> tuple[Any, Any]:
        monkeypatch.setattr(FewRecords, "read", spied)
        monkeypatch.setattr(few_records, "MOST_RECORDS", 1000)
        by_driver = ask()
        assert done
        assert all(done), "Spark read it"
        monkeypatch.setattr(few_records, "MOST_RECORDS", 0)
        done.clear()
        by_spark = ask()
        assert not any(done), "the driver read it"
        return by_driver, by_spark

    return run


def test_every_part_of_a_record(database: Instance, topic: Topics, produce: Produce, both_ways):
    name = topic(3)
    produce(name, HOSTILE)

    def ask() -> list[Any]:
        return sorted(database.sql(f"SELECT {EVERYTHING} FROM kafka://{name}").rows())

    one, other = both_ways(ask)
    assert one == other
    assert len(one) == len(HOSTILE)


@pytest.mark.parametrize("ends_with", ["abort", "commit"])
def test_transactions(
    database: Instance, broker: BrokerProcess, topic: Topics, produce: Produce, both_ways, ends_with: str
):
    """The last offsets of a range may be marks of transactions, or records that were taken back."""
    name = topic(1)
    produce(name, [{"id": 1}])
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": f"{name}-writer"})
    producer.init_transactions()
    for number, kept in enumerate([True, False, ends_with == "commit"], start=2):
        producer.begin_transaction()
        producer.produce(name, f'{{"id": {number}}}')
        (producer.commit_transaction if kept else producer.abort_transaction)()

    def ask() -> list[Any]:
        return sorted(database.sql(f"SELECT id, _offset FROM kafka://{name}").rows())

    one, other = both_ways(ask)
    assert one == other
    assert [row.id for row in one] == [1, 2, 4] if ends_with == "commit" else [1, 2]


def test_records_that_are_gone(
    database: Instance, broker: BrokerProcess, topic: Topics, produce: Produce, both_ways
):
    name = topic(2)
    produce(name, [Sent({"id": number}, partition=number % 2) for number in range(20)])
    admin = AdminClient({"bootstrap.servers": broker.address})
    for answer in admin.delete_records([TopicPartition(name, 0, 4), TopicPartition(name, 1, 10)]).values():
        answer.result()

    def ask() -> list[Any]:
        return sorted(database.sql(f"SELECT id FROM kafka://{name} WITH ('schema' = 'id BIGINT')").rows())

    one, other = both_ways(ask)
    assert one == other
    assert [row.id for row in one] == [8, 10, 12, 14, 16, 18]


def test_large_records_are_left_to_spark(
    database: Instance, topic: Topics, produce: Produce, monkeypatch: pytest.MonkeyPatch
):
    name = topic(1)
    produce(name, [{"id": number, "text": "x" * 2000} for number in range(100)])
    monkeypatch.setattr(few_records, "MOST_RECORDS", 1000)
    monkeypatch.setattr(few_records, "MOST_BYTES", 100_000)
    found = database.sql(f"SELECT COUNT(*), SUM(length(text)) FROM kafka://{name}").rows()
    assert found == [(100, 200_000)]


def test_bad_and_wider_records_among_few(
    database: Instance, topic: Topics, produce: Produce, wait_until, monkeypatch: pytest.MonkeyPatch
):
    """The SQL that decodes is analysed once; it notices what is bad, and what has more columns."""
    monkeypatch.setattr(few_records, "MOST_RECORDS", 1000)
    name = topic(1)
    produce(name, [{"id": 1}])
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM kafka://{name} WITH ('changelog' = 'append')")
    for step in range(2, 6):
        produce(name, [{"id": step}, "no JSON"])
        wait_until(lambda n=step: len(database.table(name)) == n)
    produce(name, [{"id": 6, "more": 1.5}])
    wait_until(lambda: len(database.table(name)) == 6)
    assert [row.more for row in database.sql(f"SELECT more FROM {name} WHERE more IS NOT NULL")] == [1.5]
    letters = f"SELECT COUNT(*) FROM dead_letters WHERE job = '{name}'"
    assert database.sql(letters).scalar() == 4
