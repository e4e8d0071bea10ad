"""Digests of what was read, so that an edit in place is noticed."""

from __future__ import annotations

import hashlib
from io import BytesIO
from typing import IO

_SMALL = 1024 * 1024
_MOST_BLOCKS = 64

Blocks = tuple[tuple[int, str], ...]


def digest(data: bytes) -> str:
    """The digest of some bytes. SHA-256 has instructions of its own in today's processors."""
    return hashlib.sha256(data).hexdigest()[:32]


def read_at(stream: IO[bytes], start: int, size: int) -> bytes:
    """Up to `size` bytes from a position."""
    stream.seek(start)
    return stream.read(size)


def extended(stream: IO[bytes], blocks: Blocks, data: bytes) -> Blocks:
    """The blocks with `data`, which follows them in the file, added; many small ones become one.

    They stay as they are if the file no longer holds them: the next look will find that out, too.
    """
    grown = (*blocks, (len(data), digest(data)))
    if len(grown) <= _MOST_BLOCKS:
        return grown
    first = next((i for i, (length, _) in enumerate(grown) if length < _SMALL), len(grown))
    start = sum(length for length, _ in grown[:first])
    merged = read_at(stream, start, sum(length for length, _ in grown[first:]))
    if not unchanged(BytesIO(merged), grown[first:], thorough=True):
        return grown
    return (*grown[:first], (len(merged), digest(merged)))


def unchanged(stream: IO[bytes], blocks: Blocks, *, thorough: bool) -> bool:
    """Whether the file still begins with what the blocks stand for.

    Not `thorough`: only the first and the last block are compared.
    """
    chosen = range(len(blocks)) if thorough else {0, len(blocks) - 1}
    start = 0
    for number, (length, expected) in enumerate(blocks):
        if number in chosen and digest(read_at(stream, start, length)) != expected:
            return False
        start += length
    return True


def compared(stream: IO[bytes], blocks: Blocks, first: int, size: int) -> int | None:
    """Compare blocks from number `first` on, about `size` bytes; where to go on, None if one differs."""
    start = sum(length for length, _ in blocks[:first])
    end = start + size
    for number in range(first, len(blocks)):
        if start >= end:
            return number
        length, expected = blocks[number]
        if digest(read_at(stream, start, length)) != expected:
            return None
        start += length
    return len(blocks)
