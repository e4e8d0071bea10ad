"""Operators, comparisons and casts with Spark's ANSI meaning."""

from __future__ import annotations

import re

import pyarrow as pa
from sqlglot import exp

from velostream.serving.sql.duckdb.division import divided
from velostream.serving.sql.duckdb.types import (
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
    cast,
    coerce,
    coerce_all,
    common_type,
    guard,
    is_decimal,
    is_int,
    is_number,
    quoted,
    scalar_type,
    wider_decimal,
)
from velostream.sql.types import spark_ddl

_SHORT = 18
"""Digits of the longest decimal that DuckDB keeps in 64 bits."""

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_MOMENT = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)Z?)?")


# --- comparing --------------------------------------------------------------------------------------


def compared(left: Typed, operator: str, right: Typed) -> Typed:
    """A comparison; text constants beside a date or timestamp are read as one."""
    one, other = _comparable(_as_time(left, right.type), _as_time(right, left.type))
    return Typed(f"({one} {operator} {other})", BOOLEAN)


def member(value: Typed, options: list[Typed]) -> Typed:
    """IN with a list."""
    tested, *listed = _comparable(value, *(_as_time(option, value.type) for option in options))
    return Typed(f"({tested} IN ({', '.join(listed)}))", BOOLEAN)


def _comparable(*values: Typed) -> list[str]:
    texts, kind = coerce_all(values, "comparison")
    if kind != NULL and not scalar_type(kind):
        raise NeedsSpark(f"comparison of {spark_ddl(kind)}")
    return texts


def _as_time(value: Typed, other: pa.DataType) -> Typed:
    if isinstance(value.written, str) and other in (DATE, TIMESTAMP):
        return _time_literal(value.written, other)
    return value


def _time_literal(text: str, kind: pa.DataType) -> Typed:
    """A date or timestamp from its ISO text; other spellings are left to Spark."""
    match = _MOMENT.fullmatch(text)
    if match is None or (kind == DATE and not _DAY.fullmatch(text)):
        raise NeedsSpark(f"'{text}' as {spark_ddl(kind)}")
    moment = text if kind == DATE else f"{match[1]} {match[2] or '00:00:00'}+00"
    return Typed(cast(quoted(moment), kind), kind)


# --- computing --------------------------------------------------------------------------------------


def added(left: Typed, operator: str, right: Typed) -> Typed:
    """+ and - of numbers."""
    kind = common_type([left, right], "arithmetic")
    if is_decimal(kind):
        wide = wider_decimal(as_decimal_type(left), as_decimal_type(right))
        if wide.precision + 1 > 38:
            raise NeedsSpark("a decimal sum of more than 38 digits")
        kind = pa.decimal128(wide.precision + 1, wide.scale)
    return _computed(left, operator, right, kind)


def product(left: Typed, right: Typed) -> Typed:
    """* of numbers."""
    kind = common_type([left, right], "arithmetic")
    if not is_decimal(kind):
        return _computed(left, "*", right, kind)
    one, other = as_decimal_type(left), as_decimal_type(right)
    precision = one.precision + other.precision + 1
    if precision > 38:
        raise NeedsSpark("a decimal product of more than 38 digits")
    kind = pa.decimal128(precision, one.scale + other.scale)
    if max(one.precision, other.precision) <= _SHORT < precision:
        # DuckDB would multiply in 64 bits and fail where the product needs more.
        one = pa.decimal128(_SHORT + 1, one.scale)
    return Typed(cast(f"{coerce(left, one)} * {coerce(right, other)}", kind), kind)


def _computed(left: Typed, operator: str, right: Typed, kind: pa.DataType) -> Typed:
    if not is_number(kind):
        raise NeedsSpark(f"arithmetic of {spark_ddl(kind)}")
    made = f"({coerce(left, kind)} {operator} {coerce(right, kind)})"
    return Typed(cast(made, kind) if is_decimal(kind) else made, kind)


def quotient(left: Typed, right: Typed) -> Typed:
    """/, a DECIMAL when a decimal takes part, otherwise a DOUBLE; a zero divisor is left to Spark."""
    kinds = {left.type, right.type}
    if any(is_decimal(kind) for kind in kinds) and all(is_decimal(kind) or is_int(kind) for kind in kinds):
        made = divided(left, right)
        return Typed(_not_zero(right.sql, made.sql), made.type)
    if not all(is_int(kind) or kind == DOUBLE for kind in kinds):
        raise NeedsSpark(f"{spark_ddl(left.type)} / {spark_ddl(right.type)}")
    divisor = coerce(right, DOUBLE)
    return Typed(_not_zero(divisor, f"{coerce(left, DOUBLE)} / {divisor}"), DOUBLE)


def whole_quotient(left: Typed, right: Typed) -> Typed:
    """DIV of integers, which is a BIGINT."""
    if not (is_int(left.type) and is_int(right.type)):
        raise NeedsSpark(f"{spark_ddl(left.type)} div {spark_ddl(right.type)}")
    divisor = coerce(right, BIGINT)
    return Typed(_not_zero(divisor, f"DIVIDE({coerce(left, BIGINT)}, {divisor})"), BIGINT)


def remainder(left: Typed, right: Typed) -> Typed:
    """% of integers and doubles."""
    kind = common_type([left, right], "%")
    if not (is_int(kind) or kind == DOUBLE):
        raise NeedsSpark(f"% of {spark_ddl(kind)}")
    divisor = coerce(right, kind)
    return Typed(_not_zero(divisor, f"MOD({coerce(left, kind)}, {divisor})"), kind)


def _not_zero(divisor: str, made: str) -> str:
    return guard(f"{divisor} <> 0 OR {divisor} IS NULL", made, "division by zero")


def negated(value: Typed, *, written: bool) -> Typed:
    """Unary minus; `written` says that it is the sign of a number, not an operation."""
    if not is_number(value.type):
        raise NeedsSpark(f"- of {spark_ddl(value.type)}")
    literal = -value.literal if written and isinstance(value.literal, int) else None
    return Typed(cast(f"(-({value.sql}))", value.type), value.type, literal, unsure=value.unsure)


_INTERVALS = {
    "second": ("TO_SECONDS", 1),
    "minute": ("TO_MINUTES", 1),
    "hour": ("TO_HOURS", 1),
    "day": ("TO_DAYS", 1),
    "week": ("TO_DAYS", 7),
    "month": ("TO_MONTHS", 1),
    "year": ("TO_MONTHS", 12),
}


def shifted(value: Typed, operator: str, interval: exp.Interval) -> Typed:
    """A date or timestamp plus or minus INTERVAL n unit."""
    amount, unit = interval.this, interval.args.get("unit")
    if not isinstance(amount, exp.Literal) or not re.fullmatch(r"-?\d{1,6}", amount.name) or unit is None:
        raise NeedsSpark("an interval that is not a constant number of one unit")
    known = _INTERVALS.get(unit.name.lower().removesuffix("s"))
    if known is None:
        raise NeedsSpark(f"an interval of {unit.name}")
    make, factor = known
    step = int(amount.name) * factor
    moved = f"({value.sql} {operator} {make}({step if step >= 0 else f'({step})'}))"
    if value.type == TIMESTAMP:
        return Typed(moved, TIMESTAMP)
    if value.type == DATE and make in ("TO_DAYS", "TO_MONTHS"):
        return Typed(cast(moved, DATE), DATE)
    raise NeedsSpark(f"an interval of {unit.name} from {spark_ddl(value.type)}")


# --- casting ----------------------------------------------------------------------------------------


def converted(value: Typed, kind: pa.DataType) -> Typed:
    """CAST, for pairs of types where both engines do the same."""
    if value.type == kind:
        return value
    if isinstance(value.written, str) and kind in (DATE, TIMESTAMP):
        return _time_literal(value.written, kind)
    if value.type == NULL or _agreed_cast(value.type, kind):
        if not scalar_type(kind):
            raise NeedsSpark(f"CAST to {spark_ddl(kind)}")
        unsure = is_int(kind) and isinstance(value.literal, int)
        return Typed(cast(value.sql, kind), kind, unsure=unsure)
    raise NeedsSpark(f"CAST of {spark_ddl(value.type)} to {spark_ddl(kind)}")


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
