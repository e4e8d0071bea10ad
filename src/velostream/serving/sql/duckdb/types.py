"""DuckDB expressions as text, each with the type that Spark gives to its value.

Everything here follows one rule: an expression is translated only where both engines are known to give the
same value and type; everything else raises NeedsSpark. Casts are always written out, so that DuckDB never
chooses a type by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.sql.types import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Sequence


class NeedsSpark(Exception):  # noqa: N818 - a verdict, not a failure
    """The query has to run on Spark; `reason` says which part of it and why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Typed:
    """A DuckDB expression and the type of its value; `literal` is the value where it is a constant.

    `bound` marks the value of a parameter. Plans are kept and used for other values, so the text must depend
    on no more of it than `parameter_kind` tells.

    `unsure` marks a number of which the tree does not tell whether it was written `10L` or as a CAST; Spark
    gives the two different types beside a decimal.
    """

    sql: str
    type: pa.DataType
    literal: Any = None
    unsure: bool = False
    bound: bool = False

    @property
    def written(self) -> Any:
        """The value of a constant that the query itself writes out."""
        return None if self.bound else self.literal


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
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "REAL",
    pa.float64(): "DOUBLE",
    pa.string(): "TEXT",
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


def duckdb_name(kind: pa.DataType) -> str:
    """The type as DuckDB writes it, for a type that DuckDB computes with."""
    return f"DECIMAL({kind.precision}, {kind.scale})" if is_decimal(kind) else _DUCKDB[kind]


def cast(sql: str, kind: pa.DataType) -> str:
    """CAST, to a type that DuckDB computes with."""
    return f"CAST({sql} AS {duckdb_name(kind)})"


def quoted(text: str) -> str:
    """A text constant."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def guard(condition: str, value: str, why: str) -> str:
    """The value where the condition holds; otherwise the query fails in DuckDB and runs on Spark instead."""
    return f"(CASE WHEN {condition} THEN {value} ELSE ERROR({quoted(why)}) END)"


# --- constants --------------------------------------------------------------------------------------


def typed_value(value: Any, sql: str, *, bound: bool = False) -> Typed:
    """A constant with the type that Spark gives to a literal of it."""
    kind = _value_type(value)
    return Typed("NULL", NULL) if kind == NULL else Typed(cast(sql, kind), kind, value, bound=bound)


def parameter_kind(value: Any) -> Any:
    """The properties of a parameter's value on which a plan depends: its type, also as a decimal; for a text,
    those that the translations of LIKE and REPLACE check.
    """
    if isinstance(value, str):
        return "str", bool(value), "\\" in value
    if isinstance(value, Decimal) or (isinstance(value, int) and not isinstance(value, bool)):
        return type(value), _value_type(value), decimal_type(Decimal(value))
    return type(value)


def _value_type(value: Any) -> pa.DataType:
    match value:
        case None:
            return NULL
        case bool():
            return BOOLEAN
        case int():
            bits = (value if value >= 0 else ~value).bit_length()
            return INT if bits < 32 else BIGINT if bits < 64 else decimal_type(Decimal(value))
        case float():
            return DOUBLE
        case Decimal():
            return decimal_type(value)
        case str():
            return STRING
        case bytes():
            return pa.binary()
        case datetime():
            return TIMESTAMP
        case date():
            return DATE
    raise NeedsSpark(f"a parameter of type {type(value).__name__}")


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
    if not is_int(value.type):
        raise NeedsSpark(f"a decimal beside {spark_ddl(value.type)}")
    return pa.decimal128(_INT_DIGITS[value.type], 0)


def wider_decimal(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    """The DECIMAL type that holds all values of both."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale > 38:
        raise NeedsSpark(f"{spark_ddl(left)} and {spark_ddl(right)} have no common type of 38 digits")
    return pa.decimal128(whole + scale, scale)


def common_type(values: Sequence[Typed], what: str) -> pa.DataType:
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
        names = " and ".join(sorted(spark_ddl(kind) for kind in kinds))
        raise NeedsSpark(f"{what} of {names}")
    if DOUBLE in kinds:
        return DOUBLE
    common = as_decimal_type(numbers[0])
    for value in numbers[1:]:
        common = wider_decimal(common, as_decimal_type(value))
    return common


def coerce(value: Typed, kind: pa.DataType) -> str:
    """The value in a type that holds it without loss, or as Spark's nearest double."""
    if value.type == kind:
        return value.sql
    if value.type == NULL:
        return cast(value.sql, kind) if scalar_type(kind) else value.sql
    if kind == DOUBLE and is_decimal(value.type) and value.type.precision > _EXACT_AS_DOUBLE:
        raise NeedsSpark(f"{spark_ddl(value.type)} as DOUBLE")
    return cast(value.sql, kind)


def coerce_all(values: Sequence[Typed], what: str) -> tuple[list[str], pa.DataType]:
    """All values in their common type."""
    kind = common_type(values, what)
    return [coerce(value, kind) for value in values], kind


def require(value: Typed, kind: pa.DataType, what: str) -> str:
    """The value, which must be of this type or NULL."""
    if value.type not in (kind, NULL):
        raise NeedsSpark(f"{what} of {spark_ddl(value.type)}")
    return coerce(value, kind)
