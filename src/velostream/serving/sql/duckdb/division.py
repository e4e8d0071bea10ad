"""Division of decimals, done in whole numbers so that it rounds where and as Spark does.

Spark divides to 39 digits after the point and then rounds, half up, to the scale of the result. The first
rounding can only matter when the exact quotient is nearer than 10^-39 to a tie of the second; with a
divisor whose digits make the number d and a result of scale s that is impossible while d * 10^s <= 10^39,
and then one rounding, of whole numbers, gives the same. DuckDB's own `/` would go through DOUBLE.
"""

from __future__ import annotations

import pyarrow as pa

from velostream.serving.sql.duckdb.types import NeedsSpark, Typed, as_decimal_type, cast, coerce, guard
from velostream.sql.types import spark_ddl

_MOST = 38
_SMALLEST_SCALE = 6


def _quotient_type(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """A DECIMAL type, which gives up digits after the point when it would have more than 38."""
    scale = max(_SMALLEST_SCALE, left.scale + right.precision + 1)
    whole = left.precision - left.scale + right.scale
    if whole + scale <= _MOST:
        return pa.decimal128(whole + scale, scale)
    return pa.decimal128(_MOST, max(_MOST - whole, min(scale, _SMALLEST_SCALE)))


def divided(left: Typed, right: Typed) -> Typed:
    """left / right, for decimals and integers; the divisor must not be zero."""
    one, other = as_decimal_type(left), as_decimal_type(right)
    kind = _quotient_type(one, other)
    shift = kind.scale + other.scale - one.scale
    room = _MOST + 1 - kind.scale
    if room < 1 or not 0 <= shift <= _MOST - 1:
        raise NeedsSpark(f"{spark_ddl(one)} / {spark_ddl(other)}")
    above, below = _digits(coerce(left, one), one), _digits(coerce(right, other), other)
    made = _nearest(above, shift, below, kind)
    if other.precision > room:
        small = f"ABS({below}) <= {_huge(10**room)} OR {below} IS NULL"
        made = guard(small, made, "a divisor of too many digits")
    return Typed(made, kind)


def mean(total: str, count: str, value: pa.DataType) -> Typed:
    """AVG of decimals from their sum, of type DECIMAL(38, s), and their count."""
    if value.precision > 34 or value.scale > 20:
        raise NeedsSpark(f"avg of {spark_ddl(value)}")
    kind = pa.decimal128(value.precision + 4, value.scale + 4)
    return Typed(_nearest(_digits(total, value), 4, _huge(f"NULLIF({count}, 0)"), kind), kind)


def _huge(sql: str | int) -> str:
    return f"CAST({sql} AS INT128)"


def _digits(sql: str, kind: pa.DataType) -> str:
    """The digits of a decimal as a whole number."""
    return _huge(f"REPLACE(CAST({sql} AS TEXT), '.', '')") if kind.scale else _huge(sql)


def _nearest(above: str, shift: int, below: str, kind: pa.DataType) -> str:
    """above * 10^shift / below as the nearest whole number, ties away from zero: the digits of a decimal."""
    double = f"ABS({above}) * {_huge(2 * 10**shift)}"
    nearest = f"DIVIDE(({double} + ABS({below})), (ABS({below}) * {_huge(2)}))"
    signed = f"({_huge(f'(SIGN({above}) * SIGN({below}))')} * {nearest})"
    unit = cast(f"'0.{'0' * (kind.scale - 1)}1'", pa.decimal128(kind.scale, kind.scale))
    return cast(f"({cast(signed, pa.decimal128(_MOST, 0))} * {unit})", kind)
