"""What a Kafka source remembers between starts: where it began, which topics it read, what it lost.

Positions are offsets as long as a topic lives. One that is deleted and made again begins at 0; positions go
on from where they were, and the shift between the two is remembered before any such position is handed out.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

from velostream.connectors.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True)
class Gap:
    """Records that were gone before they were read: positions from `first` up to, not including, `last`."""

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
    """One small durable record, replaced as a whole."""

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
        """Where each partition began; None before the first start."""
        return self._now.start

    @property
    def topics(self) -> Mapping[str, str]:
        """The id of each topic that was read."""
        return self._now.topics

    @property
    def gaps(self) -> list[Gap]:
        """Everything that was lost."""
        return self._now.gaps

    def shift(self, partition: str) -> int:
        """What a position has more than the offset it stands for."""
        return self._now.shifts.get(partition, 0)

    def began(self, start: Mapping[str, int], topics: Mapping[str, str]) -> None:
        """Remember where reading begins, for partitions and topics that were not known."""
        self._now.start = {**start, **(self._now.start or {})}
        self._now.topics = {**topics, **self._now.topics}
        self._write()

    def made_again(self, topic: str, topic_id: str, shifts: Mapping[str, int]) -> None:
        """Remember that a topic is another one now."""
        self._now.topics = {**self._now.topics, topic: topic_id}
        self._now.shifts = {**self._now.shifts, **shifts}
        self._write()

    def lost(self, gap: Gap) -> None:
        """Remember what cannot be read any more; a gap that begins where a known one does has grown."""
        if gap not in self._now.gaps:
            others = [g for g in self._now.gaps if (g.partition, g.first) != (gap.partition, gap.first)]
            self._now.gaps = [*others, gap]
            self._write()

    def forget_gaps(self, upto: Mapping[str, int]) -> None:
        """Gaps that lie before these positions have been told."""
        left = [gap for gap in self._now.gaps if gap.last > upto.get(gap.partition, 0)]
        if left != self._now.gaps:
            self._now.gaps = left
            self._write()

    def _write(self) -> None:
        self._record.save(asdict(self._now))
