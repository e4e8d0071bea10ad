"""Digests of the bytes read from a file, by which an edit in place is noticed."""

from __future__ import annotations

import hashlib
from io import BytesIO
from typing import IO

_SMALL = 1024 * 1024
_MOST_BLOCKS = 64

Blocks = tuple[tuple[int, str], ...]


def digest(data: bytes) -> str:
    """The digest of some bytes. SHA-256 has instructions of its own in current processors."""
    return hashlib.sha256(data).hexdigest()[:32]


def read_at(stream: IO[bytes], start: int, size: int) -> bytes:
    """Up to `size` bytes from a position."""
    stream.seek(start)
    return stream.read(size)


def extended(stream: IO[bytes], blocks: Blocks, data: bytes) -> Blocks:
    """The blocks extended by `data`, which follows them in the file; many small blocks become one.

    The blocks are not merged if the file no longer has their content: the next poll notices that as well.
    """
    grown = (*blocks, (len(data), digest(data)))
    # A log that grows line by line would otherwise have a block per poll. Blocks of 1 MB and
    # more are not merged again, so that a merge reads little more than 1 MB.
    if len(grown) <= _MOST_BLOCKS:
        return grown
    first = next((i for i, (length, _) in enumerate(grown) if length < _SMALL), len(grown))
    start = sum(length for length, _ in grown[:first])
    merged = read_at(stream, start, sum(length for length, _ in grown[first:]))
    if not unchanged(BytesIO(merged), grown[first:], thorough=True):
        return grown
    return (*grown[:first], (len(merged), digest(merged)))


def unchanged(stream: IO[bytes], blocks: Blocks, *, thorough: bool) -> bool:
    """Whether the file still begins with the content of the blocks.

    Unless `thorough`, only the first and the last block are compared.
    """
    chosen = range(len(blocks)) if thorough else {0, len(blocks) - 1}
    start = 0
    for number, (length, expected) in enumerate(blocks):
        if number in chosen and digest(read_at(stream, start, length)) != expected:
            return False
        start += length
    return True


def compared(stream: IO[bytes], blocks: Blocks, first: int, size: int) -> int | None:
    """Compare about `size` bytes from block `first` on; returns the next block, None if one differs."""
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
