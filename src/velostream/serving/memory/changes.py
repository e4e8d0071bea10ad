"""The net change of a commit against the version before it: rows added, and rows removed by id."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import InternalError
from velostream.serving.columns.dictionaries import comparable
from velostream.serving.columns.hashing import Hashes, hash_rows
from velostream.serving.columns.values import KeyCodec, canonical
from velostream.serving.durable.table_files import Change
from velostream.serving.index.keys import numbered
from velostream.serving.index.matching import ids_with_hashes

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from velostream.serving.columns.segments import Counts, Ids
    from velostream.serving.memory.version import MemoryVersion

_NO_IDS: Ids = np.empty(0, dtype=np.int64)
FEW = 64
"""Up to this many rows, comparing all is faster than finding by hash which have to be compared."""


@dataclass(frozen=True)
class KeyedChange:
    """A change of a keyed table, and the keys by which its index is updated."""

    change: Change
    overwritten: dict[Hashable, int]
    written: dict[Hashable, int]
    deleted: list[Hashable]


@dataclass(frozen=True)
class RowsChange:
    """A change of a multiset, and the hashes of the rows added, where they are known."""

    change: Change
    hashes: Hashes | None = None


def keyed_change(
    version: MemoryVersion, codec: KeyCodec, upserts: pa.Table, deletes: Sequence[Hashable]
) -> KeyedChange:
    """The change by deletes, then upserts: the last upsert of a key wins; unchanged rows are left out."""
    keys = codec.encode_columns(upserts)
    fresh = numbered(keys, version.limit)
    if len(fresh) < len(keys):
        keys, upserts = _last_per_key(keys, upserts)
        fresh = numbered(keys, version.limit)
    gone = {key: at for key in deletes if key not in fresh and (at := version.find(key)) is not None}
    old = version.find_all(keys)
    known = np.flatnonzero(old >= 0)
    same = _equal_rows(version.stored(old[known]), upserts.take(pa.array(known)))
    if bool(same.any()):
        changed = np.ones(len(keys), dtype=bool)
        changed[known[same]] = False
        upserts = upserts.filter(pa.array(changed))
        keys = [keys[number] for number in np.flatnonzero(changed).tolist()]
        fresh = numbered(keys, version.limit)
        old = old[changed]
        known = np.flatnonzero(old >= 0)
    overwritten = {keys[place]: at for place, at in zip(known.tolist(), old[known].tolist(), strict=True)}
    overwritten.update(gone)
    removed_ids = np.fromiter(overwritten.values(), np.int64, count=len(overwritten))
    removed_ids.sort()
    ones = np.ones(len(removed_ids), dtype=np.int64)
    change = Change(version.stored(removed_ids), removed_ids, ones, upserts)
    return KeyedChange(change, overwritten, fresh, list(gone))


def _last_per_key(keys: list[Hashable], rows: pa.Table) -> tuple[list[Hashable], pa.Table]:
    last = dict(zip(keys, range(len(keys)), strict=True))
    if len(last) == len(keys):
        return keys, rows
    order = sorted(last.values())
    return [keys[number] for number in order], rows.take(pa.array(order, type=pa.int64()))


def _equal_rows(left: pa.Table, right: pa.Table) -> Any:
    """For each row whether both sides have the same values; 0.0 and -0.0 differ here."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in left.schema.names:
        if not same.any():
            break
        same &= _equal_column(left.column(name), right.column(name))
    return same


def _equal_column(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Any:
    if pa.types.is_dictionary(left.type) or pa.types.is_dictionary(right.type):
        left, right = comparable(left, right)
    if pa.types.is_null(left.type):
        return np.ones(len(left), dtype=bool)
    if pa.types.is_nested(left.type):
        pairs = zip(canonical(left), canonical(right), strict=True)
        return np.fromiter((one == other for one, other in pairs), bool, count=len(left))
    if pa.types.is_floating(left.type):
        # By bit pattern, so that NaN equals itself.
        bits = pa.int64() if left.type.bit_width == 64 else pa.int32()
        left, right = _reinterpreted(left, bits), _reinterpreted(right, bits)
    both_null = pc.and_(left.is_null(), right.is_null())
    return np.asarray(pc.or_kleene(pc.equal(left, right).fill_null(False), both_null))


def _reinterpreted(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([chunk.view(kind) for chunk in column.chunks], type=kind)


def rows_change(
    version: MemoryVersion, codec: KeyCodec, rows: pa.Table, weights: Counts, *, may_be_gone: bool = False
) -> RowsChange:
    """The change by weighted rows: equal rows of the batch cancel out, then stored rows are retracted.

    Retracting a row that is not stored raises InternalError, or is ignored with `may_be_gone`.
    """
    hashes = hash_rows(rows, codec.columns)
    places, compared = np.arange(rows.num_rows), rows
    if rows.num_rows > FEW:
        # Only rows whose hash equals that of a retracted one are compared; the others are simply added.
        places = np.flatnonzero(_among(hashes, hashes[weights < 0]))
        compared = rows.take(pa.array(places))
    contents = codec.encode_columns(compared)
    net: dict[Hashable, int] = {}
    first: dict[Hashable, int] = {}
    for place, content, weight in zip(places.tolist(), contents, weights[places].tolist(), strict=True):
        net[content] = net.get(content, 0) + weight
        first.setdefault(content, place)
    counts = weights.astype(np.int64)
    counts[places] = 0
    for content, weight in net.items():
        counts[first[content]] = weight
    grown = counts > 0
    shrunk = {content: -weight for content, weight in net.items() if weight < 0}
    added = rows.filter(pa.array(grown))
    if not shrunk:
        # All retractions cancelled within the batch: no stored row is looked up, so that no index is built,
        # which takes a while for a million rows.
        return RowsChange(appended(added, counts[grown]))
    of_shrunk = hashes[[first[content] for content in shrunk]]
    taken = _taken_back(version, codec, shrunk, of_shrunk, may_be_gone=may_be_gone)
    return RowsChange(Change(*taken, added, counts[grown]), hashes[grown])


def _among(hashes: Hashes, wanted: Hashes) -> npt.NDArray[np.bool_]:
    """For each hash whether it is among `wanted`."""
    if not len(wanted):
        return np.zeros(len(hashes), dtype=bool)
    wanted = np.unique(wanted)
    places = np.searchsorted(wanted, hashes)
    places[places == len(wanted)] = 0
    among: npt.NDArray[np.bool_] = wanted[places] == hashes
    return among


def _taken_back(
    version: MemoryVersion, codec: KeyCodec, shrunk: dict[Hashable, int], hashes: Hashes, *, may_be_gone: bool
) -> tuple[pa.Table, Ids, Counts]:
    """The stored rows to retract and how many copies of each; of equal rows the oldest."""
    numbers, ids = ids_with_hashes(version.views, codec.columns, hashes)
    contents, wanted = list(shrunk), list(shrunk.values())
    left = wanted.copy()
    taken: dict[int, int] = {}
    read, held = _NO_IDS, None
    nth = np.arange(len(ids)) - np.searchsorted(numbers, numbers)
    # As many rows with the hash as are retracted suffice, unless hashes collide: then all others are
    # compared.
    enough = nth < np.array(wanted)[numbers]
    for part in (enough, ~enough):
        if not any(left) or not bool(part.any()):
            continue
        read = np.unique(ids[part])
        held = version.stored(read)
        content_of = dict(zip(read.tolist(), codec.encode_columns(held), strict=True))
        count_of = dict(zip(read.tolist(), version.counts(read).tolist(), strict=True))
        for number, row_id in zip(numbers[part].tolist(), ids[part].tolist(), strict=True):
            if left[number] and content_of[row_id] == contents[number]:
                taken[row_id] = min(left[number], count_of[row_id])
                left[number] -= taken[row_id]
    if any(left) and not may_be_gone:
        number = next(number for number, missing in enumerate(left) if missing)
        raise InternalError(
            f'table "{version.spec.name}" has {wanted[number] - left[number]} of a row and is to lose '
            f"{wanted[number]}",
            detail=f"row: {contents[number]!r}",
        )
    order = np.array(sorted(taken), dtype=np.int64)
    removed = held if held is not None and np.array_equal(order, read) else version.stored(order)
    return removed, order, np.array([taken[each] for each in order.tolist()], dtype=np.int64)


def appended(rows: pa.Table, weights: Counts | None) -> Change:
    """A change that only adds rows."""
    return Change(rows.slice(0, 0), _NO_IDS, _NO_IDS, rows, weights)


def difference(version: MemoryVersion, codec: KeyCodec, rows: pa.Table) -> Change:
    """The change from a multiset's current rows to `rows`."""
    contents = codec.encode_columns(rows)
    wanted: dict[Hashable, int] = {}
    first: dict[Hashable, int] = {}
    for number, content in enumerate(contents):
        wanted[content] = wanted.get(content, 0) + 1
        first.setdefault(content, number)
    taken: dict[int, int] = {}
    for view in version.views:
        ids = view.live_ids()
        counts = version.counts(ids).tolist()
        present = codec.encode_columns(view.live_batch())
        for content, row_id, held in zip(present, ids.tolist(), counts, strict=True):
            kept = min(held, wanted.get(content, 0))
            if kept:
                wanted[content] -= kept
            if kept < held:
                taken[row_id] = held - kept
    grown = [(first[content], weight) for content, weight in wanted.items() if weight > 0]
    ids = np.array(sorted(taken), dtype=np.int64)
    amounts = np.array([taken[each] for each in ids.tolist()], dtype=np.int64)
    added = rows.take(pa.array([number for number, _ in grown], type=pa.int64()))
    weights = np.fromiter((weight for _, weight in grown), np.int64, count=len(grown))
    return Change(version.stored(ids), ids, amounts, added, weights)
