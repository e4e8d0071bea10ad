"""Kafka topics as a source: everything from a starting position on, then what comes."""

from __future__ import annotations

import json
import re
import secrets
import time
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.base import Source, SourceContext, log
from velostream.connectors.kafka.cluster import Cluster, Part
from velostream.connectors.kafka.frames import RAW, SYSTEM, KafkaFrames
from velostream.connectors.kafka.memory import Gap, SourceMemory
from velostream.connectors.kafka.options import messages_of
from velostream.connectors.kafka.places import Ranges, place, runs, sequence, starting
from velostream.connectors.kafka.single import located, records_at
from velostream.connectors.kafka.topics import Topics
from velostream.connectors.realtime import READ_BY_SPARK, Endless
from velostream.errors import (
    InternalError,
    SourceConfigError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
    UnsupportedError,
    VelostreamError,
)
from velostream.formats.decoding import FormatSettings, decoder_for
from velostream.formats.spark_types import literal
from velostream.model.changes import TOMBSTONE, BadRow

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.kafka.cluster import TopicInfo
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.model.changes import Located, Offset

_STEP = 1_000_000
"""Most records of one batch: a long load shows progress, and its rows fit in memory."""
_TOPICS_EVERY = 5.0
"""Seconds between looks for new partitions and topics."""
_SAMPLE = 1000
_OF_KAFKA = re.compile(
    r"org\.apache\.kafka\.(common\.(errors\.)?|clients\.consumer\.)\w*Exception|\[KAFKA_DATA_LOSS"
)
"""Exceptions of Kafka's own; a stack trace that only passes through its connector has none."""


class KafkaSource(Source):
    """The records of one topic, several, or all that match a pattern.

    A position is, per partition, the offset of the next record (see `memory` for topics that are made again).
    Spark reads ranges of offsets; this class only asks which there are.
    """

    needs = "kafka"
    partition_columns = ("_topic", "_partition")
    partition_sql = "concat(_topic, '/', _partition)"
    takes_tasks = True
    rereadable = False

    def __init__(self, options: KafkaOptions, context: SourceContext) -> None:
        self._options = options
        self._context = context
        self._cluster = Cluster(options)
        self._topics = Topics(options, self._cluster)
        self._memory = SourceMemory(context.spool)
        self._schema = context.schema
        declared = context.schema.names if context.schema is not None and context.declared else None
        self._decoder = decoder_for(
            options.format,
            FormatSettings(
                options.schema_file, options.schema_registry_url, f"{options.topic}-value", names=declared
            ),
        )
        self._known: dict[str, TopicInfo] = {}
        self._looked_at = 0.0
        self._newest: Mapping[str, int] = {}
        self._final: dict[str, int] | None = None
        self._used: Sequence[str] | None = None
        self._settled = True
        self._reader = _reader_name()
        self.wait_timeout = options.topic_wait_timeout
        self.messages = messages_of(options.changelog, options.format)
        if options.format == "debezium" and not context.whole:
            raise SourceConfigError(
                "envelopes of Debezium are changes, which a stream cannot follow",
                hint="make a table of them: CREATE TABLE … AS SELECT …",
            )

    # --- the contract -----------------------------------------------------------------------------------

    def retry_delay(self, attempt: int) -> timedelta:
        """See `Source`: as the strategy says."""
        return self._options.retry_delay(attempt)

    def check(self) -> None:
        """See `Source`; a missing topic is created if the statement says so."""
        if self._memory.start is None:
            self._topics.check()
            self._begin()

    def discover(self) -> pa.Schema:
        """See `Source`: from a sample of the newest records, unless the columns are known."""
        if self._schema is None:
            schema = self._decoder.columns(list(self._sample()))
            if not schema:
                raise SourceMissingError(
                    f'kafka topic "{self._options.topic}" holds no record yet to tell its columns from',
                    hint="declare them: CREATE SOURCE name (column type, …) FROM …; "
                    'or wait: WITH ("topic.wait.timeout" = "30s")',
                )
            self._schema = schema
        return self._schema

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`: at most `max.rows.per.batch` records further."""
        start = self._begin()
        have = dict(start if after is None else after)
        self._look_at_topics(have)
        for text in start:
            have.setdefault(text, start[text])
        ends = self._newest = self._ends(have)
        if after is not None and all(ends.get(text, 0) <= have[text] for text in have):
            self._settled = True
            return after
        self._find_gaps(have, ends)
        reached = self._bounded(have, ends)
        self._settled = all(reached[text] >= ends.get(text, 0) for text in reached)
        return reached

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`: Spark reads, always."""
        raise InternalError("Kafka is read by Spark")

    def frame(
        self,
        spark: SparkSession,
        start: Offset | None,
        end: Offset,
        columns: Sequence[str] | None,
        *,
        careful: bool = False,
    ) -> DataFrame | None:
        """See `Source`."""
        schema = self.discover()
        self.session, self._used = spark, columns
        system = [name for name in columns or () if name in SYSTEM and name not in schema.names]
        known = schema.names if self._takes_new_fields(columns) else None
        return self._frames().rows(
            self._ranges(start, end), self._fields(columns), system, careful=careful, known=known
        )

    def endless(self, spark: SparkSession, start: Offset | None, columns: Sequence[str] | None) -> Endless:
        """See `EndlessSource`."""
        if self._options.format not in READ_BY_SPARK:
            raise UnsupportedError(
                f'"latency" = "realtime" is not possible here: "{self._options.format}" is decoded in Python',
                hint='leave out "latency"',
            )
        have = {**self._begin(), **(start or {})}
        self._looked_at = 0.0
        self._look_at_topics(have)
        parts = {part.text for part in self._parts()}
        positions = {text: at for text, at in {**(self._memory.start or {}), **have}.items() if text in parts}
        starts = {part: first for part, (first, _) in self._ranges(positions, positions).items()}
        schema = self.discover()
        system = [name for name in columns or () if name in SYSTEM and name not in schema.names]
        frames = KafkaFrames(spark, self._options, self._decoder, upsert=False)
        return Endless(frames.endless(starts, self._fields(columns), system), len(starts), self.edition)

    def reached(self, told: str) -> Offset:
        """See `EndlessSource`."""
        return {
            part.text: offset + self._memory.shift(part.text)
            for topic, offsets in json.loads(told).items()
            for part, offset in ((Part(topic, int(number)), at) for number, at in offsets.items())
        }

    @property
    def edition(self) -> Mapping[str, str]:
        """See `EndlessSource`: the ids of the topics, and their partitions."""
        return {**self._memory.topics, **dict.fromkeys(self._memory.start or {}, "")}

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Source`: offsets, of which compaction and transactions may have taken some."""
        return sum(self.counts(start, end).values())

    def counts(self, start: Offset | None, end: Offset) -> dict[str, int]:
        """See `Source`."""
        ranges = self._ranges(start, end)
        return {part.text: max(last - first, 0) for part, (first, last) in ranges.items()}

    def partitions(self, start: Offset | None, end: Offset) -> dict[str, str]:
        """See `Source`."""
        parts = [Part.of(text) for text in end]
        several = len({part.topic for part in parts}) > 1
        topics = {part: f" AND _topic = {literal(part.topic)}" if several else "" for part in parts}
        return {part.text: f"_partition = '{part.number}'{topics[part]}" for part in parts}

    def lags(self, offset: Offset) -> dict[str, int]:
        """See `Source`."""
        return {text: max(end - offset.get(text, 0), 0) for text, end in self._newest.items()}

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """See `Source`: records that were gone before they were read."""
        return any(self._gaps(start, end))

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """See `Source`."""
        for gap in self._gaps(start, end):
            lost = f"{gap.first}-{gap.last - 1}"
            yield BadRow(gap.reason, self._name, gap.partition, lost, b"", kind="lost")
        bad = self._bad_records(start, end)
        reasons = self._decoder.reasons([record[RAW] or b"" for record in bad], self._fields(self._used))
        for record, reason in zip(bad, reasons, strict=True):
            told = "the record has no value" if record[RAW] is None else reason or "it cannot be decoded"
            part = f"{record['_topic']}/{record['_partition']}"
            yield BadRow(
                told,
                self._name,
                part,
                str(record["_offset"]),
                record[RAW] or b"",
                position=record["_position"],
                event_time=record["_timestamp"],
            )

    def located(self, positions: Collection[str], end: Offset) -> dict[str, Located]:
        """See `Source`."""
        return located(self._frames(), self._runs(positions), positions)

    def again(
        self, spark: SparkSession, positions: Collection[str], end: Offset, columns: Sequence[str] | None
    ) -> DataFrame | None:
        """See `Source`: those that are still in the topic."""
        self.session, self._used = spark, columns
        names = {*(columns or ()), "_position"} - set(self.discover().names)
        system = [name for name in SYSTEM if name in names]
        return records_at(self._frames(), self._runs(positions), positions, self._fields(columns), system)

    def oldest(self) -> Offset | None:
        """See `Source`: what the brokers still have."""
        began = self._begin()
        first = self._cluster.earliest([Part.of(text) for text in began])
        return {p.text: max(began[p.text], at + self._memory.shift(p.text)) for p, at in first.items()}

    def reasons(self, positions: Collection[str], end: Offset) -> dict[str, str]:
        """See `Source`."""
        records = self.located(positions, end)
        fields = self._fields(self._used)
        told = self._decoder.reasons([record.raw or b"" for record in records.values()], fields)
        return {position: why for position, why in zip(records, told, strict=True) if why is not None}

    def took(self, position: str) -> bool | None:
        """See `Source`."""
        part, offset = place(position)
        began = self._begin().get(part.text)
        return None if began is None else offset + self._memory.shift(part.text) >= began

    def _runs(self, positions: Collection[str]) -> list[Ranges]:
        parts = {place(position)[0] for position in positions}
        there = [part for part in self._parts() or map(Part.of, self._begin()) if part in parts]
        return runs(positions, self._cluster.earliest(there), self._cluster.latest(there))

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """See `Source`; the wider schema is used from now on."""
        if self._context.declared:
            return None
        schema = self.discover()
        records = [record[RAW] for record in self._bad_records(start, end) if record[RAW] is not None]
        if self._takes_new_fields(self._used):
            records += self._frames().with_new_fields(self._ranges(start, end), schema.names)
        wider = self._decoder.widen(records, schema) or schema
        if not self._takes_new_fields(self._used):
            wider = pa.schema(list(wider)[: len(schema)])
        if wider.equals(schema):
            return None
        self._schema = wider
        return wider

    def explained(self, said: str) -> VelostreamError | None:
        """See `Source`: what happens to a broker while Spark reads from it is tried again."""
        if not _OF_KAFKA.search(said):
            return None
        gone = "OffsetOutOfRange" in said or "KafkaIllegalStateException" in said or "DataLoss" in said
        what = "records were deleted while they were read" if gone else "Spark cannot read from it"
        self._looked_at = 0.0
        return SourceNetworkError(
            f'kafka at "{self._cluster.brokers}": {what}', detail=said.split("\n", maxsplit=1)[0][:500]
        )

    def order(self, positions: pa.ChunkedArray) -> pa.Array:
        """See `Source`: within a partition by offset; across partitions by time, where a key has moved."""
        return sequence(positions)

    def settled(self) -> bool:
        """See `Source`."""
        return self._settled

    def finished(self, offset: Offset) -> bool:
        """See `Source`: with `--once`, what was there when it was opened."""
        return self._final is not None and all(
            offset.get(text, 0) >= end for text, end in self._final.items()
        )

    def commit(self, offset: Offset) -> None:
        """See `Source`: also told to Kafka under `group.id`, for tools that show how far behind we are."""
        self._memory.forget_gaps(offset)
        if self._options.group_id is None:
            return
        offsets = {Part.of(text): int(at) - self._memory.shift(text) for text, at in offset.items()}
        try:
            self._cluster.commit(self._options.group_id, offsets)
        except SourceError as exc:
            log.warning('offsets are not committed under group "%s": %s', self._options.group_id, exc.message)

    def close(self) -> None:
        """See `Source`."""
        self.session = None
        self._cluster.close()

    # --- where to begin ---------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"kafka://{self._options.topic}"

    def _begin(self) -> Mapping[str, int]:
        """Where each partition begins, decided once, when the statement is created."""
        if self._memory.start is None:
            self._known = self._topics.found()
            self._looked_at = time.monotonic()
            if not self._known:
                self._topics.check()
            start = starting(self._options, self._cluster, self._parts(), whole=self._context.whole)
            ids = {name: topic.id for name, topic in self._known.items()}
            self._memory.began({part.text: offset for part, offset in start.items()}, ids)
        if self._context.once and self._final is None:
            self._known = self._known or self._topics.found()
            self._final = self._ends({part.text: 0 for part in self._parts()})
        assert self._memory.start is not None
        return self._memory.start

    def _parts(self) -> list[Part]:
        return [
            Part(topic.name, number) for topic in self._known.values() for number in range(topic.partitions)
        ]

    # --- what there is ----------------------------------------------------------------------------------

    def _look_at_topics(self, have: dict[str, int]) -> None:
        """Now and then: partitions and topics that are new, and topics that were made again."""
        if self._known and time.monotonic() - self._looked_at < _TOPICS_EVERY:
            return
        found = self._topics.found()
        missing = [name for name in self._memory.topics if name not in found]
        if missing and not self._topics.pattern:
            raise SourceMissingError(
                f'kafka topic "{missing[0]}" does not exist any more',
                hint="what was read stays; reading goes on when the topic is there again",
            )
        self._known, self._looked_at = found, time.monotonic()
        for name, topic in found.items():
            old = self._memory.topics.get(name)
            if old is not None and old != topic.id:
                self._made_again(topic, have)
        assert self._memory.start is not None
        new = [part for part in self._parts() if part.text not in self._memory.start]
        if new:
            ids = {name: topic.id for name, topic in found.items()}
            # All of a new partition is new, wherever the others began.
            first = self._cluster.earliest(new)
            self._memory.began({part.text: first[part] for part in new}, ids)

    def _made_again(self, topic: TopicInfo, have: Mapping[str, int]) -> None:
        shifts = {text: at for text, at in have.items() if Part.of(text).topic == topic.name}
        log.warning(
            'kafka topic "%s" was deleted and made again; what was read of the old one stays, '
            "and the new one is read from its beginning",
            topic.name,
        )
        self._memory.made_again(topic.name, topic.id, shifts)
        # Spark's consumers may hold records of the old topic, under offsets that the new one has again.
        self._reader = _reader_name()

    def _ends(self, have: Mapping[str, int]) -> dict[str, int]:
        """The newest position of each partition."""
        if self._final is not None:
            return self._final
        parts = [part for part in map(Part.of, have) if part.topic in self._known]
        try:
            found = self._cluster.latest(parts)
        except SourceMissingError:
            # The topic may have been made again, with fewer partitions.
            self._looked_at = 0.0
            raise
        return {part.text: offset + self._memory.shift(part.text) for part, offset in found.items()}

    def _find_gaps(self, have: dict[str, int], ends: Mapping[str, int]) -> None:
        """Records that were deleted before they were read are passed over, and said to be lost."""
        behind = [Part.of(text) for text, at in have.items() if ends.get(text, 0) > at]
        for part, offset in self._cluster.earliest(behind).items():
            first = offset + self._memory.shift(part.text)
            if first > have[part.text]:
                log.warning(
                    "%s: records %d to %d were deleted before they were read",
                    part.text,
                    have[part.text],
                    first - 1,
                )
                reason = "deleted by the broker before it was read (retention)"
                self._memory.lost(Gap(part.text, have[part.text], first, reason))

    def _bounded(self, have: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """As far as one batch goes, each partition by its share."""
        most = self._context.most_rows or _STEP
        left = {text: max(ends.get(text, 0) - at, 0) for text, at in have.items()}
        total = sum(left.values())
        if total <= most:
            return {text: at + left[text] for text, at in have.items()}
        return {text: at + -(-left[text] * most // total) for text, at in have.items()}

    # --- records ----------------------------------------------------------------------------------------

    def _ranges(self, start: Offset | None, end: Offset) -> dict[Part, tuple[int, int]]:
        """Offsets to read, without what is lost."""
        begin = self._memory.start or {}
        found = {}
        for text, last in end.items():
            first = (start or {}).get(text, begin.get(text, 0))
            for gap in self._memory.gaps:
                if gap.partition == text and gap.first <= first < gap.last:
                    first = gap.last
            shift = self._memory.shift(text)
            # What was read of a topic that is no more cannot be read again.
            found[Part.of(text)] = (max(first - shift, 0), max(last - shift, 0))
        return found

    def _gaps(self, start: Offset | None, end: Offset) -> Iterator[Gap]:
        begin = start or self._memory.start or {}
        for gap in self._memory.gaps:
            if begin.get(gap.partition, 0) <= gap.first < end.get(gap.partition, 0):
                yield gap

    def _bad_records(self, start: Offset | None, end: Offset) -> list[dict[str, Any]]:
        found = self._frames().bad_records(self._ranges(start, end), self._fields(self._used))
        return found.to_pylist() if found is not None else []

    def _takes_new_fields(self, columns: Sequence[str] | None) -> bool:
        """Whether a field that appears in a record is a new column: with `*`, where nothing is declared."""
        everything = columns is None or set(self.discover().names) <= set(columns)
        return everything and not self._context.declared and self._options.format == "json"

    def _sample(self) -> Iterator[bytes]:
        """The newest records, some of every partition."""
        start = self._begin()
        parts = self._parts() or [Part.of(text) for text in start]
        earliest, ends = self._cluster.earliest(parts), self._cluster.latest(parts)
        share = max(_SAMPLE // max(len(parts), 1), 10)
        ranges = {part: (max(earliest[part], ends[part] - share), ends[part]) for part in parts}
        return (record.value for record in self._cluster.records(ranges, _SAMPLE) if record.value is not None)

    def _fields(self, columns: Sequence[str] | None) -> list[pa.Field]:
        schema = self.discover()
        if columns is None:
            return list(schema)
        wanted = {name.casefold() for name in columns}
        return [field for field in schema if field.name.casefold() in wanted]

    def _frames(self) -> KafkaFrames:
        assert self.session is not None
        upsert = TOMBSTONE in (self._used or ())
        return KafkaFrames(
            self.session, self._options, self._decoder, upsert, self.tasks, self.splits, self._reader
        )


def _reader_name() -> str:
    return f"velostream-{secrets.token_hex(8)}"
