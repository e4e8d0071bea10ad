"""Changes: rows with weights, and the bookkeeping that makes applying them exactly-once.

A change is a row with a weight: +1 insert, -1 delete; an update is both. A relation that can only grow
carries no weight column. Offsets are JSON, one value per partition of a source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime


FORGETS = "forgets"
"""In what a commit records: its rows leave because nothing can concern them any more. Who follows a table
that holds state passes over that: what was made of the rows stays."""


@dataclass(frozen=True)
class Messages:
    """Rows of a source are messages: a later one with the same key can stand for the same thing, changed.

    `TOMBSTONE` tells that it is gone. A query that takes rows as they are into a table
    follows that; others only where the source `upserts`.
    """

    key: str
    """The system column with the key; null where a message stands by itself."""
    upserts: bool = False


Offset = Mapping[str, Any]
"""Position in one source: partition name to a JSON value that the source understands."""

SourceOffsets = Mapping[str, Offset]
"""Position in every source of a job, by the source's id within the job."""


@dataclass(frozen=True)
class Commit:
    """What one version of a table (or one step of a sink) contains.

    `offsets` is the truth about progress: a batch whose end is already contained is skipped on replay.
    """

    checkpoint: str
    batch: int
    offsets: SourceOffsets
    at: datetime
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BadRow:
    """A row that could not be decoded, cast, computed or written, as it will stand in `dead_letters`."""

    reason: str
    source: str
    partition: str
    offset: str
    raw: bytes
    """The record as it came; of a row without one, its columns as JSON."""
    position: str | None = None
    """The `_position` of its record in careful frames, by which the record can be read again."""
    input: str | None = None
    """The input of the job that the position is of."""
    event_time: datetime | None = None
    row: bytes | None = None
    """What a sink refused, as it would be written (an Arrow stream)."""
    kind: str | None = None
    """What failed, where the stage that found it does not tell."""


@dataclass(frozen=True)
class Located:
    """Where a record is, as its users know it, and the record itself; None where it is not bytes."""

    partition: str
    offset: str
    raw: bytes | None = None
    event_time: datetime | None = None
