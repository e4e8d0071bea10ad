"""Columns of rows and of the table that they are written to: whether they fit, and how values are cast."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.databases.wider_types import wider
from velostream.connectors.databases.write.sink import MISSING_COLUMN
from velostream.errors import SinkConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def check_types(schema: pa.Schema) -> None:
    """Raise SinkConfigError for a column whose type no table of a lake has."""
    for field in schema:
        if any(map(_unknown, _within(field.type))):
            raise SinkConfigError(
                f'column "{field.name}" is of a type that the table cannot hold: {field.type}',
                hint=f"cast it in the SELECT: CAST({field.name} AS STRING)",
            )


def without_demands(schema: pa.Schema) -> pa.Schema:
    """The columns of a table that is made for rows: each may be NULL, and each field of a struct."""
    return pa.schema([pa.field(field.name, _without_demands(field.type)) for field in schema])


def _without_demands(kind: pa.DataType) -> pa.DataType:
    if _is_list(kind):
        return pa.list_(_without_demands(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(_without_demands(kind.key_type), _without_demands(kind.item_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _without_demands(field.type)) for field in kind])
    return _plain(kind)


def check_key(schema: pa.Schema, key: Sequence[str]) -> None:
    """Raise SinkConfigError for a key that rows cannot be found by."""
    for name in key:
        if name not in schema.names:
            raise SinkConfigError(f'the key column "{name}" is not written', hint="select it")
        kind = schema.field(name).type
        if pa.types.is_nested(kind):
            raise SinkConfigError(
                f'column "{name}" is {kind}, and rows are not found by such a key',
                hint=f'write to_json({name}) as the key, or WITH ("mode" = "append")',
            )


def missing(ours: pa.Schema, theirs: pa.Schema) -> list[pa.Field]:
    """The columns of rows that the table has not, in part or at all, and that can be added to it."""
    found = [field for field in ours if field.name not in theirs.names]
    folded = {name.casefold(): name for name in theirs.names}
    for field in found:
        if field.name.casefold() in folded:
            raise SinkConfigError(
                f'column "{field.name}" is "{folded[field.name.casefold()]}" in the table',
                hint="name the column as the table does, with AS",
            )
    grown = [
        field
        for field in ours
        if field.name in theirs.names
        and not fits(field.type, theirs.field(field.name).type)
        and fits(field.type, theirs.field(field.name).type, growing=True)
    ]
    return [*found, *grown]


def check_fits(table: str, ours: pa.Schema, theirs: pa.Schema) -> None:
    """Raise SinkConfigError, naming the column, where rows cannot be written to the table."""
    for field in missing(ours, theirs):
        if field.name not in theirs.names:
            raise SinkConfigError(f'{table} has no column "{field.name}"', hint=MISSING_COLUMN)
    for field in ours:
        there = theirs.field(field.name)
        if not fits(field.type, there.type):
            raise SinkConfigError(
                f'column "{field.name}" is {field.type} in the rows, and {there.type} in {table}',
                hint=f"cast it in the SELECT: CAST({field.name} AS …)",
            )
    for field in theirs:
        if not field.nullable and field.name not in ours.names:
            raise SinkConfigError(
                f'{table} needs a value of column "{field.name}", which is not written', hint="select it"
            )


def fits(ours: pa.DataType, theirs: pa.DataType, *, growing: bool = False) -> bool:
    """Whether every value of our type is one of theirs; `growing`: once fields of structs are added."""
    if _is_list(ours) and _is_list(theirs):
        return fits(ours.value_type, theirs.value_type, growing=growing)
    if pa.types.is_map(ours) and pa.types.is_map(theirs):
        return fits(ours.key_type, theirs.key_type) and fits(
            ours.item_type, theirs.item_type, growing=growing
        )
    if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
        there = {field.name: field for field in theirs}
        mine = {field.name: field.type for field in ours}
        return all(
            fits(kind, there[name].type, growing=growing) if name in there else growing
            for name, kind in mine.items()
        ) and all(field.nullable or name in mine for name, field in there.items())
    return wider(_plain(ours), _plain(theirs))


def aligned(rows: pa.Table, theirs: pa.Schema) -> pa.Table:
    """The rows with the columns of the table, as its types; columns that are not written are NULL."""
    columns = [
        rows[field.name].cast(field.type)
        if field.name in rows.column_names
        else pa.nulls(rows.num_rows, field.type)
        for field in theirs
    ]
    return pa.table(columns, schema=theirs)


def without_value(rows: pa.Table, theirs: pa.Schema) -> dict[int, str]:
    """Rows that lack a value which the table demands, also inside of structs and arrays, with the reasons."""
    found: dict[int, str] = {}
    for field in theirs:
        if field.name in rows.column_names and _demands(field):
            column = rows[field.name].combine_chunks()
            _lacking(column, field, pa.array(range(len(column)), pa.int64()), field.name, found)
    return found


def _demands(field: pa.Field) -> bool:
    kind = field.type
    return not field.nullable or any(_demands(kind.field(place)) for place in range(kind.num_fields))


def _lacking(values: pa.Array, field: pa.Field, rows: pa.Array, name: str, found: dict[int, str]) -> None:
    """Add what lacks to `found`; `rows` are the rows that the values belong to."""
    if not field.nullable:
        for place in pc.indices_nonzero(values.is_null()).to_pylist():
            found.setdefault(rows[place].as_py(), f'column "{name}" cannot be NULL')
    kind = field.type
    if pa.types.is_struct(kind):
        there = pc.indices_nonzero(values.is_valid())
        for child in filter(_demands, kind):
            if values.type.get_field_index(child.name) >= 0:
                part = values.field(child.name).take(there)
                _lacking(part, child, rows.take(there), f"{name}.{child.name}", found)
    elif pa.types.is_map(kind) and _demands(kind.item_field):
        whole = values.filter(values.is_valid())
        ends = whole.offsets.to_numpy()
        belong = rows.filter(values.is_valid()).take(
            pa.array(np.repeat(np.arange(len(whole)), np.diff(ends)))
        )
        items = whole.items.slice(ends[0], ends[-1] - ends[0])
        _lacking(items, kind.item_field, belong, f"{name}.value", found)
    elif _is_list(kind) and _demands(kind.value_field):
        belong = rows.take(pc.list_parent_indices(values))
        _lacking(values.flatten(), kind.value_field, belong, f"{name}.element", found)


def names_of(text: str | None) -> list[str]:
    """Names that are separated by commas outside of parentheses."""
    found, depth = [""], 0
    for letter in text or "":
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [name.strip() for name in found if name.strip()]


def _plain(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    return kind


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _within(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for place in range(kind.num_fields):
        yield from _within(kind.field(place).type)


def _unknown(kind: pa.DataType) -> bool:
    named = (pa.types.is_null, pa.types.is_duration, pa.types.is_interval, pa.types.is_time)
    return any(each(kind) for each in named)
