"""Columns that are written: their types in a table that is made, and which values one that exists can hold.

The server checks dates, enums and lengths by itself. Numbers that are too large it stores as other numbers,
and an array that is NULL as an empty one: such values are found here, before they are sent.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.clickhouse.client.types import INSTANT, parsed, quoted, unwrapped
from velostream.connectors.databases.text_rows import TextColumn

_NAMES = {
    pa.bool_(): "Bool",
    pa.int8(): "Int8",
    pa.int16(): "Int16",
    pa.int32(): "Int32",
    pa.int64(): "Int64",
    pa.float32(): "Float32",
    pa.float64(): "Float64",
    pa.date32(): "Date32",
}
_INTEGERS = {
    "Int8": pa.int8(),
    "Int16": pa.int16(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
}
_MOST_DIGITS = 38
_NEVER_NULL = ("Array", "Map", "Tuple", "Nested")


def type_name(kind: pa.DataType, *, nullable: bool = True) -> str:
    """The type of a column that is made for values of this type."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"Array({type_name(kind.value_type)})"
    if pa.types.is_map(kind):
        return f"Map({type_name(kind.key_type, nullable=False)}, {type_name(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"Tuple({', '.join(f'{quoted(field.name)} {type_name(field.type)}' for field in kind)})"
    if pa.types.is_decimal(kind):
        name = f"Decimal({kind.precision}, {kind.scale})"
    elif pa.types.is_timestamp(kind):
        name = INSTANT
    else:
        name = _NAMES.get(kind, "String")
    return f"Nullable({name})" if nullable else name


def checked(field: pa.Field, written: str) -> TextColumn:
    """How our values of a column are made fit for the type that it has in the table."""
    plain, _ = unwrapped(written)
    kind, arguments = parsed(plain)
    own = field.type
    number = pa.types.is_integer(own) or pa.types.is_decimal(own)
    if kind in _NEVER_NULL:
        return TextColumn(field.name, own, lambda values: _all_there(values, kind), written)
    if kind in _INTEGERS and number:
        return TextColumn(field.name, _INTEGERS[kind], lambda values: values.cast(_INTEGERS[kind]), written)
    if kind == "Decimal" and number:
        precision, scale = (int(each) for each in arguments)
        size = pa.decimal128 if precision <= _MOST_DIGITS else pa.decimal256
        return TextColumn(
            field.name, size(precision, scale), lambda values: values.cast(size(precision, scale)), written
        )
    if kind == "DateTime" and pa.types.is_timestamp(own):
        return TextColumn(field.name, pa.timestamp("s", own.tz), _seconds, written)
    return TextColumn(field.name, own, lambda values: values, written)


def _seconds(values: pa.Array) -> pa.Array:
    """Moments that 32 bits of seconds can hold; fractions of a second are cut off, as the server does."""
    seconds = values.cast(pa.timestamp("s", values.type.tz), safe=False)
    seconds.cast(pa.int64()).cast(pa.uint32())
    return seconds


def _all_there(values: pa.Array, kind: str) -> pa.Array:
    if values.null_count:
        raise ValueError(f"{kind} cannot be NULL")
    return values


def halves(rows: pa.Table, weight: str) -> tuple[pa.Table, pa.Table | None]:
    """Added rows, and retracted ones if there are any."""
    if weight not in rows.schema.names:
        return rows, None
    added = pc.greater(rows[weight], 0)
    plain = rows.drop_columns([weight])
    return plain.filter(added), plain.filter(pc.invert(added))
