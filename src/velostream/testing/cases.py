"""Cases as data: the content of a case file, with the location of every part of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from velostream.location import Location


class Way(StrEnum):
    """A way of running a case. Its expectations are the same for all."""

    STRAIGHT = "straight"
    """Step by step; the database is opened again only where the case says `restart`."""
    RESTARTED = "restarted"
    """The database is closed before every step and opened again."""
    SPREAD = "spread"
    """Restarted as well, and the rows of each source are spread over other partitions."""

    @property
    def restarts(self) -> bool:
        """Whether the database is opened again at every step."""
        return self is not Way.STRAIGHT


@dataclass(frozen=True)
class Line:
    """One row as written: the text of each cell, None for `null`; `-` retracts the row."""

    cells: tuple[str | None, ...]
    sign: str
    text: str
    location: Location


@dataclass(frozen=True)
class Rows:
    """A table as written."""

    columns: tuple[str, ...]
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Step:
    """One action or expectation of a case."""

    location: Location


@dataclass(frozen=True)
class Run(Step):
    """Statements."""

    sql: str
    """Padded with empty lines, so that its line numbers are those of the file."""
    name: str


@dataclass(frozen=True)
class Given(Step):
    """Rows that a source has from now on; they are one micro-batch."""

    source: str
    partition: int | None
    rows: Rows


@dataclass(frozen=True)
class Advance(Step):
    """Watermark: no row of a source before this event time arrives any more."""

    source: str
    to: datetime


@dataclass(frozen=True)
class End(Step):
    """The source has ended."""

    source: str


@dataclass(frozen=True)
class Wait(Step):
    """Processing time passes."""

    duration: timedelta


@dataclass(frozen=True)
class Restart(Step):
    """The database is closed and opened again, in every way of running the case."""


@dataclass(frozen=True)
class ExpectRows(Step):
    """The rows of a table now, in any order; None: no rows."""

    table: str
    rows: Rows | None


@dataclass(frozen=True)
class ExpectChanges(Step):
    """The changes of a table since the last check; None: no changes."""

    table: str
    rows: Rows | None


@dataclass(frozen=True)
class ExpectWritten(Step):
    """The rows written to a test sink since the last check; None: no rows."""

    sink: str
    rows: Rows | None


@dataclass(frozen=True)
class ExpectDeadLetters(Step):
    """All dead letters so far: each line matches one whose columns contain the texts."""

    rows: Rows | None


@dataclass(frozen=True)
class ExpectError(Step):
    """The statements above are refused; or, with a name, that job has failed."""

    job: str | None
    texts: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """A name, and steps."""

    name: str
    file: str
    steps: tuple[Step, ...]
    location: Location

    def __str__(self) -> str:
        return f"{self.file}:{self.location.line}: {self.name}"

    @property
    def sources(self) -> frozenset[str]:
        """The sources that the case gives rows to, advances or ends."""
        return frozenset(step.source for step in self.steps if isinstance(step, Given | Advance | End))
