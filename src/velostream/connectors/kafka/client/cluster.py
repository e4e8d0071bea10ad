"""Metadata queries to Kafka brokers: topics, offsets, a few records. Errors are classified by category."""

from __future__ import annotations

import logging
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from velostream.connectors.kafka.client.ranges import Part, RangeReader
from velostream.connectors.kafka.client.settings import python_settings
from velostream.errors import (
    ConfigError,
    SourceAuthError,
    SourceConfigError,
    SourceError,
    SourceMissingError,
    SourceNetworkError,
)
from velostream.spark.messages import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from velostream.connectors.kafka.options import KafkaOptions

TIMEOUT = 5.0
"""Timeout of a broker's answer, in seconds."""
_CONFIG = frozenset(
    {
        "_INVALID_ARG",
        "_NOT_IMPLEMENTED",
        "_UNSUPPORTED_FEATURE",
        "INVALID_CONFIG",
        "INVALID_GROUP_ID",
        "INVALID_PARTITIONS",
        "INVALID_REPLICATION_FACTOR",
        "INVALID_REQUEST",
        "POLICY_VIOLATION",
        "TOPIC_EXCEPTION",
        "UNKNOWN_CONFIGURATION",
        "UNSUPPORTED_VERSION",
    }
)
_OF_GROUP = "GROUP_AUTHORIZATION_FAILED"
_AUTH = frozenset(
    {
        "_AUTHENTICATION",
        "_SSL",
        "CLUSTER_AUTHORIZATION_FAILED",
        _OF_GROUP,
        "ILLEGAL_SASL_STATE",
        "SASL_AUTHENTICATION_FAILED",
        "TOPIC_AUTHORIZATION_FAILED",
        "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
        "UNSUPPORTED_SASL_MECHANISM",
    }
)
_MISSING = frozenset({"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"})
_MOVING = frozenset(
    {"LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION", "UNKNOWN_LEADER_EPOCH", "UNKNOWN_TOPIC_OR_PART"}
)
_NO_COORDINATOR = frozenset(
    {
        "_WAIT_COORD",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "UNSTABLE_OFFSET_COMMIT",
    }
)
_AWAY = {
    "_TRANSPORT": "no connection",
    "_ALL_BROKERS_DOWN": "no broker answers",
    "_TIMED_OUT": f"no answer within {TIMEOUT:.0f} s",
    "_TIMED_OUT_QUEUE": f"no answer within {TIMEOUT:.0f} s",
    "REQUEST_TIMED_OUT": f"no answer within {TIMEOUT:.0f} s",
    "_RESOLVE": "its name is not known",
}
"""Messages for the client's error names that mean unreachable brokers."""
_MOMENT = 0.05

QUIET = logging.getLogger("velostream.kafka.client")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False
"""The client's log messages end here: each failure is reported by an error of ours."""


class Recorded(NamedTuple):
    """The offset and metadata that a consumer group has committed for a partition."""

    offset: int
    note: str


@dataclass(frozen=True)
class TopicInfo:
    """A topic as it is now; a topic that was deleted and created again has another id."""

    name: str
    id: str
    partitions: int


@dataclass(frozen=True)
class TopicSize:
    """How large a topic is. Records that compaction removed, and marks of transactions, are counted too."""

    name: str
    partitions: int
    replication: int
    records: int


@dataclass(frozen=True)
class Record:
    """One record, undecoded."""

    part: Part
    offset: int
    key: bytes | None
    value: bytes | None


class Cluster:
    """The brokers of one statement's source or sink. Connects on first use."""

    def __init__(self, options: KafkaOptions) -> None:
        # Whatever is asked first, a missing package is told as such.
        client_package()
        self._settings = python_settings(options)
        self._committed_only = options.isolation_level == "read_committed"
        self._made: Any = None
        self._committer: Any = None
        self._heard: Any = None

    @property
    def brokers(self) -> str:
        """The addresses of the brokers."""
        return self._settings["bootstrap.servers"]

    def topics(self) -> dict[str, int]:
        """Every topic except Kafka's internal ones, with its number of partitions."""
        found = self._metadata().topics.values()
        return {t.topic: len(t.partitions) for t in found if not t.topic.startswith("__")}

    def broker_count(self) -> int:
        """The number of brokers that are alive."""
        return len(self._metadata().brokers)

    def describe(self, names: Sequence[str]) -> dict[str, TopicInfo]:
        """Those of the topics that exist, with their ids."""
        from confluent_kafka import TopicCollection

        if not names:
            return {}
        with self._asking():
            asked = self._admin().describe_topics(TopicCollection(list(names)), request_timeout=TIMEOUT)
        found = {}
        for name, answer in asked.items():
            try:
                with self._asking(name):
                    told = answer.result()
            except SourceMissingError:
                continue
            found[name] = TopicInfo(name, str(told.topic_id), len(told.partitions))
        return found

    def earliest(self, parts: Sequence[Part]) -> dict[Part, int]:
        """The first available offset of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(parts, OffsetSpec.earliest())

    def latest(self, parts: Sequence[Part]) -> dict[Part, int]:
        """The offset after the last readable record of each partition."""
        from confluent_kafka.admin import OffsetSpec

        return self._offsets(parts, OffsetSpec.latest())

    def at_time(self, parts: Sequence[Part], millis: int) -> dict[Part, int]:
        """The offset of the first record at or after that time in each partition, or its end."""
        from confluent_kafka.admin import OffsetSpec

        found = self._offsets(parts, OffsetSpec.for_timestamp(millis))
        ends = self.latest([part for part, offset in found.items() if offset < 0])
        return found | ends

    def _offsets(self, parts: Sequence[Part], which: Any) -> dict[Part, int]:
        from confluent_kafka import IsolationLevel, TopicPartition

        if not parts:
            return {}
        level = IsolationLevel.READ_COMMITTED if self._committed_only else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(part.topic, part.number): which for part in parts}
        deadline = time.monotonic() + TIMEOUT
        while True:
            with self._asking(parts[0].topic):
                answers = self._admin().list_offsets(asked, isolation_level=level, request_timeout=TIMEOUT)
                try:
                    return {Part(p.topic, p.partition): a.result().offset for p, a in answers.items()}
                except client_package().KafkaException as exc:
                    # A topic that has just been created, or whose leader moves, is available in a moment.
                    if exc.args[0].name() not in _MOVING or time.monotonic() > deadline:
                        raise
            time.sleep(_MOMENT)

    def overview(self) -> list[TopicSize]:
        """Every topic except Kafka's internal ones, with its size, by name."""
        found = [t for t in self._metadata().topics.values() if not t.topic.startswith("__")]
        parts = [Part(t.topic, number) for t in found for number in t.partitions]
        first, last = self.earliest(parts), self.latest(parts)
        sizes = []
        for topic in sorted(found, key=lambda t: t.topic):
            own = [Part(topic.topic, number) for number in topic.partitions]
            copies = max((len(each.replicas) for each in topic.partitions.values()), default=0)
            records = sum(max(last[part] - first[part], 0) for part in own)
            sizes.append(TopicSize(topic.topic, len(own), copies, records))
        return sizes

    def creates_topics(self) -> bool:
        """Whether the brokers create a topic that is written to; False when they do not tell us."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        try:
            with self._asking():
                broker = next(iter(self._admin().list_topics(timeout=TIMEOUT).brokers))
                asked = ConfigResource(ResourceType.BROKER, str(broker))
                found = self._admin().describe_configs([asked], request_timeout=TIMEOUT)[asked].result()
        except (SourceAuthError, SourceConfigError):
            return False
        told = found.get("auto.create.topics.enable")
        return told is not None and told.value == "true"

    def create(
        self, name: str, partitions: int, replication: int, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic. Idempotent: a topic that exists by now is accepted.

        With -1 for partitions or replication, the brokers' own defaults hold.
        """
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import NewTopic

        wanted = NewTopic(
            name, num_partitions=partitions, replication_factor=replication, config=dict(config or {})
        )
        with self._asking(name):
            answer = self._admin().create_topics([wanted], request_timeout=TIMEOUT)[name]
            try:
                answer.result()
            except KafkaException as exc:
                if exc.args[0].name() != "TOPIC_ALREADY_EXISTS":
                    raise

    def delete(self, name: str) -> None:
        """Delete a topic."""
        with self._asking(name):
            self._admin().delete_topics([name], request_timeout=TIMEOUT)[name].result()

    def records(self, ranges: Mapping[Part, tuple[int, int]], most: int) -> list[Record]:
        """Up to `most` records of these offset ranges, the end excluded."""
        reader = self.reader("velostream-sample", reset="earliest")
        try:
            found, _ = reader.read(ranges, most=most, patience=TIMEOUT)
        finally:
            reader.close()
        return [Record(Part(m.topic(), m.partition()), m.offset(), m.key(), m.value()) for m in found[:most]]

    def reader(self, group: str, *, reset: Literal["earliest", "error"] = "error") -> RangeReader:
        """A consumer of ranges of offsets, which commits nothing; the group is only its name.

        `reset` tells what happens where the first offsets of a range have been deleted.
        """
        return RangeReader(lambda: self._consumer(group, self._committed_only, reset), self._asking)

    def commit(self, group: str, offsets: Mapping[Part, int]) -> None:
        """Commit our offsets under a consumer group."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(part.topic, part.number, offset) for part, offset in offsets.items()]
        if not places:
            return
        # Not with the admin client: see `committed`.
        with self._asking():
            if self._committer is None:
                self._committer = self._consumer(group, self._committed_only)
            self._committer.commit(offsets=places, asynchronous=False)

    def committed(self, group: str, part: Part, *, settled: bool = True) -> Recorded | None:
        """The offsets last committed under a group; `settled` waits for pending transactions to end."""
        # Not with the admin client: an answer that a coordinator is not ready yet makes it crash (2.16).
        with self._asking(part.topic):
            consumer = self._consumer(group, settled)
        try:
            with self._asking(part.topic):
                found = _committed(consumer, part)
        finally:
            consumer.close()
        return found if found.offset >= 0 else None

    def largest_record(self, topic: str) -> int | None:
        """The largest record that a topic accepts, in bytes; None when we are not authorised to ask."""
        from confluent_kafka.admin import ConfigResource, ResourceType

        asked = ConfigResource(ResourceType.TOPIC, topic)
        try:
            with self._asking(topic):
                found = self._admin().describe_configs([asked], request_timeout=TIMEOUT)[asked].result()
        except SourceAuthError:
            return None
        return int(found["max.message.bytes"].value)

    def close(self) -> None:
        """Close the connection."""
        self._made = None
        if self._committer is not None:
            self._committer.close()
            self._committer = None

    # --- inside -----------------------------------------------------------------------------------------

    def _metadata(self) -> Any:
        with self._asking():
            return self._admin().list_topics(timeout=TIMEOUT)

    def _admin(self) -> Any:
        if self._made is None:
            from confluent_kafka.admin import AdminClient

            self._made = AdminClient({**self._settings, "error_cb": self._hear}, logger=QUIET)
        return self._made

    def _consumer(self, group: str, committed_only: bool, reset: str = "earliest") -> Any:
        from confluent_kafka import Consumer

        level = "read_committed" if committed_only else "read_uncommitted"
        own = {"group.id": group, "enable.auto.commit": False, "isolation.level": level}
        # The end of a range may be found by an empty answer only: do not wait half a second for records.
        own |= {"fetch.wait.max.ms": 10}
        own |= {"enable.partition.eof": True, "error_cb": self._hear, "auto.offset.reset": reset}
        return Consumer({**self._settings, **own}, logger=QUIET)

    def _hear(self, error: Any) -> None:
        """Record out-of-band errors of the client: after a failed login the call itself only times out."""
        heard = self._heard.name() if self._heard is not None else None
        # The client asks for its group even where it is not used: any other refusal says more.
        if heard is None or (error.name() in _AUTH and (heard not in _AUTH or heard == _OF_GROUP)):
            self._heard = error

    @contextmanager
    def _asking(self, topic: str | None = None) -> Iterator[None]:
        client = client_package()
        self._heard = None
        try:
            yield
        except client.KafkaException as exc:
            if self._made is not None:
                self._made.poll(0)
            said = exc.args[0]
            refused = self._heard is not None and self._heard.name() in _AUTH
            raise self._explained(self._heard if refused else said, topic) from exc
        except (TypeError, ValueError) as exc:
            raise SourceConfigError(f"the Kafka client refuses its settings: {exc}") from exc

    def _explained(self, error: Any, topic: str | None) -> SourceError:
        name, text = error.name(), error.str()
        category = category_of(error)
        if category is Category.MISSING:
            return SourceMissingError(f'kafka topic "{topic}" does not exist' if topic else text)
        if category is Category.AUTH:
            return SourceAuthError(
                f'kafka at "{self.brokers}" refuses us: {text}',
                hint='see "security.protocol", "sasl.mechanism", "sasl.username", "ssl.ca.location"',
            )
        if category is Category.CONFIG:
            return SourceConfigError(f'kafka at "{self.brokers}": {text} ({name})')
        # All others are transient: brokers that are unreachable, starting, or moving partitions.
        why = _AWAY.get(name) or plain(text.replace("Local: ", ""))
        why = "no broker leads its partitions" if "leaders" in text else why
        return SourceNetworkError(
            f'kafka at "{self.brokers}" cannot be reached: {why}',
            hint='is it running? its address is "bootstrap.servers" or VELOSTREAM_KAFKA_BROKERS; '
            "velo broker starts one for development",
        )


class Category(StrEnum):
    """The category of a failure."""

    MISSING = "missing"
    AUTH = "auth"
    CONFIG = "config"
    OTHER = "other"


def category_of(error: Any) -> Category:
    """The category of a client error."""
    name = error.name()
    kinds = {Category.MISSING: _MISSING, Category.AUTH: _AUTH, Category.CONFIG: _CONFIG}
    return next((kind for kind, names in kinds.items() if name in names), Category.OTHER)


def _committed(consumer: Any, part: Part) -> Recorded:
    from confluent_kafka import KafkaException, TopicPartition

    deadline = time.monotonic() + 2 * TIMEOUT
    while True:
        try:
            place = consumer.committed([TopicPartition(part.topic, part.number)], TIMEOUT)[0]
            if place.error is not None:
                raise KafkaException(place.error)
        except KafkaException as exc:
            # A new group, or one whose broker has just started, has no coordinator for a moment.
            if exc.args[0].name() not in _NO_COORDINATOR or time.monotonic() > deadline:
                raise
            time.sleep(_MOMENT)
        else:
            return Recorded(int(place.offset), place.metadata or "")


def client_package() -> Any:
    """The client's module; ConfigError says what to install."""
    try:
        import confluent_kafka
    except ImportError as exc:
        raise ConfigError(
            "kafka:// needs the package confluent-kafka", hint="pip install 'velostream[kafka]'"
        ) from exc
    return confluent_kafka
