"""Questions to a real broker."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from velostream.connectors.kafka.client.cluster import TIMEOUT
from velostream.connectors.kafka.client.ranges import Part
from velostream.devtools.broker.process import cluster

if TYPE_CHECKING:
    from kafka_clients import Produce, Topics

    from velostream.devtools.broker.process import BrokerProcess


def test_a_sample_of_a_short_topic_comes_at_once(
    broker: BrokerProcess, topic: Topics, produce: Produce
) -> None:
    name = topic(2)
    produce(name, [(str(number), {"n": number}) for number in range(20)])
    brokers = cluster(broker.address)
    parts = [Part(name, 0), Part(name, 1)]
    ends = brokers.latest(parts)
    began = time.monotonic()
    found = brokers.records({part: (0, ends[part]) for part in parts}, 1000)
    assert time.monotonic() - began < TIMEOUT / 2
    assert sorted(int(record.key or b"") for record in found) == list(range(20))
    assert len(brokers.records({part: (0, ends[part]) for part in parts}, 7)) == 7
