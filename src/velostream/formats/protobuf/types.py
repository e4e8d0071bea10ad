"""Protobuf messages: the Arrow types of their fields, and conversion of their values.

A field that can be absent is null when it is: messages, `optional` ones, members of a oneof. Others have the
default of their type, as Protobuf cannot distinguish. Enums are texts, unsigned numbers have a wider type,
and the well-known types become what they represent.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa

from velostream.errors import SourceConfigError

_TYPES: dict[int, pa.DataType] = {
    1: pa.float64(),
    2: pa.float32(),
    3: pa.int64(),
    4: pa.decimal128(20, 0),
    5: pa.int32(),
    6: pa.decimal128(20, 0),
    7: pa.int64(),
    8: pa.bool_(),
    9: pa.string(),
    12: pa.binary(),
    13: pa.int64(),
    14: pa.string(),
    15: pa.int32(),
    16: pa.int64(),
    17: pa.int32(),
    18: pa.int64(),
}
"""By the type numbers of descriptor.proto."""
_ENUM = 14
_GROUP, _MESSAGE = 10, 11
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_TIMESTAMP = "google.protobuf.Timestamp"
_DURATION = "google.protobuf.Duration"
_DECIMALS = ("confluent.type.Decimal",)
_EXACT = Context(prec=200)
Convert = Callable[[Any], Any]


def message_columns(descriptor: Any) -> pa.Schema:
    """The columns of a message."""
    return pa.schema([pa.field(f.name, field_type(f, (descriptor.full_name,))) for f in descriptor.fields])


def _map_entry(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def field_type(field: Any, within: tuple[str, ...] = ()) -> pa.DataType:
    """The type of the column of a field."""
    if _map_entry(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return pa.map_(_one_type(key, within), _one_type(value, within))
    kind = _one_type(field, within)
    return pa.list_(kind) if field.is_repeated else kind


def _one_type(field: Any, within: tuple[str, ...]) -> pa.DataType:
    message = field.message_type
    if message is None:
        return _TYPES[field.type]
    name = message.full_name
    if name in _WRAPPERS:
        return _TYPES[message.fields_by_name["value"].type]
    if name == _TIMESTAMP:
        return pa.timestamp("us", tz="UTC")
    if name == _DURATION or name in _DECIMALS:
        return pa.string()
    if name in within:
        raise SourceConfigError(f'Protobuf message "{name}" holds itself, which no column can')
    fields = [pa.field(f.name, field_type(f, (*within, name))) for f in message.fields]
    if not fields:
        # A struct without fields cannot be a column in Spark; whether it is present can still be shown.
        return pa.bool_()
    return pa.struct(fields)


def field_reader(field: Any) -> Convert:
    """A function from a message to the value of one of its fields."""
    name = field.name
    if _map_entry(field):
        key, value = (field.message_type.fields_by_name[part] for part in ("key", "value"))
        of_key, of_value = _converter(key), _converter(value)
        # A map is unordered, and a row that is read again must be the same.
        return lambda message: [(of_key(k), of_value(v)) for k, v in sorted_pairs(getattr(message, name))]
    convert = _converter(field)
    if field.is_repeated:
        return lambda message: [convert(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _converter(field: Any) -> Convert:
    if field.type == _ENUM:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda value: names.get(value, str(value))
    if field.type in (4, 6):
        return Decimal
    message = field.message_type
    if message is None:
        return _same
    name = message.full_name
    if name in _WRAPPERS:
        inner = _converter(message.fields_by_name["value"])
        return lambda value: inner(value.value)
    if name == _TIMESTAMP:
        return _instant
    if name == _DURATION:
        return _duration
    if name in _DECIMALS:
        return _decimal
    readers = [(f.name, field_reader(f)) for f in message.fields]
    if not readers:
        return lambda _: True
    return lambda value: {part: read(value) for part, read in readers}


def sorted_pairs(pairs: Any) -> list[tuple[Any, Any]]:
    """The pairs of a map, sorted by key."""
    return [(key, pairs[key]) for key in sorted(pairs)]


def _same(value: Any) -> Any:
    return value


def _instant(value: Any) -> int:
    """Microseconds since 1970; nanoseconds are dropped."""
    if not 0 <= value.nanos < 1_000_000_000:
        raise ValueError(f"{value.nanos} are no nanoseconds of an instant")
    return int(value.seconds) * 1_000_000 + int(value.nanos) // 1000


def _duration(value: Any) -> str:
    return str(value.ToJsonString())


def _decimal(value: Any) -> str:
    whole = int.from_bytes(value.value, "big", signed=True)
    return f"{Decimal(whole).scaleb(-value.scale, _EXACT):f}"
