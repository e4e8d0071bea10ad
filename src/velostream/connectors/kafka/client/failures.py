"""Failures while writing to Kafka, as errors of a sink."""

from __future__ import annotations

from typing import Any

from velostream.connectors.kafka.client.cluster import Category, category_of
from velostream.errors import (
    SinkAuthError,
    SinkConfigError,
    SinkError,
    SinkFencedError,
    SinkMissingError,
    SinkNetworkError,
)

FENCED = frozenset({"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"})
_AWAY = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_RESOLVE",
        "_TIMED_OUT",
        "_TIMED_OUT_QUEUE",
        "_MSG_TIMED_OUT",
        "REQUEST_TIMED_OUT",
        "NETWORK_EXCEPTION",
        "BROKER_NOT_AVAILABLE",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_FOR_PARTITION",
        "COORDINATOR_NOT_AVAILABLE",
        "COORDINATOR_LOAD_IN_PROGRESS",
        "NOT_COORDINATOR",
        "NOT_ENOUGH_REPLICAS",
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    }
)
_TOO_LARGE = frozenset({"MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"})
_REFUSED = {
    "INVALID_RECORD": (
        "it takes records with a key only, as compacted topics do",
        'give the rows a key: WITH ("key" = "column")',
    ),
    "POLICY_VIOLATION": ("a policy of the brokers forbids it", None),
    "INVALID_TIMESTAMP": ("it does not take records of that time", 'see "timestamp.column"'),
    "INVALID_TRANSACTION_TIMEOUT": (
        'the brokers do not allow a "transaction.timeout" that long',
        "see transaction.max.timeout.ms of the brokers",
    ),
    "UNSUPPORTED_COMPRESSION_TYPE": ("the brokers do not know the compression", 'see "compression.type"'),
}


def sink_error(error: Any, brokers: str, topic: str) -> SinkError:
    """The SinkError for an error of the producer, by category."""
    name, text = error.name(), error.str()
    category = category_of(error)
    if category is Category.MISSING:
        return SinkMissingError(f'kafka topic "{topic}" does not exist (any more)')
    if category is Category.AUTH:
        return SinkAuthError(
            f'kafka at "{brokers}" does not let us write to topic "{topic}": {text}',
            hint='see "sasl.username" and "sasl.password", and the permissions (ACL) of that user: WRITE on '
            'the topic; for "exactly_once" also on the transactional id, and READ on the group of that name',
        )
    if name in _AWAY:
        return SinkNetworkError(f'kafka at "{brokers}" does not take records of topic "{topic}": {text}')
    if name in FENCED:
        return SinkFencedError(
            f'another process writes to topic "{topic}" for this job',
            detail="what this process had begun to write was undone; readers of committed records never see "
            "it",
            hint="is the data directory, or a copy of it, open elsewhere? let only one of them run",
        )
    if name in _TOO_LARGE:
        return SinkConfigError(
            f'a record is larger than topic "{topic}" takes: {text}',
            hint='see "max.request.size", and max.message.bytes of the topic',
        )
    if name in _REFUSED:
        reason, hint = _REFUSED[name]
        return SinkConfigError(f'kafka topic "{topic}" does not take what we write: {reason}', hint=hint)
    if category is Category.CONFIG:
        return SinkConfigError(f'kafka at "{brokers}": {text} ({name})')
    return SinkError(f'kafka topic "{topic}" cannot be written: {text} ({name})')
