"""Ranges of Kafka offsets as Spark frames, read by Spark's own connector as a batch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.connectors.kafka.settings import java_settings
from velostream.formats.spark_frames import BAD, BAD_ROW, RECORD, decode_json
from velostream.formats.spark_types import literal, quoted, spark_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.kafka.cluster import Part
    from velostream.connectors.kafka.options import KafkaOptions

RAW = "__raw"
"""Column of `bad_records`: the value as it is."""
TOMBSTONE = "_tombstone"
SYSTEM = {
    "_timestamp": "timestamp",
    "_partition": "CAST(partition AS STRING)",
    "_offset": "offset",
    "_topic": "topic",
    "_key": (
        "CASE WHEN is_valid_utf8(key) AND NOT startswith(CAST(key AS STRING), '\\\\x') "
        "THEN CAST(key AS STRING) ELSE concat('\\\\x', lower(hex(key))) END"
    ),
    "_headers": "coalesce(headers, array())",
    TOMBSTONE: "value IS NULL",
    "_position": (
        "concat(lpad(CAST(offset AS STRING), 19, '0'), "
        "lpad(CAST(greatest(unix_micros(timestamp), 0) AS STRING), 19, '0'), "
        "topic, '/', CAST(partition AS STRING))"
    ),
}
"""SQL of the system columns. A key that is no text is shown as PostgreSQL shows bytes."""
OFFSET_WIDTH = 19
_SYSTEM_TYPES = {
    "_timestamp": "TIMESTAMP",
    "_offset": "BIGINT",
    "_headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    TOMBSTONE: "BOOLEAN",
}
_IMPATIENT = {
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "kafkaConsumer.pollTimeoutMs": "15000",
    "kafka.fetch.max.wait.ms": "10",
}
"""A broker that has gone is found out in seconds rather than minutes; reading is then tried again."""
_FEW_ROWS = 20_000
"""Fewer than this are not worth more tasks than there are partitions."""
_MOST_EXAMPLES = 1000
_NO_JSON = "!"
"""What stands for a value that is no text, or blank: it is not JSON either."""


@dataclass(frozen=True)
class KafkaFrames:
    """Builds frames over the topics of one source."""

    spark: SparkSession
    options: KafkaOptions
    upsert: bool
    """Whether a record without a value says that its key is gone; otherwise it is a bad record."""

    def rows(
        self,
        ranges: Mapping[Part, tuple[int, int]],
        fields: Sequence[pa.Field],
        system: Sequence[str],
        *,
        careful: bool,
        known: Sequence[str] | None = None,
    ) -> DataFrame:
        """The records of ranges of offsets, decoded: `fields` and `system` columns.

        With `known`, a record with another field than these is an error, when not careful.
        """
        records = self._records(ranges, system)
        if records is None:
            return self._nothing(fields, system, careful)
        texts = records.selectExpr(self._text(), *system)
        if known is not None and not careful:
            texts = texts.where(_only_known(known))
        return decode_json(texts, fields, system, careful=careful)

    def bad_records(
        self, ranges: Mapping[Part, tuple[int, int]], fields: Sequence[pa.Field]
    ) -> pa.Table | None:
        """The records that cannot be decoded: `__raw`, `_topic`, `_partition`, `_offset`."""
        passed = ("_topic", "_partition", "_offset", RAW)
        records = self._records(ranges, passed[:-1])
        if records is None:
            return None
        frame = decode_json(
            records.selectExpr(self._text(), *passed[:-1], f"value AS {RAW}"), fields, passed, careful=True
        )
        return frame.where(f"{BAD} IS NOT NULL").select(*passed).toArrow()

    def with_new_fields(self, ranges: Mapping[Part, tuple[int, int]], names: Sequence[str]) -> list[bytes]:
        """Some of the records that have other fields than these."""
        records = self._records(ranges, ())
        if records is None:
            return []
        texts = records.selectExpr(self._text(), "value").where(_has_other_fields(names))
        found: list[bytes] = texts.select("value").limit(_MOST_EXAMPLES).toArrow().column(0).to_pylist()
        return found

    def _text(self) -> str:
        text = "CAST(value AS STRING)"
        # The first question answers for nearly all of them.
        there = f"(startswith({text}, '{{') OR {text} RLIKE '\\\\S') AND is_valid_utf8(value)"
        nothing = "WHEN value IS NULL THEN '{}' " if self.upsert else ""
        return f"CASE {nothing}WHEN {there} THEN {text} ELSE {literal(_NO_JSON)} END AS {RECORD}"

    def _records(self, ranges: Mapping[Part, tuple[int, int]], system: Sequence[str]) -> DataFrame | None:
        wanted = {part: bounds for part, bounds in ranges.items() if bounds[0] < bounds[1]}
        if not wanted:
            return None
        reader = self.spark.read.format("kafka").options(**java_settings(self.options))
        reader = reader.options(**_IMPATIENT).option("kafka.isolation.level", self.options.isolation_level)
        reader = reader.option("assign", json.dumps(_by_topic({p: [p.number] for p in wanted}, lists=True)))
        for number, name in enumerate(("startingOffsets", "endingOffsets")):
            ends = {part: bounds[number] for part, bounds in wanted.items()}
            reader = reader.option(name, json.dumps(_by_topic(ends)))
        if "_headers" in system:
            reader = reader.option("includeHeaders", "true")
        if sum(last - first for first, last in wanted.values()) > _FEW_ROWS:
            reader = reader.option("minPartitions", self.spark.sparkContext.defaultParallelism)
        frame = reader.load()
        return frame.selectExpr("value", *(f"{SYSTEM[name]} AS {name}" for name in system))

    def _nothing(self, fields: Sequence[pa.Field], system: Sequence[str], careful: bool) -> DataFrame:
        ddl = [f"{quoted(f.name)} {spark_name(f.type)}" for f in fields]
        ddl += [f"{name} {_SYSTEM_TYPES.get(name, 'STRING')}" for name in system]
        ddl += [f"{BAD} STRING"] if careful else []
        return self.spark.createDataFrame([], ", ".join(ddl))


def _only_known(names: Sequence[str]) -> str:
    """A condition that always holds, or fails at a record with a field that is not among these."""
    refused = f"CAST(raise_error({literal(f'{BAD_ROW}: a record has a new field')}) AS BOOLEAN)"
    return f"CASE WHEN {_has_other_fields(names)} THEN {refused} ELSE true END"


def _has_other_fields(names: Sequence[str]) -> str:
    known = ", ".join(literal(name.lower()) for name in names)
    return f"size(array_except(transform(json_object_keys({RECORD}), k -> lower(k)), array({known}))) > 0"


def _by_topic(values: Mapping[Part, object], *, lists: bool = False) -> dict[str, object]:
    """As Spark's options want it: topic to partition to offset, or topic to a list of partitions."""
    found: dict[str, dict[str, object]] = {}
    for part, value in values.items():
        found.setdefault(part.topic, {})[str(part.number)] = value
    return {t: sorted(map(int, parts)) for t, parts in found.items()} if lists else dict(found)
