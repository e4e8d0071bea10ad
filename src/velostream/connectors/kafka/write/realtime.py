"""Real-time writing to topics by Spark's own sink: the same bytes as `KafkaSink`, made by Spark SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.client.settings import java_settings
from velostream.connectors.kafka.client.topics import Topics
from velostream.connectors.kafka.realtime import why_not_written
from velostream.connectors.kafka.write.encoder import key_columns
from velostream.connectors.kafka.write.producer import OVERHEAD
from velostream.connectors.realtime import RealtimeTarget
from velostream.connectors.sinks import as_sink_errors
from velostream.errors import UnsupportedError
from velostream.formats.json.spark_writer import json_object, plain_text, small_letters
from velostream.sql.types import quote

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.connectors.base import SinkContext
    from velostream.connectors.kafka.options import KafkaOptions

_LONGEST_REQUEST_MS = 30_000


def realtime_target(options: KafkaOptions, context: SinkContext) -> RealtimeTarget:
    """How Spark writes rows of the context's schema to the topic; asks the brokers for their size limit."""
    _check(options)
    cluster = Cluster(options)
    try:
        with as_sink_errors():
            topic = Topics(options, cluster).names[0]
            allowed = cluster.largest_record(topic)
    finally:
        cluster.close()
    limit = min(options.max_request_size, allowed or options.max_request_size)
    as_text = context.decimal_format == "string"
    columns = {"value": _encoded(options.format, list(context.schema), as_text)}
    finished = {"value": _bytes(options.format, "value")}
    keys = [context.schema.field(name) for name in key_columns(context.schema, context.key)]
    if keys:
        form = options.key_format or ("raw" if len(keys) == 1 else "json")
        columns["key"] = _encoded(form, keys, as_text)
        finished["key"] = _bytes(form, "key")
    size = " + ".join([*(f"coalesce(octet_length({name}), 0)" for name in finished), str(OVERHEAD)])
    told = f"concat('the record has ', {size}, ' bytes with its key, and {limit} may be written')"
    return RealtimeTarget(
        name=f"kafka://{topic}",
        form="kafka",
        options={**java_settings(options), **_producer(options, limit), "topic": topic},
        columns=columns,
        finished=finished,
        refused=f"CASE WHEN {size} > {limit} THEN {told} END",
    )


def _check(options: KafkaOptions) -> None:
    """Raise UnsupportedError for properties that Spark's own sink cannot honour."""
    why = why_not_written(options)
    if why is not None:
        raise _only(why, "leave the property out")


def _only(why: str, hint: str) -> UnsupportedError:
    return UnsupportedError(f'"latency" = "realtime": {why}', hint=f'{hint}, or leave out "latency"')


def _encoded(form: str, fields: list[pa.Field], decimals_as_text: bool) -> str:
    if form == "json":
        return json_object(fields, decimals_as_text)
    if len(fields) != 1:
        names = ", ".join(field.name for field in fields)
        raise _only(f"the format raw writes one column as it is, and there are {names}", "select one column")
    return plain_text(quote(fields[0].name), fields[0])


def _bytes(form: str, column: str) -> str:
    return f"CAST({small_letters(column)} AS BINARY)" if form == "json" else column


def _producer(options: KafkaOptions, limit: int) -> dict[str, str]:
    """Settings of Java's producer. Records are sent at once, unless the statement says otherwise."""
    linger = round(options.linger.total_seconds() * 1000) if "linger" in options.model_fields_set else 0
    patience = max(round(options.delivery_timeout.total_seconds() * 1000), linger + 1)
    return {
        "kafka.acks": options.acks,
        "kafka.enable.idempotence": str(options.acks == "all").lower(),
        "kafka.compression.type": options.compression_type,
        "kafka.linger.ms": str(linger),
        "kafka.max.request.size": str(limit),
        "kafka.delivery.timeout.ms": str(patience),
        "kafka.request.timeout.ms": str(min(patience - linger, _LONGEST_REQUEST_MS)),
        "kafka.max.block.ms": str(patience),
    }
