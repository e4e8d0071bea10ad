"""Operators, comparisons and casts with Spark's ANSI meaning."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.serving.sql.duckdb.division import divided
from velostream.serving.sql.duckdb.typed import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    NULL,
    STRING,
    TIMESTAMP,
    NeedsSpark,
    Typed,
    as_decimal_type,
    call,
    cast_node,
    coerce,
    coerce_all,
    common_type,
    guard,
    is_decimal,
    is_int,
    is_number,
    number,
    scalar_type,
    sql_name,
    wider_decimal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_SHORT = 18
"""Digits of the longest decimal that DuckDB keeps in 64 bits."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)Z?)?")


# --- comparing --------------------------------------------------------------------------------------


def compared(left: Typed, right: Typed, make: Callable[..., exp.Expr]) -> Typed:
    """A comparison; text constants beside a date or timestamp are read as one."""
    left, right = _as_time(left, right.type), _as_time(right, left.type)
    nodes, kind = coerce_all([left, right], "comparison")
    _check_comparable(kind)
    return Typed(exp.Paren(this=make(this=nodes[0], expression=nodes[1])), BOOLEAN)


def _as_time(value: Typed, other: pa.DataType) -> Typed:
    if isinstance(value.literal, str) and other in (DATE, TIMESTAMP):
        return time_literal(value.literal, other)
    return value


def time_literal(text: str, kind: pa.DataType) -> Typed:
    """A date or timestamp from its ISO text; other spellings are left to Spark."""
    match = _MOMENT.fullmatch(text)
    if match is None or (kind == DATE and not _DAY.fullmatch(text)):
        raise NeedsSpark(f"'{text}' as {sql_name(kind)}")
    if kind == DATE:
        return Typed(cast_node(exp.Literal.string(text), DATE), DATE)
    clock = match[2] or "00:00:00"
    return Typed(cast_node(exp.Literal.string(f"{match[1]} {clock}+00"), TIMESTAMP), TIMESTAMP)


def _check_comparable(kind: pa.DataType) -> None:
    if kind != NULL and not scalar_type(kind):
        raise NeedsSpark(f"comparison of {sql_name(kind)}")


def member(value: Typed, options: list[Typed]) -> Typed:
    """IN with a list."""
    options = [_as_time(option, value.type) for option in options]
    nodes, kind = coerce_all([value, *options], "IN")
    _check_comparable(kind)
    return Typed(exp.Paren(this=exp.In(this=nodes[0], expressions=nodes[1:])), BOOLEAN)


# --- computing --------------------------------------------------------------------------------------


def sum_or_difference(left: Typed, right: Typed, make: Callable[..., exp.Expr]) -> Typed:
    """+ and - of numbers."""
    kind = common_type([left, right], "arithmetic")
    if is_decimal(kind):
        wide = wider_decimal(as_decimal_type(left), as_decimal_type(right))
        if wide.precision + 1 > 38:
            raise NeedsSpark("a decimal sum of more than 38 digits")
        kind = pa.decimal128(wide.precision + 1, wide.scale)
    return _computed(left, right, kind, make)


def product(left: Typed, right: Typed) -> Typed:
    """* of numbers."""
    kind = common_type([left, right], "arithmetic")
    if not is_decimal(kind):
        return _computed(left, right, kind, exp.Mul)
    one, other = as_decimal_type(left), as_decimal_type(right)
    precision = one.precision + other.precision + 1
    if precision > 38:
        raise NeedsSpark("a decimal product of more than 38 digits")
    kind = pa.decimal128(precision, one.scale + other.scale)
    if max(one.precision, other.precision) <= _SHORT < precision:
        # DuckDB would multiply in 64 bits and fail where the product needs more.
        one = pa.decimal128(_SHORT + 1, one.scale)
    node = exp.Mul(this=coerce(left, one), expression=coerce(right, other))
    return Typed(cast_node(node, kind), kind)


def _computed(left: Typed, right: Typed, kind: pa.DataType, make: Callable[..., exp.Expr]) -> Typed:
    if not is_number(kind):
        raise NeedsSpark(f"arithmetic of {sql_name(kind)}")
    node = exp.Paren(this=make(this=coerce(left, kind), expression=coerce(right, kind)))
    return Typed(cast_node(node, kind) if is_decimal(kind) else node, kind)


def quotient(left: Typed, right: Typed) -> Typed:
    """/, a DECIMAL when a decimal takes part, otherwise a DOUBLE; a zero divisor is left to Spark."""
    kinds = {left.type, right.type}
    if any(is_decimal(kind) for kind in kinds) and all(is_decimal(kind) or is_int(kind) for kind in kinds):
        made = divided(left, right)
        return Typed(_not_zero(right.node, made.node), made.type)
    if not all(is_int(each.type) or each.type == DOUBLE for each in (left, right)):
        raise NeedsSpark(f"{sql_name(left.type)} / {sql_name(right.type)}")
    divisor = coerce(right, DOUBLE)
    node = exp.Div(this=coerce(left, DOUBLE), expression=divisor)
    return Typed(_not_zero(divisor, node), DOUBLE)


def whole_quotient(left: Typed, right: Typed) -> Typed:
    """DIV of integers, which is a BIGINT."""
    if not (is_int(left.type) and is_int(right.type)):
        raise NeedsSpark(f"{sql_name(left.type)} div {sql_name(right.type)}")
    divisor = coerce(right, BIGINT)
    node = call("divide", coerce(left, BIGINT), divisor)
    return Typed(_not_zero(divisor, node), BIGINT)


def remainder(left: Typed, right: Typed) -> Typed:
    """% of integers and doubles."""
    kind = common_type([left, right], "%")
    if not (is_int(kind) or kind == DOUBLE):
        raise NeedsSpark(f"% of {sql_name(kind)}")
    divisor = coerce(right, kind)
    node = call("mod", coerce(left, kind), divisor)
    return Typed(_not_zero(divisor, node), kind)


def _not_zero(divisor: exp.Expr, node: exp.Expr) -> exp.Expr:
    fine = exp.Or(
        this=exp.NEQ(this=divisor.copy(), expression=number(0)),
        expression=exp.Is(this=divisor.copy(), expression=exp.null()),
    )
    return guard(fine, node, "division by zero")


def negated(value: Typed, *, written: bool) -> Typed:
    """Unary minus; `written` says that it is the sign of a number, not an operation."""
    if not is_number(value.type):
        raise NeedsSpark(f"- of {sql_name(value.type)}")
    literal = -value.literal if written and isinstance(value.literal, int) else None
    node = exp.Paren(this=exp.Neg(this=exp.Paren(this=value.node)))
    return Typed(cast_node(node, value.type), value.type, literal, unsure=value.unsure)


_INTERVALS = {
    "second": "to_seconds",
    "minute": "to_minutes",
    "hour": "to_hours",
    "day": "to_days",
    "month": "to_months",
}
_MULTIPLES = {"week": ("day", 7), "year": ("month", 12)}


def shifted(value: Typed, interval: exp.Interval, make: Callable[..., exp.Expr]) -> Typed:
    """A date or timestamp plus or minus INTERVAL n unit."""
    amount, unit = interval.this, interval.args.get("unit")
    if not isinstance(amount, exp.Literal) or not re.fullmatch(r"-?\d{1,6}", amount.name) or unit is None:
        raise NeedsSpark("an interval that is not a constant number of one unit")
    name = unit.name.lower().removesuffix("s")
    name, factor = _MULTIPLES.get(name, (name, 1))
    if name not in _INTERVALS:
        raise NeedsSpark(f"an interval of {unit.name}")
    step = call(_INTERVALS[name], number(int(amount.name) * factor))
    moved = exp.Paren(this=make(this=value.node, expression=step))
    if value.type == TIMESTAMP:
        return Typed(moved, TIMESTAMP)
    if value.type == DATE and name in ("day", "month"):
        return Typed(cast_node(moved, DATE), DATE)
    raise NeedsSpark(f"an interval of {unit.name} from {sql_name(value.type)}")


# --- casting ----------------------------------------------------------------------------------------


def converted(value: Typed, kind: pa.DataType) -> Typed:
    """CAST, for pairs of types where both engines do the same."""
    if value.type == kind:
        return value
    if isinstance(value.literal, str) and kind in (DATE, TIMESTAMP):
        return time_literal(value.literal, kind)
    if value.type == NULL or _agreed_cast(value.type, kind):
        if not scalar_type(kind):
            raise NeedsSpark(f"CAST to {sql_name(kind)}")
        unsure = is_int(kind) and isinstance(value.literal, int)
        return Typed(cast_node(value.node, kind), kind, unsure=unsure)
    raise NeedsSpark(f"CAST of {sql_name(value.type)} to {sql_name(kind)}")


def _agreed_cast(old: pa.DataType, new: pa.DataType) -> bool:
    if is_int(old):
        return bool(is_int(new) or is_decimal(new) or new in (DOUBLE, STRING))
    if is_decimal(old):
        return bool(is_decimal(new) or (new == DOUBLE and old.precision <= 15))
    if old == BOOLEAN:
        return bool(new == STRING)
    if old == pa.float32():
        return bool(new == DOUBLE)
    return (old, new) in {(DATE, TIMESTAMP), (TIMESTAMP, DATE), (DATE, STRING)}
