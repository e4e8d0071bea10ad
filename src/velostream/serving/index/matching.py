"""Finds the rows of a version by the values of some of its columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.errors import TableError, UnknownNameError, did_you_mean
from velostream.formats.columns.nested_keys import grouped
from velostream.serving.columns.dictionaries import plain
from velostream.serving.columns.hashing import hash_rows
from velostream.serving.index.equality import equal_rows
from velostream.serving.table.schemas import align

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.model.tables import TableSpec
    from velostream.serving.columns.hashing import Hashes
    from velostream.serving.columns.segments import Ids, Segment, Views
    from velostream.serving.index.equality import Places
    from velostream.serving.memory.version import MemoryVersion


def matching_ids(version: MemoryVersion, columns: Sequence[str], keys: pa.Table) -> Ids:
    """Ids of the live rows whose `columns` equal a row of `keys`, ascending, each once."""
    wanted = _distinct(_comparable(keys, columns, version.spec))
    index = version.index
    if index is not None and sorted(columns) == sorted(index.codec.columns):
        ids = version.find_all(index.codec.encode_columns(wanted))
        return np.sort(ids[ids >= 0])
    return _through_postings(version.views, tuple(columns), wanted)


def _comparable(keys: pa.Table, columns: Sequence[str], spec: TableSpec) -> pa.Table:
    """The key columns, cast to the table's types."""
    unknown = [name for name in columns if name not in spec.schema.names]
    if unknown:
        raise UnknownNameError(
            f'table "{spec.name}" has no column "{unknown[0]}"', hint=did_you_mean(unknown[0], spec.visible)
        )
    if not columns:
        raise TableError(f'rows of table "{spec.name}" are found by at least one column')
    # A key may be null even where the column may not: it matches nothing.
    schema = pa.schema([spec.schema.field(name).with_nullable(True) for name in columns])
    return align(keys.select(list(columns)), schema, spec.name)


def _distinct(keys: pa.Table) -> pa.Table:
    """The keys that can match (without nulls), each once."""
    keys = keys.drop_null()
    return grouped(keys, keys.schema.names).select(keys.schema.names)


def ids_with_hashes(views: Views, columns: tuple[str, ...], hashes: Hashes) -> tuple[Places, Ids]:
    """Numbers of hashes, ascending, and for each the ids of live rows whose `columns` have that hash.

    Uses equality indexes, which are built on first use and maintained from then on.
    """
    found = [
        (numbers, segment.ids_at(places)) for segment, numbers, places in _live_pairs(views, columns, hashes)
    ]
    if not found:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    numbers = np.concatenate([each for each, _ in found])
    order = np.argsort(numbers, kind="stable")
    return numbers[order], np.concatenate([ids for _, ids in found])[order]


def _live_pairs(
    views: Views, columns: tuple[str, ...], hashes: Hashes
) -> Iterator[tuple[Segment, Places, Places]]:
    """For each segment with matches: numbers of hashes, and places of live rows with them."""
    for view in views:
        numbers, places = view.segment.postings(columns).find(hashes)
        if view.counts is not None and len(places):
            live = view.counts[places] != 0
            numbers, places = numbers[live], places[live]
        if len(places):
            yield view.segment, numbers, places


def _through_postings(views: Views, columns: tuple[str, ...], keys: pa.Table) -> Ids:
    found = []
    for segment, numbers, places in _live_pairs(views, columns, hash_rows(keys, columns)):
        # Different values may have the same hash, so the values themselves are compared.
        held = plain(pa.Table.from_batches([segment.batch.select(columns).take(pa.array(places))]))
        places = places[equal_rows(held, keys.take(pa.array(numbers)))]
        found.append(np.unique(segment.ids_at(places)))
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)
