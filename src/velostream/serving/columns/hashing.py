"""64-bit hashes of whole columns, equal for values that SQL calls equal.

Computed from the Arrow buffers with numpy: a text of a dozen bytes costs about 60 ns, a number 3 ns. Hashes
exist in memory only and never decide alone: values found by hash are compared as well.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from velostream.serving.columns.values import canonical, decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

Hashes = npt.NDArray[np.uint64]

_NUMBER = 0x9E3779B97F4A7C15
_FACTOR = np.uint64(_NUMBER)
_BETWEEN = np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT = np.uint64(32)
_OF_NULL = np.uint64(0x5BD1E9955BD1E995)
_ALL = 0xFFFFFFFFFFFFFFFF
_FEW = 16
"""Up to this many texts, hashing one by one is faster than all at once."""
_LONG = 256
"""From this many bytes on, Python's own hash of a text is faster than eight bytes at a time."""


def hash_rows(rows: pa.Table | pa.RecordBatch, columns: Sequence[str]) -> Hashes:
    """One hash per row over these columns, in this order; null has a hash like any other value."""
    total = _hash_column(rows.column(columns[0]))
    for name in columns[1:]:
        # Multiplied, so that equal values in two columns do not cancel each other out.
        total = _mixed(total * _BETWEEN, _hash_column(rows.column(name)))
    return total


def _mixed(state: Hashes, words: Hashes) -> Hashes:
    state = (state ^ words) * _FACTOR
    return state ^ (state >> _SHIFT)


def _hash_column(column: pa.Array | pa.ChunkedArray) -> Hashes:
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            return _hash_array(column.chunk(0))
        pieces = [_hash_array(chunk) for chunk in column.chunks]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint64)
    return _hash_array(column)


def _hash_array(array: pa.Array) -> Hashes:
    if pa.types.is_dictionary(array.type) and len(array.dictionary) < len(array):
        values: Hashes = np.append(_hash_array(array.dictionary), _OF_NULL)
        codes = array.indices
        if codes.null_count:
            codes = codes.cast(pa.int64()).fill_null(len(array.dictionary))
        of_rows: Hashes = values[np.asarray(codes)]
        return of_rows
    if not len(array):
        return np.empty(0, dtype=np.uint64)
    array = decoded(array)
    hashes = _hash_values(array)
    if array.null_count:
        hashes[np.asarray(array.is_null())] = _OF_NULL
    return hashes


def _hash_values(array: pa.Array) -> Hashes:
    """Hashes of an array without dictionary; arbitrary where null."""
    kind = array.type
    start = np.zeros(len(array), dtype=np.uint64)
    if _texts(kind):
        return _hash_texts(array)
    if pa.types.is_decimal128(kind):
        halves = np.frombuffer(array.buffers()[1], dtype=np.uint64)
        halves = halves[2 * array.offset : 2 * (array.offset + len(array))]
        return _mixed(_mixed(start, halves[::2]), halves[1::2])
    if pa.types.is_floating(kind):
        numbers = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0  # -0.0 becomes 0.0
        numbers[np.isnan(numbers)] = np.nan
        return _mixed(start, numbers.view(np.uint64))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        integers = array.cast(pa.int64() if kind != pa.uint64() else kind).fill_null(0)
        return _mixed(start, np.asarray(integers).view(np.uint64))
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64) and not pa.types.is_date64(kind):
        raw = array.view(pa.int32() if kind.bit_width == 32 else pa.int64()).fill_null(0)
        return _mixed(start, np.asarray(raw).astype(np.int64).view(np.uint64))
    codes = np.fromiter(map(hash, canonical(array)), dtype=np.int64, count=len(array))
    return _mixed(start, codes.view(np.uint64))


def _texts(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _hash_texts(array: pa.Array) -> Hashes:
    """Eight bytes at a time, for all rows that are long enough; texts above `_LONG` bytes one by one."""
    large = pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type)
    _, places, data = array.buffers()
    width = np.int64 if large else np.int32
    offsets = np.frombuffer(places, dtype=width)[array.offset : array.offset + len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    used = memoryview(b"" if data is None else data)[first:last]
    if len(array) <= _FEW:
        bounds = [at - first for at in offsets.tolist()]
        texts = (used[start:stop] for start, stop in pairwise(bounds))
        return np.fromiter(map(_hash_text, texts), np.uint64, count=len(array))
    # A padded copy, so that eight bytes can be read from any offset.
    padded = np.frombuffer(bytes(used) + bytes(8), dtype=np.uint8)
    words = np.ndarray(shape=(len(padded) - 7,), dtype="<u8", buffer=padded, strides=(1,))
    starts = offsets[:-1].astype(np.int64) - first
    lengths = np.diff(offsets).astype(np.int64)
    hashes = _mixed(np.zeros(len(array), dtype=np.uint64), lengths.view(np.uint64))
    long = np.flatnonzero(lengths > _LONG)
    if len(long):
        bounds_of_long = zip(starts[long].tolist(), lengths[long].tolist(), strict=True)
        texts = (used[start : start + length] for start, length in bounds_of_long)
        hashes[long] = np.fromiter(map(_hash_text, texts), np.uint64, count=len(long))
        lengths[long] = 0
    rows: npt.NDArray[np.int64] | slice = slice(None)
    for done in range(0, int(lengths.max()), 8):
        if not isinstance(rows, slice) or bool((lengths <= done).any()):
            rows = np.flatnonzero(lengths > done)
        left = np.minimum(lengths[rows] - done, 8).astype(np.uint64)
        mask = np.uint64(_ALL) >> (np.uint64(64) - np.uint64(8) * left)
        hashes[rows] = _mixed(hashes[rows], words[starts[rows] + done] & mask)
    return hashes


def _hash_text(text: memoryview) -> int:
    """The same hash for one text."""
    if len(text) > _LONG:
        return hash(bytes(text)) & _ALL
    state = len(text) * _NUMBER & _ALL
    state ^= state >> 32
    for at in range(0, len(text), 8):
        state = (state ^ int.from_bytes(text[at : at + 8], "little")) * _NUMBER & _ALL
        state ^= state >> 32
    return state
