"""Kafka topics."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.kafka.options import KafkaOptions, parse_kafka


class KafkaConnector(Connector):
    """kafka://topic."""

    name = "kafka"
    schemes = ("kafka",)
    functions = ("kafka_topic",)
    Options = KafkaOptions
    available = False
    parse = staticmethod(parse_kafka)
