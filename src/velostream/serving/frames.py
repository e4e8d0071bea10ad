"""Framed records: the one format of every durable file of a table.

    magic 4 | header length u32 | body length u64 | crc32 of header and body | crc32 of these 20 bytes

then the header (JSON, padded so that the body starts on a 64-byte boundary of the file) and the body
(Arrow IPC, padded likewise). The prefix has a checksum of its own, so that a file which ends too early
can be told from one whose lengths were damaged: the first is a crash in mid-write, the second must not
be believed.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = b"VLF1"
_PREFIX = struct.Struct("<4sIQII")
_ALIGN = 64


@dataclass(frozen=True)
class Frame:
    """One record as read: where it stood, what it says."""

    offset: int
    end: int
    header: dict[str, Any]
    body: pa.Buffer

    def rows(self) -> pa.Table | None:
        """The rows of the body; None when it has none."""
        if self.body.size == 0:
            return None
        with pa.ipc.open_stream(self.body) as reader:
            return reader.read_all()


def encode(header: dict[str, Any], rows: pa.Table | None, offset: int) -> list[bytes | pa.Buffer]:
    """The parts of a frame that starts at `offset` of its file."""
    text = json.dumps(header, separators=(",", ":"), default=str).encode()
    text += b" " * (-(offset + _PREFIX.size + len(text)) % _ALIGN)
    body = pa.py_buffer(b"")
    if rows is not None and rows.num_rows:
        body = _serialized(rows)
    padding = b"\0" * (-body.size % _ALIGN)
    crc = zlib.crc32(padding, zlib.crc32(body, zlib.crc32(text)))
    size = body.size + len(padding)
    start = _PREFIX.pack(_MAGIC, len(text), size, crc, 0)[:-4]
    return [start + struct.pack("<I", zlib.crc32(start)), text, body, padding]


def _serialized(rows: pa.Table) -> pa.Buffer:
    """Arrow IPC, written once into memory of the right size: growing it would copy half of it."""
    size = pa.MockOutputStream()
    with pa.ipc.new_stream(size, rows.schema) as writer:
        writer.write_table(rows)
    body = pa.allocate_buffer(size.size())
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(body), rows.schema) as writer:
        writer.write_table(rows)
    return body


@dataclass
class FrameFile:
    """A file of frames, mapped into memory and checked as it is read."""

    path: Path
    torn_at: int | None = None
    """Where an unfinished last frame starts; set once reading got there."""

    def frames(self, *, check: bool = True, start: int = 0) -> Iterator[Frame]:
        """The frames in order. Ends at an unfinished last frame; raises CorruptDataError at a damaged one.

        Without `check` the bodies' checksums are not computed.
        """
        if self.path.stat().st_size == 0:
            return
        with pa.memory_map(str(self.path)) as mapped:
            data = mapped.read_buffer()
        offset = start
        while offset < data.size:
            frame = self._frame(data, offset, check=check)
            if frame is None:
                self.torn_at = offset
                return
            yield frame
            offset = frame.end

    def _frame(self, data: pa.Buffer, offset: int, *, check: bool) -> Frame | None:
        prefix = data.slice(offset, min(_PREFIX.size, data.size - offset)).to_pybytes()
        if len(prefix) < _PREFIX.size:
            return None
        magic, header_size, body_size, crc, prefix_crc = _PREFIX.unpack(prefix)
        if magic != _MAGIC or zlib.crc32(prefix[:-4]) != prefix_crc:
            # Blocks that the file system allocated but never wrote read as zeros up to the end.
            if not any(data.slice(offset).to_pybytes()):
                return None
            raise self._corrupt(offset, "the record's prefix is damaged")
        body_at = offset + _PREFIX.size + header_size
        end = body_at + body_size
        if end > data.size:
            return None
        header = data.slice(offset + _PREFIX.size, header_size)
        body = data.slice(body_at, body_size)
        if check and zlib.crc32(body, zlib.crc32(header)) != crc:
            raise self._corrupt(offset, "the record's checksum does not match")
        return Frame(offset, end, json.loads(header.to_pybytes()), body)

    def _corrupt(self, offset: int, why: str) -> CorruptDataError:
        return CorruptDataError(
            f'file "{self.path}" is damaged at byte {offset}',
            detail=why,
            hint="restore the file from a copy, or drop the table and let its job rebuild it",
        )
