"""Messages of PostgreSQL's logical replication (`pgoutput`, version 1), many at a time.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html

The values of many row messages are found with numpy, column by column, instead of value by value: a message
costs about a microsecond that way, and about ten in a loop.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    Integers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]

BEGIN, COMMIT, RELATION, TRUNCATE = b"BCRT"
ROWS = frozenset(b"IUD")
"""Messages that hold a row: inserted, updated, deleted."""
INSERT, UPDATE, DELETE = b"IUD"
_NULL, _UNCHANGED, _TEXT = b"nut"
_KEY, _OLD, _NEW = b"KON"


@dataclass(frozen=True)
class RelationMessage:
    """The columns of a table as the messages that follow have them."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[tuple[str, int, int, bool], ...]
    """Name, type, type modifier, and whether it is part of the key by which changes identify rows."""


def relation_message(message: bytes) -> RelationMessage:
    """Read a message of kind R."""
    (oid,) = struct.unpack_from(">I", message, 1)
    schema, at = _string(message, 5)
    name, at = _string(message, at)
    identity, count = struct.unpack_from(">cH", message, at)
    at += 3
    columns = []
    for _ in range(count):
        flags = message[at]
        column, at = _string(message, at + 1)
        kind, modifier = struct.unpack_from(">Ii", message, at)
        at += 8
        columns.append((column, kind, modifier, bool(flags & 1)))
    return RelationMessage(oid, schema or "pg_catalog", name, identity.decode(), tuple(columns))


def _string(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(0, at)
    return message[at:end].decode(), end + 1


def begin_message(message: bytes) -> tuple[int, int]:
    """The LSN of the commit, and its time in microseconds since 2000, of a message of kind B."""
    lsn, at = struct.unpack_from(">QQ", message, 1)
    return lsn, at


def commit_message(message: bytes) -> tuple[int, int]:
    """The LSN of the commit and that after it, of a message of kind C."""
    lsn, end = struct.unpack_from(">QQ", message, 2)
    return lsn, end


def truncated_oids(message: bytes) -> tuple[int, ...]:
    """The tables that a message of kind T empties."""
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


@dataclass(frozen=True)
class Tuples:
    """The values of one column in many messages, as places in their bytes."""

    kinds: Bytes
    starts: Integers
    lengths: Integers

    def text(self, data: Bytes) -> pa.Array:
        """The values, null where they are null or were not sent."""
        present = self.kinds == _TEXT
        lengths = np.where(present, self.lengths, 0)
        offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
        total = int(offsets[-1])
        places = np.repeat(self.starts - offsets[:-1], lengths) + np.arange(total, dtype=np.int64)
        values = data[places]
        nulls = pa.py_buffer(np.packbits(present, bitorder="little").tobytes())
        large = pa.LargeStringArray.from_buffers(
            len(lengths), pa.py_buffer(offsets.tobytes()), pa.py_buffer(values.tobytes()), nulls
        )
        return large.cast(pa.string())

    @property
    def unchanged(self) -> npt.NDArray[np.bool_]:
        """Where a large value did not change, and so was not sent."""
        return np.equal(self.kinds, _UNCHANGED)


@dataclass(frozen=True)
class Changes:
    """Row messages of one relation."""

    data: Bytes
    deleted: npt.NDArray[np.bool_]
    new: Sequence[Tuples]
    """The row after the change, by column; the old row of a deletion."""
    has_old: npt.NDArray[np.bool_]
    """Whether the message of an update has the row before.

    Where its key changed, or all columns identify rows.
    """
    old: Sequence[Tuples]
    """The row before, of the messages that have it, in their order."""
    whole_old: bool
    """Whether rows before have all columns, and not only those of the key."""


def read_rows(messages: Sequence[bytes], columns: int) -> Changes:
    """Read messages of kinds I, U and D of one relation with this number of columns."""
    data = np.frombuffer(b"".join(messages) + b"\0\0\0\0", dtype=np.uint8)
    lengths = np.fromiter(map(len, messages), dtype=np.int64, count=len(messages))
    starts = np.zeros(len(messages), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    tags = data[starts]
    at = starts + 5
    deleted = tags == DELETE
    first = data[at]
    has_old = (tags == UPDATE) & (first != _NEW)
    whole_old = bool(np.any(first == _OLD))
    old: Sequence[Tuples] = ()
    at = at.copy()
    if has_old.any():
        old, after = _walk(data, at[has_old], columns)
        at[has_old] = after
    new, _ = _walk(data, at, columns)
    return Changes(data, deleted, new, has_old, old, whole_old)


def _walk(data: Bytes, at: Integers, columns: int) -> tuple[list[Tuples], Integers]:
    """The places of the values of tuples that begin at these places, and the places after them."""
    at = at + 3  # what kind of tuple it is, and its number of columns
    found = []
    for _ in range(columns):
        kinds = data[at]
        present = kinds == _TEXT
        sizes = np.where(present, _integers(data, at + 1), 0)
        found.append(Tuples(kinds, at + 5, sizes))
        at = at + np.where(present, sizes + 5, 1)
    return found, at


def _integers(data: Bytes, at: Integers) -> Integers:
    at = np.minimum(at, len(data) - 4)
    parts = [data[at + place].astype(np.int64) << (24 - 8 * place) for place in range(4)]
    return parts[0] | parts[1] | parts[2] | parts[3]
