"""Equality indexes: which rows of a segment have given values in given columns.

A segment never changes, so neither do its postings: they are made when they are first asked for, kept with
the segment, and carried over when segments merge. Which of the rows still count is the version's to say,
so readers of any version share them, and the writer has nothing to keep in step.
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
    """The rows of one segment in the order of the hash of some columns; equal hashes in row order."""

    hashes: Hashes
    places: npt.NDArray[np.int32]

    @staticmethod
    def of(batch: pa.RecordBatch, columns: Sequence[str]) -> Postings:
        """Index a batch; about 0.2 µs a row."""
        return Postings.of_hashes(hash_rows(batch, columns))

    @staticmethod
    def of_hashes(hashes: Hashes) -> Postings:
        """The same from the hashes of all rows."""
        order = np.argsort(hashes, kind="stable")
        return Postings(hashes[order], order.astype(np.int32))

    def find(self, wanted: Hashes) -> tuple[Places, Places]:
        """Pairs that may match: numbers of hashes in `wanted`, and places of rows."""
        if not len(self.hashes):
            return _NOTHING, _NOTHING
        # In order, so that neighbouring searches touch the same memory.
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
        """Memory that it takes."""
        return int(self.hashes.nbytes + self.places.nbytes)


def merge_postings(parts: Sequence[tuple[Postings, npt.NDArray[np.bool_] | None]]) -> Postings:
    """The postings of segments put one after the other, where only the rows under each mask are kept."""
    hashes, places = [], []
    first = 0
    for postings, kept in parts:
        if kept is None:
            hashes.append(postings.hashes)
            places.append(postings.places + np.int32(first))
            first += len(postings.places)
            continue
        moved = (np.cumsum(kept) - 1 + first).astype(np.int32)
        here = kept[postings.places]
        hashes.append(postings.hashes[here])
        places.append(moved[postings.places[here]])
        first += int(np.count_nonzero(kept))
    together = np.concatenate(hashes)
    order = np.argsort(together, kind="stable")
    return Postings(together[order], np.concatenate(places)[order])


def equal_rows(left: pa.Table, right: pa.Table) -> npt.NDArray[np.bool_]:
    """For each pair of rows whether they are equal as a join sees it: NaN = NaN, null equals nothing."""
    same = np.ones(left.num_rows, dtype=bool)
    for one, other in zip(left.columns, right.columns, strict=True):
        if pa.types.is_floating(one.type) or pa.types.is_nested(one.type):
            pairs = zip(canonical(one), canonical(other), strict=True)
            equal = (a == b and a is not None for a, b in pairs)
            same &= np.fromiter(equal, dtype=bool, count=left.num_rows)
        else:
            same &= np.asarray(pc.equal(one, other).fill_null(False))
    return same
