"""Debezium envelopes in JSON, with their schema (`schema`, `payload`) or without."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.formats.columns.inference import Number, Seen, merge_schemas
from velostream.formats.columns.values import json_value
from velostream.formats.json.records import parse_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from velostream.formats.debezium.envelopes import Envelope

_EXACT = Context(prec=200)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = {
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
_INSTANT = pa.timestamp("us", tz="UTC")
_PER_SECOND = {
    "org.apache.kafka.connect.data.Timestamp": 10**3,
    "io.debezium.time.Timestamp": 10**3,
    "io.debezium.time.MicroTimestamp": 10**6,
    "io.debezium.time.NanoTimestamp": 10**9,
}
_DAYS = ("org.apache.kafka.connect.data.Date", "io.debezium.time.Date")
_DECIMAL = "org.apache.kafka.connect.data.Decimal"
_VARIABLE = "io.debezium.data.VariableScaleDecimal"
_ZONED = "io.debezium.time.ZonedTimestamp"
_MOST_DIGITS = 38


def sampled_columns(sample: Sequence[bytes]) -> pa.Schema | None:
    """The columns of the rows in some records: from their schema, else inferred from values."""
    schema = pa.schema([])
    seen = Seen()
    for record in sample:
        try:
            described, payload = _parts(parse_object(record))
        except ValueError:
            continue
        if described is not None:
            found = [pa.field(f["field"], _type(f)) for f in described]
            schema = merge_schemas(schema, pa.schema(found))
            continue
        for image in ("before", "after"):
            if isinstance(payload.get(image), dict):
                seen.add_json(payload[image])
    looked = pa.schema([pa.field(name, one.type()) for name, one in seen.fields.items()])
    return merge_schemas(schema, looked) or None


class JsonEnvelopes:
    """Decodes envelopes into columns; picklable, sent to the executors."""

    def __init__(self, fields: Sequence[pa.Field]) -> None:
        self.fields = list(fields)
        self.types: Sequence[pa.DataType] = [f.type for f in fields]

    def opened(self) -> Callable[[bytes], Envelope]:
        """A function that decodes one envelope; ValueError says why it cannot."""
        from velostream.formats.debezium.envelopes import Envelope

        def decode(record: bytes) -> Envelope:
            described, payload = _parts(parse_object(record))
            schemas = {f["field"]: f for f in described} if described is not None else {}
            rows = [self._row(payload.get(image), schemas) for image in ("before", "after")]
            return Envelope(str(payload["op"]), *rows)

        return decode

    def _row(self, row: Any, schemas: Mapping[str, Any]) -> dict[str, Any] | None:
        if row is None:
            return None
        if not isinstance(row, dict):
            raise ValueError("a row that is no object")  # noqa: TRY004 - a bad row, not a bug
        values = {}
        for field in self.fields:
            value = row.get(field.name)
            try:
                values[field.name] = _value(value, field.type, schemas.get(field.name))
            except (ValueError, ArithmeticError) as exc:
                raise ValueError(f'column "{field.name}": {exc}') from exc
        return values


def _parts(record: dict[str, Any]) -> tuple[list[Any] | None, dict[str, Any]]:
    """The schemas of a row's fields (None without a schema), and the envelope."""
    payload, described = record, None
    if isinstance(record.get("payload"), dict) and "op" not in record:
        payload = record["payload"]
        fields = record["schema"].get("fields") if isinstance(record.get("schema"), dict) else None
        for one in fields if isinstance(fields, list) else ():
            if isinstance(one, dict) and one.get("field") in ("before", "after") and one.get("fields"):
                described = one["fields"]
    if "op" not in payload:
        raise ValueError('not an envelope of Debezium: it has no "op"')
    return described, payload


def _type(schema: Mapping[str, Any]) -> pa.DataType:
    """The column type of a field of Kafka Connect."""
    name, kind = schema.get("name"), schema.get("type")
    if name == _DECIMAL:
        scale = int(schema["parameters"]["scale"])
        digits = int(schema["parameters"].get("connect.decimal.precision", _MOST_DIGITS))
        return pa.decimal128(min(max(digits, scale, 1), _MOST_DIGITS), scale)
    if name == _VARIABLE:
        return pa.string()
    if name in _DAYS:
        return pa.date32()
    if name in _PER_SECOND or name == _ZONED:
        return _INSTANT
    if kind == "array":
        return pa.list_(_type(schema["items"]))
    if kind == "map":
        return pa.map_(pa.string(), _type(schema["values"]))
    if kind == "struct":
        return pa.struct([pa.field(f["field"], _type(f)) for f in schema["fields"]])
    return _PLAIN.get(str(kind), pa.string())


def _value(value: Any, wanted: pa.DataType, schema: Mapping[str, Any] | None) -> Any:
    """A value of a row, converted for its column."""
    if value is None:
        return None
    name = schema.get("name") if schema is not None else None
    if schema is not None and name == _DECIMAL and isinstance(value, str):
        value = _decimal(value, int(schema["parameters"]["scale"]))
    elif name == _VARIABLE and isinstance(value, dict):
        value = _decimal(value["value"], int(value["scale"]))
    elif name in _DAYS and isinstance(value, int):
        return date(1970, 1, 1) + timedelta(days=value)
    elif name in _PER_SECOND and isinstance(value, int):
        return _instant(value, _PER_SECOND[str(name)])
    elif schema is not None and schema.get("type") == "bytes" and isinstance(value, str):
        return _bytes(value)
    if isinstance(value, Decimal):
        value = Number(f"{value:f}")
    return json_value(value, wanted)


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError(f"not base64: {exc}") from exc


def _decimal(text: str, scale: int) -> Decimal:
    return Decimal(int.from_bytes(_bytes(text), "big", signed=True)).scaleb(-scale, _EXACT)


def _instant(count: int, per_second: int) -> datetime:
    # Instants are stored with microseconds.
    return _EPOCH + timedelta(microseconds=count * 10**6 // per_second)
