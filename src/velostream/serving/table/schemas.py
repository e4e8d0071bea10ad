"""Casts rows to a table's physical schema, and checks how that schema may widen."""

from __future__ import annotations

import pyarrow as pa

from velostream.errors import TableError
from velostream.model.tables import lacking
from velostream.serving.columns.dictionaries import CODES, plain_column


def align(
    rows: pa.Table | pa.RecordBatch, schema: pa.Schema, table: str, *, stored: bool = False
) -> pa.Table:
    """The rows with exactly the columns and types of `schema`; columns they lack have their default, or null.

    In `stored` rows, dictionary-encoded texts stay encoded.
    Raises TableError naming the column when a value does not fit its type, a column is unknown, or a
    column that may not be null is missing.
    """
    if isinstance(rows, pa.RecordBatch):
        rows = pa.Table.from_batches([rows])
    if rows.schema.equals(schema):
        return rows
    unknown = [name for name in rows.schema.names if name not in schema.names]
    if unknown:
        raise TableError(f'table "{table}" has no column "{unknown[0]}"')
    columns, fields = [], []
    for field in schema:
        if field.name not in rows.schema.names:
            column = pa.chunked_array([lacking(field, rows.num_rows)], type=field.type)
        else:
            column = rows.column(field.name)
            if not stored or column.type != CODES or field.type != CODES.value_type:
                column = cast(column, field, table)
        columns.append(column)
        fields.append(field.with_type(column.type))
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def cast(column: pa.ChunkedArray, field: pa.Field, table: str) -> pa.ChunkedArray:
    """The column in the field's type, without losing a digit."""
    column = plain_column(column)
    if column.type.equals(field.type):
        return column
    try:
        if pa.types.is_floating(column.type) and pa.types.is_decimal(field.type):
            raise pa.ArrowInvalid("a binary floating-point number has no exact decimal digits")
        if pa.types.is_integer(column.type) and pa.types.is_decimal(field.type):
            # Arrow requires a decimal that holds every int64, whatever the values: cast to the widest first.
            column = column.cast(pa.decimal128(38, field.type.scale))
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as exc:
        raise TableError(
            f'column "{field.name}" of table "{table}" is {field.type}; {column.type} does not fit',
            detail=str(exc),
        ) from exc


def check_evolution(old: pa.Schema, new: pa.Schema, key: tuple[str, ...], table: str) -> None:
    """Raise TableError unless every row under `old` can be read under `new`."""
    for field in old:
        if field.name not in new.names:
            raise TableError(f'column "{field.name}" of table "{table}" cannot be dropped')
    missing = [name for name in key if name not in new.names]
    if missing:
        raise TableError(f'key column "{missing[0]}" of table "{table}" cannot be dropped')


def to_batches(rows: pa.Table) -> list[pa.RecordBatch]:
    """The rows in as few record batches as possible, none empty."""
    return [batch for batch in rows.combine_chunks().to_batches() if batch.num_rows]
