"""The rows that a case gave to a source: a durable log beside its data directory, one entry per step."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from velostream.disk.private import make_folder, open_file
from velostream.errors import CaseError
from velostream.model.columns import ENTERED
from velostream.testing.cases import Advance, Given, Way
from velostream.testing.cells import moment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from velostream.testing.cases import Case, Line

SPREAD = 3
"""The number of partitions over which rows are spread."""


@dataclass(frozen=True)
class GivenRow:
    """One row of a source, as text."""

    number: int
    """Its number among all rows of the source; for a retraction, that of the row it retracts."""
    part: str
    """The partition that it is read from."""
    label: str
    """The value of its `_partition`."""
    offset: int
    weight: int
    entered_at: datetime
    cells: Mapping[str, str | None]
    text: str


@dataclass(frozen=True)
class Entry:
    """The rows of one step."""

    rows: tuple[GivenRow, ...] = ()
    watermark: datetime | None = None
    ended: bool = False

    def line(self) -> str:
        """Its line in the log."""
        rows = [{**vars(row), "entered_at": row.entered_at.isoformat()} for row in self.rows]
        mark = self.watermark.isoformat() if self.watermark is not None else None
        return json.dumps({"rows": rows, "watermark": mark, "ended": self.ended}, ensure_ascii=False)

    @staticmethod
    def of(line: str) -> Entry:
        """The entry of a line in the log."""
        found = json.loads(line)
        rows = [
            GivenRow(**row | {"entered_at": datetime.fromisoformat(row["entered_at"])})
            for row in found["rows"]
        ]
        mark = found["watermark"]
        return Entry(tuple(rows), datetime.fromisoformat(mark) if mark else None, found["ended"])


@dataclass(frozen=True)
class Layout:
    """The partitions of a source in one way of running a case."""

    labels: tuple[str, ...] = ("0",)
    parts: tuple[str, ...] = ("0",)
    relabelled: bool = False
    """Whether `_partition` is the partition that rows are read from."""
    takes_back: bool = False

    @staticmethod
    def of(case: Case, source: str, way: Way) -> Layout:
        """The layout of a source: partitions that the case names exist from the beginning, as in a topic.

        Spread rows keep their `_partition`, so that the same rows still hold the watermark back, unless the
        case sets the watermark itself: then they get the new one.
        """
        steps = [step for step in case.steps if isinstance(step, Given) and step.source == source]
        named = [step.partition for step in steps if step.partition is not None]
        labels = tuple(str(number) for number in range(max(named, default=0) + 1))
        takes_back = any(line.sign == "-" for step in steps for line in step.rows.lines)
        if way is not Way.SPREAD:
            return Layout(labels, labels, False, takes_back)
        told = any(isinstance(step, Advance) and step.source == source for step in case.steps)
        if told and not named:
            parts = tuple(str(number) for number in range(SPREAD))
            return Layout(parts, parts, True, takes_back)
        parts = tuple(f"{label}.{number}" for label in labels for number in range(SPREAD))
        return Layout(labels, parts, False, takes_back)

    def part(self, label: str, number: int) -> str:
        """The partition from which row `number`, of partition `label`, is read."""
        if self.parts == self.labels and not self.relabelled:
            return label
        spread = str(number % SPREAD)
        return spread if self.relabelled else f"{label}.{spread}"


@dataclass
class GivenLog:
    """Writes the log of one source."""

    path: Path
    layout: Layout
    _count: int = 0
    _offsets: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _live: list[GivenRow] = field(default_factory=list)

    def give(self, step: Given, now: datetime) -> None:
        """Append rows; a retracted one must exist."""
        rows = [self._row(step, line, now) for line in step.rows.lines]
        self.append(Entry(tuple(rows)))

    def append(self, entry: Entry) -> None:
        """Make an entry durable."""
        make_folder(self.path.parent)
        with open_file(self.path, "a", encoding="utf-8") as out:
            out.write(entry.line() + "\n")
            out.flush()
            os.fsync(out.fileno())

    def _row(self, step: Given, line: Line, now: datetime) -> GivenRow:
        cells = dict(zip(step.rows.columns, line.cells, strict=True))
        label = str(step.partition or 0)
        if line.sign == "-":
            return self._taken_back(line, cells, label if step.partition is not None else None)
        part = self.layout.part(label, self._count)
        label = part if self.layout.relabelled else label
        row = GivenRow(
            self._count, part, label, self._offsets[label], 1, _entered(cells, line, now), cells, line.text
        )
        self._count += 1
        self._offsets[label] += 1
        self._live.append(row)
        return row

    def _taken_back(self, line: Line, cells: dict[str, str | None], label: str | None) -> GivenRow:
        """Retracts the oldest of equal rows."""
        for row in self._live:
            if row.cells == cells and (label is None or row.label == label):
                self._live.remove(row)
                return GivenRow(**vars(row) | {"weight": -1})
        raise CaseError(
            "a row is retracted that was not given",
            hint="write the same columns and texts as where it was given",
            location=line.location,
        )


def _entered(cells: Mapping[str, str | None], line: Line, now: datetime) -> datetime:
    """When a row entered its source: now, unless it says so itself."""
    text = cells.get(ENTERED)
    try:
        return now if text is None else moment(text)
    except ValueError as exc:
        raise CaseError(str(exc), location=line.location) from None


class GivenReader:
    """Reads the log of one source, also while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._entries: list[Entry] = []

    def entries(self) -> list[Entry]:
        """Everything given so far."""
        size = self._path.stat().st_size if self._path.exists() else 0
        if size > self._read:
            with self._path.open("rb") as file:
                file.seek(self._read)
                whole, newline, _ = file.read(size - self._read).rpartition(b"\n")
            self._entries += [Entry.of(line) for line in whole.decode().split("\n") if line]
            self._read += len(whole) + len(newline)
        return self._entries
