"""Small clients for tests: what goes into a topic, and all that is in one."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

TIMEOUT = 30.0
_quiet = logging.getLogger("velostream.kafka.tests")
_quiet.addHandler(logging.NullHandler())
_quiet.propagate = False

Bytes = bytes | str | None
Value = Bytes | dict[str, Any] | list[Any] | int | float


@dataclass(frozen=True)
class Sent:
    """A record to produce; what is no text and no bytes is written as JSON, None is a tombstone."""

    value: Value
    key: Bytes = None
    partition: int | None = None
    headers: Mapping[str, Bytes] = field(default_factory=dict)
    timestamp: int | None = None
    """Milliseconds since 1970."""


@dataclass(frozen=True)
class Received:
    """A record as it is in the topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int

    @property
    def json(self) -> Any:
        assert self.value is not None
        return json.loads(self.value)


class Topics(Protocol):
    """`topic(partitions, config)`: a new topic, its name; with 0 partitions only a name that nothing has."""

    def __call__(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> str: ...


class Produce(Protocol):
    """`produce(topic, records)`: as below, to the shared broker."""

    def __call__(
        self, topic: str, records: Iterable[Any], settings: Mapping[str, Any] | None = None
    ) -> None: ...


class Consume(Protocol):
    """`consume(topic, isolation)`: as below, from the shared broker."""

    def __call__(self, topic: str, isolation: str = "read_committed") -> list[Received]: ...


def produce(
    address: str,
    topic: str,
    records: Iterable[Value | Sent | tuple[Bytes, Value]],
    settings: Mapping[str, Any] | None = None,
) -> None:
    """Write values, pairs of key and value, or `Sent`; returns when the broker has them all, in order."""
    failures: list[Any] = []

    def delivered(error: Any, message: Any) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {"bootstrap.servers": address, "enable.idempotence": True, "linger.ms": 5, **(settings or {})},
        logger=_quiet,
    )
    for record in records:
        sent = record if isinstance(record, Sent) else _sent(record)
        places = {"partition": sent.partition, "timestamp": sent.timestamp}
        given = {name: value for name, value in places.items() if value is not None}
        arguments: dict[str, Any] = {"headers": list(sent.headers.items()), "on_delivery": delivered, **given}
        while True:
            try:
                producer.produce(topic, _bytes(sent.value), sent.key, **arguments)
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(TIMEOUT)
    assert not failures, failures[0]
    assert left == 0, f"{left} records were not delivered within {TIMEOUT} s"


def consume(address: str, topic: str, isolation: str = "read_committed") -> list[Received]:
    """Everything that is in the topic now, each partition in its order."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "tests",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        },
        logger=_quiet,
    )
    try:
        parts = consumer.list_topics(topic, timeout=TIMEOUT).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in parts])
        found: list[Received] = []
        unfinished = set(parts)
        while unfinished:
            # Waits for one; asked for many it would wait for all of them.
            messages = consumer.consume(1, TIMEOUT)
            assert messages, f"the broker was silent for {TIMEOUT} s"
            for message in (*messages, *consumer.consume(1000, 0)):
                if message.error() is None:
                    found.append(_received(message))
                elif message.error().name() == "_PARTITION_EOF":
                    unfinished.discard(message.partition())
                else:
                    raise KafkaException(message.error())
        return sorted(found, key=lambda record: (record.partition, record.offset))
    finally:
        consumer.close()


def make_topic(address: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
    """Make a topic; returns when the broker has it."""
    admin = AdminClient({"bootstrap.servers": address}, logger=_quiet)
    wanted = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
    admin.create_topics([wanted], operation_timeout=TIMEOUT)[name].result()


def _sent(record: Value | tuple[Bytes, Value]) -> Sent:
    if isinstance(record, tuple):
        key, value = record
        return Sent(value, key)
    return Sent(record)


def _bytes(value: Value) -> bytes | str | None:
    if value is None or isinstance(value, bytes | str):
        return value
    return json.dumps(value, separators=(",", ":"))


def _received(message: Any) -> Received:
    return Received(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
