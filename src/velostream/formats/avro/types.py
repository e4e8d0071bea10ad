"""Avro schemas and their Arrow types."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ConfigError, SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PRIMITIVES: dict[str, pa.DataType] = {
    "null": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: dict[tuple[str, str], pa.DataType] = {
    ("int", "date"): pa.date32(),
    ("int", "time-millis"): pa.string(),
    ("long", "time-micros"): pa.string(),
    ("long", "timestamp-millis"): pa.timestamp("us", tz="UTC"),
    ("long", "timestamp-micros"): pa.timestamp("us", tz="UTC"),
    ("long", "local-timestamp-millis"): pa.timestamp("us"),
    ("long", "local-timestamp-micros"): pa.timestamp("us"),
    ("string", "uuid"): pa.string(),
    ("fixed", "uuid"): pa.string(),
}
_MOST_DIGITS = 38
_UUID_BYTES = 16


@dataclass(frozen=True)
class AvroSchema:
    """A parsed schema with the named types that it uses."""

    top: Any
    named: Mapping[str, Any]


@dataclass(frozen=True)
class Kind:
    """One type: its name, its logical type if that is supported, and its schema."""

    name: str
    logical: str | None
    schema: Any

    @property
    def short_name(self) -> str:
        """The name of a named type, without its namespace."""
        return str(self.schema["name"]).rpartition(".")[2]


def parse_avro(text: str, used: Sequence[str] = ()) -> AvroSchema:
    """A schema from its text; `used` are the texts of those that it refers to, in any order."""
    fastavro = _fastavro()
    named: dict[str, Any] = {}
    try:
        left = [json.loads(one) for one in used]
        while left:
            # A schema can be parsed only after those that it references.
            later = []
            for one in left:
                try:
                    fastavro.parse_schema(one, named_schemas=named)
                except fastavro.schema.UnknownType:
                    later.append(one)
            if len(later) == len(left):
                fastavro.parse_schema(left[0], named_schemas=named)
            left = later
        parsed = fastavro.parse_schema(json.loads(text), named_schemas=named)
    except (ValueError, TypeError, KeyError, RecursionError, fastavro.schema.SchemaParseException) as exc:
        raise SourceConfigError(f"not an Avro schema: {exc or type(exc).__name__}") from exc
    except fastavro.schema.UnknownType as exc:
        raise SourceConfigError(f"not an Avro schema: type {exc} is not known") from exc
    return AvroSchema(parsed, named)


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as exc:
        raise ConfigError("Avro needs the package fastavro", hint="pip install 'velostream[avro]'") from exc
    return fastavro


def kind_of(schema: Any, within: AvroSchema) -> Kind:
    """The kind of a schema, or of the schema with a name."""
    while True:
        if isinstance(schema, str) and schema in within.named:
            schema = within.named[schema]
        elif isinstance(schema, dict) and isinstance(schema.get("type"), dict | list):
            schema = schema["type"]
        else:
            break
    if isinstance(schema, list):
        return Kind("union", None, schema)
    name = schema["type"] if isinstance(schema, dict) else schema
    name = "record" if name == "error" else name
    if isinstance(schema, dict) and name in within.named and name not in PRIMITIVES:
        return kind_of(within.named[name], within)
    return Kind(name, _logical(name, schema), schema)


def _logical(name: str, schema: Any) -> str | None:
    """The logical type, if it is valid for its physical type; others are ignored, as Avro requires."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    if logical == "decimal" and name in ("bytes", "fixed"):
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        valid = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision
        return "decimal" if valid and precision > 0 else None
    if (name, logical) not in _LOGICAL or (name == "fixed" and schema["size"] != _UUID_BYTES):
        return None
    return str(logical)


def arrow_columns(schema: AvroSchema) -> pa.Schema:
    """The columns of a record's schema; SourceConfigError when it has none."""
    kind = kind_of(schema.top, schema)
    if kind.name != "record":
        raise SourceConfigError("the rows of Avro data must be records")
    return pa.schema([pa.field(f["name"], arrow_type(f["type"], schema)) for f in kind.schema["fields"]])


def arrow_type(one: Any, schema: AvroSchema, within: tuple[str, ...] = ()) -> pa.DataType:
    """The Arrow type of a column with such values."""
    kind = kind_of(one, schema)
    if kind.name == "union":
        return _union_type(kind.schema, schema, within)
    if kind.logical == "decimal":
        precision, scale = kind.schema["precision"], kind.schema.get("scale", 0)
        if precision > _MOST_DIGITS:
            raise SourceConfigError(f"an Avro decimal of {precision} digits has no column")
        return pa.decimal128(precision, scale)
    if kind.logical is not None:
        return _LOGICAL[kind.name, kind.logical]
    if kind.name == "array":
        return pa.list_(arrow_type(kind.schema["items"], schema, within))
    if kind.name == "map":
        return pa.map_(pa.string(), arrow_type(kind.schema["values"], schema, within))
    if kind.name == "record":
        name = kind.schema["name"]
        if name in within:
            raise SourceConfigError(f'Avro record "{name}" holds itself, which no column can')
        within = (*within, name)
        return pa.struct(
            [pa.field(f["name"], arrow_type(f["type"], schema, within)) for f in kind.schema["fields"]]
        )
    if kind.name not in PRIMITIVES:
        raise SourceConfigError(f'Avro type "{kind.name}" is not known')
    return PRIMITIVES[kind.name]


def branches(union: Sequence[Any], schema: AvroSchema) -> list[Any]:
    """The types of a union besides null."""
    return [branch for branch in union if kind_of(branch, schema).name != "null"]


def merged(options: Sequence[Any], schema: AvroSchema) -> bool:
    """Whether one column type holds all types of a union: there is one, or they are compatible numbers."""
    if len(options) <= 1:
        return True
    kinds = {(kind.name, kind.logical) for kind in (kind_of(option, schema) for option in options)}
    return kinds <= {("int", None), ("long", None)} or kinds <= {("float", None), ("double", None)}


def _union_type(union: Sequence[Any], schema: AvroSchema, within: tuple[str, ...]) -> pa.DataType:
    """Types that do not merge are a struct of `member0`, `member1`, …, of which one is not null."""
    options = branches(union, schema)
    types = [arrow_type(option, schema, within) for option in options]
    if not types:
        return pa.string()
    if merged(options, schema):
        return max(types, key=lambda kind: kind.bit_width) if len(types) > 1 else types[0]
    return pa.struct([pa.field(f"member{number}", kind) for number, kind in enumerate(types)])
