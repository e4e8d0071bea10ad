"""Answers simple queries from segments: selects rows, then returns their values or one aggregate."""

from __future__ import annotations

from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from velostream.serving.columns.dictionaries import plain_column
from velostream.serving.columns.segments import compared
from velostream.serving.columns.values import EXACT, to_python

if TYPE_CHECKING:
    from velostream.serving.columns.segments import Segment, SegmentView
    from velostream.serving.memory.version import MemoryVersion
    from velostream.serving.sql.simple import Comparison, SimpleQuestion

Places = npt.NDArray[np.integer[Any]]


class TooLarge(Exception):  # noqa: N818 - a verdict, not a failure
    """The sum may not fit into 64 bits."""


def select(view: SegmentView, question: SimpleQuestion, *, indexed: bool) -> Places | None:
    """The places of the rows that the query selects, ascending; None means all rows of the segment."""
    equality = question.equality
    rest = question.where
    places: Places | None = None
    if equality is not None and (indexed or (equality.column,) in view.segment.indexes):
        places = view.segment.where_equal(equality)
        rest = tuple(each for each in rest if each is not equality)
    if rest:
        places = _filtered(view.segment, places, rest)
    if view.counts is None:
        return places
    if places is None:
        return np.flatnonzero(view.counts) if view.live == view.total else _repeated(view)
    counts = view.counts[places]
    if view.live == view.total:
        live: Places = places[counts != 0]
        return live
    repeated: Places = np.repeat(places, counts)
    return repeated


def _repeated(view: SegmentView) -> Places:
    assert view.counts is not None
    return np.repeat(np.arange(len(view.counts)), view.counts)


def _filtered(segment: Segment, places: Places | None, where: tuple[Comparison, ...]) -> Places:
    batch = segment.batch
    kept: Any = True
    for each in where:
        column = batch.column(each.column)
        column = column if places is None else column.take(pa.array(places))
        kept &= compared(column, each)
    found: Places = np.flatnonzero(kept) if places is None else places[kept]
    return found


# --- answers ----------------------------------------------------------------------------------------


def column_of(version: MemoryVersion, question: SimpleQuestion, *, indexed: bool) -> pa.ChunkedArray:
    """The values of a column as Arrow."""
    assert question.column is not None
    pieces = []
    for view in version.views:
        column = view.segment.batch.column(question.column)
        places = select(view, question, indexed=indexed)
        if places is None or len(places):
            pieces.append(column if places is None else column.take(pa.array(places)))
    kind = version.spec.schema.field(question.column).type
    texts = [piece for each in pieces for piece in plain_column(pa.chunked_array([each])).chunks]
    return pa.chunked_array(texts, type=kind)


def values_of(version: MemoryVersion, question: SimpleQuestion, *, indexed: bool) -> list[Any]:
    """The values of a column as Python objects; numbers without a detour through Arrow."""
    assert question.column is not None
    kind = version.spec.schema.field(question.column).type
    exact = pa.types.is_integer(kind) or pa.types.is_decimal128(kind)
    exponent = -kind.scale if pa.types.is_decimal128(kind) else 0
    values: list[Any] = []
    for view in version.views:
        places = select(view, question, indexed=indexed)
        if places is not None and not len(places):
            continue
        numbers, valid = view.segment.integers(question.column) if exact else (None, None)
        if numbers is None or valid is not None:
            column = view.segment.batch.column(question.column)
            values += to_python(column if places is None else column.take(pa.array(places)))
            continue
        found = (numbers if places is None else numbers[places]).tolist()
        values += map(EXACT.scaleb, found, repeat(exponent)) if pa.types.is_decimal(kind) else found
    return values


def aggregate_of(version: MemoryVersion, question: SimpleQuestion, *, indexed: bool) -> Any:
    """COUNT, SUM, MIN or MAX as a Python object; raises TooLarge where 64 bits may not suffice."""
    if question.kind == "count" and question.column is None and not question.where:
        return version.physical_count
    found = [(view.segment, select(view, question, indexed=indexed)) for view in version.views]
    if question.column is None:
        return sum(segment.batch.num_rows if at is None else len(at) for segment, at in found)
    kind = version.spec.schema.field(question.column).type
    if question.kind == "count":
        return sum(_not_null(segment, question.column, at) for segment, at in found)
    parts = [_numbers(segment, question.column, at) for segment, at in found]
    parts = [part for part in parts if len(part)]
    if not parts:
        return None
    if question.kind == "sum":
        total = sum(_sum(part) for part in parts)
        if pa.types.is_integer(kind) and not -(1 << 63) <= total < 1 << 63:
            raise TooLarge
    elif question.kind == "min":
        total = min(int(part.min()) for part in parts)
    else:
        total = max(int(part.max()) for part in parts)
    return EXACT.scaleb(Decimal(total), -kind.scale) if pa.types.is_decimal(kind) else total


def _not_null(segment: Segment, column: str, places: Places | None) -> int:
    values = segment.batch.column(column)
    if not values.null_count:
        return segment.batch.num_rows if places is None else len(places)
    values = values if places is None else values.take(pa.array(places))
    return len(values) - int(values.null_count)


def _numbers(segment: Segment, column: str, places: Places | None) -> npt.NDArray[np.int64]:
    """The numbers that are not null; decimals unscaled."""
    numbers, valid = segment.integers(column)
    if numbers is None:
        raise TooLarge
    if valid is not None:
        kept = valid if places is None else valid[places]
        numbers = numbers if places is None else numbers[places]
        return numbers[kept]
    return numbers if places is None else numbers[places]


def _sum(numbers: npt.NDArray[np.int64]) -> int:
    largest = max(abs(int(numbers.min())), abs(int(numbers.max())))
    if largest * len(numbers) < 1 << 63:
        return int(numbers.sum())
    low, high = numbers & 0xFFFFFFFF, numbers >> 32
    return int(low.sum()) + (int(high.sum()) << 32)
