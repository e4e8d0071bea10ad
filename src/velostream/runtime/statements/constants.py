"""Rows of INSERT … VALUES: constants are converted directly, everything else is computed by one query."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from velostream.sql.bind.parameters import by_name, literal, numbered, placeholders

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Values = tuple[exp.Expr, ...]
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:Z|[+-]\d\d:\d\d)?")
_NUMBER = re.compile(r"\d+(?:\.\d*)?|\.\d+")
_DOUBLE = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|-?inf|nan")
_T = exp.DType
_MOST_DIGITS = 38
_MOMENTS = (_T.TIMESTAMP, _T.TIMESTAMPTZ, _T.TIMESTAMPLTZ, _T.TIMESTAMPNTZ)


class _NoConstantError(Exception):
    """The value is no constant: an engine has to compute it."""


def bound(rows: Sequence[Values], params: Mapping[str, Any] | Sequence[Any]) -> list[Values]:
    """The rows with literals in place of parameters; SqlError when a value has no literal form."""
    names, values = numbered(value for row in rows for value in row), by_name(params)

    def of(placeholder: exp.Placeholder) -> exp.Expr:
        name = names[id(placeholder)]
        return literal(values[name], name)

    def filled(value: exp.Expr) -> exp.Expr:
        if isinstance(value, exp.Placeholder):
            return of(value)
        inside = placeholders([value])
        if not inside:
            return value
        copy = value.copy()
        for old, new in zip(inside, placeholders([copy]), strict=True):
            new.replace(of(old))
        return copy

    return [tuple(map(filled, row)) for row in rows]


def constant_row(row: Values, kinds: Sequence[pa.DataType]) -> tuple[Any, ...] | None:
    """The values of a row, converted to these types; None when an engine has to compute one."""
    try:
        return tuple(_constant(value, kind) for value, kind in zip(row, kinds, strict=True))
    except _NoConstantError:
        return None


def constant_kinds(rows: Sequence[Values]) -> list[pa.DataType] | None:
    """The types of the columns of constant rows, wide enough for all; None when an engine has to tell."""
    kinds = [_common_kind(column) for column in zip(*rows, strict=True)]
    found = [kind for kind in kinds if kind is not None]
    if len(found) < len(kinds) or any(constant_row(row, found) is None for row in rows):
        return None
    return found


def _common_kind(column: Sequence[exp.Expr]) -> pa.DataType | None:
    values = [value for value in column if not isinstance(value, exp.Null)]
    numbers = [_plain_number(value) for value in values]
    if numbers and all(number is not None for number in numbers):
        digits = [Decimal(number or 0).as_tuple() for number in numbers]
        scale = max(-int(each.exponent) for each in digits)
        whole = max(len(each.digits) + int(each.exponent) for each in digits)
        if scale == 0 and whole < len(str(2**63)):
            return pa.int64()
        return pa.decimal128(max(whole, 0) + scale, scale) if max(whole, 0) + scale <= _MOST_DIGITS else None
    kinds = {_kind(value) for value in values}
    return kinds.pop() if len(kinds) == 1 else None if kinds else pa.string()


def _plain_number(value: exp.Expr) -> str | None:
    inner = value.this if isinstance(value, exp.Neg) else value
    plain = isinstance(inner, exp.Literal) and not inner.is_string and _NUMBER.fullmatch(inner.this)
    return inner.this if plain else None


def _kind(value: exp.Expr) -> pa.DataType | None:
    if isinstance(value, exp.Boolean):
        return pa.bool_()
    if isinstance(value, exp.Literal) and value.is_string:
        return pa.string()
    if isinstance(value, exp.Cast) and isinstance(value.this, exp.Literal):
        wanted = value.to.this
        if wanted is _T.DATE:
            return pa.date32()
        if wanted in _MOMENTS and wanted is not _T.TIMESTAMPNTZ:
            return pa.timestamp("us", "UTC")
        return pa.float64() if wanted is _T.DOUBLE else None
    return None


def _constant(value: exp.Expr, kind: pa.DataType) -> Any:
    negative = isinstance(value, exp.Neg)
    inner = value.this if negative else value
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return _number(f"-{inner.this}" if negative else inner.this, kind)
    if negative:
        raise _NoConstantError
    if isinstance(inner, exp.Null):
        return None
    if isinstance(inner, exp.Boolean) and pa.types.is_boolean(kind):
        return bool(inner.this)
    if isinstance(inner, exp.Literal):
        return inner.this if pa.types.is_string(kind) else _moment(inner.this, kind)
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal):
        return _typed(inner.this, inner.to.this, kind)
    raise _NoConstantError


def _number(text: str, kind: pa.DataType) -> Any:
    plain = _NUMBER.fullmatch(text.removeprefix("-")) is not None
    if plain and pa.types.is_integer(kind) and "." not in text:
        return int(text)
    if plain and pa.types.is_decimal(kind):
        return Decimal(text)
    if pa.types.is_floating(kind) and _DOUBLE.fullmatch(text):
        return float(text)
    raise _NoConstantError


def _typed(value: exp.Literal, wanted: exp.DType, kind: pa.DataType) -> Any:
    """A typed literal: DATE '2026-01-01', 1.5D."""
    if value.is_string and wanted is _T.DATE and pa.types.is_date(kind):
        return _moment(value.this, kind)
    if value.is_string and wanted in _MOMENTS and pa.types.is_timestamp(kind):
        return _moment(value.this, kind)
    if wanted is _T.DOUBLE and pa.types.is_floating(kind) and _DOUBLE.fullmatch(value.this):
        return float(value.this)
    if not value.is_string and wanted in (_T.BIGINT, _T.INT) and pa.types.is_integer(kind):
        return _number(value.this, kind)
    raise _NoConstantError


def _moment(text: str, kind: pa.DataType) -> date | datetime:
    """A date or instant from its ISO text; other spellings are left to Spark."""
    try:
        if pa.types.is_date(kind) and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        if pa.types.is_timestamp(kind) and _TIMESTAMP.fullmatch(text):
            found = datetime.fromisoformat(text)
            if found.tzinfo is None:
                return found.replace(tzinfo=UTC)
            if kind.tz is not None:
                return found
    except ValueError as exc:
        raise _NoConstantError from exc
    raise _NoConstantError
