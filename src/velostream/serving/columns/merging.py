"""Compaction in memory: fewer, fuller segments with the same rows.

Neighbours merge while the newer has at least half the rows of the older, so a table of n rows has about
log2(n) segments and each row is copied about as often. A segment in which most rows are deleted is rewritten.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.serving.columns.dictionaries import joined, text_bytes
from velostream.serving.columns.segments import Segment, SegmentView, narrowed
from velostream.serving.index.equality import merge_postings

if TYPE_CHECKING:
    from collections.abc import Container

    from velostream.serving.columns.segments import Counts, Views

_MERGE_BYTES = 1 << 30
"""Segments are not merged above this size, so that text columns keep 32-bit offsets."""


def compact(views: Views, *, most: int | None = None, leave: Container[Segment] = ()) -> Views:
    """The same rows in fewer segments.

    Merges groups that are worth it, of at most `most` rows, and none of the segments in `leave`.
    """
    after: list[SegmentView] = []
    for group in _groups(views, leave):
        if group.worth_merging and (most is None or group.live <= most):
            after.append(merge(group.views))
        else:
            after += group.views
    return tuple(after)


def large_group(views: Views, most: int, leave: Container[Segment] = ()) -> Views:
    """The oldest neighbours that are worth merging and have more than `most` rows; empty without any."""
    for group in _groups(views, leave):
        if group.worth_merging and group.live > most:
            return group.views
    return ()


def _groups(views: Views, leave: Container[Segment]) -> list[_Group]:
    """The views in groups of neighbours, each of which should become one segment."""
    groups: list[_Group] = []
    for view in views:
        groups.append(_Group.of(view, fixed=view.segment in leave))
        while len(groups) > 1 and groups[-2].takes(groups[-1]):
            newer, older = groups.pop(), groups.pop()
            groups.append(older.with_newer(newer))
    return groups


@dataclass(frozen=True)
class _Group:
    views: Views
    live: int
    nbytes: int
    fixed: bool
    """Must not be merged."""

    @staticmethod
    def of(view: SegmentView, *, fixed: bool) -> _Group:
        return _Group((view,), view.live, view.segment.nbytes, fixed)

    @property
    def worth_merging(self) -> bool:
        """Whether it has several segments, or one in which most rows are deleted."""
        if self.fixed:
            return False
        return len(self.views) > 1 or 2 * self.live < self.views[0].segment.batch.num_rows

    def takes(self, newer: _Group) -> bool:
        if self.fixed or newer.fixed or 2 * newer.live < self.live:
            return False
        return self.nbytes + newer.nbytes + self._texts_with(newer) < _MERGE_BYTES

    def _texts_with(self, newer: _Group) -> int:
        """Bytes needed to decode columns that are codes in some of the segments and texts in others."""
        schemas = [view.segment.batch.schema for view in self.views + newer.views]
        mixed = [
            place
            for place, field in enumerate(schemas[0])
            if any(schema.field(place).type != field.type for schema in schemas)
        ]
        columns = (view.segment.batch.column(place) for view in self.views + newer.views for place in mixed)
        return sum(text_bytes(column) for column in columns if pa.types.is_dictionary(column.type))

    def with_newer(self, newer: _Group) -> _Group:
        return _Group(
            self.views + newer.views, self.live + newer.live, self.nbytes + newer.nbytes, fixed=False
        )


def merge(views: Views) -> SegmentView:
    """One segment with the rows of several neighbours."""
    ids = np.concatenate([view.live_ids() for view in views])
    first = int(ids[0])
    dense = int(ids[-1]) - first + 1 == len(ids)
    segment = Segment(joined([view.live_batch() for view in views]), first, None if dense else ids)
    _carry_indexes(views, segment)
    return SegmentView(segment, narrowed(np.concatenate([_live_counts(view) for view in views])))


def _live_counts(view: SegmentView) -> Counts:
    counts = view.live_counts()
    return np.ones(view.live, dtype=np.int8) if counts is None else counts


def brought_up_to_date(merged: SegmentView, then: Views, now: Views) -> SegmentView:
    """The merged view as of now, where `now` are the current views of the segments that `then` were merged.

    Rows can only have been deleted meanwhile; a segment that lost all of its rows is no longer in `now`.
    """
    held = {view.segment: view for view in now}
    counts: list[Counts] = []
    for before in then:
        after = held.get(before.segment)
        if after is None:
            counts.append(np.zeros(before.live, dtype=np.int8))
        elif after.counts is None:
            counts.append(np.ones(before.live, dtype=np.int8))
        else:
            counts.append(after.counts if before.counts is None else after.counts[before.counts != 0])
    return SegmentView(merged.segment, narrowed(np.concatenate(counts)))


def _carry_indexes(views: Views, segment: Segment) -> None:
    """Give the merged segment the indexes of the largest of `views`, without hashing its rows again."""
    kept = [None if view.counts is None else view.counts != 0 for view in views]
    largest = max(views, key=lambda view: view.live)
    for columns in list(largest.segment.indexes):
        parts = [view.segment.postings(columns) for view in views]
        segment.indexes[columns] = merge_postings(list(zip(parts, kept, strict=True)))
