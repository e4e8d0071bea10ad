"""Durable notes of a Kafka source: where it began, which topics it read, which records were lost.

Positions are offsets while a topic lives. A topic that is deleted and created again begins at offset 0, but
positions continue to increase: the shift between the two is recorded before any such position is emitted.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from velostream.disk.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Gap:
    """Records lost before they were read: positions from `first` up to, not including, `last`."""

    partition: str
    first: int
    last: int
    reason: str


@dataclass
class _Remembered:
    start: dict[str, int] | None = None
    topics: dict[str, str] = field(default_factory=dict)
    shifts: dict[str, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)


class SourceMemory:
    """One small durable record, replaced atomically."""

    def __init__(self, folder: Path, owner: str = "", *, resumed: bool = False) -> None:
        self._record = Record(
            folder / "kafka.json", f"{owner} kafka", required=resumed, before=folder / "kafka.jsonl"
        )
        self._now = _Remembered()
        found = self._record.load()
        if found is not None:
            self._now = _Remembered(**{**found, "gaps": [Gap(**gap) for gap in found["gaps"]]})

    @property
    def start(self) -> Mapping[str, int] | None:
        """The start position of each partition; None before the first start."""
        return self._now.start

    @property
    def topics(self) -> Mapping[str, str]:
        """The id of each topic that was read."""
        return self._now.topics

    @property
    def gaps(self) -> list[Gap]:
        """All records that were lost."""
        return self._now.gaps

    def shift(self, partition: str) -> int:
        """The difference between a position and the offset it stands for."""
        return self._now.shifts.get(partition, 0)

    def began(self, start: Mapping[str, int], topics: Mapping[str, str]) -> None:
        """Record where reading begins, for new partitions and topics."""
        self._now.start = {**start, **(self._now.start or {})}
        self._now.topics = {**topics, **self._now.topics}
        self._write()

    def made_again(self, topic: str, topic_id: str, shifts: Mapping[str, int]) -> None:
        """Record that a topic was deleted and created again."""
        self._now.topics = {**self._now.topics, topic: topic_id}
        self._now.shifts = {**self._now.shifts, **shifts}
        self._write()

    def lost(self, gap: Gap) -> None:
        """Record lost positions; a gap that begins like a known one replaces it."""
        if gap not in self._now.gaps:
            others = [g for g in self._now.gaps if (g.partition, g.first) != (gap.partition, gap.first)]
            self._now.gaps = [*others, gap]
            self._write()

    def forget_gaps(self, upto: Mapping[str, int]) -> None:
        """Forget gaps before these positions, which have been reported."""
        left = [gap for gap in self._now.gaps if gap.last > upto.get(gap.partition, 0)]
        if left != self._now.gaps:
            self._now.gaps = left
            self._write()

    def _write(self) -> None:
        self._record.save(asdict(self._now))
