"""Reads ranges of offsets with the driver's own client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

_AT_ONCE = 10_000
"""The most messages that one call of the client returns."""


class Part(NamedTuple):
    """One partition of a topic."""

    topic: str
    number: int

    @property
    def text(self) -> str:
        """Its text in positions; no topic name contains a slash."""
        return f"{self.topic}/{self.number}"

    @classmethod
    def of(cls, text: str) -> Part:
        """The partition of such a text."""
        topic, _, number = text.rpartition("/")
        return cls(topic, int(number))


class RangeReader:
    """A consumer that stays connected between reads; connects on first use.

    `asking` translates the client's errors.
    """

    def __init__(
        self, connect: Callable[[], Any], asking: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._connect = connect
        self._asking = asking
        self._consumer: Any = None

    def read(
        self,
        ranges: Mapping[Part, tuple[int, int]],
        *,
        most: int,
        patience: float,
        most_bytes: int | None = None,
    ) -> tuple[list[Any], bool]:
        """The messages of ranges, their ends excluded, and whether these are all.

        Gives up where there are more than `most` messages or `most_bytes`, and where none arrives for
        `patience` seconds. Offsets that were deleted are a KafkaException, as are unreachable brokers.
        """
        from confluent_kafka import TopicPartition

        wanted = {part: bounds for part, bounds in ranges.items() if bounds[0] < bounds[1]}
        found: list[Any] = []
        if not wanted:
            return found, True
        with self._asking():
            if self._consumer is None:
                self._consumer = self._connect()
            self._consumer.assign(
                [TopicPartition(p.topic, p.number, first) for p, (first, _) in wanted.items()]
            )
            ends = {part: last for part, (_, last) in wanted.items()}
            size, waited_since = 0, time.monotonic()
            while ends and len(found) < most:
                # The client waits until it has as many messages as asked for: ask for one, then for the rest.
                heard = [*self._consumer.consume(1, 0.1), *self._consumer.consume(_AT_ONCE, 0)]
                size += _take(heard, ends, found)
                if heard:
                    waited_since = time.monotonic()
                elif time.monotonic() - waited_since > patience:
                    break
                if most_bytes is not None and size > most_bytes:
                    break
            # An assigned consumer keeps fetching.
            self._consumer.unassign()
        return found, not ends

    def close(self) -> None:
        """Disconnect."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None


def _take(heard: list[Any], ends: dict[Part, int], found: list[Any]) -> int:
    """Add messages within the ranges to `found`, and remove complete ranges from `ends`; returns bytes."""
    from confluent_kafka import KafkaError, KafkaException

    size = 0
    for message in heard:
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001
            raise KafkaException(error)
        part, offset = Part(message.topic(), message.partition()), message.offset()
        last = ends.get(part)
        if last is None:
            continue
        if error is None and offset < last:
            found.append(message)
            size += len(message)
        # The last offsets of a range may have no message: compacted, aborted, or marks of transactions. Then
        # a message after the range, or the end of the partition, tells that it is read.
        if offset >= (last - 1 if error is None else last):
            del ends[part]
    return size
