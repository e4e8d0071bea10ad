"""Multisets of rows, in Arrow: net changes, semi-joins and distinct keys.

Rows are equal as in SQL's GROUP BY: null equals null, NaN equals NaN, -0.0 equals 0.0.
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
    """Added and retracted rows without those that cancel out: one retraction per equal addition."""
    if came.num_rows == 0 or went.num_rows == 0:
        return came, went
    gone = codes(went)
    kept_came, left = _without(codes(came), Counter(gone))
    # `left` counts the retractions that no addition has cancelled.
    kept_went = []
    for code in gone:
        kept_went.append(left[code] > 0)
        left[code] -= kept_went[-1]
    return came.filter(pa.array(kept_came)), went.filter(pa.array(kept_went))


def before(now: pa.Table, came: pa.Table, went: pa.Table) -> pa.Table:
    """The rows before a change, from the rows after it and the rows that it added and retracted."""
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
    """The rows whose `columns` equal one of `keys`, whose columns are matched by position, not by name."""
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
        # Other types can differ only in the names of nested fields, such as list elements.
        if len(kinds) > 1 and all(map(pa.types.is_integer, kinds)):
            schema = schema.set(index, pa.field(field.name, pa.int64()))
    return [table.rename_columns(schema.names).cast(schema) for table in keys]


def split_nulls(keys: pa.Table, nulls_meet: Sequence[bool]) -> pa.Table:
    """The keys that can match: those without a null in columns where null equals nothing (`nulls_meet`)."""
    for index, meet in enumerate(nulls_meet):
        if not meet:
            keys = keys.filter(keys.column(index).is_valid())
    return keys


def with_nulls(rows: pa.Table, columns: Sequence[str], nulls_meet: Sequence[bool]) -> pa.Table:
    """The rows that cannot match: with a null in a key column where null equals nothing."""
    mask = None
    for name, meet in zip(columns, nulls_meet, strict=True):
        if not meet:
            null = pc.is_null(rows.column(name))
            mask = null if mask is None else pc.or_(mask, null)
    return rows.slice(0, 0) if mask is None else rows.filter(mask)


def by_nulls(keys: pa.Table) -> Iterator[pa.Table]:
    """The keys in parts that have nulls in the same columns; no part is empty."""
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
    """The keys cast to the integer types of the schema, without those that do not fit: they match no row."""
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
