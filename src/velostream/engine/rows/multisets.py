"""Rows as multisets, in Arrow: what is left when rows that came and rows that went meet.

Two rows are the same when SQL's grouping calls them so: null equals null, NaN equals NaN, -0.0 equals 0.0.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.serving.columns.values import KeyCodec

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence


def codes(rows: pa.Table, columns: Sequence[str] | None = None) -> list[Hashable]:
    """The canonical value of each row in these columns (None: in all)."""
    names = rows.schema.names if columns is None else list(columns)
    return KeyCodec(rows.schema, names).encode_columns(rows)


def net(came: pa.Table, went: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both without the rows that are in both, as often as they are."""
    if came.num_rows == 0 or went.num_rows == 0:
        return came, went
    gone = codes(went)
    kept_came, left = _without(codes(came), Counter(gone))
    # What is left of `went` after the rows of `came` that equal it were taken out.
    kept_went = []
    for code in gone:
        kept_went.append(left[code] > 0)
        left[code] -= kept_went[-1]
    return came.filter(pa.array(kept_came)), went.filter(pa.array(kept_went))


def before(now: pa.Table, came: pa.Table, went: pa.Table) -> pa.Table:
    """The rows that there were, from those that there are and what changed since."""
    if came.num_rows:
        kept, _ = _without(codes(now), Counter(codes(came)))
        now = now.filter(pa.array(kept, pa.bool_()))
    return pa.concat_tables([now, went]) if went.num_rows else now


def _without(rows: list[Hashable], taken: Counter[Hashable]) -> tuple[list[bool], Counter[Hashable]]:
    kept = []
    for code in rows:
        there = taken[code] > 0
        taken[code] -= there
        kept.append(not there)
    return kept, taken


def among(rows: pa.Table, columns: Sequence[str], keys: pa.Table) -> pa.Table:
    """The rows whose `columns` are one of `keys`, by position."""
    if rows.num_rows == 0 or keys.num_rows == 0:
        return rows.slice(0, 0)
    wanted = set(codes(keys))
    return rows.filter(pa.array([code in wanted for code in codes(rows, columns)], pa.bool_()))


def distinct(keys: Sequence[pa.Table]) -> pa.Table:
    """Each different key once; the tables have the same columns, integers of any width."""
    together = pa.concat_tables(_widened(keys), promote_options="none")
    first: dict[Hashable, int] = {}
    for number, code in enumerate(codes(together)):
        first.setdefault(code, number)
    return together.take(pa.array(np.fromiter(first.values(), np.int64, count=len(first))))


def _widened(keys: Sequence[pa.Table]) -> list[pa.Table]:
    schema = keys[0].schema
    for index, field in enumerate(schema):
        kinds = {table.schema.field(index).type for table in keys}
        # Other types that differ do so in the names of their parts, as of the elements of lists.
        if len(kinds) > 1 and all(map(pa.types.is_integer, kinds)):
            schema = schema.set(index, pa.field(field.name, pa.int64()))
    return [table.rename_columns(schema.names).cast(schema) for table in keys]


def split_nulls(keys: pa.Table, nulls_meet: Sequence[bool]) -> pa.Table:
    """The keys that can equal another: those without a null where null equals nothing."""
    for index, meet in enumerate(nulls_meet):
        if not meet:
            keys = keys.filter(keys.column(index).is_valid())
    return keys


def with_nulls(rows: pa.Table, columns: Sequence[str], nulls_meet: Sequence[bool]) -> pa.Table:
    """The rows with a null in a key column where null equals nothing."""
    mask = None
    for name, meet in zip(columns, nulls_meet, strict=True):
        if not meet:
            null = pc.is_null(rows.column(name))
            mask = null if mask is None else pc.or_(mask, null)
    return rows.slice(0, 0) if mask is None else rows.filter(mask)


def by_nulls(keys: pa.Table) -> Iterator[pa.Table]:
    """The keys divided by which of their columns are null; none is empty."""
    parts = [keys]
    for index in range(keys.num_columns):
        parts = [
            half
            for part in parts
            for null in (pc.is_null(part.column(index)),)
            for half in (
                (part,)
                if part.column(index).null_count in (0, part.num_rows)
                else (part.filter(null), part.filter(pc.invert(null)))
            )
        ]
    return (part for part in parts if part.num_rows)


def fitting(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """The keys whose integers fit the columns of the schema, in their types: others match no row."""
    for name in keys.schema.names:
        kind, column = schema.field(name).type, keys.column(name)
        if column.type == kind or not (pa.types.is_integer(kind) and pa.types.is_integer(column.type)):
            continue
        if column.type.bit_width > kind.bit_width:
            limit = 1 << (kind.bit_width - 1)
            fits = pc.and_(pc.greater_equal(column, -limit), pc.less(column, limit))
            keys = keys.filter(fits)
        index = keys.schema.get_field_index(name)
        keys = keys.set_column(index, name, keys.column(name).cast(kind))
    return keys
