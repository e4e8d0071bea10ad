"""The blocks of an Avro container file, decompressed; what a block claims is checked against its bytes.

Decoders trust a file: a kilobyte can claim a billion records, or grow to gigabytes when it is decompressed.
So the container is read and checked here, and the decoder gets one without compression.
"""

from __future__ import annotations

import bz2
import io
import json
import lzma
import zlib
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGEST = 256 << 20
"""The most bytes of a block; writers start a new one after some kilobytes or megabytes."""
_MAGIC = b"Obj\x01"
_SYNC = 16
_LONGEST_VARINT = 63
_FEW = 1000
"""The most records that may take no bytes at all, such as records of nulls."""


class Container:
    """An Avro file, read once; raises ValueError where it is damaged, EOFError where it ends early."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        if self._read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as an Avro file does")
        self._metadata = self._header()
        self._sync = self._read(_SYNC)
        self.schema: Any = json.loads(self._metadata.get("avro.schema", b"null"))
        codec = self._metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if codec not in _CODECS:
            raise ValueError(f'its codec "{codec}" is not known')
        self._decompress = _CODECS[codec]

    def blocks(self) -> Iterator[tuple[int, bytes]]:
        """The number of records of each block, and their bytes."""
        while True:
            count = self._long(ends=True)
            if count is None:
                return
            size = self._size()
            data = self._decompress(self._read(size))
            if self._read(_SYNC) != self._sync:
                raise ValueError("a block does not end as it should")
            if count < 0 or count > max(len(data), _FEW):
                raise ValueError(f"a block claims to have {count:,} records in {len(data):,} bytes")
            yield count, data

    def plain(self) -> IO[bytes]:
        """The same file without compression, as a stream."""
        return io.BufferedReader(_Chunks(self._uncompressed()))

    def _uncompressed(self) -> Iterator[bytes]:
        metadata = {**self._metadata, "avro.codec": b"null"}
        parts = [_sized(name.encode()) + _sized(value) for name, value in metadata.items()]
        yield _MAGIC + _varint(len(parts)) + b"".join(parts) + _varint(0) + self._sync
        for count, data in self.blocks():
            yield _varint(count) + _sized(data) + self._sync

    def _header(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        while (count := self._long()) != 0:
            assert count is not None
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                name = self._read(self._size()).decode("utf-8")
                found[name] = self._read(self._size())
        return found

    def _size(self) -> int:
        size = self._long()
        assert size is not None
        if not 0 <= size <= LARGEST:
            raise ValueError(f"a part of it claims to have {size:,} bytes")
        return size

    def _long(self, *, ends: bool = False) -> int | None:
        """A varint; None at the end of the file, if `ends` allows that there."""
        value = shift = 0
        while True:
            byte = self._stream.read(1)
            if not byte and ends and shift == 0:
                return None
            if not byte:
                raise EOFError("it ends early")
            value |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:
                return (value >> 1) ^ -(value & 1)
            shift += 7
            if shift > _LONGEST_VARINT:
                raise ValueError("a number has more than ten bytes")

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise EOFError("it ends early")
        return data


class _Chunks(io.RawIOBase):
    """A stream over chunks of bytes that are generated while it is read."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Read as much of the current chunk as fits the buffer."""
        if not self._left:
            self._left = memoryview(next(self._chunks, b""))
        room = memoryview(buffer).cast("B")
        size = min(len(room), len(self._left))
        room[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _varint(number: int) -> bytes:
    value, out = number << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


# --- codecs -----------------------------------------------------------------------------------------


def _bounded(data: bytes, make: Callable[[], Any]) -> bytes:
    """The output of a decompressor of the standard library; raises beyond the limit."""
    made = make()
    try:
        found: bytes = made.decompress(data, LARGEST + 1)
    except (zlib.error, OSError, lzma.LZMAError, EOFError) as exc:
        raise ValueError(f"a block cannot be decompressed: {exc}") from exc
    return _refuse_large(found)


def _zstandard(data: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            return _refuse_large(stream.read(LARGEST + 1))
    except OSError as exc:
        raise ValueError(f"a block cannot be decompressed: {exc}") from exc


def _snappy(data: bytes) -> bytes:
    """Its size, its content, and a checksum of four bytes."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > LARGEST:
        raise _too_large()
    try:
        found = pa.decompress(data[:-4], size, codec="snappy", asbytes=True)
    except (OSError, pa.ArrowInvalid) as exc:
        raise ValueError(f"a block cannot be decompressed: {exc}") from exc
    if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum of a block is another one")
    return bytes(found)


def _refuse_large(data: bytes) -> bytes:
    if len(data) > LARGEST:
        raise _too_large()
    return data


def _too_large() -> ValueError:
    return ValueError(f"a block has more than {LARGEST >> 20} MB")


_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: _bounded(data, lambda: zlib.decompressobj(-15)),
    "bzip2": lambda data: _bounded(data, bz2.BZ2Decompressor),
    "xz": lambda data: _bounded(data, lzma.LZMADecompressor),
    "zstandard": _zstandard,
    "snappy": _snappy,
}
