"""The topics that a source reads, and the error when they are missing."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from velostream.connectors.base import log
from velostream.errors import SourceConfigError, SourceEmptyError, SourceMissingError, nearest, numbered

if TYPE_CHECKING:
    from velostream.connectors.kafka.client.cluster import Cluster, TopicInfo
    from velostream.connectors.kafka.options import KafkaOptions

_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SHOWN = 5


class Topics:
    """One topic, several (`a,b`), or a pattern (`orders-*`)."""

    def __init__(self, options: KafkaOptions, cluster: Cluster) -> None:
        self._options = options
        self._cluster = cluster
        self.names = [part.strip() for part in (options.topic or "").split(",") if part.strip()]
        if not self.names:
            raise SourceConfigError("a kafka source needs a topic", hint="write kafka://topic")
        for name in self.names:
            if not _NAME.fullmatch(name.replace("*", "x")):
                raise SourceConfigError(
                    f'"{name}" is no name of a kafka topic',
                    hint="letters, digits, . _ and -; * stands for any of them",
                )

    @property
    def pattern(self) -> bool:
        """Whether topics that are created later may match."""
        return any("*" in name for name in self.names)

    def found(self) -> dict[str, TopicInfo]:
        """The matching topics that exist, with their ids."""
        names = [name for name in self.names if "*" not in name]
        if self.pattern:
            names += [name for name in self._cluster.topics() if self._matches(name) and name not in names]
        return self._cluster.describe(names)

    def check(self, *, makes: bool = True) -> None:
        """Raise SourceMissingError unless all exist; missing ones are created if the options say so.

        Not `makes`: one that would be created is a SourceEmptyError.
        """
        there = self.found()
        missing = [name for name in self.names if "*" not in name and name not in there]
        if missing and self._options.topic_create_if_missing:
            if not makes:
                raise SourceEmptyError(f'kafka topic "{missing[0]}" does not exist, and will be created')
            for name in missing:
                self._create(name)
            return
        if missing:
            raise self._missing(missing[0])
        if not there:
            raise self._no_match()

    def create_as_brokers_do(self) -> bool:
        """Create the topic where the brokers create those that are written to; returns whether they do."""
        if not self._cluster.creates_topics():
            return False
        self._cluster.create(self.names[0], -1, -1)
        log.info('kafka topic "%s" was created, as these brokers do', self.names[0])
        return True

    def _create(self, name: str) -> None:
        brokers = self._cluster.broker_count()
        wanted = self._options.topic_replication
        if wanted > brokers:
            log.warning(
                'kafka topic "%s" gets %d replicas and not %d: there are no more brokers',
                name,
                brokers,
                wanted,
            )
        self._cluster.create(name, self._options.topic_partitions, min(wanted, brokers))
        log.info('kafka topic "%s" was created', name)

    def _matches(self, name: str) -> bool:
        parts = (re.escape(piece).replace(r"\*", ".*") for piece in self.names if "*" in piece)
        return any(re.fullmatch(part, name) for part in parts)

    def _missing(self, name: str) -> SourceMissingError:
        options = [
            f"create it:         velo topic create {name}",
            'wait for it:       WITH ("topic.wait.timeout" = "30s")',
            'let us create it:  WITH ("topic.create.if.missing" = "true")',
        ]
        close = nearest(name, self._cluster.topics())
        if close is not None:
            options.append(f'did you mean "{close}"?')
        return SourceMissingError(f'kafka topic "{name}" does not exist', detail=numbered(options))

    def _no_match(self) -> SourceMissingError:
        there = sorted(self._cluster.topics())
        shown = ", ".join(there[:_SHOWN]) + (
            f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
        )
        return SourceMissingError(
            f'no kafka topic matches "{self._options.topic}"',
            detail=numbered(
                [
                    f"check the pattern: the brokers have {shown or 'no topic'}",
                    'wait for a match:  WITH ("topic.wait.timeout" = "30s")',
                ]
            ),
        )
