"""Changes: rows with weights, and the bookkeeping for applying them exactly once.

A change is a row with a weight: +1 insert, -1 delete (retraction); an update is both. A relation that can
only grow has no weight column. Offsets are JSON, one value per partition of a source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime


FORGETS = "forgets"
"""Marks a commit that only forgets state: its rows leave because no later row can concern them.

Followers of the table skip such a commit: what was computed from the rows stays.
"""


@dataclass(frozen=True)
class Messages:
    """Rows of a source are messages: a later one with the same key is a new state of the same entity.

    `TOMBSTONE` says that it is deleted. A query that only filters and projects into a table upserts by the
    key; others only where the source `upserts`.
    """

    key: str
    """The system column with the key; null in messages without a key."""
    upserts: bool = False


Offset = Mapping[str, Any]
"""Position in one source: partition name to a JSON value that the source understands."""

SourceOffsets = Mapping[str, Offset]
"""Position in every source of a job, by the source's id within the job."""


@dataclass(frozen=True)
class Commit:
    """What one version of a table (or one step of a sink) contains.

    `offsets` are the authority on progress: a batch whose end is already contained is skipped on replay.
    """

    checkpoint: str
    batch: int
    offsets: SourceOffsets
    at: datetime
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BadRow:
    """A row that could not be decoded, cast, computed or written, in the form of `dead_letters`."""

    reason: str
    source: str
    partition: str
    offset: str
    raw: bytes
    """The record as received; for a row without one, its columns as JSON."""
    position: str | None = None
    """The `_position` of its record in careful frames, by which the record can be read again."""
    input: str | None = None
    """The input of the job that the position belongs to."""
    event_time: datetime | None = None
    row: bytes | None = None
    """The row that a sink refused, in the form to be written (an Arrow stream)."""
    kind: str | None = None
    """What failed, where the stage that found it does not imply it."""


@dataclass(frozen=True)
class Located:
    """The place of a record in its source, for users, and the record itself; None where it is not bytes."""

    partition: str
    offset: str
    raw: bytes | None = None
    event_time: datetime | None = None
