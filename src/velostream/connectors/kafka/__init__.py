"""Kafka topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Delivery
from velostream.connectors.kafka.options import KafkaOptions, messages_of, parse_kafka
from velostream.model.columns import HEADERS, KEY, PARTITION, TOPIC
from velostream.model.traits import SourceTraits

if TYPE_CHECKING:
    from velostream.connectors.base import Sink, SinkContext, Source, SourceContext
    from velostream.connectors.realtime import RealtimeTarget
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.uri import Uri


class KafkaConnector(Connector):
    """kafka://topic."""

    name = "kafka"
    schemes = ("kafka",)
    functions = ("kafka_topic",)
    Options = KafkaOptions
    follows = "new records; with changelog upsert, later records of a key and tombstones"
    delivery = (Delivery.AT_LEAST_ONCE, Delivery.EXACTLY_ONCE)
    driver = "confluent_kafka"
    upserts = True
    system_columns = (KEY, TOPIC, HEADERS)
    parse = staticmethod(parse_kafka)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`: a topic only grows, its messages may replace each other, and old ones expire."""
        assert isinstance(options, KafkaOptions)
        return SourceTraits(
            messages=messages_of(options.changelog, options.format),
            rereadable=False,
            partition_columns=(TOPIC, PARTITION),
            partition_sql=f"concat({TOPIC}, '/', {PARTITION})",
            frames_in_order=True,
            takes_tasks=True,
            needs=("kafka",),
            wait_timeout=options.topic_wait_timeout,
        )

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        from velostream.connectors.kafka.read.source import KafkaSource

        assert isinstance(options, KafkaOptions)
        return KafkaSource(options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`; a missing topic is created, or waited for, if the properties say so."""
        from velostream.connectors.kafka.write.sink import await_topic

        assert isinstance(options, KafkaOptions)
        await_topic(options, waiting)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        from velostream.connectors.kafka.write.sink import KafkaSink

        assert isinstance(options, KafkaOptions)
        return KafkaSink(options, context)

    def why_not_read(self, options: AnyOptions) -> str | None:
        """See `RealtimeConnector`."""
        from velostream.connectors.kafka.realtime import why_not_read

        assert isinstance(options, KafkaOptions)
        return why_not_read(options)

    def why_not_written(self, options: AnyOptions) -> str | None:
        """See `RealtimeConnector`."""
        from velostream.connectors.kafka.realtime import why_not_written

        assert isinstance(options, KafkaOptions)
        return why_not_written(options)

    def realtime_target(self, uri: Uri, options: AnyOptions, context: SinkContext) -> RealtimeTarget:
        """See `RealtimeConnector`."""
        from velostream.connectors.kafka.write.realtime import realtime_target

        assert isinstance(options, KafkaOptions)
        return realtime_target(options, context)
