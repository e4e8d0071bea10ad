"""Functions over frames of rows, in NumPy: the same values, to the digit, that Spark computes.

Integers and decimals that fit 64 bits; whatever does not is left to Spark.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.serving.columns.values import decoded, small_integers

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from velostream.plan.over.calls import OverCall

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

_MOST = 2**62
_EXACT_DOUBLE = 2**53
_MOST_AVERAGED = 100_000
"""Up to so many values Spark, which rounds a quotient twice, rounds it as if once."""
_SUM_DIGITS, _MEAN_DIGITS, _MOST_DIGITS = 10, 4, 38
"""Digits that Spark's types of sums and means have more than what is added, and most of all."""


class NeedsSparkError(Exception):
    """These values cannot be computed here."""


def framed(calls: Sequence[OverCall], rows: pa.Table, groups: Numbers) -> list[pa.Array] | None:
    """The value of each call for each row, the rows in order of their groups; None: it takes Spark."""
    frames = _Frames(groups)
    try:
        return [frames.value(call, rows) for call in calls]
    except NeedsSparkError:
        return None


class _Frames:
    def __init__(self, groups: Numbers) -> None:
        count = len(groups)
        self._places = np.arange(count)
        starts = np.flatnonzero(np.diff(groups, prepend=-1)) if count else self._places
        sizes = np.diff(np.append(starts, count))
        self._first = np.repeat(starts, sizes)
        self._end = np.repeat(starts + sizes, sizes)

    def value(self, call: OverCall, rows: pa.Table) -> pa.Array:
        """The values of one call."""
        low, high = self._bounds(call)
        if call.function == "row_number":
            return pa.array(high - low, pa.int32())
        if call.column is None:
            return pa.array(high - low, pa.int64())
        column = rows.column(call.column)
        if call.function in {"first", "last"}:
            at = low if call.function == "first" else high - 1
            return decoded(column.take(pa.array(at, mask=high <= low)))
        return _aggregate(call.function, column, low, high)

    def _bounds(self, call: OverCall) -> tuple[Numbers, Numbers]:
        """The place of the first row of each frame, and the one after its last."""
        low, high = self._first, self._end
        if call.start is not None:
            low = np.clip(self._places + call.start, self._first, self._end)
        if call.end is not None:
            high = np.clip(self._places + call.end + 1, self._first, self._end)
        return low, np.maximum(low, high)


def _aggregate(function: str, column: pa.ChunkedArray, low: Numbers, high: Numbers) -> pa.Array:
    valid = np.asarray(pc.is_valid(column).to_numpy(), dtype=bool)
    counts = _running(valid.astype(np.int64))
    count = counts[high] - counts[low]
    if function == "count":
        return pa.array(count, pa.int64())
    values = _Values.of(column, valid)
    empty = count == 0
    if function in {"min", "max"}:
        limits = np.iinfo(np.int64)
        better, worst = (np.minimum, limits.max) if function == "min" else (np.maximum, limits.min)
        found = _extreme(better, np.where(valid, values.numbers, worst), low, high)
        return values.typed(np.where(empty, 0, found), empty, column.type)
    largest = values.largest() * int(count.max(initial=0))
    if largest >= _MOST:
        raise NeedsSparkError
    sums = _running(values.numbers)
    total = sums[high] - sums[low]
    if function == "sum":
        return values.typed(total, empty, values.of_sum())
    if values.scale is None:
        if largest >= _EXACT_DOUBLE:
            raise NeedsSparkError
        return pa.array(total / np.maximum(count, 1), pa.float64(), mask=empty)
    return values.typed(_mean(total, count, largest), empty, values.of_mean())


def _mean(total: Numbers, count: Numbers, largest: int) -> Numbers:
    """Quotients with so many more digits, halves away from zero."""
    shift = 10**_MEAN_DIGITS
    if (largest + 1) * shift * 2 >= _MOST or int(count.max(initial=0)) > _MOST_AVERAGED:
        raise NeedsSparkError
    divisor = np.maximum(count, 1)
    sizes = (np.abs(total) * (2 * shift) + divisor) // (2 * divisor)
    return np.asarray(np.where(total < 0, -sizes, sizes), dtype=np.int64)


def _running(numbers: Numbers) -> Numbers:
    """Sums up to each place, without it. They may wrap around: differences that fit are right nonetheless."""
    found = np.zeros(len(numbers) + 1, dtype=np.int64)
    np.cumsum(numbers, out=found[1:])
    return found


def _extreme(function: np.ufunc, numbers: Numbers, low: Numbers, high: Numbers) -> Numbers:
    """The least or greatest of each frame: two spans of a power of two, one from each end, cover it."""
    found = np.zeros(len(numbers), dtype=np.int64)
    lengths = high - low
    spans, width = numbers, 1
    while len(spans):
        # Of `width` rows from each place on.
        which = np.flatnonzero((lengths >= width) & (lengths < 2 * width))
        found[which] = function(spans[low[which]], spans[high[which] - width])
        if not bool((lengths >= 2 * width).any()):
            break
        spans, width = function(spans[:-width], spans[width:]), 2 * width
    return found


@dataclass(frozen=True)
class _Values:
    """A column as whole numbers, zero for null."""

    numbers: Numbers
    kind: pa.DataType
    scale: int | None
    """Digits after the point of a decimal."""

    @staticmethod
    def of(column: pa.ChunkedArray, valid: Flags) -> _Values:
        """The numbers of a column; NeedsSparkError when it is of another kind, or they are too large."""
        kind = column.type
        decimal = pa.types.is_decimal128(kind)
        numbers = small_integers(decoded(column)) if decimal or pa.types.is_signed_integer(kind) else None
        if numbers is None:
            raise NeedsSparkError
        return _Values(np.where(valid, numbers, 0), kind, kind.scale if decimal else None)

    def largest(self) -> int:
        """The greatest size of a number."""
        return max(int(self.numbers.max(initial=0)), -int(self.numbers.min(initial=0)))

    def of_sum(self) -> pa.DataType:
        """The type of a sum."""
        if self.scale is None:
            return pa.int64()
        return pa.decimal128(min(self.kind.precision + _SUM_DIGITS, _MOST_DIGITS), self.scale)

    def of_mean(self) -> pa.DataType:
        """The type of a mean of decimals."""
        if self.kind.precision + _MEAN_DIGITS > _MOST_DIGITS:
            raise NeedsSparkError
        return pa.decimal128(self.kind.precision + _MEAN_DIGITS, self.kind.scale + _MEAN_DIGITS)

    def typed(self, numbers: Numbers, null: Flags, kind: pa.DataType) -> pa.Array:
        """Numbers as an array of a type like this one."""
        if self.scale is None:
            return pa.array(numbers, pa.int64(), mask=null).cast(kind)
        words = np.empty(2 * len(numbers), dtype=np.int64)
        words[::2], words[1::2] = numbers, numbers >> 63
        valid = pa.array(~null).buffers()[1]
        return pa.Array.from_buffers(kind, len(numbers), [valid, pa.py_buffer(words)])
