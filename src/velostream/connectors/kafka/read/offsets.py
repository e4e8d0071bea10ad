"""Offsets of a Kafka source: where it begins, what is new, what is lost."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING

from velostream.connectors.base import log
from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.client.topics import Topics
from velostream.connectors.kafka.read.notes import Gap, SourceMemory
from velostream.connectors.kafka.read.ordering import starting
from velostream.errors import SourceMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from velostream.connectors.base import SourceContext
    from velostream.connectors.kafka.client.cluster import Cluster, TopicInfo
    from velostream.connectors.kafka.options import KafkaOptions
    from velostream.connectors.kafka.read.ordering import Ranges
    from velostream.model.changes import Offset

_STEP = 1_000_000
"""The most records of one batch: a long load shows progress, and its rows fit in memory."""
_TOPICS_EVERY = 5.0
"""Seconds between checks for new partitions and topics."""


class Positions:
    """The positions of one source.

    A position is, per partition, the offset of the next record (see `notes` for topics created again).
    """

    def __init__(self, options: KafkaOptions, context: SourceContext, cluster: Cluster) -> None:
        self._options = options
        self._context = context
        self._cluster = cluster
        self._topics = Topics(options, cluster)
        self._known: dict[str, TopicInfo] = {}
        self._looked_at = 0.0
        self.memory = SourceMemory(context.spool, context.owner, resumed=context.resumed)
        self.newest: Mapping[str, int] = {}
        """The end of each partition when it was last queried."""
        self.final: dict[str, int] | None = None
        """With `--once`, the end of each partition when the source was opened."""
        self.settled = True
        """Whether the last poll covered everything."""
        self.under_way = False
        """Whether a step was done: a read from the beginning then repeats rows."""
        self.losses = 0
        """How many times lost records were found since the source was opened."""
        self.reader = _reader_name()
        """The group id under which Spark caches consumers; replaced when a topic was created again."""

    def check(self) -> None:
        """Decide where to begin, unless that is decided; create a missing topic if the options say so."""
        if self.memory.start is None:
            self._topics.check(makes=self._context.makes)
            self.begin()

    def begin(self) -> Mapping[str, int]:
        """The start of each partition, decided once, when the statement is created."""
        if self.memory.start is None:
            self._known = self._topics.found()
            self._looked_at = time.monotonic()
            if not self._known:
                self._topics.check()
            start = starting(self._options, self._cluster, self.parts(), whole=self._context.whole)
            ids = {name: topic.id for name, topic in self._known.items()}
            self.memory.began({part.text: offset for part, offset in start.items()}, ids)
        if self._context.once and self.final is None:
            self._known = self._known or self._topics.found()
            self.final = self._ends({part.text: 0 for part in self.parts()})
        assert self.memory.start is not None
        return self.memory.start

    def parts(self) -> list[Part]:
        """The partitions as of the last check."""
        return [
            Part(topic.name, number) for topic in self._known.values() for number in range(topic.partitions)
        ]

    def latest(self, after: Offset | None) -> Offset:
        """The newest position of each partition, at most `max.rows.per.batch` records further."""
        start = self.begin()
        self.under_way = after is not None
        have = dict(start if after is None else after)
        self._look_at_topics(have)
        for text in start:
            have.setdefault(text, start[text])
        ends = self.newest = self._ends(have)
        if after is not None and all(ends.get(text, 0) <= have[text] for text in have):
            self.settled = True
            return after
        reached = self.bounded(self._find_gaps(have, ends), ends)
        self.settled = all(reached[text] >= ends.get(text, 0) for text in reached)
        return reached

    def look_again(self) -> None:
        """Check for new partitions and topics at the next poll, however recent the last check is."""
        self._looked_at = 0.0

    def all_of(self, start: Offset | None) -> dict[str, int]:
        """A position for every current partition, including new ones."""
        have = {**self.begin(), **(start or {})}
        self.look_again()
        self._look_at_topics(have)
        there = {part.text for part in self.parts()}
        return {text: at for text, at in {**(self.memory.start or {}), **have}.items() if text in there}

    def _look_at_topics(self, have: dict[str, int]) -> None:
        """At intervals: find new partitions and topics, and topics that were created again."""
        if self._known and time.monotonic() - self._looked_at < _TOPICS_EVERY:
            return
        found = self._topics.found()
        missing = [name for name in self.memory.topics if name not in found]
        if missing and not self._topics.pattern:
            raise SourceMissingError(
                f'kafka topic "{missing[0]}" does not exist any more',
                hint="rows that were read stay; reading resumes when the topic exists again",
            )
        self._known, self._looked_at = found, time.monotonic()
        for name, topic in found.items():
            old = self.memory.topics.get(name)
            if old is not None and old != topic.id:
                self._made_again(topic, have)
        assert self.memory.start is not None
        new = [part for part in self.parts() if part.text not in self.memory.start]
        if new:
            ids = {name: topic.id for name, topic in found.items()}
            # A new partition is read from its beginning, wherever the others began.
            first = self._cluster.earliest(new)
            self.memory.began({part.text: first[part] for part in new}, ids)

    def _made_again(self, topic: TopicInfo, have: Mapping[str, int]) -> None:
        shifts = {text: at for text, at in have.items() if Part.of(text).topic == topic.name}
        log.warning(
            'kafka topic "%s" was deleted and made again; what was read of the old one stays, '
            "and the new one is read from its beginning",
            topic.name,
        )
        self.memory.made_again(topic.name, topic.id, shifts)
        # Spark's cached consumers may hold records of the old
        # topic, under offsets that the new one uses again.
        self.reader = _reader_name()

    def _ends(self, have: Mapping[str, int]) -> dict[str, int]:
        """The newest position of each partition."""
        if self.final is not None:
            return self.final
        parts = [part for part in map(Part.of, have) if part.topic in self._known]
        try:
            found = self._cluster.latest(parts)
        except SourceMissingError:
            # The topic may have been created again, with fewer partitions.
            self._looked_at = 0.0
            raise
        return {part.text: offset + self.memory.shift(part.text) for part, offset in found.items()}

    def note_lost(self, start: Offset | None, end: Offset) -> bool:
        """Check again which records of a range are lost; returns whether there are more than were known."""
        have = {text: (start or {}).get(text, self.begin().get(text, 0)) for text in end}
        before = list(self.memory.gaps)
        self._find_gaps(have, end)
        return self.memory.gaps != before

    def _find_gaps(self, have: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """The positions at which reading continues; records deleted before being read are noted as lost."""
        there = {text: self._after_gap(text, at) for text, at in have.items()}
        behind = [Part.of(text) for text, at in have.items() if ends.get(text, 0) > at]
        for part, offset in self._cluster.earliest(behind).items():
            text, first = part.text, offset + self.memory.shift(part.text)
            if first > there[text]:
                log.warning(
                    "%s: records %d to %d were deleted before they were read", text, there[text], first - 1
                )
                reason = "deleted by the broker before it was read (retention)"
                # A gap that the current step has not reported yet is joined with records deleted since.
                untold = any(gap.partition == text and gap.first == have[text] for gap in self.memory.gaps)
                begins = have[text] if untold else there[text]
                self.memory.lost(Gap(text, begins, first, reason))
                self.losses += 1
                there[text] = first
        return there

    def _after_gap(self, text: str, at: int) -> int:
        """The first position from `at` on that is not known to be lost."""
        for gap in sorted(self.memory.gaps, key=lambda gap: gap.first):
            if gap.partition == text and gap.first <= at < gap.last:
                at = gap.last
        return at

    def bounded(self, have: Mapping[str, int], ends: Mapping[str, int]) -> dict[str, int]:
        """The end of one batch from readable positions; each partition gets its share."""
        most = self._context.most_rows or _STEP
        left = {text: max(ends.get(text, 0) - at, 0) for text, at in have.items()}
        total = sum(left.values())
        if total <= most:
            return {text: at + left[text] for text, at in have.items()}
        return {text: at + -(-left[text] * most // total) for text, at in have.items()}

    def ranges(self, start: Offset | None, end: Offset) -> Ranges:
        """Offsets to read, without lost records."""
        begin = self.memory.start or {}
        found = {}
        for text, last in end.items():
            first = self._after_gap(text, (start or {}).get(text, begin.get(text, 0)))
            shift = self.memory.shift(text)
            # Records of a topic that no longer exists cannot be read again.
            found[Part.of(text)] = (max(first - shift, 0), max(last - shift, 0))
        return found

    def gaps(self, start: Offset | None, end: Offset) -> Iterator[Gap]:
        """The lost records of a range."""
        begin = start or self.memory.start or {}
        for gap in self.memory.gaps:
            if begin.get(gap.partition, 0) <= gap.first < end.get(gap.partition, 0):
                yield gap


def _reader_name() -> str:
    return f"velostream-{secrets.token_hex(8)}"
