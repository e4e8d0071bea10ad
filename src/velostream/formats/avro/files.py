"""Avro container files to Arrow, decimals and timestamps exact."""

from __future__ import annotations

from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ConfigError, SourceConfigError
from velostream.formats.avro.blocks import Container
from velostream.formats.avro.types import PRIMITIVES

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH = 10_000
_LOGICAL: dict[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("us", tz="UTC"),
    "timestamp-micros": pa.timestamp("us", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("us"),
    "local-timestamp-micros": pa.timestamp("us"),
    "uuid": pa.string(),
}


def avro_schema(stream: IO[bytes]) -> tuple[pa.Schema, int]:
    """The columns of a file and the number of its rows; ValueError when it is damaged."""
    file = Container(stream)
    _fastavro().parse_schema(file.schema)
    return _arrow_schema(file.schema), sum(count for count, _ in file.blocks())


def avro_batches(stream: IO[bytes]) -> Iterator[pa.RecordBatch]:
    """The rows of a file."""
    reader = _fastavro().reader(Container(stream).plain())
    schema = _arrow_schema(reader.writer_schema)
    texts = [field.name for field in schema if pa.types.is_string(field.type)]
    while rows := list(islice(reader, _BATCH)):
        for row in rows:
            for name in texts:
                value = row.get(name)
                if value is not None and not isinstance(value, str):
                    row[name] = str(value)
        yield pa.RecordBatch.from_pylist(rows, schema=schema)


def _fastavro() -> Any:
    try:
        import fastavro
    except ImportError as exc:
        raise ConfigError(
            "Avro files need the package fastavro", hint="pip install 'velostream[avro]'"
        ) from exc
    return fastavro


def _arrow_schema(schema: Any) -> pa.Schema:
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise SourceConfigError("the rows of an Avro file must be records")
    named = {part["name"]: part for part in _parts(schema) if isinstance(part.get("name"), str)}
    for part in _parts(schema):
        if part.get("type") == "array" and _takes_no_bytes(part.get("items"), named):
            raise ValueError("an array of items that take no bytes can claim any number of them")
    return pa.schema([pa.field(field["name"], _arrow_type(field["type"], {})) for field in schema["fields"]])


def _arrow_type(kind: Any, named: dict[str, pa.DataType]) -> pa.DataType:
    if isinstance(kind, str):
        found = PRIMITIVES.get(kind) or named.get(kind)
        if found is None:
            raise SourceConfigError(f'Avro type "{kind}" is not known')
        return found
    if isinstance(kind, list):
        branches = [branch for branch in kind if branch != "null"]
        if len(branches) > 1:
            raise SourceConfigError("an Avro union of several types has no column type")
        return _arrow_type(branches[0] if branches else "null", named)
    logical = kind.get("logicalType")
    if logical == "decimal":
        return pa.decimal128(kind["precision"], kind.get("scale", 0))
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    return _nested(kind, named)


def _nested(kind: dict[str, Any], named: dict[str, pa.DataType]) -> pa.DataType:
    name = kind["type"]
    if name == "array":
        return pa.list_(_arrow_type(kind["items"], named))
    if name == "map":
        return pa.map_(pa.string(), _arrow_type(kind["values"], named))
    if name == "record":
        found = pa.struct([pa.field(f["name"], _arrow_type(f["type"], named)) for f in kind["fields"]])
        named[kind["name"]] = found
        return found
    if "name" in kind:
        named[kind["name"]] = PRIMITIVES[name]
    return _arrow_type(name, named)


def _parts(kind: Any) -> Iterator[dict[str, Any]]:
    """The schema and all that are in it."""
    if isinstance(kind, dict):
        yield kind
    for part in kind.values() if isinstance(kind, dict) else kind if isinstance(kind, list) else ():
        yield from _parts(part)


def _takes_no_bytes(kind: Any, named: dict[str, dict[str, Any]]) -> bool:
    """Whether a value of the type takes no bytes: null, a record of such types, fixed bytes of length 0."""
    if isinstance(kind, str):
        return kind == "null" or (kind in named and _takes_no_bytes(named[kind], named))
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "record":
        return all(_takes_no_bytes(field["type"], named) for field in kind["fields"])
    return kind.get("size") == 0 if kind["type"] == "fixed" else _takes_no_bytes(kind["type"], named)
