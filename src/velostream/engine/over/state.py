"""Rows that are kept for OVER, by key: chunks of them in a table beside the job.

A chunk holds the rows of one key that came with one step, as a list in one row of the table: what a commit
costs follows its keys, not its rows. When a key has many more rows than are needed, they become one chunk,
without those that nothing can reach any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.rows.groups import distinct_keys
from velostream.engine.rows.multisets import by_nulls, codes
from velostream.model.columns import CHUNK, CHUNK_CUT, CHUNK_LAST, CHUNK_ROWS, RETRACTED_AT, SEQUENCE, TIME
from velostream.serving.columns.values import decoded

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from velostream.model.changes import Commit
    from velostream.serving.table.table import Table

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

NEVER = np.iinfo(np.int64).min
_LATER = np.iinfo(np.int64).max
_MOST_CHUNKS = 16
"""A key with more chunks than this gets one: each is a row to look up."""
_LEAST_ROWS = 64
"""Up to so many rows more than needed nothing is written anew."""
_STAMP = pa.timestamp("us", tz="UTC")


def state_schema(kept: pa.Schema, keys: Sequence[str], *, shrinks: bool) -> pa.Schema:
    """The table for rows with these columns, of which some are the key."""
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
    """Rows out of the table, each with its key, and the chunks that they were in."""

    rows: pa.Table
    """Keys, columns, time and number of each row."""
    chunks: pa.Table
    """Keys and step of each."""
    firsts: Numbers
    """The place of the first row of each chunk."""
    cut: Flags
    """Of each row, whether rows of its key before it were forgotten."""

    def there(self, step: int) -> Flags:
        """Which rows were there when a step began."""
        return np.asarray(self._gone_at() >= step, dtype=bool)

    def gone_with(self, step: int) -> Flags:
        """Which rows the source took back with a step."""
        return np.asarray(self._gone_at() == step, dtype=bool)

    def _gone_at(self) -> Numbers:
        if RETRACTED_AT not in self.rows.schema.names:
            return np.full(self.rows.num_rows, _LATER, dtype=np.int64)
        return np.asarray(self.rows.column(RETRACTED_AT).fill_null(_LATER).to_numpy(), dtype=np.int64)


class KeptRows:
    """The rows of one statement."""

    def __init__(self, table: Table, keys: Sequence[str]) -> None:
        self.table = table
        self._keys = list(keys)
        kind = table.spec.schema.field(CHUNK_ROWS).type.value_type
        self._row = pa.schema([kind.field(n) for n in range(kind.num_fields)])
        self.schema = pa.schema([*(table.spec.schema.field(name) for name in self._keys), *self._row])
        """Of rows, as they come out."""

    def of(self, keys: pa.Table) -> Kept:
        """The rows of these keys; null equals null."""
        version = self.table.version_object
        found = []
        for some in by_nulls(keys):
            filled = [name for name in self._keys if some.column(name).null_count == 0]
            rows = version.physical_where(filled, some.select(filled)) if filled else version.physical()
            for name in self._keys:
                if name not in filled:
                    rows = rows.filter(pc.is_null(rows.column(name)))
            found.append(rows)
        return self._flat(pa.concat_tables(found) if found else self.table.spec.schema.empty_table())

    def of_step(self, step: int) -> pa.Table:
        """The keys that came with a step."""
        wanted = pa.table({CHUNK: pa.array([step], pa.int64())})
        return self.table.version_object.physical_where((CHUNK,), wanted).select(self._keys)

    def since(self, at: int) -> pa.Table:
        """The keys that have a row of this event time or a later one."""
        parts = [
            batch.filter(pc.greater_equal(batch.column(CHUNK_LAST), at))
            for batch in (
                view.physical.select([*self._keys, CHUNK_LAST]) for view in self.table.version_object.views
            )
        ]
        schema = pa.schema([self.table.spec.schema.field(name) for name in self._keys])
        rows = [_plain(pa.Table.from_batches([part]).select(self._keys), schema) for part in parts]
        return distinct_keys(pa.concat_tables(rows)) if rows else schema.empty_table()

    def latest(self) -> int | None:
        """The latest event time of all rows."""
        ends = [pc.max(view.physical.column(CHUNK_LAST)).as_py() for view in self.table.version_object.views]
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
        """Write the rows that came, and with them, for keys that have far too many, those still needed.

        `groups` are numbers for the keys of kept and new rows. `needed` tells which kept rows are needed,
        `most` how many of a key that can be; None: all of them. `rewrite` marks rows whose keys are to be
        written anew whatever they have.
        """
        count = int(groups.max()) + 1 if len(groups) else 0
        old, came = groups[: kept.rows.num_rows], groups[kept.rows.num_rows :]
        chunks = old[kept.firsts]
        fresh = np.zeros(count, dtype=bool)
        if most is not None:
            surplus = np.bincount(old[~needed], minlength=count)
            fresh = (surplus > max(most, _LEAST_ROWS)) | (np.bincount(chunks, minlength=count) > _MOST_CHUNKS)
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
        """One row per key, with its rows as a list."""
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
    """The event time of each row in microseconds; rows without one are first."""
    return np.asarray(rows.column(TIME).cast(_STAMP).cast(pa.int64()).fill_null(NEVER).to_numpy(), np.int64)


def group_numbers(rows: pa.Table, keys: Sequence[str]) -> Numbers:
    """A number for the key of each row, from 0 on; null equals null."""
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
            _, numbers = np.unique(numbers * len(encoded.dictionary) + places, return_inverse=True)
    return np.asarray(numbers, dtype=np.int64)


def in_order(groups: Numbers, times: Numbers, numbers: Numbers) -> Numbers:
    """The places of rows by group, then time, then number."""
    if len(groups) and bool((np.diff(numbers) > 0).all()):
        first, last = int(times.min()), int(times.max())
        # One number to sort by, which takes half the time, where it fits.
        if (int(groups.max()) + 1) * (last - first + 1) < _LATER:
            return np.argsort(groups * (last - first + 1) + (times - first), kind="stable")
    return np.lexsort((numbers, times, groups))


def _plain(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    return rows.cast(schema)
