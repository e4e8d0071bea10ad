"""Segments: immutable batches of a table's rows.

Every row gets a number when it is written (its row id), which it keeps through compaction, snapshots and
recovery. So indexes and caches refer to rows by id and need no update when segments merge, and the log names
a retracted row by its id, without a search.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from velostream.model.columns import SHOWN
from velostream.serving.columns.cells import CodedTexts, cell_reader
from velostream.serving.columns.dictionaries import equal_to, together
from velostream.serving.columns.values import small_integers, to_python
from velostream.serving.index.equality import Places, Postings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.serving.columns.cells import Cell
    from velostream.serving.columns.hashing import Hashes
    from velostream.serving.sql.simple import Comparison

    Integers = tuple[npt.NDArray[np.int64] | None, npt.NDArray[np.bool_] | None]

Ids = npt.NDArray[np.int64]
Counts = npt.NDArray[np.integer[Any]]
"""How often each row counts. One byte each where that suffices: every commit copies those it touches."""

BLOCK = 1024
OFTEN = 256
"""So many rows of a block are made singly, at 2 to 3 µs, before the whole block is, at 0.7 µs a row.

By then single rows have cost as much as the block, so making rows costs at most twice the minimum.
"""

_EQUALITIES = 8192
"""The most constants whose matching rows a segment caches."""


class Segment:
    """Rows with ascending ids; immutable. Repeating texts are dictionary-encoded."""

    __slots__ = (
        "_asked",
        "_cells",
        "_equal",
        "_integers",
        "_lock",
        "_places",
        "_texts",
        "batch",
        "first",
        "ids",
        "indexes",
        "last",
        "nbytes",
    )

    def __init__(self, batch: pa.RecordBatch, first: int, ids: Ids | None = None) -> None:
        self.batch = batch
        self.first = first
        self.ids = ids
        """Row ids where they have gaps; None when they are consecutive from `first`."""
        self.last = first + batch.num_rows - 1 if ids is None else int(ids[-1])
        self.nbytes = int(batch.nbytes)
        """Bytes of its rows; asking Arrow for them takes milliseconds."""
        self.indexes: dict[tuple[str, ...], Postings] = {}
        """The equality indexes built so far."""
        self._lock = Lock()
        self._cells: dict[str, Cell] | None = None
        self._asked: dict[int, int] = {}
        self._equal: dict[tuple[str, Any], Places] = {}
        self._integers: dict[str, Integers] = {}
        self._texts: dict[str, CodedTexts] = {}
        # Bisecting a memoryview takes a third of the time of numpy for a single number.
        self._places = None if ids is None else ids.data

    def postings(self, columns: tuple[str, ...]) -> Postings:
        """The equality index over these columns, built on first use."""
        known = self.indexes.get(columns)
        if known is not None:
            return known
        with self._lock:
            if columns not in self.indexes:
                self.indexes[columns] = Postings.of(self.batch, columns)
            return self.indexes[columns]

    @property
    def cells(self) -> dict[str, Cell]:
        """Readers of single values, by column."""
        if self._cells is None:
            named = zip(self.batch.schema.names, self.batch.columns, strict=True)
            self._cells = {name: cell_reader(column, self._texts_of(name)) for name, column in named}
        return self._cells

    def _texts_of(self, column: str) -> CodedTexts | None:
        """The texts of a dictionary-encoded column; None for other columns."""
        known = self._texts.get(column)
        if known is None and pa.types.is_dictionary(self.batch.schema.field(column).type):
            known = self._texts[column] = CodedTexts(self.batch.column(column).dictionary)
        return known

    def values(self, column: str, piece: pa.Array) -> list[Any]:
        """The values of a piece of a column, as readers see them."""
        texts = self._texts_of(column)
        return to_python(piece) if texts is None else texts.texts(piece.indices)

    def where_equal(self, wanted: Comparison) -> Places:
        """Places of the rows whose column equals a constant, ascending, found by the index."""
        key = (wanted.column, wanted.value)
        known = self._equal.get(key)
        if known is None:
            postings = self.postings((wanted.column,))
            known = postings.with_hash(wanted.hash)
            if len(known):
                same = compared(self.batch.column(wanted.column).take(pa.array(known)), wanted)
                known = known if bool(same.all()) else known[same]
            if len(self._equal) >= _EQUALITIES:
                self._equal.clear()
            self._equal[key] = known
        return known

    def integers(self, column: str) -> Integers:
        """A column of integers or decimals as unscaled 64-bit integers, and where it is not null.

        The integers are None when they do not fit; the second is None when there are no nulls.
        """
        known = self._integers.get(column)
        if known is None:
            array = self.batch.column(column)
            valid = np.asarray(array.is_valid()) if array.null_count else None
            known = self._integers[column] = (small_integers(array), valid)
        return known

    def asked(self, place: int) -> bool:
        """Count that a row was made singly; true, once, when that happened `_OFTEN` times in its block."""
        block = place // BLOCK
        times = self._asked.get(block, 0) + 1
        self._asked[block] = times
        return times == OFTEN

    def positions(self, ids: Ids) -> Ids:
        """The places of rows with these ids; all must be in this segment."""
        return ids - self.first if self.ids is None else np.searchsorted(self.ids, ids).astype(np.int64)

    def place(self, row_id: int) -> int:
        """The place of one row."""
        return row_id - self.first if self._places is None else bisect_left(self._places, row_id)

    def ids_at(self, places: Places) -> Ids:
        """The ids of the rows at these places."""
        return places + np.int64(self.first) if self.ids is None else self.ids[places]

    def all_ids(self) -> Ids:
        """The ids of all rows."""
        if self.ids is not None:
            return self.ids
        return np.arange(self.first, self.first + self.batch.num_rows, dtype=np.int64)


class SegmentView:
    """A segment as one version sees it: how often each row counts; 0 means deleted."""

    def __init__(self, segment: Segment, counts: Counts | None = None) -> None:
        self.segment = segment
        self.counts = counts
        """None when every row counts once."""

    @cached_property
    def live(self) -> int:
        """Number of rows that count at least once."""
        return self.segment.batch.num_rows if self.counts is None else int(np.count_nonzero(self.counts))

    @cached_property
    def total(self) -> int:
        """Number of rows, duplicates counted."""
        return self.segment.batch.num_rows if self.counts is None else int(self.counts.sum())

    @cached_property
    def physical(self) -> pa.RecordBatch:
        """All rows, including hidden columns and hidden rows."""
        if self.counts is None:
            return self.segment.batch
        if self.total == self.live:
            return self.segment.batch.filter(pa.array(self.counts != 0))
        return self.segment.batch.take(pa.array(np.repeat(np.arange(len(self.counts)), self.counts)))

    def slice(self, offset: int, limit: int) -> pa.RecordBatch:
        """Up to `limit` physical rows after the first `offset`."""
        if self.counts is None:
            return self.segment.batch.slice(offset, limit)
        places = np.flatnonzero(self.counts)
        if self.total != self.live:
            places = np.repeat(places, self.counts[places])
        return self.segment.batch.take(pa.array(places[offset : offset + limit]))

    @cached_property
    def visible(self) -> pa.RecordBatch:
        """The rows that readers see, hidden columns left out."""
        rows = self.physical
        if SHOWN in rows.schema.names:
            rows = rows.filter(rows.column(SHOWN).fill_null(False))
        return rows.select([name for name in rows.schema.names if not name.startswith("__")])

    def live_ids(self) -> Ids:
        """Ids of the rows that count."""
        ids = self.segment.all_ids()
        return ids if self.counts is None else ids[self.counts != 0]

    def block(self, place: int) -> pa.RecordBatch:
        """The live rows in the block of `BLOCK` rows around this place, as stored."""
        start = place // BLOCK * BLOCK
        rows = self.segment.batch.slice(start, BLOCK)
        return rows if self.counts is None else rows.filter(pa.array(self.counts[start : start + BLOCK] != 0))

    def live_batch(self) -> pa.RecordBatch:
        """The live rows, each once, in the order of `live_ids`."""
        if self.counts is None:
            return self.segment.batch
        return self.segment.batch.filter(pa.array(self.counts != 0))

    def live_counts(self) -> Counts | None:
        """How often the rows of `live_ids` count; None when all count once."""
        if self.counts is None or self.total == self.live:
            return None
        live: Counts = self.counts[self.counts != 0]
        return live

    def with_batch(self, batch: pa.RecordBatch) -> SegmentView:
        """The same rows in other types."""
        return SegmentView(Segment(batch, self.segment.first, self.segment.ids), self.counts)

    def minus(self, positions: Ids, amounts: Counts) -> SegmentView:
        """The view after rows were retracted."""
        size = self.segment.batch.num_rows
        counts = np.ones(size, dtype=np.int8) if self.counts is None else self.counts.copy()
        np.subtract.at(counts, positions, amounts.astype(counts.dtype))
        after = SegmentView(self.segment, counts)
        after.total = self.total - int(amounts.sum())
        return after


Views = tuple[SegmentView, ...]


def compared(column: pa.Array, wanted: Comparison) -> npt.NDArray[np.bool_]:
    """For each value whether the comparison holds; false for null."""
    if pa.types.is_dictionary(column.type):
        if wanted.op == "equal":
            return equal_to(column, wanted.value)
        column = column.dictionary_decode()
    return np.asarray(pc.call_function(wanted.op, [column, wanted.scalar]).fill_null(False))


def locate(views: Views, ids: Ids) -> Ids:
    """For each row id the index of the view that holds it."""
    starts = np.fromiter((view.segment.first for view in views), dtype=np.int64, count=len(views))
    return np.searchsorted(starts, ids, side="right") - 1


def take(views: Views, ids: Ids, schema: pa.Schema) -> pa.Table:
    """The physical rows with these ids, as stored, in this order; an id below 0 gives a row of nulls."""
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    absent = int(np.searchsorted(ordered, 0))
    holders = locate(views, ordered[absent:])
    pieces = []
    for number in np.unique(holders).tolist():
        segment = views[number].segment
        wanted = ordered[absent:][holders == number]
        pieces.append(segment.batch.take(pa.array(segment.positions(wanted))))
    found = together(pieces, schema)
    if absent == 0 and bool(np.all(order[:-1] < order[1:])):
        return found
    place = np.empty(len(ids), dtype=np.int64)
    place[order] = np.arange(len(ids)) - absent
    return found.combine_chunks().take(pa.array(place, mask=place < 0))


def counts_of(views: Views, ids: Ids) -> Counts:
    """How often the rows with these ids count."""
    counts: Counts = np.ones(len(ids), dtype=np.int64)
    if not len(ids):
        return counts
    holders = locate(views, ids)
    for number in np.unique(holders).tolist():
        view = views[number]
        if view.counts is not None:
            here = holders == number
            counts[here] = view.counts[view.segment.positions(ids[here])]
    return counts


def subtract(views: Views, ids: Ids, amounts: Counts) -> Views:
    """The views after rows were retracted; untouched segments keep their view."""
    if not len(ids):
        return views
    holders = locate(views, ids)
    changed = list(views)
    for number in np.unique(holders).tolist():
        here = holders == number
        view = views[number]
        changed[number] = view.minus(view.segment.positions(ids[here]), amounts[here])
    return tuple(view for view in changed if view.live)


def make_views(batches: Sequence[pa.RecordBatch], first: int, counts: Counts | None) -> Views:
    """New segments for rows with ids from `first` on."""
    views = []
    start = 0
    for batch in batches:
        here = None if counts is None else narrowed(counts[start : start + batch.num_rows])
        views.append(SegmentView(Segment(batch, first + start), here))
        start += batch.num_rows
    return tuple(views)


def index_by(columns: tuple[str, ...], hashes: Hashes, views: Views) -> None:
    """Index new segments by columns whose hashes are known, in the order of their rows."""
    start = 0
    for view in views:
        size = view.segment.batch.num_rows
        view.segment.indexes[columns] = Postings.of_hashes(hashes[start : start + size])
        start += size


def narrowed(counts: Counts) -> Counts | None:
    """The same counts in as little memory as they need; None when all rows count once."""
    largest = int(counts.max(initial=1))
    if largest > np.iinfo(np.int8).max:
        return counts
    return None if largest == 1 and bool(np.all(counts == 1)) else counts.astype(np.int8)
