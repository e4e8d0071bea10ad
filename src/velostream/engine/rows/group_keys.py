"""Groups and their keys as Arrow tables."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.formats.columns.nested_keys import grouped
from velostream.model.changes import BadRow
from velostream.model.columns import GROUP_ROWS, POSITION_KEPT


def group_names(keys: pa.Table) -> list[str]:
    """A readable and unambiguous name for each group: its key as JSON."""
    return [json.dumps(row, default=str, sort_keys=True) for row in keys.to_pylist()]


def lost_group(name: str, reason: str | None = None) -> BadRow:
    """The dead letter of a group that cannot be computed; without a reason, its sums do not fit."""
    failed = f"this group cannot be computed: {reason}"
    told = failed if reason else "a sum of this group does not fit its type"
    return BadRow(told, "the table itself", "group", name, name.encode())


def in_order(rows: pa.Table) -> pa.Table:
    """The rows sorted by their position, without that column."""
    ordered = rows.sort_by(POSITION_KEPT)
    return ordered.drop_columns([POSITION_KEPT])


def last_of_each(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last row of each key; null equals null."""
    numbered = rows.select(key).append_column("__row", pa.array(np.arange(rows.num_rows)))
    last = grouped(numbered, key, [("__row", "max")])
    return rows.take(last.column("__row_max"))


def distinct_keys(keys: pa.Table) -> pa.Table:
    """Each key once."""
    return grouped(keys, keys.schema.names)


def any_rows(groups: pa.Table) -> bool:
    """Whether any group has a row."""
    return groups.num_rows > 0 and row_count(groups) > 0


def row_count(groups: pa.Table) -> int:
    """How many input rows the groups have."""
    return int(pc.sum(groups.column(GROUP_ROWS)).as_py() or 0)


def key_schema(schema: pa.Schema, key: tuple[str, ...]) -> pa.Schema:
    """The key columns of a schema."""
    return pa.schema([schema.field(name) for name in key])


def absent(keys: pa.Table, rows: pa.Table) -> pa.Table:
    """The keys that occur in no row; null equals null."""
    names = keys.schema.names
    marked = rows.select(names).append_column("__here", pa.array([1] * rows.num_rows, pa.int64()))
    asked = keys.append_column("__here", pa.array([0] * keys.num_rows, pa.int64()))
    found = grouped(pa.concat_tables([asked, marked]), names, [("__here", "max")])
    return found.filter(pc.equal(found.column("__here_max"), 0)).select(names)


def micros_of(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Times as whole microseconds since 1970."""
    return times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())


def empty_groups(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    """Groups with these keys, a row count of zero and null accumulators."""
    arrays = []
    for field in schema:
        if field.name in keys.schema.names:
            arrays.append(keys.column(field.name).cast(field.type))
        elif field.name == GROUP_ROWS:
            arrays.append(pa.chunked_array([pa.array([0] * keys.num_rows, field.type)]))
        else:
            arrays.append(pa.chunked_array([pa.nulls(keys.num_rows, field.type)]))
    return pa.table(arrays, schema=schema)
