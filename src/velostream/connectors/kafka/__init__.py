"""Kafka topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.base import Connector
from velostream.connectors.kafka.options import KafkaOptions, messages_of, parse_kafka

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Event

    from velostream.connectors.base import Sink, SinkContext, Source, SourceContext
    from velostream.connectors.realtime import RealtimeTarget
    from velostream.model.changes import Messages
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class KafkaConnector(Connector):
    """kafka://topic."""

    name = "kafka"
    schemes = ("kafka",)
    functions = ("kafka_topic",)
    Options = KafkaOptions
    upserts = True
    headers = True
    rereadable = False
    parse = staticmethod(parse_kafka)

    @classmethod
    def messages(cls, properties: Mapping[str, str]) -> Messages | None:
        """See `Connector`."""
        return messages_of(properties.get("changelog", "").lower(), properties.get("format", "").lower())

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        from velostream.connectors.kafka.read.source import KafkaSource

        assert isinstance(options, KafkaOptions)
        return KafkaSource(options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, stop: Event, tell: Callable[[str], None]) -> None:
        """See `Connector`; a missing topic is made, or waited for, if the properties say so."""
        from velostream.connectors.kafka.write.sink import await_topic

        assert isinstance(options, KafkaOptions)
        await_topic(options, stop, tell)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        from velostream.connectors.kafka.write.sink import KafkaSink

        assert isinstance(options, KafkaOptions)
        return KafkaSink(options, context)

    def realtime_target(self, uri: Uri, options: AnyOptions, context: SinkContext) -> RealtimeTarget:
        """See `RealtimeConnector`."""
        from velostream.connectors.kafka.write.realtime import realtime_target

        assert isinstance(options, KafkaOptions)
        return realtime_target(options, context)
