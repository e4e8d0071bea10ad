"""Widening of discovered columns that are too narrow for later records."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.files.read.rows import RowReader, Shape
from velostream.formats.columns.inference import (
    Number,
    infer_csv,
    infer_json,
    merge_schemas,
    number_type,
    parse_json,
)
from velostream.formats.json.lines import unknown_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from velostream.connectors.files.read.rows import Suspect
    from velostream.connectors.files.spool.segments import Segment


def widened(
    reader: RowReader,
    segments: Sequence[Segment],
    suspects: Iterable[Suspect] | None,
    *,
    values: bool,
) -> pa.Schema:
    """The schema with columns that are new in some segments, and with wider numeric types.

    Types are widened only with `values`: for the suspects, or without them for every record that does not
    fit.
    """
    schema = reader.schema
    for segment in segments:
        schema = merge_schemas(schema, _new_columns(reader, schema, segment))
    if not values:
        return schema
    wide = RowReader(reader.spool, schema, reader.dialects)
    shapes = wide.shapes_by_path(segments)
    for bad in wide.bad_records(segments, suspects):
        schema = merge_schemas(schema, _needed(bad.record, shapes[bad.path], schema))
    return schema


def _new_columns(reader: RowReader, schema: pa.Schema, segment: Segment) -> pa.Schema:
    known = {name.casefold() for name in schema.names}
    if segment.kind != "text":
        from velostream.connectors.files.read.dataframes import binary_rows

        if all(name.partition(":")[0].casefold() in known for name in segment.columns or ()):
            return pa.schema([])
        return binary_rows(reader.spool, segment).schema
    if segment.columns is None:
        return _new_fields(reader, schema, segment)
    columns, dialect = reader.shape(segment)
    columns = columns or ()
    if all(name.casefold() in known for name in columns):
        return pa.schema([])
    texts = (record for record, _, _ in reader.records([segment]))
    seen = infer_csv(columns, dialect.rows(texts, len(columns)))
    return pa.schema([field for field in seen if field.name.casefold() not in known])


def _new_fields(reader: RowReader, schema: pa.Schema, segment: Segment) -> pa.Schema:
    text = reader.spool.path(segment).read_bytes()
    plain = {field.name.casefold() for field in schema if not pa.types.is_struct(field.type)}
    fields = infer_json(unknown_records(text, segment.separator, schema))
    return pa.schema([field for field in fields if field.name.casefold() not in plain])


def _needed(record: str, shape: Shape, schema: pa.Schema) -> pa.Schema:
    """The numeric types that one record needs."""
    columns = shape.columns
    values: dict[str, Any] = {}
    if columns is None:
        parsed = parse_json(record)
        values = parsed if isinstance(parsed, dict) else {}
    else:
        for texts in shape.dialect.rows([record], len(columns)):
            values = dict(zip(columns, texts, strict=True))
    by_name = {name.casefold(): value for name, value in values.items()}
    fields = []
    for field in schema:
        value = by_name.get(field.name.casefold())
        kind = _asked(value, columns is None)
        if kind is not None and not (pa.types.is_integer(field.type) and _whole(value, field.type)):
            fields.append(pa.field(field.name, kind))
    return pa.schema(fields)


def _whole(value: Any, kind: pa.DataType) -> bool:
    """Whether the type can hold the number as an integer: one bad neighbour does not widen it."""
    number = Decimal(str(value).strip())
    most = 1 << (kind.bit_width - 1)
    return number == number.to_integral_value() and -most <= number < most


def _asked(value: Any, in_json: bool) -> pa.DataType | None:
    if value is None or isinstance(value, bool | dict | list):
        return None
    if in_json and isinstance(value, str) and not isinstance(value, Number):
        return None
    return number_type(str(value))
