"""SQL expressions with the type that Spark gives them, written for DuckDB.

Everything here follows one rule: an expression is translated only where both engines are known to give the
same value and type; everything else raises NeedsSpark. Casts are always written out, so that DuckDB never
chooses a type by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp


class NeedsSpark(Exception):  # noqa: N818 - a verdict, not a failure
    """The query has to run on Spark; `reason` says which part of it and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Typed:
    """A DuckDB expression and the type of its value; `literal` is the value where it was written out.

    `unsure` marks a number of which the tree does not tell whether it was written `10L` or as a CAST; Spark
    gives the two different types beside a decimal.
    """

    node: exp.Expr
    type: pa.DataType
    literal: Any = None
    unsure: bool = False


BOOLEAN = pa.bool_()
INT = pa.int32()
BIGINT = pa.int64()
DOUBLE = pa.float64()
STRING = pa.string()
DATE = pa.date32()
TIMESTAMP = pa.timestamp("us", tz="UTC")
NULL = pa.null()

_INT_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
"""Decimal digits that Spark reserves for each integer type."""

_DUCKDB = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMPTZ",
    pa.timestamp("us"): "TIMESTAMP",
}

_EXACT_AS_DOUBLE = 15
"""Decimals of this many digits become the nearest double by one division of two exact doubles."""


def scalar_type(kind: pa.DataType) -> bool:
    """Whether DuckDB computes with the type (others only pass through)."""
    return kind in _DUCKDB or is_decimal(kind)


def is_int(kind: pa.DataType) -> bool:
    """TINYINT to BIGINT."""
    return kind in _INT_DIGITS


def is_decimal(kind: pa.DataType) -> bool:
    """DECIMAL."""
    return bool(pa.types.is_decimal128(kind))


def is_number(kind: pa.DataType) -> bool:
    """Integers, decimals, DOUBLE."""
    return is_int(kind) or is_decimal(kind) or kind == DOUBLE


def sql_name(kind: pa.DataType) -> str:
    """The type as messages show it."""
    if is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _DUCKDB.get(kind, str(kind)).replace("VARCHAR", "STRING").replace("TIMESTAMPTZ", "TIMESTAMP")


def cast_node(node: exp.Expr, kind: pa.DataType) -> exp.Expr:
    """CAST, for a type that DuckDB computes with."""
    text = f"DECIMAL({kind.precision}, {kind.scale})" if is_decimal(kind) else _DUCKDB[kind]
    return exp.Cast(this=node, to=exp.DataType.build(text, dialect="duckdb"))


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """A DuckDB function by its own name."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def number(value: int) -> exp.Expr:
    """An integer as written."""
    return (
        exp.Literal.number(value) if value >= 0 else exp.Paren(this=exp.Neg(this=exp.Literal.number(-value)))
    )


def guard(condition: exp.Expr, value: exp.Expr, why: str) -> exp.Expr:
    """The value where the condition holds; otherwise the query stops, and Spark is asked."""
    stop = call("error", exp.Literal.string(why))
    return exp.Paren(this=exp.Case(ifs=[exp.If(this=condition, true=value)], default=stop))


# --- constants --------------------------------------------------------------------------------------


def typed_value(value: Any, node: exp.Expr) -> Typed:
    """A constant with the type that Spark gives to a literal of it."""
    kind = _value_type(value)
    if kind == NULL:
        return Typed(exp.null(), NULL)
    return Typed(cast_node(node, kind), kind, value)


def _value_type(value: Any) -> pa.DataType:
    if value is None:
        return NULL
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return _integer_type(value)
    if isinstance(value, Decimal):
        return decimal_type(value)
    for python, kind in (
        (float, DOUBLE),
        (str, STRING),
        (bytes, pa.binary()),
        (datetime, TIMESTAMP),
        (date, DATE),
    ):
        if isinstance(value, python):
            return kind
    raise NeedsSpark(f"a parameter of type {type(value).__name__}")


def _integer_type(value: int) -> pa.DataType:
    if -(2**31) <= value < 2**31:
        return INT
    return BIGINT if -(2**63) <= value < 2**63 else decimal_type(Decimal(value))


def decimal_type(value: Decimal) -> pa.DataType:
    """DECIMAL(p, s) that fits a decimal literal exactly."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise NeedsSpark("a decimal that is not finite")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > 38:
        raise NeedsSpark("a decimal of more than 38 digits")
    return pa.decimal128(precision, scale)


# --- conversions ------------------------------------------------------------------------------------


def as_decimal_type(value: Typed) -> pa.DataType:
    """The DECIMAL type as which a number enters decimal arithmetic."""
    if is_decimal(value.type):
        return value.type
    if value.unsure:
        raise NeedsSpark("a decimal beside a constant with a suffix or a cast")
    if isinstance(value.literal, int):
        return decimal_type(Decimal(value.literal))
    return pa.decimal128(_INT_DIGITS[value.type], 0)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The DECIMAL type that holds all values of both."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale > 38:
        raise NeedsSpark(f"{sql_name(left)} and {sql_name(right)} have no common type of 38 digits")
    return pa.decimal128(whole + scale, scale)


def common_type(values: list[Typed], what: str) -> pa.DataType:
    """The type to which Spark brings values before it compares them or chooses one."""
    kinds = {value.type for value in values if value.type != NULL}
    if not kinds:
        return NULL
    if len(kinds) == 1:
        return kinds.pop()
    if all(is_int(kind) for kind in kinds):
        return max(kinds, key=lambda kind: _INT_DIGITS[kind])
    numbers = [value for value in values if value.type != NULL]
    if not all(is_number(kind) for kind in kinds):
        names = " and ".join(sorted(sql_name(kind) for kind in kinds))
        raise NeedsSpark(f"{what} of {names}")
    if DOUBLE in kinds:
        return DOUBLE
    common = as_decimal_type(numbers[0])
    for value in numbers[1:]:
        common = wider_decimal(common, as_decimal_type(value))
    return common


def coerce(value: Typed, kind: pa.DataType) -> exp.Expr:
    """The value in a type that holds it without loss, or as Spark's nearest double."""
    if value.type == kind:
        return value.node
    if value.type == NULL:
        return cast_node(value.node, kind) if scalar_type(kind) else value.node
    if kind == DOUBLE and is_decimal(value.type) and value.type.precision > _EXACT_AS_DOUBLE:
        raise NeedsSpark(f"{sql_name(value.type)} as DOUBLE")
    return cast_node(value.node, kind)


def coerce_all(values: list[Typed], what: str) -> tuple[list[exp.Expr], pa.DataType]:
    """All values in their common type."""
    kind = common_type(values, what)
    return [coerce(value, kind) for value in values], kind


def require(value: Typed, kind: pa.DataType, what: str) -> exp.Expr:
    """The value, which must be of this type or NULL."""
    if value.type not in (kind, NULL):
        raise NeedsSpark(f"{what} of {sql_name(value.type)}")
    return coerce(value, kind)
