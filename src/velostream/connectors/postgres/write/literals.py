"""Values as PostgreSQL reads them: CSV for COPY."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyarrow import csv

from velostream.connectors.postgres.client.types import array_literal
from velostream.formats.json.writer import json_bytes

_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.binary(): "bytea",
    pa.date32(): "date",
}


def type_name(kind: pa.DataType) -> str:
    """The type of a column that is made for values of this type."""
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz is not None else "timestamp"
    if pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return f"{type_name(kind.value_type)}[]"
    return _NAMES.get(kind, "jsonb")


def csv_of(rows: pa.Table) -> bytes:
    """Rows for `COPY … (FORMAT csv)`: null is empty, and an empty text is quoted."""
    texts = pa.table([_texts(column) for column in rows.columns], names=rows.column_names)
    out = pa.BufferOutputStream()
    csv.write_csv(texts, out, csv.WriteOptions(include_header=False, quoting_style="all_valid"))
    return bytes(out.getvalue())


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _each(column, lambda value: "\\x" + value.hex())
    if pa.types.is_list(kind) and not pa.types.is_nested(kind.value_type):
        return _each(column, array_literal)
    if pa.types.is_nested(kind):
        return _json(column)
    return column.cast(pa.string())


def _each(column: pa.ChunkedArray, text: Any) -> pa.ChunkedArray:
    return pa.chunked_array(
        [[None if value is None else text(value) for value in column.to_pylist()]], pa.string()
    )


def _json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Structs and maps as JSON: each is the only field of an object, whose braces and name are cut off."""
    lines = json_bytes(pa.table({"v": column}))
    texts = [line[len(b'{"v":') : -1].decode() for line in lines]
    valid = column.is_valid().to_pylist()
    return pa.chunked_array(
        [[text if there else None for text, there in zip(texts, valid, strict=True)]], pa.string()
    )
