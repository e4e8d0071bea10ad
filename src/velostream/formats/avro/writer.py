"""Rows as Avro records."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ConfigError
from velostream.formats.avro.types import AvroSchema, kind_of, parse_avro
from velostream.formats.schemas.registry_client import Registry
from velostream.formats.schemas.wire import framed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from velostream.formats.decoder import FormatSettings

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SIMPLE: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.null(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}


class AvroEncoder:
    """One Avro record per row."""

    def __init__(self, schema: pa.Schema, settings: FormatSettings) -> None:
        name = re.sub(r"\W", "_", settings.subject or "row")
        name = name if _NAME.fullmatch(name) else f"_{name}"
        text = _text(settings.schema_file) if settings.schema_file else json.dumps(avro_of(schema, name))
        parsed = parse_avro(text)
        _check(schema, parsed)
        self._schema = parsed.top
        self._arrays = _changed(schema)
        self._id = None
        if settings.registry_url is not None:
            self._id = Registry(settings.registry_url).register(settings.subject or name, "AVRO", text)

    def records(self, rows: pa.Table) -> Sequence[bytes]:
        """See `RecordEncoder`."""
        from fastavro import schemaless_writer

        found = []
        for row in rows.to_pylist():
            for name, change in self._arrays:
                row[name] = change(row[name])
            stream = io.BytesIO()
            try:
                schemaless_writer(stream, self._schema, row)
            except (TypeError, AttributeError, KeyError, OverflowError) as exc:
                raise ValueError(f"a row does not fit its Avro schema: {exc}") from exc
            payload = stream.getvalue()
            found.append(payload if self._id is None else framed(self._id, payload))
        return found


def avro_of(schema: pa.Schema, name: str) -> dict[str, Any]:
    """An Avro schema for rows with these columns, all nullable; raises ConfigError for other types."""
    return _record(list(schema), name)


def _record(fields: Sequence[pa.Field], name: str) -> dict[str, Any]:
    for field in fields:
        if not _NAME.fullmatch(field.name):
            raise ConfigError(
                f'Avro has no field with the name "{field.name}"',
                hint="name the column with letters, digits and underscores: … AS name",
            )
    written = [
        {"name": f.name, "type": ["null", _type(f.type, f"{name}_{f.name}")], "default": None} for f in fields
    ]
    return {"type": "record", "name": name, "fields": written}


def _type(kind: pa.DataType, name: str) -> Any:
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if pa.types.is_decimal(kind):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    if pa.types.is_timestamp(kind):
        return {"type": "long", "logicalType": f"{'' if kind.tz else 'local-'}timestamp-micros"}
    if pa.types.is_struct(kind):
        return _record(list(kind), name)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return {"type": "array", "items": ["null", _type(kind.value_type, f"{name}_item")]}
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return {"type": "map", "values": ["null", _type(kind.item_type, f"{name}_value")]}
    raise ConfigError(f"Avro has no type for {kind}")


def _text(name: str) -> str:
    try:
        return Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise ConfigError(f'schema file "{name}" cannot be read: {exc}') from exc


def _check(schema: pa.Schema, avro: AvroSchema) -> None:
    """Raise unless every column has a field, and every field a column or a default."""
    top = kind_of(avro.top, avro)
    if top.name != "record":
        raise ConfigError("the Avro schema of rows must be a record")
    there = {field["name"]: field for field in top.schema["fields"]}
    for name in schema.names:
        if name not in there:
            raise ConfigError(f'column "{name}" is not in the Avro schema')
    for name, field in there.items():
        if name not in schema.names and "default" not in field:
            raise ConfigError(
                f'field "{name}" of the Avro schema has no default, and there is no such column'
            )


def _changed(schema: pa.Schema) -> list[tuple[str, Callable[[Any], Any]]]:
    """Conversions of columns with maps, at any depth: Arrow returns pairs, fastavro expects dicts."""
    changes = [(field.name, _change(field.type)) for field in schema]
    return [(name, change) for name, change in changes if change is not None]


def _change(kind: pa.DataType) -> Callable[[Any], Any] | None:
    if pa.types.is_map(kind):
        inner = _change(kind.item_type) or _same
        return lambda pairs: None if pairs is None else {key: inner(value) for key, value in pairs}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        item = _change(kind.value_type)
        return None if item is None else lambda items: None if items is None else [item(one) for one in items]
    if pa.types.is_struct(kind):
        parts = _changed(pa.schema(list(kind)))
        if parts:
            return lambda row: None if row is None else {**row, **{n: f(row[n]) for n, f in parts}}
    return None


def _same(value: Any) -> Any:
    return value
