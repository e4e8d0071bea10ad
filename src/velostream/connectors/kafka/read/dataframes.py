"""Ranges of Kafka offsets as Spark frames, read by Spark's own connector in batch mode."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.connectors.kafka.client.settings import java_settings
from velostream.connectors.kafka.read.decoder import NO_VALUE
from velostream.connectors.kafka.read.few_records import MOST_RECORDS
from velostream.formats.columns.dataframes import BAD_ROW, RECORD
from velostream.formats.columns.types import spark_name
from velostream.model.columns import (
    BAD,
    ENTERED,
    HEADERS,
    KEY,
    OFFSET,
    PARTITION,
    POSITION,
    SYSTEM_TYPES,
    TOMBSTONE,
    TOPIC,
)
from velostream.sql.types import literal, quote

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.kafka.client.ranges import Part
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.kafka.read.decoder import MessageDecoder
    from velostream.connectors.kafka.read.few_records import FewRecords

RAW, RAW_KEY = "__raw", "__raw_key"
"""Columns of `bad_records` and `raw_records`: the undecoded value and key."""
SYSTEM = {
    ENTERED: "timestamp",
    PARTITION: "CAST(partition AS STRING)",
    OFFSET: "offset",
    TOPIC: "topic",
    KEY: (
        "CASE WHEN is_valid_utf8(key) AND NOT startswith(CAST(key AS STRING), '\\\\x') "
        "THEN CAST(key AS STRING) ELSE concat('\\\\x', lower(hex(key))) END"
    ),
    HEADERS: "coalesce(headers, array())",
    TOMBSTONE: "value IS NULL",
    POSITION: (
        "concat(lpad(CAST(offset AS STRING), 19, '0'), "
        "lpad(CAST(greatest(unix_micros(timestamp), 0) AS STRING), 19, '0'), "
        "topic, '/', CAST(partition AS STRING))"
    ),
}
"""SQL of the system columns. A key that is no UTF-8 text is shown in hexadecimal, like PostgreSQL's bytea."""
OFFSET_WIDTH = 19
_READING = {
    # Detect a dead broker in seconds rather than minutes; the read is then retried.
    "kafka.default.api.timeout.ms": "15000",
    "kafka.request.timeout.ms": "10000",
    "kafkaConsumer.pollTimeoutMs": "15000",
    "kafka.fetch.max.wait.ms": "10",
    # After each fetch of records Spark asks the broker twice which offsets there are. With Kafka's default of
    # 500 records per fetch, reading one partition takes a fifth longer.
    "kafka.max.poll.records": "10000",
}
_FEW_ROWS = 20_000
"""Fewer records than this are not worth more tasks than partitions."""
_READ_IN_TURN = 4
_MOST_EXAMPLES = 1000
_NOTHING = "__nothing"


@dataclass(frozen=True)
class KafkaFrames:
    """Builds frames over the topics of one source."""

    spark: SparkSession
    options: KafkaOptions
    decoder: MessageDecoder
    few: FewRecords
    """Reads small ranges in the driver."""
    upsert: bool
    """Whether a record without a value is a tombstone, which deletes its key; else it is a bad record."""
    tasks: int | None = None
    """The number of tasks that read a range; None leaves it to this class."""
    splits: bool = True
    """Whether several tasks may read one partition."""
    reader: str | None = None
    """The group id under which Spark caches its consumers between batches; must be unique to this source."""

    def rows(
        self,
        ranges: Mapping[Part, tuple[int, int]],
        fields: Sequence[pa.Field],
        system: Sequence[str],
        *,
        careful: bool,
        known: pa.Schema | None = None,
    ) -> DataFrame:
        """The records of offset ranges, decoded: `fields` and `system` columns.

        With `known`, unless careful, a JSON record with a field that is not among these is an error.
        """
        wanted = _not_empty(ranges)
        few = None if careful else self._few(wanted, system)
        if not wanted or (few is not None and not few.num_rows):
            return self._nothing(fields, system, careful)
        if few is not None:
            # Decoders in Python hold the schemas that were known when their frame was made.
            shape = (tuple(fields), tuple(system), known) if self.decoder.by_spark else None
            decoded = self.few.decoded(
                self.spark, few, lambda rows: self._fast(rows, fields, system, known), shape
            )
            # Rows of one partition need no shuffle to be grouped. Not before they are decoded: Spark decodes
            # rows that the driver holds while it plans, without a job.
            return decoded.coalesce(1)
        records = self._read(wanted, system)
        if careful:
            return self._with_care(self._as_records(records, system), fields, system)
        return self._fast(records, fields, system, known)

    def _fast(
        self,
        frame: DataFrame,
        fields: Sequence[pa.Field],
        system: Sequence[str],
        known: pa.Schema | None,
    ) -> DataFrame:
        """Records as Spark reads them, decoded; a bad one is an error."""
        records = self._as_records(frame, system)
        if known is not None:
            records = records.where(_unless(self.decoder.new_fields(known), "a record has a new field"))
        if self._needs_value:
            records = records.where(_unless(f"{RECORD} IS NULL", NO_VALUE))
        return self.decoder.frame(records, fields, system, careful=False)

    def endless(
        self, starts: Mapping[Part, int], fields: Sequence[pa.Field], system: Sequence[str]
    ) -> DataFrame:
        """All records from these offsets on, as an endless (streaming) frame, with `_bad`.

        New partitions of the topics are read from their beginning. Records that the brokers deleted before
        they were read are skipped: they are found by comparing the same offsets from outside.
        """
        reader = self.spark.readStream.format("kafka").options(**self._settings(system))
        reader = reader.option("subscribe", ",".join(sorted({part.topic for part in starts})))
        reader = reader.option("startingOffsets", json.dumps(_by_topic(starts)))
        frame = reader.option("failOnDataLoss", "false").load()
        return self._with_care(self._as_records(frame, system), fields, system)

    def bad_records(
        self, ranges: Mapping[Part, tuple[int, int]], fields: Sequence[pa.Field]
    ) -> pa.Table | None:
        """The records that cannot be decoded: `__raw`, `__raw_key`, and their places."""
        where = (TOPIC, PARTITION, OFFSET, ENTERED, POSITION)
        records = self._records(ranges, where, RAW_KEY)
        if records is None:
            return None
        found = self._with_care(records.selectExpr("*", f"{RECORD} AS {RAW}"), fields, (*where, RAW, RAW_KEY))
        return found.where(f"{BAD} IS NOT NULL").select(*where, RAW, RAW_KEY).toArrow()

    def raw_records(self, ranges: Mapping[Part, tuple[int, int]]) -> DataFrame | None:
        """The undecoded records of ranges: `__raw`, `__raw_key`, `_timestamp`, `_position`."""
        records = self._records(ranges, (ENTERED, POSITION), RAW_KEY)
        return None if records is None else records.withColumnRenamed(RECORD, RAW)

    def with_new_fields(self, ranges: Mapping[Part, tuple[int, int]], known: pa.Schema) -> pa.Table | None:
        """Some of the JSON records that have further fields: `__raw` and `__raw_key`."""
        records = self._records(ranges, (), RAW_KEY)
        if records is None:
            return None
        some = records.where(self.decoder.new_fields(known)).limit(_MOST_EXAMPLES)
        return some.withColumnRenamed(RECORD, RAW).select(RAW, RAW_KEY).toArrow()

    @property
    def _needs_value(self) -> bool:
        """Whether a record without a value is bad: without upsert it would be a row of unknown content."""
        return not self.upsert and self.options.format != "raw"

    def _with_care(self, records: DataFrame, fields: Sequence[pa.Field], passed: Sequence[str]) -> DataFrame:
        if not self._needs_value:
            return self.decoder.frame(records, fields, passed, careful=True)
        marked = records.selectExpr("*", f"{RECORD} IS NULL AS {_NOTHING}")
        frame = self.decoder.frame(marked, fields, (*passed, _NOTHING), careful=True)
        bad = f"CASE WHEN {_NOTHING} THEN {literal(NO_VALUE)} ELSE {BAD} END AS {BAD}"
        others = [quote(name) for name in frame.columns if name not in (BAD, _NOTHING)]
        return frame.selectExpr(*others, bad)

    def _records(
        self, ranges: Mapping[Part, tuple[int, int]], system: Sequence[str], key: str | None = None
    ) -> DataFrame | None:
        """The undecoded records of ranges; with their keys as a column `key`, if that is needed."""
        wanted = _not_empty(ranges)
        return self._as_records(self._read(wanted, system), system, key) if wanted else None

    def _read(self, wanted: Mapping[Part, tuple[int, int]], system: Sequence[str]) -> DataFrame:
        """The records of ranges, read by Spark."""
        reader = self.spark.read.format("kafka").options(**self._settings(system)).options(**_READING)
        reader = reader.option("assign", json.dumps(_by_topic({p: [p.number] for p in wanted}, lists=True)))
        for number, name in enumerate(("startingOffsets", "endingOffsets")):
            ends = {part: bounds[number] for part, bounds in wanted.items()}
            reader = reader.option(name, json.dumps(_by_topic(ends)))
        if self.reader is not None:
            reader = reader.option("kafka.group.id", self.reader)
        rows = sum(last - first for first, last in wanted.values())
        tasks = self.tasks or (self.spark.sparkContext.defaultParallelism if rows > _FEW_ROWS else 1)
        if self.splits and tasks > len(wanted):
            reader = reader.option("minPartitions", tasks)
        frame = reader.load()
        if self.tasks is None and self.splits and rows <= MOST_RECORDS:
            return frame.coalesce(-(-len(wanted) // _READ_IN_TURN))
        if self.tasks is not None and self.tasks < len(wanted):
            return frame.coalesce(self.tasks)
        return frame

    def _few(self, wanted: Mapping[Part, tuple[int, int]], system: Sequence[str]) -> pa.Table | None:
        """The undecoded records of a small range, unless the statement says how Spark is to read them."""
        if not wanted or self.reader is None or self.tasks is not None or not self.splits:
            return None
        return self.few.read(wanted, self.reader, headers=HEADERS in system)

    def _settings(self, system: Sequence[str]) -> dict[str, str]:
        headers = {"includeHeaders": "true"} if HEADERS in system else {}
        isolation = {"kafka.isolation.level": self.options.isolation_level}
        return {**java_settings(self.options), **isolation, **headers}

    def _as_records(self, frame: DataFrame, system: Sequence[str], key: str | None = None) -> DataFrame:
        keys = [f"key AS {key}"] if key is not None else []
        return frame.selectExpr(
            f"value AS {RECORD}",
            *self.decoder.carried,
            *keys,
            *(f"{SYSTEM[name]} AS {name}" for name in system),
        )

    def _nothing(self, fields: Sequence[pa.Field], system: Sequence[str], careful: bool) -> DataFrame:
        ddl = [f"{quote(f.name)} {spark_name(f.type)}" for f in fields]
        ddl += [f"{name} {SYSTEM_TYPES[name]}" for name in system]
        ddl += [f"{BAD} STRING"] if careful else []
        return self.spark.createDataFrame([], ", ".join(ddl))


def _not_empty(ranges: Mapping[Part, tuple[int, int]]) -> dict[Part, tuple[int, int]]:
    return {part: (first, last) for part, (first, last) in ranges.items() if first < last}


def _unless(condition: str, why: str) -> str:
    """A condition that is true, or fails the query."""
    refused = f"CAST(raise_error({literal(f'{BAD_ROW}: {why}')}) AS BOOLEAN)"
    return f"CASE WHEN {condition} THEN {refused} ELSE true END"


def _by_topic(values: Mapping[Part, object], *, lists: bool = False) -> dict[str, object]:
    """The form of Spark's options: topic to partition to offset, or topic to a list of partitions."""
    found: dict[str, dict[str, object]] = {}
    for part, value in values.items():
        found.setdefault(part.topic, {})[str(part.number)] = value
    return {t: sorted(map(int, parts)) for t, parts in found.items()} if lists else dict(found)
