"""Writes rows as Protobuf messages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ConfigError
from velostream.formats.json.text import plain_text
from velostream.formats.protobuf.files import compiled, compiled_file, message_class, protobuf
from velostream.formats.schemas.registry_client import Registry
from velostream.formats.schemas.wire import framed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.formats.decoder import FormatSettings

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_TIMESTAMP = "google.protobuf.Timestamp"
_SIMPLE: dict[pa.DataType, str] = {
    pa.bool_(): "bool",
    pa.int8(): "int32",
    pa.int16(): "int32",
    pa.int32(): "int32",
    pa.int64(): "int64",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.null(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): "string",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class ProtobufEncoder:
    """One message per row."""

    def __init__(self, schema: pa.Schema, settings: FormatSettings) -> None:
        protobuf()
        text = None
        if settings.schema_file is not None:
            path = Path(settings.schema_file).expanduser()
            if not path.is_file():
                raise ConfigError(f'schema file "{settings.schema_file}" does not exist')
            found = compiled_file(path, settings.message)
            text = path.read_text(encoding="utf-8") if path.suffix == ".proto" else None
        else:
            text = proto_of(schema, _type_name(settings.subject or "row"))
            found = compiled("row.proto", text, {}, None)
        self._message = message_class(found)
        known = self._message.DESCRIPTOR.fields_by_name
        for name in schema.names:
            if name not in known:
                raise ConfigError(f'column "{name}" is not in the Protobuf message "{found.message}"')
        self._header = b""
        if settings.registry_url is not None:
            if text is None:
                raise ConfigError("a registry takes the text of a schema, and a descriptor set has none")
            subject = settings.subject or found.message
            number = Registry(settings.registry_url).register(subject, "PROTOBUF", text)
            self._header = framed(number, _indexes(found.indexes_of(found.message)))

    def records(self, rows: pa.Table) -> Sequence[bytes]:
        """See `RecordEncoder`."""
        found = []
        for row in rows.to_pylist():
            message = self._message()
            try:
                _fill(message, row)
            except (TypeError, KeyError, AttributeError) as exc:
                raise ValueError(f"a row does not fit its Protobuf message: {exc}") from exc
            found.append(self._header + message.SerializeToString(deterministic=True))
        return found


def proto_of(schema: pa.Schema, name: str) -> str:
    """The text of a schema for rows with these columns; ConfigError when there is none.

    Decimals and dates are texts, as Protobuf has no type that keeps their digits.
    """
    lines = list(_message(list(schema), name, ""))
    stamped = any(_TIMESTAMP in one for one in lines)
    used = 'import "google/protobuf/timestamp.proto";\n' if stamped else ""
    return 'syntax = "proto3";\n' + used + "\n".join(lines) + "\n"


def _message(fields: Sequence[pa.Field], name: str, indent: str) -> Iterator[str]:
    yield f"{indent}message {name} {{"
    inner = indent + "  "
    for number, field in enumerate(fields, start=1):
        if not _NAME.fullmatch(field.name):
            raise ConfigError(
                f'Protobuf has no field with the name "{field.name}"',
                hint="name the column with letters, digits and underscores: … AS name",
            )
        kind, label = field.type, "optional "
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            kind, label = kind.value_type, "repeated "
        elif pa.types.is_map(kind):
            if not (pa.types.is_string(kind.key_type) or pa.types.is_integer(kind.key_type)):
                raise ConfigError(f"Protobuf has no map with keys of {kind.key_type}")
            yield from _nested(kind.item_type, field.name, inner)
            value = _type(kind.item_type, field.name)
            yield f"{inner}map<{_type(kind.key_type, '')}, {value}> {field.name} = {number};"
            continue
        yield from _nested(kind, field.name, inner)
        yield f"{inner}{label}{_type(kind, field.name)} {field.name} = {number};"
    yield f"{indent}}}"


def _nested(kind: pa.DataType, name: str, indent: str) -> Iterator[str]:
    if pa.types.is_struct(kind):
        yield from _message(list(kind), _type_name(name), indent)


def _type(kind: pa.DataType, name: str) -> str:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return "string"
    if pa.types.is_timestamp(kind):
        return _TIMESTAMP if kind.tz else "string"
    if pa.types.is_struct(kind):
        return _type_name(name)
    raise ConfigError(f"Protobuf has no type for {kind}")


def _type_name(text: str) -> str:
    words = re.split(r"[^A-Za-z0-9]+", text)
    name = "".join(word[:1].upper() + word[1:] for word in words)
    return name if _NAME.fullmatch(name) else f"M{name}"


def _fill(message: Any, row: dict[str, Any]) -> None:
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in row.items():
        if value is None:
            continue
        field = fields[name]
        kind = field.message_type
        if kind is not None and kind.GetOptions().map_entry:
            _fill_map(getattr(message, name), kind.fields_by_name["value"], value)
        elif field.is_repeated:
            target = getattr(message, name)
            for item in value:
                if item is None:
                    raise ValueError(f'column "{name}": a Protobuf list cannot hold null')
                if kind is None:
                    target.append(_scalar(item, field))
                else:
                    _set(target.add(), item)
        elif kind is None:
            setattr(message, name, _scalar(value, field))
        else:
            target = getattr(message, name)
            target.SetInParent()
            _set(target, value)


def _fill_map(target: Any, field: Any, pairs: Sequence[tuple[Any, Any]]) -> None:
    for key, value in pairs:
        if value is None:
            raise ValueError("a Protobuf map cannot hold null")
        if field.message_type is None:
            target[key] = _scalar(value, field)
        else:
            _set(target[key], value)


def _set(message: Any, value: Any) -> None:
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        micros = (value - _EPOCH) // (value - value).resolution
        message.seconds, message.nanos = micros // 1_000_000, micros % 1_000_000 * 1000
    elif isinstance(value, dict):
        _fill(message, value)
    else:
        # Only the wrapper types hold a plain value.
        message.value = _scalar(value, message.DESCRIPTOR.fields_by_name["value"])


_TEXT, _ENUM, _FLOATS = 9, 14, (1, 2)


def _scalar(value: Any, field: Any) -> Any:
    if field.type == _TEXT and not isinstance(value, str):
        return plain_text(value)
    if field.type == _ENUM and isinstance(value, str):
        found = field.enum_type.values_by_name.get(value)
        if found is None:
            raise ValueError(f'"{value}" is not a symbol of the enum of "{field.name}"')
        return found.number
    if field.type in _FLOATS and not isinstance(value, float):
        raise ValueError(f'column "{field.name}" would lose digits as a double')
    return value


def _indexes(places: Sequence[int]) -> bytes:
    """The index of a record's message in its file; a lone zero means the first."""
    if list(places) == [0]:
        return b"\0"
    return b"".join(_zigzag(number) for number in (len(places), *places))


def _zigzag(number: int) -> bytes:
    left, found = number << 1, bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
