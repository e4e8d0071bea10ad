"""Rows as users hand them over, turned into Arrow: dicts, tuples, Arrow, pandas, polars."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import KeyExistsError, TableError, UnknownNameError, did_you_mean
from velostream.serving.schemas import cast
from velostream.serving.values import to_python

if TYPE_CHECKING:
    from velostream.model.tables import TableSpec


def to_table(rows: Any, spec: TableSpec, *, partial: bool = False) -> pa.Table:
    """The rows in the table's own types; columns they lack are null, or left out when `partial`.

    Accepts one dict or tuple, an iterable of them, a pyarrow Table or RecordBatch, a pandas or polars
    DataFrame. Raises TableError naming the column and the value that does not fit; decimals never round.
    """
    arrow = _as_arrow(rows)
    columns = _from_arrow(arrow, spec) if arrow is not None else _from_python(rows, spec)
    count = len(next(iter(columns.values()))) if columns else 0
    fields = [field for field in spec.schema if field.name in columns or not partial]
    arrays = []
    for field in fields:
        array = columns.get(field.name)
        array = pa.nulls(count, field.type) if array is None else array
        if not field.nullable and array.null_count:
            raise TableError(f'column "{field.name}" of table "{spec.name}" must not be null')
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


def key_exists(spec: TableSpec, rows: pa.Table, number: int) -> KeyExistsError:
    """What is wrong with a row whose key the table has already."""
    shown = ", ".join(f"{name} = {to_python(rows.column(name).slice(number, 1))[0]!r}" for name in spec.key)
    return KeyExistsError(
        f'table "{spec.name}" already has a row with {shown}', hint="use upsert, or INSERT OR REPLACE"
    )


def infer_schema(rows: Any) -> pa.Schema:
    """The columns of rows handed over for a table that does not exist yet; timestamps in UTC microseconds."""
    arrow = _as_arrow(rows)
    if arrow is None:
        arrow = pa.Table.from_pylist(_named(rows))
    return pa.schema([pa.field(field.name, _stored_type(field.type)) for field in arrow.schema])


def _named(rows: Any) -> list[dict[str, Any]]:
    named = []
    for row in [rows] if isinstance(rows, Mapping) else rows:
        if isinstance(row, Mapping):
            named.append(dict(row))
        elif hasattr(row, "_asdict"):
            named.append(row._asdict())
        else:
            raise TableError(f"cannot name the columns of {row!r}", hint="pass dicts, or declare the columns")
    return named


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """What Spark and we store for a type that comes from elsewhere."""
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz="UTC")
    if pa.types.is_date(kind):
        return pa.date32()
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_unsigned_integer(kind):
        return pa.int64() if kind.bit_width < 64 else pa.decimal128(20, 0)
    if pa.types.is_float16(kind):
        return pa.float32()
    return kind


def _as_arrow(rows: Any) -> pa.Table | None:
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    kind = type(rows)
    package = kind.__module__.partition(".")[0]
    if package == "pandas" and kind.__name__ == "DataFrame":
        return pa.Table.from_pandas(rows, preserve_index=False).replace_schema_metadata(None)
    if package == "polars" and kind.__name__ in ("DataFrame", "LazyFrame"):
        frame = rows.collect() if kind.__name__ == "LazyFrame" else rows
        return frame.to_arrow()
    return None


def _from_arrow(rows: pa.Table, spec: TableSpec) -> dict[str, pa.ChunkedArray]:
    columns = {}
    for name in rows.schema.names:
        field = spec.schema.field(_resolve(name, spec))
        column = rows.column(name)
        if pa.types.is_floating(column.type) and pa.types.is_decimal(field.type):
            columns[field.name] = pa.chunked_array([_array(to_python(column), field, spec)])
        else:
            columns[field.name] = cast(column, field, spec.name)
    return columns


def _from_python(rows: Any, spec: TableSpec) -> dict[str, pa.Array]:
    given = _row_list(rows)
    if not given:
        return {field.name: pa.nulls(0, field.type) for field in spec.schema}
    if all(isinstance(row, Mapping) for row in given):
        return _from_dicts(given, spec)
    return _from_tuples(given, spec)


def _from_dicts(rows: list[Mapping[str, Any]], spec: TableSpec) -> dict[str, pa.Array]:
    resolved: dict[str, str] = {}
    columns: dict[str, list[Any]] = {}
    for number, row in enumerate(rows):
        for name, value in row.items():
            if name not in resolved:
                resolved[name] = _resolve(name, spec)
            values = columns.setdefault(resolved[name], [None] * len(rows))
            values[number] = value
    return {name: _array(values, spec.schema.field(name), spec) for name, values in columns.items()}


def _from_tuples(rows: list[Any], spec: TableSpec) -> dict[str, pa.Array]:
    names = spec.visible
    for number, row in enumerate(rows, start=1):
        if isinstance(row, Mapping | str | bytes) or not isinstance(row, Iterable):
            raise TableError(f'row {number} for table "{spec.name}" is neither a dict nor a tuple: {row!r}')
    tuples = [tuple(row) for row in rows]
    for number, values in enumerate(tuples, start=1):
        if len(values) != len(names):
            raise TableError(
                f'row {number} for table "{spec.name}" has {len(values)} values instead of {len(names)}',
                detail=f"columns: {', '.join(names)}",
            )
    columns = zip(*tuples, strict=True)
    return {
        name: _array(list(values), spec.schema.field(name), spec)
        for name, values in zip(names, columns, strict=True)
    }


def _row_list(rows: Any) -> list[Any]:
    if isinstance(rows, Mapping):
        return [rows]
    if isinstance(rows, str | bytes) or not isinstance(rows, Iterable):
        raise TableError(
            f"cannot take rows from {type(rows).__name__}",
            hint="pass dicts, tuples, or an Arrow, pandas or polars table",
        )
    if isinstance(rows, tuple) and rows and not all(_row_like(row) for row in islice(rows, 3)):
        return [rows]
    return list(rows)


def _row_like(value: Any) -> bool:
    return isinstance(value, Mapping | tuple | list)


def _resolve(name: str, spec: TableSpec) -> str:
    names = spec.schema.names
    if name in names:
        return name
    folded = [each for each in names if each.casefold() == name.casefold()]
    if len(folded) != 1:
        raise UnknownNameError(
            f'table "{spec.name}" has no column "{name}"', hint=did_you_mean(name, spec.visible)
        )
    return str(folded[0])


def _array(values: list[Any], field: pa.Field, spec: TableSpec) -> pa.Array:
    convert = _converter(field.type)
    if convert is not None:
        values = [None if value is None else _converted(value, convert, field, spec) for value in values]
    try:
        return pa.array(values, type=field.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError, ValueError):
        pass
    for value in values:
        try:
            pa.array([value], type=field.type)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError, ValueError) as exc:
            raise _misfit(value, field, spec) from exc
    raise _misfit(values, field, spec)


def _misfit(value: Any, field: pa.Field, spec: TableSpec) -> TableError:
    return TableError(
        f'column "{field.name}" of table "{spec.name}" is {field.type}; {value!r} does not fit',
        detail=f"the value is a Python {type(value).__name__}",
    )


def _converted(value: Any, convert: Callable[[Any], Any], field: pa.Field, spec: TableSpec) -> Any:
    try:
        return convert(value)
    except (ValueError, TypeError, InvalidOperation) as exc:
        raise _misfit(value, field, spec) from exc


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """What Arrow itself would convert wrongly or refuse without need."""
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_map(kind):
        return lambda value: list(value.items()) if isinstance(value, Mapping) else value
    return None


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError("a boolean is not a number")
    # repr is the shortest text that reads back as the same float: 0.1 means 0.1.
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not exact.is_finite():
        raise ValueError("not a finite number")
    return exact


def _integer(value: Any) -> int:
    if isinstance(value, bool | str) or value != int(value):
        raise TypeError("not an integer")
    return int(value)


def _timestamp(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        raise TypeError("not a timestamp")
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value)
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeError("not a date")
    return value
