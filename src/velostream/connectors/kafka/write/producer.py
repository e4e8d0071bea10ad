"""Producers of records: a plain one that delivers all or raises, and a transactional one."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from velostream.connectors.kafka.client.cluster import QUIET, TIMEOUT, Category, category_of
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
"""Backpressure: at most this many bytes wait to be sent, so that memory stays bounded."""
_LARGEST_BATCH = 1_000_000
_ANSWER_SECONDS = 10.0
OVERHEAD = 512
"""Bytes that a record may need besides its key, value and headers, for its batch and lengths."""


class Producer:
    """Sends records in order, each once as long as it lives; `flush` raises a failure of any."""

    def __init__(self, options: KafkaOptions, topic: str, limit: int, **settings: Any) -> None:
        from confluent_kafka import Producer as Client

        self._brokers = options.bootstrap_servers
        self._topic = topic
        self._patience = options.delivery_timeout.total_seconds()
        self._failure: Any = None
        self._heard: Any = None
        self._settings: dict[str, Any] = {
            **python_settings(options),
            "acks": options.acks,
            "enable.idempotence": options.acks == "all",
            "compression.type": options.compression_type,
            "linger.ms": options.linger.total_seconds() * 1000,
            "message.max.bytes": limit,
            "batch.size": min(limit, _LARGEST_BATCH),
            "partitioner": _PARTITIONERS.get(options.partitioner, options.partitioner),
            "message.timeout.ms": int(self._patience * 1000),
            # A request to a broker that died is given up after this; the default is 60 s.
            "socket.timeout.ms": int(min(_ANSWER_SECONDS, self._patience) * 1000),
            "request.timeout.ms": int(min(_ANSWER_SECONDS, self._patience) * 1000),
            "reconnect.backoff.max.ms": 1000,
            # Never reached: see `_make_room`.
            "queue.buffering.max.messages": 10 * _QUEUED,
            "queue.buffering.max.kbytes": 2_097_151,
            **settings,
        }
        try:
            self._client = Client({**self._settings, "error_cb": self._hear, **self._told_by()}, logger=QUIET)
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
        """Wait until the queue is empty; raises the first failure."""
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
        """Close the connection, dropping what was not delivered."""
        with suppress(Exception):
            self._client.purge()
            self._client.flush(1.0)

    def explained(self, error: Any) -> SinkError:
        """The error as one of ours; a failed login appears out of band while the call itself times out."""
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
        """Report only failures: a million success callbacks would cost a second of Python."""
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
        """Wait until records of this size fit into the queue.

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
            # Raised by the client after a fatal error with reports pending: they may clear its own exception.
            cause = exc.__cause__
            told = cause.args[0] if isinstance(cause, KafkaException) else self._fatal_error()
            if told is None:
                raise
            raise self.explained(told) from exc
        except BufferError as exc:
            raise SinkError(f'too many records wait to be written to topic "{self._topic}"') from exc

    def _fatal_error(self) -> Any:
        """Why the client gave up for good, where its exception is lost.

        A new client without records runs into the same error, unless what was wrong is right again.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka import Producer as Client

        again = Client({**self._settings, "error_cb": self._hear}, logger=QUIET)
        deadline = time.monotonic() + TIMEOUT
        while time.monotonic() < deadline:
            try:
                again.poll(0.1)
            except KafkaException as exc:
                return exc.args[0]
        return self._failure or self._heard

    def _told(self, error: Any, _: Any) -> None:
        # Records behind a failed one fail too; the first tells the cause.
        if error is not None and self._failure is None:
            self._failure = error

    def _hear(self, error: Any) -> None:
        if self._heard is None or category_of(error) is Category.AUTH:
            self._heard = error


class Transactions(Producer):
    """Transactional producer: a step's records become visible atomically, together with its number.

    The number is committed as the offset of a consumer group of our own, in the same transaction. When the
    answer to a commit is lost, the brokers can therefore be asked whether the transaction took place.
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
                # A delivery must not outlive its transaction.
                "message.timeout.ms": int(min(timeout, options.delivery_timeout).total_seconds() * 1000),
            },
        )
        self._timeout = timeout.total_seconds()
        self._name = name
        self._group = _group_metadata(options, name)
        self._began = 0.0
        self._stuck = False
        """Whether a call of the client has never returned."""

    def settle(self) -> None:
        """End a predecessor's open transaction, and fence it, so that it can never write again."""
        self._insist(self._client.init_transactions, self._timeout + self._patience)

    def send_as(self, number: int, note: str, records: Records) -> None:
        """Write records in one transaction, which commits `number` as an offset with `note` as metadata.

        Whatever it raises: whether the transaction took place has to be asked of the brokers, after `settle`
        of the next producer.
        """
        from confluent_kafka import TopicPartition

        self._began = time.monotonic()
        self._insist(lambda _: self._client.begin_transaction(), self._patience)
        try:
            self.send(records)
            self._record(TopicPartition(self._topic, 0, number, metadata=note))
        except SinkError:
            # So that readers need not wait for the transaction timeout.
            if not self._stuck:
                with suppress(Exception):
                    self._client.purge()
                    self._client.abort_transaction(5.0)
            raise
        self.commit()

    def _record(self, place: Any) -> None:
        """Add the number to the transaction.

        The client's call may block forever, whatever its timeout, when a broker dies meanwhile (2.16). Then
        the client is abandoned: the next one ends its transaction and fences it.
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

    def commit(self) -> None:
        """End the transaction: what was sent in it is there, once."""
        self._insist(self._client.commit_transaction, self._timeout)

    def explained(self, error: Any) -> SinkError:
        """A transaction that exceeded its timeout is fenced by the brokers; no other producer is at work."""
        lasted = time.monotonic() - self._began if self._began else 0.0
        if error.name() in FENCED and lasted >= self._timeout:
            return SinkError(
                f'a step took {lasted:.0f}s to write to topic "{self._topic}", and the brokers undid it '
                f"after {self._timeout:.0f}s",
                hint='give it more time: "transaction.timeout", or less to do: "max.rows.per.batch"',
            )
        return super().explained(error)

    def _told_by(self) -> dict[str, Any]:
        """Failures make the transaction fail, and with it the next call, so no reports are needed.

        A fenced client raises inside of `flush`; with delivery reports pending, it then runs into errors of
        its own, or crashes.
        """
        return {}

    def _insist(self, call: Callable[[float], Any], seconds: float) -> None:
        """Repeat an idempotent call until it succeeds, for some time."""
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
    """Messages in the form of `produce_batch`: without headers and times."""
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
