"""Framed records of rows: the one format of durable files that hold rows.

    magic 4 | header length u32 | body length u64 | crc32 of header and body | crc32 of these 20 bytes

then the header (JSON, padded so that the body starts on a 64-byte boundary of the file) and the body
(Arrow IPC, padded likewise). The prefix has a checksum of its own, which distinguishes a file that
ends too early from one whose lengths were damaged: the first is a crash in mid-write, the second is corrupt.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.disk.full_disk import storage_error, storing
from velostream.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MAGIC = b"VLF1"
_PREFIX = struct.Struct("<4sIQII")
_ALIGN = 64
_PIECE = 4 << 20


@dataclass(frozen=True)
class Frame:
    """One record as read, with its place in the file."""

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
    """Arrow IPC, written once into a buffer of the right size: growing a buffer would copy half of it."""
    size = pa.MockOutputStream()
    with pa.ipc.new_stream(size, rows.schema) as writer:
        writer.write_table(rows)
    body = pa.allocate_buffer(size.size())
    with pa.ipc.new_stream(pa.FixedSizeBufferWriter(body), rows.schema) as writer:
        writer.write_table(rows)
    return body


def write_parts(descriptor: int, parts: list[bytes | pa.Buffer]) -> int:
    """Write all parts of a frame; returns their size."""
    views = [memoryview(part) for part in parts if len(part)]
    total = sum(view.nbytes for view in views)
    while views:
        written = os.writev(descriptor, views)
        while views and written >= views[0].nbytes:
            written -= views.pop(0).nbytes
        if views:
            views[0] = views[0][written:]
    return total


@dataclass
class FrameFile:
    """A file of frames, verified as it is read; rows of good frames are memory-mapped, not copied."""

    path: Path
    size: int | None = None
    """How many bytes of the file count; None for all of it."""
    hint: str | None = None
    """What to do about damage, in the error that reports it."""
    torn_at: int | None = None
    """The offset of an incomplete last frame; set once reading got there."""

    def frames(self, start: int = 0) -> Iterator[Frame]:
        """The frames in order. Ends at an incomplete last frame; raises CorruptDataError at a damaged one."""
        descriptor = self._open()
        try:
            there = os.fstat(descriptor).st_size
            size = there if self.size is None else min(there, self.size)
            if size <= start:
                return
            with storing(self.path, reading=True), pa.memory_map(str(self.path)) as mapped:
                data = mapped.read_buffer(size)
            offset = start
            while offset < size:
                frame = self._frame(descriptor, data, offset)
                if frame is None:
                    self.torn_at = offset
                    return
                yield frame
                offset = frame.end
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as exc:
            raise storage_error(exc, self.path, reading=True) from exc

    def _frame(self, descriptor: int, data: pa.Buffer, offset: int) -> Frame | None:
        if offset + _PREFIX.size > data.size:
            return None
        prefix = self._read(descriptor, offset, _PREFIX.size)
        magic, header_size, body_size, crc, prefix_crc = _PREFIX.unpack(prefix)
        if magic != _MAGIC or zlib.crc32(prefix[:-4]) != prefix_crc:
            # Blocks that the file system allocated but never wrote are zeros up to the end of the file.
            if self._only_zeros(descriptor, offset, data.size):
                return None
            raise self._corrupt(offset, "the record's prefix is damaged")
        header_at = offset + _PREFIX.size
        body_at = header_at + header_size
        end = body_at + body_size
        if end > data.size:
            return None
        header = b""
        found = 0
        for start in range(header_at, end, _PIECE):
            piece = self._read(descriptor, start, min(_PIECE, end - start))
            found = zlib.crc32(piece, found)
            if len(header) < header_size:
                header += piece[: header_size - len(header)]
        if found != crc:
            raise self._corrupt(offset, "the record's checksum does not match")
        return Frame(offset, end, json.loads(header), data.slice(body_at, body_size))

    def _read(self, descriptor: int, offset: int, size: int) -> bytes:
        """Read, not mapped: a disk error on a mapped page would kill the process (SIGBUS)."""
        try:
            piece = os.pread(descriptor, size, offset)
        except OSError as exc:
            raise self._corrupt(offset, f"it cannot be read: {(exc.strerror or str(exc)).lower()}") from exc
        if len(piece) < size:
            raise self._corrupt(offset + len(piece), "it became shorter while it was read")
        return piece

    def _only_zeros(self, descriptor: int, offset: int, size: int) -> bool:
        return not any(
            any(self._read(descriptor, start, min(_PIECE, size - start)))
            for start in range(offset, size, _PIECE)
        )

    def _corrupt(self, offset: int, why: str) -> CorruptDataError:
        message = f'file "{self.path}" is damaged at byte {offset}'
        return CorruptDataError(message, detail=why, hint=self.hint)
