"""Groups Arrow rows by keys of any type: Arrow itself cannot group by lists or structs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence


def grouped(rows: pa.Table, keys: Sequence[str], figures: Sequence[tuple[str, str]] = ()) -> pa.Table:
    """One row per key with the aggregates `(column, function)` as `column_function`; null equals null.

    A list or struct is grouped by its text: it must be normalised like Spark does for GROUP BY, with one NaN
    and without -0.0.
    """
    nested = [name for name in keys if pa.types.is_nested(rows.schema.field(name).type)]
    values = {}
    for name in nested:
        values[name] = rows.column(name)
        texts = pa.array(
            [None if value is None else repr(value) for value in values[name].to_pylist()], pa.string()
        )
        rows = rows.set_column(rows.schema.get_field_index(name), name, texts)
    if not nested:
        return rows.group_by(list(keys), use_threads=False).aggregate(list(figures))
    numbered = rows.append_column("__first", pa.array(range(rows.num_rows), pa.int64()))
    found = numbered.group_by(list(keys), use_threads=False).aggregate([*figures, ("__first", "min")])
    for name in nested:
        held = values[name].take(found.column("__first_min"))
        found = found.set_column(found.schema.get_field_index(name), name, held)
    return found.drop_columns(["__first_min"])
