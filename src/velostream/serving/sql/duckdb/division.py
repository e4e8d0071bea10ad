"""Division of decimals, done in whole numbers so that it rounds where and as Spark does.

Spark divides to 39 digits after the point and then rounds, half up, to the scale of the result. The first
rounding can only matter when the exact quotient is nearer than 10^-39 to a tie of the second; with a
divisor whose digits make the number d and a result of scale s that is impossible while d * 10^s <= 10^39,
and then one rounding, of whole numbers, gives the same. DuckDB's own `/` would go through DOUBLE.
"""

from __future__ import annotations

import pyarrow as pa
from sqlglot import exp

from velostream.serving.sql.duckdb.typed import (
    NeedsSpark,
    Typed,
    as_decimal_type,
    call,
    cast_node,
    coerce,
    guard,
    number,
    sql_name,
)

_HUGEINT = "HUGEINT"
_MOST = 38
_SMALLEST_SCALE = 6


def quotient_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The type of left / right."""
    scale = max(_SMALLEST_SCALE, left.scale + right.precision + 1)
    return adjusted(left.precision - left.scale + right.scale + scale, scale)


def adjusted(precision: int, scale: int) -> pa.DataType:
    """A DECIMAL type, which gives up digits after the point when it would have more than 38."""
    if precision <= _MOST:
        return pa.decimal128(precision, scale)
    whole = precision - scale
    return pa.decimal128(_MOST, max(_MOST - whole, min(scale, _SMALLEST_SCALE)))


def divided(left: Typed, right: Typed) -> Typed:
    """left / right, for decimals and integers; the divisor must not be zero."""
    one, other = as_decimal_type(left), as_decimal_type(right)
    kind = quotient_type(one, other)
    shift = kind.scale + other.scale - one.scale
    room = _MOST + 1 - kind.scale
    if room < 1 or not 0 <= shift <= _MOST - 1:
        raise NeedsSpark(f"{sql_name(one)} / {sql_name(other)}")
    above, below = _unscaled(coerce(left, one), one), _unscaled(coerce(right, other), other)
    made = _scaled(_rounded(above, shift, below), kind)
    if other.precision > room:
        small = exp.LTE(this=call("abs", below.copy()), expression=_huge(exp.Literal.number(10**room)))
        missing = exp.Is(this=below.copy(), expression=exp.null())
        made = guard(exp.Or(this=small, expression=missing), made, "a divisor of too many digits")
    return Typed(made, kind)


def mean(total: exp.Expr, count: exp.Expr, value: pa.DataType) -> Typed:
    """AVG of decimals from their sum, of type DECIMAL(38, s), and their count."""
    if value.precision > 34 or value.scale > 20:
        raise NeedsSpark(f"avg of {sql_name(value)}")
    kind = pa.decimal128(value.precision + 4, value.scale + 4)
    below = call("nullif", count, number(0))
    return Typed(_scaled(_rounded(_unscaled(total, value), 4, _huge(below)), kind), kind)


def _huge(node: exp.Expr) -> exp.Expr:
    return exp.Cast(this=node, to=exp.DataType.build(_HUGEINT, dialect="duckdb"))


def _unscaled(node: exp.Expr, kind: pa.DataType) -> exp.Expr:
    """The digits of a decimal as a whole number."""
    if kind.scale == 0:
        return _huge(node)
    text = exp.Cast(this=node, to=exp.DataType.build("VARCHAR", dialect="duckdb"))
    return _huge(call("replace", text, exp.Literal.string("."), exp.Literal.string("")))


def _rounded(above: exp.Expr, shift: int, below: exp.Expr) -> exp.Expr:
    """above * 10^shift / below as the nearest whole number, ties away from zero."""
    double = exp.Mul(this=call("abs", above), expression=_huge(exp.Literal.number(2 * 10**shift)))
    size = call("abs", below)
    nearest = call(
        "divide",
        exp.Paren(this=exp.Add(this=double, expression=size.copy())),
        exp.Paren(this=exp.Mul(this=size, expression=_huge(number(2)))),
    )
    sign = exp.Mul(this=call("sign", above.copy()), expression=call("sign", below.copy()))
    return exp.Mul(this=_huge(exp.Paren(this=sign)), expression=nearest)


def _scaled(whole: exp.Expr, kind: pa.DataType) -> exp.Expr:
    """A whole number as the digits of a decimal."""
    digits = cast_node(exp.Paren(this=whole), pa.decimal128(_MOST, 0))
    unit = cast_node(
        exp.Literal.string(f"0.{'0' * (kind.scale - 1)}1"), pa.decimal128(kind.scale, kind.scale)
    )
    return cast_node(exp.Paren(this=exp.Mul(this=digits, expression=unit)), kind)
