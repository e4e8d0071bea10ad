"""State of OVER: the kept rows of each PARTITION BY key, in chunks, in a table beside the job.

A chunk holds the rows of one key that arrived in one step, as a list in one row of the table, so that the
cost of a commit follows its keys and not its rows. A key with many more rows than its frames need is
compacted: its rows become one chunk, without those that no frame can reach any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.rows.group_keys import distinct_keys
from velostream.engine.rows.multisets import by_nulls, codes
from velostream.model.columns import CHUNK, CHUNK_CUT, CHUNK_LAST, CHUNK_ROWS, RETRACTED_AT, SEQUENCE, TIME
from velostream.serving.columns.values import decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from velostream.model.changes import Commit
    from velostream.serving.contract.table import Table

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min
"""Before every event time; stands for the event time of rows that have none."""
_LATER = np.iinfo(np.int64).max
"""After every step; stands for the step that retracts a row, while none has."""
MOST_CHUNKS = 16
"""A key with more chunks than this is compacted: each chunk is a row to look up."""
LEAST_ROWS = 64
"""A key with at most this many rows that are not needed is not compacted for them."""
_STAMP = pa.timestamp("us", tz="UTC")


def state_schema(kept: pa.Schema, keys: Sequence[str], *, shrinks: bool) -> pa.Schema:
    """The schema of the table of chunks; with `shrinks` rows record the step that retracted them."""
    plain = [pa.field(f.name, f.type) for f in kept if f.name not in keys]
    numbers = [SEQUENCE, *([RETRACTED_AT] if shrinks else [])]
    row = pa.struct([*plain, *(pa.field(name, pa.int64()) for name in numbers)])
    own = [
        (CHUNK, pa.int64()),
        (CHUNK_LAST, pa.int64()),
        (CHUNK_CUT, pa.bool_()),
        (CHUNK_ROWS, pa.list_(row)),
    ]
    return pa.schema([*(kept.field(name) for name in keys), *(pa.field(*each) for each in own)])


@dataclass(frozen=True)
class Kept:
    """Kept rows of some keys, unpacked from their chunks."""

    rows: pa.Table
    """Keys, columns, event time and sequence number of each row."""
    chunks: pa.Table
    """The key of each chunk in the table: PARTITION BY key and step."""
    firsts: Numbers
    """The place of the first row of each chunk."""
    cut: Flags
    """For each row, whether its chunk was written after earlier rows of its key were forgotten."""

    def there(self, step: int) -> Flags:
        """Which rows existed when a step began."""
        return np.asarray(self._gone_at() >= step, dtype=bool)

    def gone_with(self, step: int) -> Flags:
        """Which rows the source retracted in a step."""
        return np.asarray(self._gone_at() == step, dtype=bool)

    def _gone_at(self) -> Numbers:
        if RETRACTED_AT not in self.rows.schema.names:
            return np.full(self.rows.num_rows, _LATER, dtype=np.int64)
        return np.asarray(self.rows.column(RETRACTED_AT).fill_null(_LATER).to_numpy(), dtype=np.int64)


class KeptRows:
    """The kept rows of one statement, by key."""

    def __init__(self, table: Table, keys: Sequence[str]) -> None:
        self.table = table
        self._keys = list(keys)
        kind = table.spec.schema.field(CHUNK_ROWS).type.value_type
        self._row = pa.schema([kind.field(n) for n in range(kind.num_fields)])
        self.schema = pa.schema([*(table.spec.schema.field(name) for name in self._keys), *self._row])
        """The schema of unpacked rows."""

    def of(self, keys: pa.Table) -> Kept:
        """The kept rows of these keys; null equals null."""
        version = self.table.version_object
        found = []
        # The index finds no nulls: keys are looked up by their columns that are not null, then filtered.
        for some in by_nulls(keys):
            filled = [name for name in self._keys if some.column(name).null_count == 0]
            rows = version.physical_where(filled, some.select(filled)) if filled else version.physical()
            for name in self._keys:
                if name not in filled:
                    rows = rows.filter(pc.is_null(rows.column(name)))
            found.append(rows)
        return self._flat(pa.concat_tables(found) if found else self.table.spec.schema.empty_table())

    def of_step(self, step: int) -> pa.Table:
        """The keys of which a step wrote a chunk."""
        wanted = pa.table({CHUNK: pa.array([step], pa.int64())})
        return self.table.version_object.physical_where((CHUNK,), wanted).select(self._keys)

    def since(self, at: int) -> pa.Table:
        """The keys with a row of this event time or later."""
        parts = [
            batch.filter(pc.greater_equal(batch.column(CHUNK_LAST), at))
            for batch in self.table.version_object.pieces([*self._keys, CHUNK_LAST])
        ]
        schema = pa.schema([self.table.spec.schema.field(name) for name in self._keys])
        rows = [_plain(pa.Table.from_batches([part]).select(self._keys), schema) for part in parts]
        return distinct_keys(pa.concat_tables(rows)) if rows else schema.empty_table()

    def latest(self) -> int | None:
        """The latest event time of all kept rows; None when there are none."""
        pieces = self.table.version_object.pieces([CHUNK_LAST])
        ends = [pc.max(each.column(CHUNK_LAST)).as_py() for each in pieces]
        return max((each for each in ends if each is not None), default=None)

    def _flat(self, chunks: pa.Table) -> Kept:
        lists = decoded(chunks.column(CHUNK_ROWS))
        sizes = np.asarray(pc.list_value_length(lists).to_numpy(zero_copy_only=False), dtype=np.int64)
        parents = pa.array(np.repeat(np.arange(len(sizes)), sizes))
        columns = [chunks.column(name).take(parents) for name in self._keys]
        rows = pa.table([*columns, *lists.flatten().flatten()], schema=self.schema)
        cut = np.repeat(np.asarray(chunks.column(CHUNK_CUT).to_numpy(), dtype=bool), sizes)
        return Kept(rows, chunks.select([*self._keys, CHUNK]), np.cumsum(sizes) - sizes, cut)

    def put(
        self,
        step: int,
        new: pa.Table,
        kept: Kept,
        groups: Numbers,
        needed: Flags,
        most: int | None,
        commit: Commit,
        *,
        rewrite: Flags,
    ) -> None:
        """Write the new rows as chunks of `step`, and compact keys that have far more rows than needed.

        `groups` are the numbers of the keys of kept and new rows. `needed` flags the kept rows that frames
        can still reach, `most` bounds how many of a key these can be (None: no bound, nothing is compacted).
        `rewrite` flags rows whose keys are compacted in any case.
        """
        count = int(groups.max()) + 1 if len(groups) else 0
        old, came = groups[: kept.rows.num_rows], groups[kept.rows.num_rows :]
        chunks = old[kept.firsts]
        fresh = np.zeros(count, dtype=bool)
        if most is not None:
            # Rewriting costs the rows that stay, so it waits until at least as many are dropped.
            surplus = np.bincount(old[~needed], minlength=count)
            fresh = (surplus > max(most, LEAST_ROWS)) | (np.bincount(chunks, minlength=count) > MOST_CHUNKS)
            # Other keys were looked up only because their rows wait for the watermark.
            fresh &= np.bincount(came, minlength=count) > 0
        fresh |= np.bincount(old[rewrite], minlength=count) > 0
        cut = np.zeros(count, dtype=bool)
        cut[old[kept.cut]] = True
        cut[old[~needed & fresh[old]]] = True
        again = fresh[old] & needed
        rows = pa.concat_tables([kept.rows.filter(pa.array(again)), new])
        upserts = self._chunked(step, rows, np.concatenate([old[again], came]), cut)
        gone = kept.chunks.filter(pa.array(fresh[chunks]))
        self.table.commit_keyed(upserts, gone, commit)

    def _chunked(self, step: int, rows: pa.Table, groups: Numbers, cut: Flags) -> pa.Table:
        """One chunk per key, which holds its rows as a list, by time."""
        if not rows.num_rows:
            return self.table.spec.schema.empty_table()
        times = micros(rows)
        order = in_order(groups, times, np.asarray(rows.column(SEQUENCE).to_numpy(), dtype=np.int64))
        rows, groups, times = rows.take(pa.array(order)), groups[order], times[order]
        starts = np.flatnonzero(np.diff(groups, prepend=-1))
        ends = np.append(starts[1:], len(groups))
        names = self._row.names
        values = pa.StructArray.from_arrays(
            [decoded(rows.column(name)) for name in names], fields=list(self._row)
        )
        lists = pa.ListArray.from_arrays(pa.array(np.append(starts, len(groups)), pa.int32()), values)
        heads = rows.select(self._keys).take(pa.array(starts))
        columns = [
            *heads.columns,
            pa.array([step] * len(starts), pa.int64()),
            pa.array(times[ends - 1], pa.int64()),
            pa.array(cut[groups[starts]], pa.bool_()),
            lists,
        ]
        return pa.table(columns, schema=self.table.spec.schema)


def micros(rows: pa.Table) -> Numbers:
    """The event time of each row in microseconds; rows without one sort before all others."""
    return np.asarray(rows.column(TIME).cast(_STAMP).cast(pa.int64()).fill_null(NEVER).to_numpy(), np.int64)


def group_numbers(rows: pa.Table, keys: Sequence[str]) -> Numbers:
    """For each row the number of its key, from 0 without gaps; null equals null."""
    if not keys or not rows.num_rows:
        return np.zeros(rows.num_rows, dtype=np.int64)
    if any(pa.types.is_nested(rows.schema.field(name).type) for name in keys):
        known: dict[Any, int] = {}
        return np.array([known.setdefault(code, len(known)) for code in codes(rows, list(keys))], np.int64)
    numbers: Any = None
    for name in keys:
        encoded = decoded(rows.column(name)).dictionary_encode(null_encoding="encode")
        places = encoded.indices.to_numpy().astype(np.int64)
        if numbers is None:
            numbers = places
        else:
            # Renumbered after each column, so that products of numbers do not overflow.
            _, numbers = np.unique(numbers * len(encoded.dictionary) + places, return_inverse=True)
    return np.asarray(numbers, dtype=np.int64)


def in_order(groups: Numbers, times: Numbers, numbers: Numbers) -> Numbers:
    """The places of the rows sorted by group, then event time, then sequence number."""
    # Where rows are in the order of their sequence numbers already, a stable sort keeps it.
    if len(groups) and bool((np.diff(numbers) > 0).all()):
        first, last = int(times.min()), int(times.max())
        # Group and time as one number, where it fits 64 bits: sorting takes half the time.
        if (int(groups.max()) + 1) * (last - first + 1) < _LATER:
            return np.argsort(groups * (last - first + 1) + (times - first), kind="stable")
    return np.lexsort((numbers, times, groups))


def _plain(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.cast(schema)
