"""What a commit changes, worked out against the version before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import InternalError
from velostream.serving.dictionaries import comparable
from velostream.serving.index import numbered
from velostream.serving.journal import Change
from velostream.serving.values import KeyCodec, canonical

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from velostream.serving.index import RowIndex
    from velostream.serving.segments import Counts, Ids
    from velostream.serving.version import TableVersion

_NO_IDS: Ids = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class KeyedChange:
    """A change of a keyed table, and what its index needs to follow it."""

    change: Change
    overwritten: dict[Hashable, int]
    written: dict[Hashable, int]
    deleted: list[Hashable]


@dataclass(frozen=True)
class RowsChange:
    """A change of a multiset, and what its index needs to follow it."""

    change: Change
    gone: list[tuple[Hashable, int]]


def keyed_change(
    version: TableVersion, codec: KeyCodec, upserts: pa.Table, deletes: Sequence[Hashable]
) -> KeyedChange:
    """Deletes, then upserts; the last of several upserts of a key counts; rows that stay equal drop out."""
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
    """For each row whether both sides hold the same values; 0.0 and -0.0 are different contents."""
    same = np.ones(left.num_rows, dtype=bool)
    for name in left.schema.names:
        if not same.any():
            break
        same &= _equal_column(left.column(name), right.column(name))
    return same


def _equal_column(left: pa.ChunkedArray, right: pa.ChunkedArray) -> Any:
    if pa.types.is_dictionary(left.type) or pa.types.is_dictionary(right.type):
        left, right = comparable(left, right)
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
    version: TableVersion,
    codec: KeyCodec,
    index: Callable[[], RowIndex],
    rows: pa.Table,
    weights: Counts,
    *,
    may_be_gone: bool = False,
) -> RowsChange:
    """Net the batch by content, then take back what is negative from the rows that are there.

    With `may_be_gone` a row that is not there any more is passed over; without, it is an error.
    """
    contents = codec.encode_columns(rows)
    net: dict[Hashable, int] = {}
    first: dict[Hashable, int] = {}
    for number, (content, weight) in enumerate(zip(contents, weights.tolist(), strict=True)):
        net[content] = net.get(content, 0) + weight
        first.setdefault(content, number)
    grown = [(first[content], weight) for content, weight in net.items() if weight > 0]
    shrunk = {content: -weight for content, weight in net.items() if weight < 0}
    # Rows that come and go within the batch need no index, which takes a second for a million rows.
    gone, ids, amounts = (
        _taken_back(version, codec, index(), shrunk, may_be_gone) if shrunk else ([], _NO_IDS, _NO_IDS)
    )
    added = rows.take(pa.array([number for number, _ in grown], type=pa.int64()))
    counts = np.fromiter((weight for _, weight in grown), np.int64, count=len(grown))
    return RowsChange(Change(version.stored(ids), ids, amounts, added, counts), gone)


def _taken_back(
    version: TableVersion,
    codec: KeyCodec,
    index: RowIndex,
    shrunk: dict[Hashable, int],
    may_be_gone: bool,
) -> tuple[list[tuple[Hashable, int]], Ids, Counts]:
    candidates = [index.candidates(content) for content in shrunk]
    ids = np.array(sorted({each for found in candidates for each in found}), dtype=np.int64)
    contents = codec.encode_columns(version.take(ids)) if len(ids) else []
    content_of = dict(zip(ids.tolist(), contents, strict=True))
    count_of = dict(zip(ids.tolist(), version.counts(ids).tolist(), strict=True))
    gone: list[tuple[Hashable, int]] = []
    taken: dict[int, int] = {}
    for (content, wanted), found in zip(shrunk.items(), candidates, strict=True):
        left = wanted
        for row_id in found:
            if left == 0 or content_of[row_id] != content:
                continue
            amount = min(left, count_of[row_id])
            taken[row_id] = amount
            left -= amount
            if amount == count_of[row_id]:
                gone.append((content, row_id))
        if left and not may_be_gone:
            raise InternalError(
                f'table "{version.spec.name}" has {wanted - left} of a row and is to lose {wanted}',
                detail=f"row: {content!r}",
            )
    order = sorted(taken)
    return gone, np.array(order, dtype=np.int64), np.array([taken[each] for each in order], dtype=np.int64)


def appended(rows: pa.Table, weights: Counts | None) -> Change:
    """A change that only adds rows."""
    return Change(rows.slice(0, 0), _NO_IDS, _NO_IDS, rows, weights)


def difference(version: TableVersion, codec: KeyCodec, rows: pa.Table) -> RowsChange:
    """The change from a multiset's present rows to `rows`."""
    contents = codec.encode_columns(rows)
    wanted: dict[Hashable, int] = {}
    first: dict[Hashable, int] = {}
    for number, content in enumerate(contents):
        wanted[content] = wanted.get(content, 0) + 1
        first.setdefault(content, number)
    gone: list[tuple[Hashable, int]] = []
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
            if not kept:
                gone.append((content, row_id))
    grown = [(first[content], weight) for content, weight in wanted.items() if weight > 0]
    ids = np.array(sorted(taken), dtype=np.int64)
    amounts = np.array([taken[each] for each in ids.tolist()], dtype=np.int64)
    added = rows.take(pa.array([number for number, _ in grown], type=pa.int64()))
    weights = np.fromiter((weight for _, weight in grown), np.int64, count=len(grown))
    return RowsChange(Change(version.stored(ids), ids, amounts, added, weights), gone)
