"""Conversion of one text to one typed value, in Python: to explain bad rows, and to read without Spark."""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.formats.columns.inference import Number
from velostream.formats.columns.types import spark_name

if TYPE_CHECKING:
    from collections.abc import Callable

_EXACT = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN)
_WHOLE = re.compile(r"\s*[-+]?\d+\s*")


def text_value(text: str, kind: pa.DataType) -> Any:
    """The value of a CSV field; ValueError says why it is invalid."""
    parse = _parser(kind)
    try:
        return parse(text)
    except (ValueError, InvalidOperation, OverflowError) as exc:
        detail = f": {exc}" if isinstance(exc, _CutError) else ""
        raise ValueError(f'"{text}" is not a {spark_name(kind)}{detail}') from exc


def json_value(value: Any, kind: pa.DataType) -> Any:
    """The value of a parsed JSON value (see `parse_json`); ValueError says why it is invalid."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        fields = _expect(value, dict, kind)
        return {field.name: json_value(fields.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [json_value(item, kind.value_type) for item in _expect(value, list, kind)]
    if pa.types.is_map(kind):
        return [(key, json_value(item, kind.item_type)) for key, item in _expect(value, dict, kind).items()]
    if pa.types.is_boolean(kind):
        return _expect(value, bool, kind)
    if pa.types.is_integer(kind):
        return text_value(str(_expect(value, int, kind)), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind):
        return (
            str(value)
            if isinstance(value, str | int | Number) and not isinstance(value, bool)
            else _dump(value)
        )
    if isinstance(value, bool | dict | list):
        raise ValueError(f"{_dump(value)} is not a {spark_name(kind)}")  # noqa: TRY004 - a bad row, not a bug
    return text_value(str(value), kind)


class _CutError(ValueError):
    """A number with more digits than its column."""


def _parser(kind: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_integer(kind):
        return lambda text: _integer(text, kind.bit_width)
    if pa.types.is_decimal(kind):
        return lambda text: _decimal(text, kind.precision, kind.scale)
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_date(kind):
        return lambda text: date.fromisoformat(text.strip())
    if pa.types.is_timestamp(kind):
        return _timestamp
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return str.encode
    return str


def _integer(text: str, bits: int) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError("not an integer")
    value = int(text)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise _CutError("it is too large")
    return value


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    value = Decimal(text.strip())
    if not value.is_finite():
        raise ValueError("not a number")
    # The default context would round to 28 digits.
    sign, digits, exponent = value.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    if value and -exponent > scale:
        raise _CutError(f"it has {-exponent} digits after the point")
    if value and len(digits) + exponent > precision - scale:
        raise _CutError("it is too large")
    return Decimal((sign, digits, exponent))


def _float(text: str) -> float:
    value = float(text)
    if math.isinf(value) and "i" not in text.lower():
        raise _CutError("it is too large")
    return value


def _boolean(text: str) -> bool:
    folded = text.strip().lower()
    if folded not in ("true", "false"):
        raise ValueError("neither true nor false")
    return folded == "true"


def _timestamp(text: str) -> datetime:
    value = datetime.fromisoformat(text.strip().replace(" UTC", "Z"))
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _expect(value: Any, wanted: type, kind: pa.DataType) -> Any:
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ValueError(f"{_dump(value)} is not a {spark_name(kind)}")
    return value


def _dump(value: Any) -> str:
    import json

    return json.dumps(value, ensure_ascii=False)
