"""Small ranges of offsets, read in the driver.

A Spark job over a topic makes an admin client, asks for metadata, and asks twice for the offsets of each
partition, however few records there are: half of the time of a small step. Here a consumer that stays
connected reads them. It is an optimisation and nothing else: where it does not succeed, Spark reads the
range, and reports what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import SourceError
from velostream.spark.dataframes import arrow_frame
from velostream.spark.templates import Template

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.kafka.client.cluster import Cluster
    from velostream.connectors.kafka.client.ranges import Part, RangeReader

MOST_RECORDS = 5000
"""Ranges of more records are read by Spark, in parallel."""
MOST_BYTES = 16 << 20
"""So are ranges of fewer records that are larger than this."""
_PATIENCE = 2.0
"""Seconds without a message after which Spark is asked instead."""
_NO_TIMESTAMP = -1
"""The timestamp, in milliseconds, that Java's client gives a record without one."""

_SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
    ]
)
_HEADERS = pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))


class FewRecords:
    """Reads small ranges of one source."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._name: str | None = None
        self._reader: RangeReader | None = None
        self._templates: dict[Hashable, Template] = {}

    def read(self, ranges: Mapping[Part, tuple[int, int]], name: str, *, headers: bool) -> pa.Table | None:
        """The records of ranges, in the columns of Spark's Kafka reader; None: Spark has to read them.

        Under another `name` than before, nothing that was fetched before is used.
        """
        if sum(max(last - first, 0) for first, last in ranges.values()) > MOST_RECORDS:
            return None
        if name != self._name:
            self.close()
            self._name, self._reader = name, self._cluster.reader(name)
        assert self._reader is not None
        try:
            found, complete = self._reader.read(
                ranges, most=MOST_RECORDS + 1, patience=_PATIENCE, most_bytes=MOST_BYTES
            )
            return _table(found, headers=headers) if complete else None
        except (SourceError, UnicodeError):
            self.close()
            return None

    def decoded(
        self, spark: SparkSession, rows: pa.Table, decode: Callable[[DataFrame], DataFrame], shape: Hashable
    ) -> DataFrame:
        """The records decoded; `decode` is analysed once for each `shape`, every time where that is None."""
        frame = arrow_frame(spark, rows)
        if shape is None:
            return decode(frame)
        key = (spark, shape)
        if key not in self._templates:
            self._templates[key] = Template(decode(frame))
        return self._templates[key].over(frame)

    def close(self) -> None:
        """Disconnect; the next read connects again."""
        if self._reader is not None:
            self._reader.close()
        self._name, self._reader = None, None


def _table(messages: Sequence[Any], *, headers: bool) -> pa.Table:
    columns = [
        pa.array([message.key() for message in messages], pa.binary()),
        pa.array([message.value() for message in messages], pa.binary()),
        pa.array([message.topic() for message in messages], pa.string()),
        pa.array([message.partition() for message in messages], pa.int32()),
        pa.array([message.offset() for message in messages], pa.int64()),
        pa.array([_micros(*message.timestamp()) for message in messages], pa.timestamp("us", tz="UTC")),
    ]
    if not headers:
        return pa.table(columns, _SCHEMA)
    given = [
        None if (each := message.headers()) is None else [{"key": k, "value": v} for k, v in each]
        for message in messages
    ]
    return pa.table([*columns, pa.array(given, _HEADERS.type)], _SCHEMA.append(_HEADERS))


def _micros(kind: int, millis: int) -> int:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    return (_NO_TIMESTAMP if kind == TIMESTAMP_NOT_AVAILABLE else millis) * 1000
