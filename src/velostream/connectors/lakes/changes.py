"""The rows of a step as a table of a lake takes them: added ones, and the keys that go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class Changes:
    """What one commit does."""

    added: pa.Table
    gone: pa.Table | None = None
    """Keys of rows that are deleted. None where rows are only appended, so that no key is looked at."""

    @property
    def replaces(self) -> bool:
        """Whether rows of the same keys are replaced."""
        return self.gone is not None


def halves(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Added rows and retracted ones."""
    if WEIGHT not in rows.schema.names:
        return rows, rows.slice(0, 0)
    added = pc.greater(rows[WEIGHT], 0)
    plain = rows.drop_columns([WEIGHT])
    return plain.filter(added), plain.filter(pc.invert(added))


def changes(added: pa.Table, removed: pa.Table, key: Sequence[str]) -> Changes:
    """Upserts by key; a key that was only retracted is deleted."""
    keys = removed.select(list(key))
    return Changes(added, keys.filter(pc.invert(among(keys, added.select(list(key))))))


def among(rows: pa.Table, keys: pa.Table) -> pa.Array:
    """Which rows have one of these keys, whose columns are of the same types.

    NULL and NaN are values like others, and zero has no sign.
    """
    found = pa.array([True] * rows.num_rows, pa.bool_())
    for name in keys.column_names:
        values = pc.unique(_comparable(keys[name]))
        found = pc.and_(found, pc.is_in(_comparable(rows[name]), values).combine_chunks())
    if keys.num_columns > 1 and pc.any(found).as_py():
        # Each value occurs in some key: whether together is looked at one by one.
        known = set(key_tuples(keys))
        places = pc.indices_nonzero(found)
        sure = [key in known for key in key_tuples(rows.select(keys.column_names).take(places))]
        found = pc.is_in(
            pa.array(range(rows.num_rows), pa.uint64()), places.filter(pa.array(sure, pa.bool_()))
        )
    return found


def key_tuples(keys: pa.Table) -> list[tuple[object, ...]]:
    """The keys, one for each row, as values that are equal where the keys are."""
    return list(zip(*map(_values, keys.columns), strict=True))


def _comparable(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column


def _values(column: pa.ChunkedArray) -> list[object]:
    if not pa.types.is_floating(column.type):
        return list(column.to_pylist())
    return ["NaN" if value != value else value for value in column.to_pylist()]
