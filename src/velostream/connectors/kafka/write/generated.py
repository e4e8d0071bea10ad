"""Writes generated records to a topic, for demonstrations and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.connectors.kafka.client.cluster import QUIET, TIMEOUT
from velostream.connectors.kafka.client.settings import python_settings
from velostream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.connectors.kafka.options import KafkaOptions


class Feed:
    """Writes to one topic. Records of one key keep their order."""

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        from confluent_kafka import Producer

        self._topic = topic
        self._failed: list[Any] = []
        settings = {"enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**python_settings(options), **settings}, logger=QUIET)

    def write(self, records: Iterable[tuple[str, str]]) -> None:
        """Write pairs of key and value; returns when the broker has them, or raises SinkError."""
        for key, value in records:
            while True:
                try:
                    self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        left = self._producer.flush(TIMEOUT)
        if self._failed or left:
            reason = self._failed[0].str() if self._failed else f"no answer for {TIMEOUT:.0f} s"
            raise SinkError(f'kafka topic "{self._topic}" cannot be written: {reason}')

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failed.append(error)
