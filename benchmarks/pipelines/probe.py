"""A producer at a steady rate, with probes among its records.

Usage: python -m benchmarks.pipelines.probe BROKERS TOPIC PARTITIONS RATE SECONDS [COPY]

Every PROBE_EVERYth record is of a user of its own, P0, P1, …, in the partitions in turn. COPY is a topic into
which somebody copies the records, and is read, too; the pace begins when a first record has come there.
Prints one line of JSON: probes, own processor seconds, and with COPY the milliseconds of each record from
being sent to being read.
"""

from __future__ import annotations

import json
import random
import sys
import time
from threading import Event, Thread
from typing import Any

from benchmarks.pipelines.workload import GROUPS, PROBE_EVERY, produce, send_one, stamp, trade

_FIRST_SECONDS = 120.0
_LAST_SECONDS = 60.0
"""How long the first and the last records of a copy may take."""


def main() -> None:
    from confluent_kafka import Producer

    brokers, topic, partitions, rate, seconds = sys.argv[1:6]
    records = round(float(rate) * float(seconds))
    copy = Copy(brokers, sys.argv[6], records + 1) if len(sys.argv) > 6 else None
    if copy is not None:
        send_one(brokers, topic, "first")
        copy.wait_for_first()
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 0})
    rng = random.Random(7)
    probes = 0
    began = time.perf_counter()
    for number in range(records):
        ahead = began + number / float(rate) - time.perf_counter()
        if ahead > 0:
            producer.poll(0)
            time.sleep(ahead)
        probe = number % PROBE_EVERY == 0
        user = f"P{probes}" if probe else f"U{rng.randrange(GROUPS)}"
        partition = (probes if probe else number) % int(partitions)
        probes += probe
        produce(
            producer, topic, trade(number, user, rng.randrange(1, 1000), rng, more=stamp()), user, partition
        )
    producer.flush()
    found: dict[str, Any] = {"probes": probes}
    if copy is not None:
        found["milliseconds"] = copy.milliseconds()[1:]
    print(json.dumps(found | {"cpu": time.process_time()}))


class Copy:
    """Reads what arrives, from now on."""

    def __init__(self, brokers: str, topic: str, records: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer: Any = Consumer(
            {
                "bootstrap.servers": brokers,
                "group.id": "bench-copy",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        known = self._consumer.list_topics(topic, 10).topics[topic].partitions
        self._consumer.assign([TopicPartition(topic, number, 0) for number in known])
        self._wanted = records
        self._found: list[float] = []
        self._begun, self._whole = Event(), Event()
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()

    def wait_for_first(self) -> None:
        """Until the copy has begun."""
        if not self._begun.wait(_FIRST_SECONDS):
            raise RuntimeError("the first record did not come")

    def milliseconds(self) -> list[float]:
        """Of each record, in the order of arrival; RuntimeError when some do not come."""
        if not self._whole.wait(_LAST_SECONDS):
            raise RuntimeError(f"{len(self._found)} of {self._wanted} records came")
        return self._found

    def _read(self) -> None:
        while len(self._found) < self._wanted:
            for message in self._consumer.consume(500, 0.02):
                if message.error() is None:
                    sent = json.loads(message.value())["sent"]
                    self._found.append(time.time_ns() / 1e6 - sent / 1e3)
                    self._begun.set()
        self._whole.set()


main()
