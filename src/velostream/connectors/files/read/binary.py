"""Parquet, ORC and Avro files: copied whole; Avro, and what Spark cannot read, is copied as Parquet."""

from __future__ import annotations

from io import BytesIO
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from velostream.disk.private import open_file
from velostream.errors import SourceConfigError, SourceDataError
from velostream.formats.avro.files import avro_batches, avro_schema

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.connectors.files.spool.draft import Draft
    from velostream.connectors.files.spool.segments import PieceId

UNREADABLE = (pa.ArrowInvalid, pa.ArrowTypeError, EOFError, ValueError, RecursionError)
"""What readers raise for a file that is damaged, incomplete or not of its declared format."""


def copy_binary(
    path: str, form: str, content: bytes, draft: Draft
) -> tuple[tuple[str, ...], tuple[PieceId, ...]]:
    """Copy a file into the spool; returns its columns as `name:type`, and the pieces that hold its rows.

    Raises SourceDataError when it is damaged or incomplete.
    """
    try:
        schema, rows = read_schema(BytesIO(content), form)
        columns = tuple(f"{field.name}:{field.type}" for field in schema)
        kind = "orc" if form == "orc" else "parquet"
        piece = draft.add_binary(path, kind, rows, columns, lambda to: _copy(content, form, schema, to))
    except UNREADABLE as exc:
        raise SourceDataError(f"not a readable {form} file: {exc}") from exc
    return columns, (piece,) if rows else ()


def read_schema(stream: IO[bytes], form: str) -> tuple[pa.Schema, int]:
    """The columns, in types that Spark has, and the number of rows."""
    if form == "parquet":
        with pq.ParquetFile(stream) as parquet:
            return spark_schema(parquet.schema_arrow), parquet.metadata.num_rows
    if form == "orc":
        from pyarrow import orc

        file = orc.ORCFile(stream)
        return spark_schema(file.schema), file.nrows
    return avro_schema(stream)


def spark_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with types that Spark lacks replaced by wider ones that it has."""
    return pa.schema([pa.field(field.name, _spark_type(field.type)) for field in schema])


def _spark_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _spark_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_unsigned_integer(kind):
        return pa.decimal128(20, 0) if kind.bit_width == 64 else pa.int64()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return pa.binary()
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date64(kind):
        return pa.date32()
    if pa.types.is_time(kind):
        raise SourceConfigError("Spark has no type for a time of day", hint="store it as text or a timestamp")
    return kind


def _copy(content: bytes, form: str, schema: pa.Schema, target: Path) -> None:
    if form == "orc" or (form == "parquet" and _is_plain(content, schema)):
        with open_file(target, "wb") as file:
            file.write(content)
        return
    with open_file(target, "wb") as file, pq.ParquetWriter(file, schema) as out:
        for batch in _batches(content, form):
            out.write_table(pa.Table.from_batches([batch]).cast(schema))


def _is_plain(content: bytes, schema: pa.Schema) -> bool:
    with pq.ParquetFile(BytesIO(content)) as parquet:
        return bool(parquet.schema_arrow.equals(schema))


def _batches(content: bytes, form: str) -> Iterator[Any]:
    if form == "avro":
        yield from avro_batches(BytesIO(content))
        return
    with pq.ParquetFile(BytesIO(content)) as parquet:
        yield from parquet.iter_batches()
