"""Converts rows from users to Arrow.

Values of dicts, dataclasses, named tuples and Spark rows are matched by name, those of tuples and lists by
position. Tables of Arrow, pandas and polars are converted whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import chain, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import KeyExistsError, TableError, UnknownNameError, did_you_mean
from velostream.model.tables import lacking
from velostream.serving.columns.values import to_python
from velostream.serving.table.schemas import cast

if TYPE_CHECKING:
    from velostream.model.tables import TableSpec


_SCALARS = (type(None), str, bytes, bool, int, float, Decimal, date)
_DECLARE = "pass dicts or dataclasses, or declare the columns: schema=pa.schema([…])"
_MISFIT = (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, OverflowError, ValueError)


def held(rows: Any) -> pa.Table | list[Any]:
    """Rows that can be iterated more than once: an Arrow table, or a list of rows.

    Accepts one row or an iterable of rows, a pyarrow Table or RecordBatch, a pandas or polars DataFrame.
    """
    arrow = _as_arrow(rows)
    return arrow if arrow is not None else _row_list(rows)


def to_table(rows: Any, spec: TableSpec, *, partial: bool = False) -> pa.Table:
    """The rows in the table's own types; columns they lack have their default, or none if `partial`.

    Accepts what `held` does. Raises TableError naming the column and the value that does not fit; decimals
    never round.
    """
    given = held(rows)
    columns = _from_arrow(given, spec) if isinstance(given, pa.Table) else _from_python(given, spec)
    count = len(next(iter(columns.values()))) if columns else len(given)
    kept = [field for field in spec.schema if field.name in columns or not partial]
    arrays = []
    for field in kept:
        array = columns.get(field.name)
        array = lacking(field, count) if array is None else array
        if not field.nullable and array.null_count:
            raise TableError(f'column "{field.name}" of table "{spec.name}" must not be null')
        arrays.append(array)
    return pa.Table.from_arrays(arrays, schema=pa.schema(kept))


def key_exists(spec: TableSpec, rows: pa.Table, number: int) -> KeyExistsError:
    """The error for a row whose key the table has already."""
    shown = ", ".join(f"{name} = {to_python(rows.column(name).slice(number, 1))[0]!r}" for name in spec.key)
    return KeyExistsError(
        f'table "{spec.name}" already has a row with {shown}', hint="use upsert, or INSERT OR REPLACE"
    )


def inferred(rows: Any) -> pa.Table:
    """Rows for a table that does not exist yet, in the types that their values have."""
    given = held(rows)
    if isinstance(given, pa.Table):
        return given
    if not given:
        raise TableError("there is no row to tell the columns from", hint=_DECLARE)
    columns = _by_name(given)
    if columns is None:
        raise TableError(f"cannot name the columns of {given[0]!r}", hint=_DECLARE)
    return pa.table({name: _inferred(name, values) for name, values in columns.items()})


def stored_schema(rows: pa.Table) -> pa.Schema:
    """The columns of a table for these rows; timestamps in UTC microseconds."""
    return pa.schema([pa.field(field.name, _stored_type(field.type)) for field in rows.schema])


def _inferred(name: str, values: Sequence[Any]) -> pa.Array:
    try:
        return pa.array([_plain(value) for value in values] if _nested(values) else values)
    except _MISFIT as exc:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise TableError(
            f'column "{name}" cannot hold all of its values',
            detail=f"they are Python {', '.join(kinds)}: {exc}",
            hint="declare its type: schema=pa.schema([…])",
        ) from exc


def _nested(values: Sequence[Any]) -> bool:
    return any(not issubclass(kind, _SCALARS) for kind in set(map(type, values)))


def _plain(value: Any) -> Any:
    """A value with dataclasses, named tuples and Spark rows in it as dicts."""
    if value is None or isinstance(value, _SCALARS):
        return value
    named = _as_dict(value)
    if named is not None:
        return {name: _plain(inner) for name, inner in named.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return value


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """The type in which values of a foreign type are stored, which Spark has too."""
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


def _from_python(rows: list[Any], spec: TableSpec) -> dict[str, pa.Array]:
    if not rows:
        return {field.name: pa.nulls(0, field.type) for field in spec.schema}
    named = _by_name(rows)
    if named is None or (isinstance(rows[0], tuple) and not _any_column(named, spec)):
        named = _by_place(rows, spec)
    columns: dict[str, Sequence[Any]] = {}
    for name, values in named.items():
        column = _resolve(name, spec)
        if column in columns:
            # Other rows spell the same column in another case.
            values = [old if new is None else new for old, new in zip(columns[column], values, strict=True)]
        columns[column] = values
    return {name: _array(values, spec.schema.field(name), spec) for name, values in columns.items()}


def _any_column(names: Iterable[str], spec: TableSpec) -> bool:
    known = {name.casefold() for name in spec.schema.names}
    return any(name.casefold() in known for name in names)


def _by_name(rows: list[Any]) -> dict[str, Sequence[Any]] | None:
    """The values of each column, None where a row lacks it; None when a row has no names."""
    kinds = set(map(type, rows))
    if len(kinds) > 1 or not issubclass(next(iter(kinds)), dict):
        if len(kinds) == 1:
            names, attributes = _field_names(rows[0]), is_dataclass(rows[0])
            if names is not None and not isinstance(rows[0], Mapping) and not hasattr(rows[0], "__fields__"):
                get: Any = attrgetter if attributes else itemgetter
                places: Iterable[Any] = names if attributes else range(len(names))
                return {name: list(map(get(at), rows)) for name, at in zip(names, places, strict=True)}
        rows = [_as_dict(row) for row in rows]
        if None in rows:
            return None
    names = tuple(rows[0])
    if set(map(len, rows)) == {len(names)}:
        try:
            return {name: list(map(itemgetter(name), rows)) for name in names}
        except KeyError:
            pass
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}


def _as_dict(row: Any) -> Mapping[str, Any] | None:
    """A row by the names of its values; None when it has none."""
    if isinstance(row, Mapping):
        return row
    names = _field_names(row)
    if names is None:
        return None
    return {n: getattr(row, n) for n in names} if is_dataclass(row) else dict(zip(names, row, strict=True))


def _field_names(row: Any) -> tuple[str, ...] | None:
    """The names of a dataclass, a named tuple or a row of Spark's."""
    if is_dataclass(row) and not isinstance(row, type):
        return tuple(field.name for field in fields(row))
    if isinstance(row, tuple):
        found = getattr(row, "_fields", None) or getattr(row, "__fields__", None)
        return tuple(found) if found else None
    return None


def _by_place(rows: list[Any], spec: TableSpec) -> dict[str, Sequence[Any]]:
    names = spec.visible
    for kind in set(map(type, rows)):
        if issubclass(kind, Mapping | str | bytes) or not issubclass(kind, Iterable):
            number, row = next((n, row) for n, row in enumerate(rows, start=1) if type(row) is kind)
            raise TableError(
                f'row {number} for table "{spec.name}" is neither a dict nor a tuple like the others: {row!r}'
            )
    tuples = [row if isinstance(row, tuple | list) else tuple(row) for row in rows]
    if set(map(len, tuples)) != {len(names)}:
        number, values = next((n, row) for n, row in enumerate(tuples, start=1) if len(row) != len(names))
        raise TableError(
            f'row {number} for table "{spec.name}" has {len(values)} values instead of {len(names)}',
            detail=f"columns: {', '.join(names)}",
        )
    return {name: list(map(itemgetter(place), tuples)) for place, name in enumerate(names)}


def _row_list(rows: Any) -> list[Any]:
    if isinstance(rows, Mapping) or _field_names(rows) is not None:
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
    return isinstance(value, Mapping | tuple | list) or is_dataclass(value)


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


def _array(values: Sequence[Any], field: pa.Field, spec: TableSpec) -> pa.Array:
    convert = _converter(field.type)
    if convert is not None and not set(map(type, values)) <= _exact(field.type):
        values = [None if value is None else _converted(value, convert, field, spec) for value in values]
    try:
        return pa.array(values, type=field.type)
    except _MISFIT:
        pass
    for value in values:
        try:
            pa.array([value], type=field.type)
        except _MISFIT as exc:
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


def _exact(kind: pa.DataType) -> set[type]:
    """The Python types whose values Arrow converts exactly, or refuses."""
    if pa.types.is_decimal(kind):
        return {Decimal, type(None)}
    if pa.types.is_timestamp(kind):
        return {datetime, type(None)}
    if pa.types.is_date(kind):
        return {date, type(None)}
    if pa.types.is_integer(kind):
        return {int, type(None)}
    return {int, float, type(None)} if pa.types.is_floating(kind) else set()


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """A converter for values that Arrow would convert wrongly, or refuse without need."""
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_struct(kind):
        return _struct_converter({f.name: _converter(f.type) or _same for f in kind})
    if pa.types.is_map(kind):
        return _map_converter(_converter(kind.key_type) or _same, _converter(kind.item_type) or _same)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _list_converter(_converter(kind.value_type) or _same)
    return None


def _same(value: Any) -> Any:
    return value


def _struct_converter(parts: dict[str, Callable[[Any], Any]]) -> Callable[[Any], Any]:
    def convert(value: Any) -> dict[str, Any]:
        named = _as_dict(value)
        if named is None:
            if not isinstance(value, tuple | list) or len(value) != len(parts):
                raise TypeError("not a struct")
            named = dict(zip(parts, value, strict=True))
        if not named.keys() <= parts.keys():
            raise ValueError("a field that the struct does not have")
        return {name: None if inner is None else parts[name](inner) for name, inner in named.items()}

    return convert


def _map_converter(key: Callable[[Any], Any], item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> list[tuple[Any, Any]]:
        pairs = value.items() if isinstance(value, Mapping) else value
        return [(key(name), None if inner is None else item(inner)) for name, inner in pairs]

    return convert


def _list_converter(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
            raise TypeError("not a list")
        return [None if inner is None else item(inner) for inner in value]

    return convert


def _float(value: Any) -> Any:
    if isinstance(value, bool):
        raise TypeError("not a number")
    return value


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
