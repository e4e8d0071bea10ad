"""Values of Python's, as drivers give them, as Arrow columns."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.databases.rows import UTC_TIME
from velostream.connectors.databases.text_rows import Bad, Decoded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LOOSE_DECIMAL = pa.decimal128(38, 18)
"""Of numbers whose digits the database does not tell."""
_LARGEST = 2**63


def decoded(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> Decoded:
    """Rows as columns; a value that does not fit its column sets its row aside."""
    columns: dict[str, pa.Array] = {}
    bad: dict[int, str] = {}
    for place, field in enumerate(schema):
        values = [row[place] for row in rows]
        columns[field.name], found = _column(field, values)
        bad = {**found, **bad}
    names = schema.names
    return Decoded(
        columns,
        {
            row: Bad(
                why, json.dumps(dict(zip(names, rows[row], strict=True)), ensure_ascii=False, default=_shown)
            )
            for row, why in sorted(bad.items())
        },
    )


def _column(field: pa.Field, values: Sequence[Any]) -> tuple[pa.Array, dict[int, str]]:
    convert = converter(field.type)
    try:
        return pa.array([None if v is None else convert(v) for v in values], field.type), {}
    except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
        pass
    made: list[Any] = []
    bad: dict[int, str] = {}
    for row, value in enumerate(values):
        try:
            one = None if value is None else convert(value)
            pa.array([one], field.type)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError):
            bad[row] = f'"{_shown(value)}" in column "{field.name}" does not fit {field.type}'
            one = None
        made.append(one)
    return pa.array(made, field.type), bad


def converter(kind: pa.DataType) -> Callable[[Any], Any]:
    """How one value becomes one of this type; raises ValueError or TypeError where it does not fit."""
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_integer(kind):
        return _integer
    if pa.types.is_floating(kind):
        return _real
    if pa.types.is_decimal(kind):
        return _decimal
    if pa.types.is_timestamp(kind):
        return _instant
    if pa.types.is_date(kind):
        return _date
    if pa.types.is_binary(kind):
        return lambda value: value.encode() if isinstance(value, str) else bytes(value)
    if pa.types.is_list(kind):
        inner = converter(kind.value_type)
        return lambda value: [None if each is None else inner(each) for each in value]
    return _text


def _boolean(value: Any) -> bool:
    if value in (0, 1):
        return bool(value)
    raise ValueError(value)


def _integer(value: Any) -> int:
    if isinstance(value, (str, bytes)) or value != int(value):
        raise ValueError(value)
    return int(value)


def _real(value: Any) -> float:
    if isinstance(value, (str, bytes)):
        raise ValueError(value)  # noqa: TRY004 - a value that does not fit, not a mistake of ours
    return float(value)


def _decimal(value: Any) -> Decimal:
    if isinstance(value, float):
        # As many digits as a float has, which is what databases show of it.
        return Decimal(format(value, ".15g"))
    if isinstance(value, (bytes, bool)):
        raise ValueError(value)  # noqa: TRY004
    return Decimal(value)


def _instant(value: Any) -> datetime:
    """Text without a zone is UTC, and a number the seconds since 1970."""
    if isinstance(value, str):
        value = datetime.fromisoformat(value.strip())
    elif isinstance(value, (int, float)):
        value = datetime.fromtimestamp(value, UTC)
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime):
        raise TypeError(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _date(value: Any) -> date:
    if isinstance(value, str):
        return date.fromisoformat(value.strip())
    if isinstance(value, datetime):
        return value.date()
    if not isinstance(value, date):
        raise TypeError(value)
    return value


def _text(value: Any) -> str:
    if isinstance(value, (bytes, memoryview)):
        return bytes(value).decode()
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value if isinstance(value, str) else str(value)


def _shown(value: Any) -> str:
    """A value in a message or in JSON that has no form for it."""
    return (
        bytes(value).decode(errors="backslashreplace")
        if isinstance(value, (bytes, memoryview))
        else str(value)
    )


def type_of(values: Sequence[Any], told: pa.DataType | None = None) -> pa.DataType:
    """The type of values whose column tells none; `told` is that of decimals."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return pa.bool_()
    if kinds and kinds <= {int, bool}:
        large = any(not -_LARGEST <= value < _LARGEST for value in values if value is not None)
        return pa.decimal128(38, 0) if large else pa.int64()
    if kinds and kinds <= {int, Decimal}:
        return told or LOOSE_DECIMAL
    if kinds and kinds <= {int, float}:
        return pa.float64()
    if kinds == {datetime}:
        return UTC_TIME
    if kinds == {date}:
        return pa.date32()
    if kinds and kinds <= {bytes, memoryview}:
        return pa.binary()
    return pa.string()


def value_of(kind: pa.DataType, text: str) -> Any:
    """The value of a column's text in the log, to be bound to a query; moments are in UTC, without a zone."""
    if pa.types.is_integer(kind):
        return int(text)
    if pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_floating(kind):
        return float(text)
    if pa.types.is_timestamp(kind):
        return datetime.fromisoformat(text).replace(tzinfo=None)
    if pa.types.is_date(kind):
        return date.fromisoformat(text)
    return text


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark has; of types that it has not, text."""
    t = pa.types
    if t.is_unsigned_integer(kind):
        wider = {8: pa.int16(), 16: pa.int32(), 32: pa.int64()}
        return wider.get(kind.bit_width, pa.decimal128(20, 0))
    if t.is_timestamp(kind):
        return UTC_TIME
    if t.is_dictionary(kind):
        return plain_type(kind.value_type)
    if t.is_list(kind) or t.is_large_list(kind) or t.is_fixed_size_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if t.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if t.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    if t.is_binary(kind) or t.is_large_binary(kind):
        return pa.binary()
    same = t.is_integer(kind) or t.is_floating(kind) or t.is_boolean(kind) or t.is_decimal128(kind)
    return kind if same or kind == pa.date32() else pa.string()
