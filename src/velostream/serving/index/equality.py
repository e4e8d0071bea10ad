"""Equality indexes: which rows of a segment have given values in given columns.

A segment is immutable, and so is its index (postings): it is built on first use, kept with the segment, and
merged when segments merge. Whether a row is live depends on the version, so readers of any version share the
index, and commits need not maintain it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from velostream.serving.columns.hashing import Hashes, hash_rows
from velostream.serving.columns.values import canonical

if TYPE_CHECKING:
    from collections.abc import Sequence

Places = npt.NDArray[np.integer[Any]]

_NOTHING: Places = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Postings:
    """Rows of one segment sorted by a hash of some columns; rows with equal hashes in row order.

    12 bytes a row and about 0.4 µs to build, where a dict from hash to row ids takes 100 bytes and 2.5 µs.
    """

    hashes: Hashes
    places: npt.NDArray[np.int32]

    @staticmethod
    def of(batch: pa.RecordBatch, columns: Sequence[str]) -> Postings:
        """Index a batch; about 0.2 µs a row."""
        return Postings.of_hashes(hash_rows(batch, columns))

    @staticmethod
    def of_hashes(hashes: Hashes) -> Postings:
        """Index rows whose hashes are known."""
        order = np.argsort(hashes, kind="stable")
        return Postings(hashes[order], order.astype(np.int32))

    def find(self, wanted: Hashes) -> tuple[Places, Places]:
        """Candidates, to be compared by value: numbers of hashes in `wanted`, and places of rows."""
        if not len(self.hashes):
            return _NOTHING, _NOTHING
        # Sorted, so that neighbouring binary searches touch the same memory.
        numbers = wanted.argsort()
        wanted = wanted[numbers]
        starts = self.hashes.searchsorted(wanted)
        found = self.hashes.take(starts, mode="clip") == wanted
        if not found.any():
            return _NOTHING, _NOTHING
        numbers, starts = numbers[found], starts[found]
        sizes = self.hashes.searchsorted(wanted[found], side="right") - starts
        before = np.cumsum(sizes) - sizes
        offsets = np.arange(int(sizes.sum())) + np.repeat(starts - before, sizes)
        return np.repeat(numbers, sizes), self.places[offsets].astype(np.int64)

    def with_hash(self, wanted: np.uint64) -> Places:
        """Places of the rows with one hash, ascending."""
        start, stop = self.hashes.searchsorted(wanted), self.hashes.searchsorted(wanted, side="right")
        return self.places[start:stop]

    @property
    def nbytes(self) -> int:
        """Bytes of memory."""
        return int(self.hashes.nbytes + self.places.nbytes)


def merge_postings(parts: Sequence[tuple[Postings, npt.NDArray[np.bool_] | None]]) -> Postings:
    """The postings of concatenated segments, of which only the rows under each mask are kept."""
    hashes, places = [], []
    first = 0
    for postings, kept in parts:
        if kept is None:
            hashes.append(postings.hashes)
            places.append(postings.places + np.int32(first))
            first += len(postings.places)
            continue
        # From the place of a kept row to its place in the merged segment.
        moved = (np.cumsum(kept) - 1 + first).astype(np.int32)
        here = kept[postings.places]
        hashes.append(postings.hashes[here])
        places.append(moved[postings.places[here]])
        first += int(np.count_nonzero(kept))
    # The parts are sorted already: a stable sort merges such runs in nearly linear time; no row is hashed.
    together = np.concatenate(hashes)
    order = np.argsort(together, kind="stable")
    return Postings(together[order], np.concatenate(places)[order])


def equal_rows(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """For each pair of rows whether they are equal in the sense of a join: NaN = NaN, null equals nothing."""
    same = np.ones(left.num_rows, dtype=bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        if pa.types.is_floating(one.type) or pa.types.is_nested(one.type):
            pairs = zip(canonical(one), canonical(other), strict=True)
            equal = (a == b and a is not None for a, b in pairs)
            same &= np.fromiter(equal, dtype=bool, count=left.num_rows)
        else:
            same &= np.asarray(pc.equal(one, other).fill_null(False))
    return same
