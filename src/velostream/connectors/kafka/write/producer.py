"""Writing records: a producer that delivers all or says why not, and one that does so in transactions."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from velostream.connectors.kafka.client.cluster import QUIET, Category, category_of
from velostream.connectors.kafka.client.failures import FENCED, sink_error
from velostream.connectors.kafka.client.settings import python_settings
from velostream.errors import SinkConfigError, SinkError, SinkNetworkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.kafka.write.encoder import Records

_PARTITIONERS = {"murmur2": "murmur2_random", "consistent": "consistent_random", "fnv1a": "fnv1a_random"}
_AT_A_TIME = 10_000
_LOOK_EVERY = 100
_QUEUED = 200_000
_QUEUED_BYTES = 128 * 2**20
"""What waits to be sent; more has to wait to be queued, so that memory stays bounded."""
_LARGEST_BATCH = 1_000_000
_ANSWER_SECONDS = 10.0
OVERHEAD = 512
"""Bytes that a record may need beside its key, value and headers: those of its batch, and lengths."""


class Producer:
    """Sends records in order, each once as long as it lives; a failure of any is raised by `flush`."""

    def __init__(self, options: KafkaOptions, topic: str, limit: int, **settings: Any) -> None:
        from confluent_kafka import Producer as Client

        self._brokers = options.bootstrap_servers
        self._topic = topic
        self._patience = options.delivery_timeout.total_seconds()
        self._failure: Any = None
        self._heard: Any = None
        own: dict[str, Any] = {
            **python_settings(options),
            "acks": options.acks,
            "enable.idempotence": options.acks == "all",
            "compression.type": options.compression_type,
            "linger.ms": options.linger.total_seconds() * 1000,
            "message.max.bytes": limit,
            "batch.size": min(limit, _LARGEST_BATCH),
            "partitioner": _PARTITIONERS.get(options.partitioner, options.partitioner),
            "message.timeout.ms": int(self._patience * 1000),
            # A request that a broker took with it when it died is only given up after this: 60 s by default.
            "socket.timeout.ms": int(min(_ANSWER_SECONDS, self._patience) * 1000),
            "request.timeout.ms": int(min(_ANSWER_SECONDS, self._patience) * 1000),
            "reconnect.backoff.max.ms": 1000,
            # Never reached: see `_make_room`.
            "queue.buffering.max.messages": 10 * _QUEUED,
            "queue.buffering.max.kbytes": 2_097_151,
            "error_cb": self._hear,
            **self._told_by(),
            **settings,
        }
        try:
            self._client = Client(own, logger=QUIET)
        except Exception as exc:
            raise SinkConfigError(f"the Kafka client refuses its settings: {exc}") from exc

    def send(self, records: Records) -> None:
        """Queue records, and wait until all are delivered."""
        if records.headers is None and records.times is None:
            self._send_batches(records)
        else:
            self._send_singly(records)
        self.flush()

    def flush(self) -> None:
        """Until nothing waits; raises the first failure."""
        deadline = time.monotonic() + self._patience + 5
        with self._explaining():
            while self._client.flush(1.0) and self._failure is None and time.monotonic() < deadline:
                pass
        self._raise_failure()
        if len(self._client):
            raise SinkNetworkError(
                f'kafka at "{self._brokers}" did not take all records of topic "{self._topic}" in time'
            )

    def close(self) -> None:
        """Let go of the connection, and of what was not delivered."""
        with suppress(Exception):
            self._client.purge()
            self._client.flush(1.0)

    def explained(self, error: Any) -> SinkError:
        """An error as ours; a login that failed shows beside it, while it only says that time is up."""
        heard = self._heard
        if (
            heard is not None
            and category_of(heard) is Category.AUTH
            and category_of(error) is not Category.AUTH
        ):
            error = heard
        return sink_error(error, self._brokers, self._topic)

    # --- inside -----------------------------------------------------------------------------------------

    def _told_by(self) -> dict[str, Any]:
        """Only failures are told: a million successes would cost a second of Python."""
        return {"delivery.report.only.error": True, "on_delivery": self._told}

    def _send_batches(self, records: Records) -> None:
        for messages in _messages(records):
            self._make_room(sum(len(message["value"] or b"") for message in messages) // len(messages))
            with self._explaining():
                self._client.produce_batch(self._topic, messages)
            refused = next((message["_error"] for message in messages if "_error" in message), None)
            if refused is not None:
                raise self.explained(refused)

    def _send_singly(self, records: Records) -> None:
        for place, value in enumerate(records.values):
            given: dict[str, Any] = {"value": value}
            if records.keys is not None:
                given["key"] = records.keys[place]
            if records.headers is not None:
                given["headers"] = records.headers[place]
            moment = records.times[place] if records.times is not None else None
            if moment is not None:
                given["timestamp"] = moment
            if place % _LOOK_EVERY == 0:
                self._make_room(len(value or b""))
            with self._explaining():
                self._client.produce(self._topic, **given)

    def _make_room(self, size: int) -> None:
        """Wait until records of this size can be queued without filling the queue.

        A batch that meets a full queue is queued in part, and what is queued later would be out of order.
        """
        most = min(_QUEUED, _QUEUED_BYTES // (size + 1))
        with self._explaining():
            self._client.poll(0)
            while len(self._client) > most and self._failure is None:
                self._client.poll(0.05)
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self.explained(self._failure)

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as exc:
            raise self.explained(exc.args[0]) from exc
        except SystemError as exc:
            # What a client says of itself when it has a failure for good and something to report beside it.
            cause = exc.__cause__
            told = cause.args[0] if isinstance(cause, KafkaException) else self._failure or self._heard
            if told is None:
                raise
            raise self.explained(told) from exc
        except BufferError as exc:
            raise SinkError(f'too many records wait to be written to topic "{self._topic}"') from exc

    def _told(self, error: Any, _: Any) -> None:
        # Records behind one that failed fail too; the first tells why.
        if error is not None and self._failure is None:
            self._failure = error

    def _hear(self, error: Any) -> None:
        if self._heard is None or category_of(error) is Category.AUTH:
            self._heard = error


class Transactions(Producer):
    """A producer whose records become visible together, with a number beside them that tells that they did.

    The number is an offset of a consumer group of our own: committed by the same transaction, it can be asked
    for when the answer to a commit was lost.
    """

    def __init__(self, options: KafkaOptions, topic: str, limit: int, name: str) -> None:
        timeout = options.transaction_timeout
        super().__init__(
            options,
            topic,
            limit,
            **{
                "transactional.id": name,
                "transaction.timeout.ms": int(timeout.total_seconds() * 1000),
                # Neither may outlive the transaction.
                "message.timeout.ms": int(min(timeout, options.delivery_timeout).total_seconds() * 1000),
            },
        )
        self._timeout = timeout.total_seconds()
        self._name = name
        self._group = _group_metadata(options, name)
        self._began = 0.0
        self._stuck = False
        """Whether a call of the client's never came back."""

    def settle(self) -> None:
        """End what a predecessor left open, as the brokers have it, and keep it from writing ever again."""
        self._insist(self._client.init_transactions, self._timeout + self._patience)

    def send_as(self, number: int, note: str, records: Records) -> None:
        """Write records in one transaction, which commits `number` as an offset, `note` beside it.

        Whatever it raises, whether the transaction took place is to be asked of the brokers, after `settle`
        of the next producer.
        """
        from confluent_kafka import TopicPartition

        self._began = time.monotonic()
        self._insist(lambda _: self._client.begin_transaction(), self._patience)
        try:
            self.send(records)
            self._record(TopicPartition(self._topic, 0, number, metadata=note))
        except SinkError:
            # So that readers need not wait for the brokers to find out.
            if not self._stuck:
                with suppress(Exception):
                    self._client.purge()
                    self._client.abort_transaction(5.0)
            raise
        self._commit()

    def _record(self, place: Any) -> None:
        """Make the number part of the transaction.

        The client's call may wait for ever, whatever time it is given, when a broker died under it (2.16).
        Then the client is left alone: the next one ends its transaction, and keeps it from ever going on.
        """
        outcome: list[SinkError | None] = []

        def call() -> None:
            try:
                self._insist(
                    lambda seconds: self._client.send_offsets_to_transaction([place], self._group, seconds),
                    self._patience,
                )
                outcome.append(None)
            except SinkError as exc:
                outcome.append(exc)

        thread = threading.Thread(target=call, name="kafka offsets", daemon=True)
        thread.start()
        thread.join(min(2 * _ANSWER_SECONDS, self._patience))
        if not outcome:
            self._stuck = True
            raise SinkNetworkError(f'kafka at "{self._brokers}" does not answer')
        if outcome[0] is not None:
            raise outcome[0]

    def close(self) -> None:
        """See `Producer`."""
        if not self._stuck:
            super().close()

    def _commit(self) -> None:
        self._insist(self._client.commit_transaction, self._timeout)

    def explained(self, error: Any) -> SinkError:
        """A transaction that outlived its time is fenced by the brokers, and is not another's work."""
        lasted = time.monotonic() - self._began if self._began else 0.0
        if error.name() in FENCED and lasted >= self._timeout:
            return SinkError(
                f'a step took {lasted:.0f}s to write to topic "{self._topic}", and the brokers undid it '
                f"after {self._timeout:.0f}s",
                hint='give it more time: "transaction.timeout", or less to do: "max.rows.per.batch"',
            )
        return super().explained(error)

    def _told_by(self) -> dict[str, Any]:
        """What fails makes the transaction fail, and with it the next call.

        A client that is fenced raises inside of `flush`; with reports to tell beside it, it then runs into
        errors of its own, or crashes.
        """
        return {}

    def _insist(self, call: Callable[[float], Any], seconds: float) -> None:
        """Do what may be done again as often as it takes, for some time."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + seconds
        while True:
            try:
                call(max(0.1, min(5.0, deadline - time.monotonic())))
            except KafkaException as exc:
                error = exc.args[0]
                if error.retriable() and time.monotonic() < deadline:
                    continue
                raise self.explained(error) from exc
            self._raise_failure()
            return


def _messages(records: Records) -> Iterator[list[dict[str, Any]]]:
    """As `produce_batch` takes them: without headers and times."""
    keys, values = records.keys, records.values
    for start in range(0, len(values), _AT_A_TIME):
        part = slice(start, start + _AT_A_TIME)
        if keys is None:
            yield [{"value": value} for value in values[part]]
        else:
            yield [{"value": value, "key": key} for value, key in zip(values[part], keys[part], strict=True)]


def _group_metadata(options: KafkaOptions, group: str) -> Any:
    from confluent_kafka import Consumer

    consumer = Consumer({**python_settings(options), "group.id": group}, logger=QUIET)
    try:
        return consumer.consumer_group_metadata()
    finally:
        consumer.close()
