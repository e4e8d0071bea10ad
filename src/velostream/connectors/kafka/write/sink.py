"""Kafka topics as a sink: at least once, or exactly once in transactions."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Any

from velostream.connectors.base import Delivery, Sink
from velostream.connectors.kafka.client.cluster import Cluster, Recorded
from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.client.topics import Topics
from velostream.connectors.kafka.write.encoder import Encoder, Records
from velostream.connectors.kafka.write.producer import OVERHEAD, Producer, Transactions
from velostream.connectors.sinks import as_sink_errors, identity
from velostream.errors import (
    SinkChangedError,
    SinkConfigError,
    SinkMissingError,
    SinkNetworkError,
    SourceMissingError,
)
from velostream.formats.json.writer import json_bytes
from velostream.formats.row_bytes import packed
from velostream.model.changes import BadRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from velostream.connectors.base import SinkContext
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.waiting import Waiting

_SHOWN = 10_000
"""The most bytes of an oversized record that are kept with the reason."""
_NO_KEY = 'the key is null, so that no record could replace this one ("key.format" = "json" can hold a null)'
_FORGOTTEN_AFTER = 24 * 3600.0
"""Seconds after which brokers may expire the offsets of a group; a week by default."""


def await_topic(options: KafkaOptions, waiting: Waiting) -> None:
    """Wait until the topic exists, creating it if asked to; raises when the time is up."""
    with as_sink_errors():
        topics = _topics(options)

    def look() -> None:
        with as_sink_errors():
            try:
                topics.check()
            except SourceMissingError:
                if not topics.create_as_brokers_do():
                    raise

    absent = (SinkMissingError, SinkNetworkError)
    waiting.until(look, absent, options.topic_wait_timeout, options.retry_delay)


def _topics(options: KafkaOptions) -> Topics:
    topics = Topics(options, Cluster(options))
    if len(topics.names) != 1 or topics.pattern:
        raise SinkConfigError(
            f'a kafka sink writes to one topic, not to "{options.topic}"',
            hint="write a statement for each topic",
        )
    return topics


class KafkaSink(Sink):
    """Writes records to one topic.

    Exactly once: a step is one transaction over all partitions, so that readers of committed records see
    whole steps. The step's number is committed with it, as the offset of a group that only this job uses. If
    the answer to a commit is lost, the step is not written again before the brokers have said whether that
    number, with the step's token, is there. The transactional id ensures that no other producer is still
    writing by then.
    """

    def __init__(self, options: KafkaOptions, context: SinkContext) -> None:
        with as_sink_errors():
            self._topics = _topics(options)
        self._topic = self._topics.names[0]
        self._options = options
        self._refuse = context.refuse
        self.delivery = context.delivery or Delivery.AT_LEAST_ONCE
        if self.delivery is Delivery.EXACTLY_ONCE and options.acks != "all":
            raise SinkConfigError(f'"delivery" = "exactly_once" needs "acks" = "all", not "{options.acks}"')
        self._upserts = context.unique and bool(context.key)
        self.takes_deletes = self._upserts
        with as_sink_errors():
            self._encoder = Encoder(options, context)
        self._name = f"velostream-{context.job}-{identity(context)}"
        self._limit = options.max_request_size
        self._cluster = Cluster(options)
        self._producer: Producer | None = None
        self._done = 0
        """The number of transactions that were recorded."""
        self._token = ""
        """Distinguishes the next transaction from another job's of the same number."""
        self._unclaimed: int | None = None
        """The number of a transaction that was not recorded, and may be ours or of another producer."""

    # --- contract ---------------------------------------------------------------------------------------

    def recover(self, recorded: Mapping[str, Any] | None) -> None:
        """See `Sink`; at least once: what was written and not recorded stays, and is written again."""
        self._done = int(recorded.get("transaction", 0)) if recorded else 0
        with as_sink_errors():
            self._topics.check()
            allowed = self._cluster.largest_record(self._topic)
        self._limit = min(self._options.max_request_size, allowed or self._options.max_request_size)
        if self.delivery is Delivery.AT_LEAST_ONCE:
            self._producer = Producer(self._options, self._topic, self._limit)
            return
        # Before fencing: another data directory may have continued where our record ends.
        found = self._committed(settled=False)
        if found is not None and found.offset > self._done + 1:
            raise self._overtaken(found.offset)
        self._unclaimed = found.offset if found is not None and found.offset > self._done else None
        producer = Transactions(self._options, self._topic, self._limit, self._name)
        producer.settle()
        self._producer = producer

    def intend(self, batch: int, rows: pa.Table) -> Mapping[str, Any] | None:
        """See `Sink`; the transaction's number, and when it began."""
        if self.delivery is Delivery.AT_LEAST_ONCE or not rows.num_rows:
            return None
        if self._unclaimed is not None:
            raise self._overtaken(self._unclaimed)
        self._token = uuid.uuid4().hex
        return {"batch": batch, "transaction": self._done + 1, "token": self._token, "at": time.time()}

    def settle(self, intended: Mapping[str, Any]) -> bool:
        """See `Sink`."""
        number = int(intended["transaction"])
        recorded = self._committed(settled=True)
        found = recorded.offset if recorded is not None else None
        self._unclaimed = None
        forgotten = time.time() - float(intended["at"]) > _FORGOTTEN_AFTER
        if found is None and (number > 1 or forgotten):
            raise SinkChangedError(
                f'the brokers have forgotten group "{self._name}", and cannot tell whether the last step was '
                f'written to topic "{self._topic}"',
                hint="compare the end of the topic with what you expect; begin anew with CREATE OR REPLACE",
            )
        another = recorded is not None and found == number and recorded.note != intended["token"]
        if found is not None and (found > number or another):
            raise self._overtaken(found)
        if found is not None and found < number - 1:
            raise SinkChangedError(
                f'topic "{self._topic}" holds {found} steps of this job, and the brokers had confirmed '
                f"{self._done}",
                detail="they lost or undid what they had committed, as happens when all copies of a "
                "partition are away for a while, or were restored from a backup",
                hint="compare the end of the topic with what you expect; begin anew with CREATE OR REPLACE",
            )
        if found == number:
            self._done = number
        return found == number

    def write(self, batch: int, rows: pa.Table) -> Mapping[str, Any]:
        """See `Sink`."""
        assert self._producer is not None, "recover was called"
        if rows.num_rows:
            records = self._writable(*self._encoded(rows))
            if isinstance(self._producer, Transactions):
                self._producer.send_as(self._done + 1, self._token, records)
                self._done += 1
            else:
                self._producer.send(records)
        return {"batch": batch, "transaction": self._done}

    def try_out(self, rows: pa.Table) -> None:
        """See `Sink`."""
        self._writable(*self._encoded(rows))

    def close(self) -> None:
        """See `Sink`."""
        if self._producer is not None:
            self._producer.close()
            self._producer = None
        self._cluster.close()

    # --- inside -----------------------------------------------------------------------------------------

    def _committed(self, *, settled: bool) -> Recorded | None:
        with as_sink_errors():
            return self._cluster.committed(self._name, Part(self._topic, 0), settled=settled)

    def _overtaken(self, found: int) -> SinkChangedError:
        return SinkChangedError(
            f'topic "{self._topic}" holds {found} steps of this job, and {self._done} are known here',
            detail="what was written came from another copy of the data directory",
            hint="go on with the copy that wrote last, or begin anew with CREATE OR REPLACE",
        )

    def _encoded(self, rows: pa.Table) -> tuple[Records, pa.Table]:
        """Records and their rows; rows that the format cannot represent are set aside."""
        try:
            return self._encoder.records(rows), rows
        except ValueError:
            pass
        refused: list[BadRow] = []
        kept: list[int] = []
        for place in range(rows.num_rows):
            row = rows.slice(place, 1)
            try:
                self._encoder.records(row)
            except ValueError as exc:
                shown = next(json_bytes(row))[:_SHOWN]
                refused.append(BadRow(str(exc), f"kafka://{self._topic}", "", "", shown, row=packed(row)))
            else:
                kept.append(place)
        self._refuse(refused)
        rows = rows.take(kept)
        return self._encoder.records(rows), rows

    def _writable(self, records: Records, rows: pa.Table) -> Records:
        """The records that Kafka accepts; oversized ones are set aside."""
        if records.headers is None and not (self._upserts and None in (records.keys or ())):
            longest = max((len(value) for value in records.values if value), default=0)
            longest += max((len(key) for key in records.keys or () if key), default=0)
            if longest + OVERHEAD <= self._limit:
                return records
        refused: dict[int, str] = {}
        for place, value in enumerate(records.values):
            key = records.keys[place] if records.keys is not None else None
            size = len(value or b"") + len(key or b"") + OVERHEAD
            if records.headers is not None:
                size += sum(len(name) + len(text or b"") + 10 for name, text in records.headers[place])
            if size > self._limit:
                refused[place] = f"the record has {size} bytes with its key, and {self._limit} may be written"
            elif self._upserts and key is None:
                refused[place] = _NO_KEY
        if refused:
            self._refuse([self._bad(records, rows, place, why) for place, why in refused.items()])
        return records.without(frozenset(refused))

    def _bad(self, records: Records, rows: pa.Table, place: int, reason: str) -> BadRow:
        key = records.keys[place] if records.keys is not None else None
        shown = (key or b"")[:100].decode(errors="replace")
        value = (records.values[place] or b"")[:_SHOWN]
        row = packed(rows.slice(place, 1))
        return BadRow(reason, f"kafka://{self._topic}", "", shown, value, row=row)
