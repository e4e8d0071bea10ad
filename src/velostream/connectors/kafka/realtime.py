"""Which topics Spark itself can read and write, row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.realtime import READ_BY_SPARK, WRITTEN_BY_SPARK

if TYPE_CHECKING:
    from velostream.connectors.kafka.options import KafkaOptions


def why_not_read(options: KafkaOptions) -> str | None:
    """See `RealtimeConnector`."""
    for what, form in (("format", options.format), ("key.format", options.key_format)):
        if form is not None and form not in READ_BY_SPARK:
            return f'"{what}" = "{form}" is decoded in Python; {", ".join(READ_BY_SPARK)} are not'
    if options.changelog == "upsert":
        return 'records of "changelog" = "upsert" replace each other, and are more than one row each'
    if "*" in (options.topic or ""):
        return "a pattern of topics is looked up now and then; name the topics"
    return None


def why_not_written(options: KafkaOptions) -> str | None:
    """See `RealtimeConnector`."""
    for what, form in (("format", options.format), ("key.format", options.key_format)):
        if form is not None and form not in WRITTEN_BY_SPARK:
            return f'"{what}" = "{form}" is written by Python; {" and ".join(WRITTEN_BY_SPARK)} are not'
    if options.partitioner != "murmur2":
        return f'"partitioner" = "{options.partitioner}" is not known to Spark'
    if options.timestamp_column is not None:
        return '"timestamp.column" is not known to Spark, which gives records its own time'
    return None
