"""Properties of kafka:// sources and sinks."""

from __future__ import annotations

import logging
import math
import os
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, Self, TypeVar, get_args

from pydantic import Field, field_validator, model_validator

from velostream.errors import ConfigError
from velostream.model.changes import Messages
from velostream.model.columns import KEY
from velostream.model.durations import Duration, parse_duration
from velostream.model.options import ADDRESS, FILE, Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.model.uri import Uri

log = logging.getLogger("velostream.connectors.kafka")

RetryStrategy = Literal["exponential", "linear", "fixed"]
KafkaFormat = Literal["json", "avro", "protobuf", "csv", "debezium", "raw"]
_JAAS = re.compile(
    r"\s*org\.apache\.kafka\.common\.security\."
    r"(plain\.PlainLoginModule|scram\.ScramLoginModule|oauthbearer\.OAuthBearerLoginModule)\s"
)


_STRATEGY: RetryStrategy = "exponential"
T = TypeVar("T")


def _environment(name: str, default: T, read: Callable[[str], T]) -> T:
    """The value of an environment variable; ConfigError names the variable where it cannot be used."""
    value = os.environ.get(name)
    if not value:
        return default
    try:
        return read(value)
    except ValueError as exc:
        raise ConfigError(f'environment variable {name} cannot be "{value}"', hint=str(exc)) from exc


def _strategy(value: str) -> RetryStrategy:
    for known in get_args(RetryStrategy):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise ValueError("valid values are " + ", ".join(f'"{each}"' for each in get_args(RetryStrategy)))


def _multiplier(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not 1 <= number < math.inf:
        raise ValueError("write a number from 1 on, such as 1.5")
    return number


def _count(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ValueError("write a whole number from 1 on")
    return int(value)


def _seconds(value: str) -> timedelta:
    return timedelta(seconds=float(value)) if value.replace(".", "", 1).isdigit() else parse_duration(value)


class KafkaOptions(Options):
    """The properties of a topic: how to reach, read and write it.

    Only the TLS and SASL settings named here reach the Kafka client: the client has others that load classes
    or read files by name.
    """

    bootstrap_servers: str = Field(
        default_factory=lambda: _environment("VELOSTREAM_KAFKA_BROKERS", "localhost:9092", str),
        alias="bootstrap.servers",
        description="brokers as host:port, separated by commas; environment VELOSTREAM_KAFKA_BROKERS",
        json_schema_extra={"default_text": "localhost:9092", **ADDRESS},
    )
    topic: str | None = Field(None, description="topic, several separated by commas, or a pattern with *")
    auto_offset_reset: Literal["earliest", "latest"] | None = Field(
        None,
        alias="auto.offset.reset",
        description="where to begin: earliest or latest, in any case; another value means earliest",
        json_schema_extra={"default_text": "earliest for tables, latest for streams"},
    )
    starting_offsets: str | None = Field(
        None, alias="starting.offsets", description='offsets to begin at, as JSON {"topic": {"0": 42}}'
    )
    starting_timestamp: str | None = Field(
        None, alias="starting.timestamp", description="begin at the first record of this time or later"
    )
    isolation_level: Literal["read_committed", "read_uncommitted"] = Field(
        "read_committed", alias="isolation.level", description="whether records of open transactions are read"
    )
    group_id: str | None = Field(
        None, alias="group.id", description="consumer group under which offsets are committed, for lag tools"
    )
    batch_size: int = Field(10_000, alias="batch.size", gt=0, description="rows handed over at a time")
    format: KafkaFormat = Field("json", description="how record values are encoded")
    key_format: KafkaFormat | None = Field(
        None,
        alias="key.format",
        description="how record keys are encoded; a source then has a column key, and a sink writes raw "
        "for one key column and json for several unless it is said",
    )
    schema_file: str | None = Field(
        None,
        alias="schema.file",
        description="Avro or Protobuf schema of the values",
        json_schema_extra=FILE,
    )
    schema_registry_url: str | None = Field(
        None,
        alias="schema.registry.url",
        description="where the schemas of the values are registered",
        json_schema_extra=ADDRESS,
    )
    changelog: Literal["append", "upsert"] | None = Field(
        None,
        description="upsert keeps the last record per message key, tombstones delete; append keeps all",
        json_schema_extra={"default_text": "upsert for a plain SELECT into a table, else append"},
    )

    topic_wait_timeout: Duration = Field(
        timedelta(0), alias="topic.wait.timeout", description="how long creation waits for a missing topic"
    )
    topic_retry_interval: Duration = Field(
        default_factory=lambda: _environment(
            "VELOSTREAM_RETRY_INTERVAL_SECS", timedelta(seconds=2), _seconds
        ),
        alias="topic.retry.interval",
        description="first delay between attempts; environment VELOSTREAM_RETRY_INTERVAL_SECS",
        json_schema_extra={"default_text": "2s"},
    )
    topic_retry_strategy: RetryStrategy = Field(
        default_factory=lambda: _environment("VELOSTREAM_RETRY_STRATEGY", _STRATEGY, _strategy),
        alias="topic.retry.strategy",
        description="how the delay grows; environment VELOSTREAM_RETRY_STRATEGY",
        json_schema_extra={"default_text": "exponential"},
    )
    topic_retry_multiplier: float = Field(
        default_factory=lambda: _environment("VELOSTREAM_RETRY_MULTIPLIER", 1.5, _multiplier),
        alias="topic.retry.multiplier",
        ge=1,
        description="growth of an exponential delay; environment VELOSTREAM_RETRY_MULTIPLIER",
        json_schema_extra={"default_text": "1.5"},
    )
    topic_retry_max_delay: Duration = Field(
        default_factory=lambda: _environment(
            "VELOSTREAM_RETRY_MAX_DELAY_SECS", timedelta(seconds=120), _seconds
        ),
        alias="topic.retry.max.delay",
        description="longest delay; environment VELOSTREAM_RETRY_MAX_DELAY_SECS",
        json_schema_extra={"default_text": "120s"},
    )
    topic_create_if_missing: bool = Field(
        False, alias="topic.create.if.missing", description="create the topic when it does not exist"
    )
    topic_partitions: int = Field(
        default_factory=lambda: _environment("VELOSTREAM_DEFAULT_PARTITIONS", 6, _count),
        alias="topic.partitions",
        gt=0,
        description="partitions of a topic that we create; environment VELOSTREAM_DEFAULT_PARTITIONS",
        json_schema_extra={"default_text": "6"},
    )
    topic_replication: int = Field(
        default_factory=lambda: _environment("VELOSTREAM_DEFAULT_REPLICATION_FACTOR", 3, _count),
        alias="topic.replication",
        gt=0,
        description="replicas of a topic that we create, capped at the live brokers; "
        "environment VELOSTREAM_DEFAULT_REPLICATION_FACTOR",
        json_schema_extra={"default_text": "3"},
    )

    acks: Literal["all", "1", "0"] = Field(
        "all",
        description="what a sink waits for: all replicas in sync, the leader alone, or nothing; "
        "with less than all, records may be doubled, reordered or lost",
    )
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"] = Field(
        "none", alias="compression.type", description="how a sink compresses records"
    )
    linger: Duration = Field(
        timedelta(milliseconds=5), description="how long a sink waits for records to send together"
    )
    max_request_size: int = Field(
        1_048_576,
        alias="max.request.size",
        ge=1000,
        description="largest record that a sink writes, in bytes; a topic may allow less",
    )
    partitioner: Literal["murmur2", "consistent", "fnv1a", "random"] = Field(
        "murmur2",
        description="which partition a key belongs to: as Java's clients, as librdkafka's, FNV-1a, or any; "
        "records without a key are spread",
    )
    timestamp_column: str | None = Field(
        None,
        alias="timestamp.column",
        description="column that a sink gives to records as their time",
        json_schema_extra={"default_text": "when they are written"},
    )
    transaction_timeout: Duration = Field(
        timedelta(minutes=1),
        alias="transaction.timeout",
        description='after which the brokers undo a step of "delivery" = "exactly_once" that did not end',
    )
    delivery_timeout: Duration = Field(
        timedelta(seconds=30),
        alias="delivery.timeout",
        description="how long a sink tries to write a record before the job is degraded and tries again",
    )

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", alias="security.protocol", description="how to talk to the brokers"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        None, alias="sasl.mechanism", description="how to authenticate"
    )
    sasl_username: str | None = Field(None, alias="sasl.username", description="user of PLAIN and SCRAM")
    sasl_password: str | None = Field(None, alias="sasl.password", description="password of PLAIN and SCRAM")
    sasl_jaas_config: str | None = Field(
        None,
        alias="sasl.jaas.config",
        description="a login module of PLAIN, SCRAM or OAUTHBEARER, as Kafka writes it",
    )
    sasl_oauthbearer_client_id: str | None = Field(
        None, alias="sasl.oauthbearer.client.id", description="OAuth client"
    )
    sasl_oauthbearer_client_secret: str | None = Field(
        None, alias="sasl.oauthbearer.client.secret", description="OAuth client secret"
    )
    sasl_oauthbearer_token_endpoint_url: str | None = Field(
        None,
        alias="sasl.oauthbearer.token.endpoint.url",
        description="where OAuth tokens are issued",
        json_schema_extra=ADDRESS,
    )
    sasl_oauthbearer_scope: str | None = Field(
        None, alias="sasl.oauthbearer.scope", description="scope asked for with the token"
    )
    ssl_ca_location: str | None = Field(
        None, alias="ssl.ca.location", description="PEM file of trusted authorities", json_schema_extra=FILE
    )
    ssl_certificate_location: str | None = Field(
        None,
        alias="ssl.certificate.location",
        description="PEM file of our certificate",
        json_schema_extra=FILE,
    )
    ssl_key_location: str | None = Field(
        None, alias="ssl.key.location", description="PEM file of our private key", json_schema_extra=FILE
    )
    ssl_key_password: str | None = Field(
        None, alias="ssl.key.password", description="password of our private key"
    )
    ssl_truststore_location: str | None = Field(
        None, alias="ssl.truststore.location", description="Java trust store", json_schema_extra=FILE
    )
    ssl_truststore_password: str | None = Field(
        None, alias="ssl.truststore.password", description="password of the trust store"
    )
    ssl_truststore_type: Literal["JKS", "PKCS12", "PEM"] | None = Field(
        None, alias="ssl.truststore.type", description="kind of trust store"
    )
    ssl_keystore_location: str | None = Field(
        None, alias="ssl.keystore.location", description="Java key store", json_schema_extra=FILE
    )
    ssl_keystore_password: str | None = Field(
        None, alias="ssl.keystore.password", description="password of the key store"
    )
    ssl_keystore_type: Literal["JKS", "PKCS12", "PEM"] | None = Field(
        None, alias="ssl.keystore.type", description="kind of key store"
    )
    ssl_endpoint_identification_algorithm: Literal["https", ""] = Field(
        "https",
        alias="ssl.endpoint.identification.algorithm",
        description="whether the broker's name is checked against its certificate; empty turns it off",
    )

    def retry_delay(self, attempt: int) -> timedelta:
        """The delay after an attempt, counted from 1, that found no topic."""
        first, longest = self.topic_retry_interval, self.topic_retry_max_delay
        if self.topic_retry_strategy == "linear":
            return min(first * attempt, longest)
        if self.topic_retry_strategy == "fixed":
            return min(first, longest)
        # Beyond any sensible delay the power itself would overflow.
        factor = min(self.topic_retry_multiplier ** min(attempt - 1, 100), 1e6)
        return min(first * factor, longest)

    @field_validator("auto_offset_reset", mode="before")
    @classmethod
    def _known_reset(cls, value: object) -> object:
        folded = value.strip().lower() if isinstance(value, str) else value
        if folded is None or folded in ("earliest", "latest"):
            return folded
        log.warning('auto.offset.reset "%s" is neither earliest nor latest; earliest is used', value)
        return "earliest"

    @field_validator("sasl_jaas_config")
    @classmethod
    def _safe_login_module(cls, value: str | None) -> str | None:
        if value is not None and not _JAAS.match(value):
            raise ValueError("only the login modules of PLAIN, SCRAM and OAUTHBEARER are allowed")
        return value

    @model_validator(mode="after")
    def _one_start(self) -> Self:
        if self.starting_offsets is not None and self.starting_timestamp is not None:
            raise ValueError('"starting.offsets" and "starting.timestamp" exclude each other')
        if self.format == "debezium" and self.changelog == "append":
            raise ValueError('envelopes of Debezium are changes: "changelog" cannot be "append"')
        return self


def messages_of(changelog: str | None, form: str) -> Messages | None:
    """How later records replace earlier ones. Debezium envelopes are changes in any case."""
    if changelog == "append":
        return None
    return Messages(KEY, upserts=changelog == "upsert" or form == "debezium")


def parse_kafka(uri: Uri) -> dict[str, str]:
    """`kafka://topic`, `kafka://host:9092/topic`, several brokers or topics separated by commas."""
    before, slash, after = uri.rest.strip().partition("/")
    found: dict[str, str] = {}
    if slash and after:
        found = {"bootstrap.servers": before, "topic": after.rstrip("/")}
    elif before:
        found = {"topic": before}
    return {**found, **uri.parameters}
