"""Fewer, fuller segments with the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.serving.dictionaries import joined, text_bytes
from velostream.serving.postings import merge_postings
from velostream.serving.segments import Segment, SegmentView

if TYPE_CHECKING:
    from velostream.serving.segments import Views

_MERGE_BYTES = 1 << 30
"""Segments are not merged past this, so that text columns keep 32-bit offsets."""


def compact(views: Views) -> Views:
    """Fewer, fuller segments with the same rows.

    Neighbours merge while the newer has at least half the rows of the older, so a table of n rows has
    about log2(n) segments and each row is copied about as often; a segment that is mostly dead is rewritten.
    """
    kept: list[SegmentView] = []
    for view in views:
        kept.append(view)
        while len(kept) > 1 and _worth_merging(kept[-2], kept[-1]):
            newer, older = kept.pop(), kept.pop()
            kept.append(_merge(older, newer))
    return tuple(_rewritten(view) if _mostly_dead(view) else view for view in kept)


def _worth_merging(older: SegmentView, newer: SegmentView) -> bool:
    if 2 * newer.live < older.live:
        return False
    batches = [older.segment.batch, newer.segment.batch]
    size = older.segment.nbytes + newer.segment.nbytes
    for columns in zip(*(batch.columns for batch in batches), strict=True):
        if columns[0].type != columns[1].type:
            # A column that turned out not to repeat: its codes become texts again.
            size += sum(text_bytes(column) for column in columns if pa.types.is_dictionary(column.type))
    return size < _MERGE_BYTES


def _mostly_dead(view: SegmentView) -> bool:
    return bool(2 * view.live < view.segment.batch.num_rows)


def _rewritten(view: SegmentView) -> SegmentView:
    ids = view.live_ids()
    segment = Segment(view.live_batch(), int(ids[0]), ids)
    _carry_indexes((view,), segment)
    return SegmentView(segment, view.live_counts())


def _merge(older: SegmentView, newer: SegmentView) -> SegmentView:
    ids = np.concatenate([older.live_ids(), newer.live_ids()])
    batch = joined([older.live_batch(), newer.live_batch()])
    first = int(ids[0])
    dense = int(ids[-1]) - first + 1 == len(ids)
    counts = [view.live_counts() for view in (older, newer)]
    if counts[0] is None and counts[1] is None:
        merged = None
    else:
        merged = np.concatenate(
            [
                np.ones(view.live, dtype=np.int8) if each is None else each
                for view, each in zip((older, newer), counts, strict=True)
            ]
        )
    segment = Segment(batch, first, None if dense else ids)
    _carry_indexes((older, newer), segment)
    return SegmentView(segment, merged)


def _carry_indexes(views: Views, segment: Segment) -> None:
    """Index the segment that `views` merged into like the largest of them, without hashing it again."""
    kept = [None if view.counts is None else view.counts != 0 for view in views]
    for columns in list(views[0].segment.indexes):
        parts = [view.segment.postings(columns) for view in views]
        segment.indexes[columns] = merge_postings(list(zip(parts, kept, strict=True)))
