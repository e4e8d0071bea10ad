"""Kafka topics as a source: all records from a starting position on, then new ones."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.base import Source, SourceContext, log
from velostream.connectors.capabilities import (
    Awaited,
    BadRecords,
    Counted,
    Explaining,
    Ordered,
    Partitioned,
    Replayable,
    SparkReader,
    Widening,
)
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.read.dataframes import RAW, RAW_KEY, SYSTEM, KafkaFrames
from velostream.connectors.kafka.read.decoder import NO_VALUE, Message, MessageDecoder
from velostream.connectors.kafka.read.few_records import FewRecords
from velostream.connectors.kafka.read.offsets import Positions
from velostream.connectors.kafka.read.ordering import Ranges, place, runs, sequence
from velostream.connectors.kafka.read.single import located, messages, records_at
from velostream.connectors.kafka.realtime import why_not_read
from velostream.connectors.realtime import Endless
from velostream.errors import (
    InternalError,
    SourceAuthError,
    SourceConfigError,
    SourceEmptyError,
    SourceError,
    SourceLostError,
    SourceNetworkError,
    UnsupportedError,
    VelostreamError,
)
from velostream.model.changes import BadRow
from velostream.model.columns import ENTERED, OFFSET, POSITION, TOMBSTONE
from velostream.spark.messages import root_cause
from velostream.sql.types import literal

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import timedelta

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.model.changes import Located, Offset

_SAMPLE = 1000
_OF_KAFKA = re.compile(
    r"org\.apache\.kafka\.(common\.(errors\.)?|clients\.consumer\.)\w*Exception|\[KAFKA_DATA_LOSS"
)
"""Matches Kafka's own exceptions; a stack trace that only passes through its connector has none."""
_GONE = re.compile(r"OffsetOutOfRange|KafkaIllegalStateException|KAFKA_DATA_LOSS|DataLoss")
_REFUSED = re.compile(r"errors\.\w*(Authorization|Authentication|Security)\w*Exception")


class KafkaSource(
    Source, SparkReader, Counted, Partitioned, BadRecords, Widening, Replayable, Ordered, Explaining, Awaited
):
    """The records of one topic, several, or all that match a pattern.

    A position is, per partition, the offset of the next record (see `notes` for topics created again). Spark
    reads ranges of offsets; this class only determines which ranges there are.
    """

    def __init__(self, options: KafkaOptions, context: SourceContext) -> None:
        self._options = options
        self._context = context
        self._cluster = Cluster(options)
        self._positions = Positions(options, context, self._cluster)
        self._memory = self._positions.memory
        self._few = FewRecords(self._cluster)
        self._schema = context.schema
        self._decoder = MessageDecoder(options, context.schema if context.declared else None)
        self._used: Sequence[str] | None = None
        if options.format == "debezium" and not context.whole:
            raise SourceConfigError(
                "envelopes of Debezium are changes, which a stream cannot follow",
                hint="make a table of them: CREATE TABLE … AS SELECT …",
            )

    # --- the contract -----------------------------------------------------------------------------------

    def retry_delay(self, attempt: int) -> timedelta:
        """See `Awaited`: as the retry strategy says."""
        return self._options.retry_delay(attempt)

    def check(self) -> None:
        """See `Source`; a missing topic is created if the statement says so."""
        self._positions.check()

    def discover(self) -> pa.Schema:
        """See `Source`: inferred from a sample of the newest records, unless the columns are known."""
        if self._schema is None:
            schema = self._decoder.columns(self._sample())
            if not schema:
                what = "record" if self._options.key_format is None else "record with a key"
                raise SourceEmptyError(
                    f'kafka topic "{self._options.topic}" holds no {what} yet to tell its columns from',
                    hint="declare them: CREATE SOURCE name (column type, …) FROM …",
                )
            self._schema = schema
        return self._schema

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`: at most `max.rows.per.batch` records further."""
        return self._positions.latest(after)

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`: always read by Spark."""
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
        """See `SparkReader`."""
        schema = self.discover()
        self.session, self._used = spark, columns
        if start is None and self._positions.under_way:
            # Records that were read once and have expired since are no loss.
            start = self.oldest()
        system = [name for name in columns or () if name in SYSTEM and name not in schema.names]
        known = schema if self._takes_new_fields(columns) else None
        return self._frames().rows(
            self._positions.ranges(start, end), self._fields(columns), system, careful=careful, known=known
        )

    def endless(self, spark: SparkSession, start: Offset | None, columns: Sequence[str] | None) -> Endless:
        """See `EndlessSource`."""
        why = why_not_read(self._options)
        if why is not None:
            raise UnsupportedError(
                f'"latency" = "realtime" is not possible here: {why}', hint='leave out "latency"'
            )
        positions = self._positions.all_of(start)
        ranges = self._positions.ranges(positions, positions)
        # A query that begins at an expired offset waits forever;
        # the loss itself is found by comparing offsets.
        earliest = self._cluster.earliest(list(ranges))
        starts = {part: max(first, earliest[part]) for part, (first, _) in ranges.items()}
        schema = self.discover()
        system = [name for name in columns or () if name in SYSTEM and name not in schema.names]
        frames = KafkaFrames(spark, self._options, self._decoder, self._few, upsert=False)
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
        """See `EndlessSource`: the topics' ids, their partitions, and how often records were lost."""
        parts = dict.fromkeys(self._memory.start or {}, "")
        return {**self._memory.topics, **parts, "": str(self._positions.losses)}

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Counted`: offsets, some of which compaction and transactions may have left empty."""
        return sum(self.counts(start, end).values())

    def counts(self, start: Offset | None, end: Offset) -> dict[str, int]:
        """See `Counted`."""
        ranges = self._positions.ranges(start, end)
        return {part.text: max(last - first, 0) for part, (first, last) in ranges.items()}

    def partitions(self, start: Offset | None, end: Offset) -> dict[str, str]:
        """See `Partitioned`."""
        parts = [Part.of(text) for text in end]
        several = len({part.topic for part in parts}) > 1
        topics = {part: f" AND _topic = {literal(part.topic)}" if several else "" for part in parts}
        return {part.text: f"_partition = '{part.number}'{topics[part]}" for part in parts}

    def lags(self, offset: Offset) -> dict[str, int]:
        """See `Counted`."""
        return {text: max(end - offset.get(text, 0), 0) for text, end in self._positions.newest.items()}

    def has_bad_rows(self, start: Offset | None, end: Offset) -> bool:
        """See `BadRecords`: records that were lost before they were read."""
        return any(self._positions.gaps(start, end))

    def bad_rows(self, start: Offset | None, end: Offset) -> Iterator[BadRow]:
        """See `BadRecords`."""
        for gap in self._positions.gaps(start, end):
            lost = f"{gap.first}-{gap.last - 1}"
            yield BadRow(gap.reason, self._name, gap.partition, lost, b"", kind="lost")
        bad = self._bad_records(start, end)
        reasons = self._decoder.reasons([_message(record) for record in bad], self._fields(self._used))
        for record, reason in zip(bad, reasons, strict=True):
            told = reason or (NO_VALUE if record[RAW] is None else "it cannot be decoded")
            part = f"{record['_topic']}/{record['_partition']}"
            yield BadRow(
                told,
                self._name,
                part,
                str(record[OFFSET]),
                record[RAW] or b"",
                position=record[POSITION],
                event_time=record[ENTERED],
            )

    def located(self, positions: Collection[str], end: Offset) -> dict[str, Located]:
        """See `BadRecords`."""
        return located(self._frames(), self._runs(positions), positions)

    def again(
        self, spark: SparkSession, positions: Collection[str], end: Offset, columns: Sequence[str] | None
    ) -> DataFrame | None:
        """See `Replayable`: records that are still in the topic."""
        self.session, self._used = spark, columns
        names = {*(columns or ()), POSITION} - set(self.discover().names)
        system = [name for name in SYSTEM if name in names]
        return records_at(self._frames(), self._runs(positions), positions, self._fields(columns), system)

    def oldest(self) -> Offset | None:
        """See `Replayable`: the oldest offsets that the brokers still have."""
        began = self._positions.begin()
        first = self._cluster.earliest([Part.of(text) for text in began])
        return {p.text: max(began[p.text], at + self._memory.shift(p.text)) for p, at in first.items()}

    def reasons(self, positions: Collection[str], end: Offset) -> dict[str, str]:
        """See `Replayable`."""
        records = messages(self._frames(), self._runs(positions), positions)
        told = self._decoder.reasons(list(records.values()), self._fields(self._used))
        return {position: why for position, why in zip(records, told, strict=True) if why is not None}

    def took(self, position: str) -> bool | None:
        """See `Replayable`."""
        part, offset = place(position)
        began = self._positions.begin().get(part.text)
        return None if began is None else offset + self._memory.shift(part.text) >= began

    def _runs(self, positions: Collection[str]) -> list[Ranges]:
        parts = {place(position)[0] for position in positions}
        there = [
            part for part in self._positions.parts() or map(Part.of, self._positions.begin()) if part in parts
        ]
        return runs(positions, self._cluster.earliest(there), self._cluster.latest(there))

    def widen(self, start: Offset | None, end: Offset) -> pa.Schema | None:
        """See `Widening`; the wider schema is used from now on."""
        if self._context.declared:
            return None
        schema = self.discover()
        records = [_message(record) for record in self._bad_records(start, end)]
        if self._takes_new_fields(self._used):
            found = self._frames().with_new_fields(self._positions.ranges(start, end), schema)
            records += map(_message, found.to_pylist() if found is not None else ())
        wider = self._decoder.widen(records, schema) or schema
        if not self._takes_new_fields(self._used):
            wider = pa.schema(list(wider)[: len(schema)])
        if wider.equals(schema):
            return None
        self._schema = wider
        return wider

    def explained(self, said: str) -> VelostreamError | None:
        """See `Explaining`: broker failures while Spark reads are retried."""
        if not _OF_KAFKA.search(said):
            return None
        self._positions.look_again()
        where = f'kafka at "{self._cluster.brokers}"'
        if _REFUSED.search(said):
            return SourceAuthError(
                f"{where} refuses us: {root_cause(said)}",
                hint='see "security.protocol", "sasl.mechanism", "sasl.username", and the permissions (ACL) '
                "of that user: READ on the topic",
            )
        if _GONE.search(said):
            return SourceLostError(f"{where}: records were deleted while they were read")
        return SourceNetworkError(f"{where}: Spark cannot read from it: {root_cause(said)}")

    def note_lost(self, start: Offset | None, end: Offset) -> bool:
        """See `Explaining`."""
        return self._positions.note_lost(start, end)

    def order(self, positions: pa.ChunkedArray) -> pa.Array:
        """See `Ordered`: within a partition by offset; across partitions by time, where a key has moved."""
        return sequence(positions)

    def settled(self) -> bool:
        """See `Source`."""
        return self._positions.settled

    def finished(self, offset: Offset) -> bool:
        """See `Source`: with `--once`, at the ends as of opening."""
        return self._positions.final is not None and all(
            offset.get(text, 0) >= end for text, end in self._positions.final.items()
        )

    def commit(self, offset: Offset) -> None:
        """See `Source`: also commits the offsets to `group.id`, for tools that show consumer lag."""
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
        self._few.close()
        self._cluster.close()

    # --- records ----------------------------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"kafka://{self._options.topic}"

    def _bad_records(self, start: Offset | None, end: Offset) -> list[dict[str, Any]]:
        found = self._frames().bad_records(self._positions.ranges(start, end), self._fields(self._used))
        return found.to_pylist() if found is not None else []

    def _takes_new_fields(self, columns: Sequence[str] | None) -> bool:
        """Whether new fields in records become columns: with `*`, where no columns are declared."""
        everything = columns is None or set(self.discover().names) <= set(columns)
        return everything and not self._context.declared and self._options.format == "json"

    def _sample(self) -> list[Message]:
        """The newest records, some of every partition."""
        start = self._positions.begin()
        parts = self._positions.parts() or [Part.of(text) for text in start]
        earliest, ends = self._cluster.earliest(parts), self._cluster.latest(parts)
        share = max(_SAMPLE // max(len(parts), 1), 10)
        ranges = {part: (max(earliest[part], ends[part] - share), ends[part]) for part in parts}
        return [Message(record.key, record.value) for record in self._cluster.records(ranges, _SAMPLE)]

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
            self.session,
            self._options,
            self._decoder,
            self._few,
            upsert,
            self.tasks,
            self.splits,
            self._positions.reader,
        )


def _message(record: dict[str, Any]) -> Message:
    return Message(record[RAW_KEY], record[RAW])
