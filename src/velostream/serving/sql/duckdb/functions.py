"""The functions that DuckDB answers exactly as Spark does, as rules.

Each rule says which arguments it takes, the DuckDB text and Spark's type of the result, and raises NeedsSpark
for all other arguments. The agreement test covers each of them. A function that is not listed needs Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.serving.sql.duckdb.division import mean
from velostream.serving.sql.duckdb.rules import (
    Call,
    Rule,
    anything,
    at_least,
    constant_text,
    either,
    function,
    of,
    of_one_type,
    typed_as,
)
from velostream.serving.sql.duckdb.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    NeedsSpark,
    Typed,
    coerce_all,
    is_decimal,
    is_int,
    is_number,
    quoted,
    scalar_type,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

TEXT = of(STRING)
TRUTH = of(BOOLEAN)
DAY = of(DATE)
INSTANT = of(TIMESTAMP)
MOMENT = typed_as(lambda kind: kind in (DATE, TIMESTAMP))
INTEGER = typed_as(is_int)
DECIMAL = typed_as(is_decimal)
NUMBER = typed_as(is_number)
SCALAR_VALUE = typed_as(scalar_type)
ORDERED = typed_as(lambda kind: scalar_type(kind) and kind != pa.binary())
DOUBLE_ITSELF = typed_as(lambda kind: bool(kind == DOUBLE))


def _same(kind: pa.DataType) -> pa.DataType:
    return kind


def _whole(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(min(38, kind.precision - kind.scale + 1), 0)


def _total(kind: pa.DataType) -> pa.DataType:
    return pa.decimal128(min(38, kind.precision + 10), kind.scale)


def _named(rules: Mapping[str, Rule]) -> dict[str, Rule]:
    """Rules by each of the names that a key lists."""
    return {name: rule for names, rule in rules.items() for name in names.split()}


# --- functions of one row ---------------------------------------------------------------------------


def _ascii_only(name: str) -> Rule:
    """Beyond ASCII the two engines follow different Unicode rules: straße, İ, final sigma."""
    ascii_ = "{0} IS NULL OR STRLEN({0}) = LENGTH({0})"
    sql = f"(CASE WHEN {ascii_} THEN {name.upper()}({{0}}) ELSE ERROR('{name} beyond ASCII') END)"
    return function(TEXT, sql=sql, gives=STRING)


def concatenation(call: Call) -> Typed:
    """Text joined end to end; null when any part is."""
    if not call.arguments:
        raise NeedsSpark("nothing to join")
    joined, *others = (TEXT(value) for value in call.arguments)
    for other in others:
        joined = f"({joined} || {other})"
    return Typed(joined, STRING)


def _concat_ws(call: Call) -> Typed:
    if len(call.arguments) < 2:
        raise NeedsSpark("nothing to join")
    return call.write("CONCAT_WS({all})", STRING, [TEXT(value) for value in call.arguments])


def _nullif(call: Call) -> Typed:
    call.expect(2)
    value = call.arguments[0]
    (one, other), _ = coerce_all(call.arguments, "arguments")
    return Typed(f"CASE WHEN {one} = {other} THEN NULL ELSE {value.sql} END", value.type)


def _if(call: Call) -> Typed:
    call.expect(3)
    (one, other), kind = coerce_all(call.arguments[1:], "results")
    return Typed(f"CASE WHEN {TRUTH(call.arguments[0])} THEN {one} ELSE {other} END", kind)


def _rounded_decimal(call: Call) -> Typed:
    # Doubles are left to Spark, which rounds their shortest decimal text; DuckDB rounds the binary value.
    call.expect(1, 2)
    value, *digits = call.arguments
    text = DECIMAL(value)
    kept = min(value.type.scale, int(at_least(0)(digits[0]))) if digits else 0
    kind = pa.decimal128(min(38, value.type.precision - value.type.scale + kept + 1), kept)
    return call.write("CAST(ROUND({0}, {1}) AS {type})", kind, [text, str(kept)])


def _whole_number(name: str) -> Rule:
    return either(
        function(INTEGER, sql="CAST({0} AS {type})", gives=BIGINT),
        function(DECIMAL, sql=f"CAST({name}({{0}}) AS {{type}})", gives=_whole),
    )


def _unit(value: Typed) -> str:
    unit = str(value.written).lower()
    if unit not in ("year", "quarter", "month", "week", "day", "hour", "minute", "second"):
        raise NeedsSpark(f'unit "{unit}"')
    return quoted(unit)


def _part(name: str) -> Rule:
    return function(MOMENT, sql=f"CAST({name}({{0}}) AS {{type}})", gives=INT)


def _clock_part(name: str) -> Rule:
    return function(INSTANT, sql=f"CAST({name}({{0}}) AS {{type}})", gives=INT)


SCALAR = _named(
    {
        "upper ucase": _ascii_only("upper"),
        "lower lcase": _ascii_only("lower"),
        "length len char_length character_length": function(
            TEXT, sql="CAST(LENGTH({0}) AS {type})", gives=INT
        ),
        "concat": concatenation,
        "concat_ws": _concat_ws,
        "substring": either(
            function(TEXT, at_least(1), sql="SUBSTRING({0}, {1})", gives=STRING),
            function(TEXT, at_least(1), at_least(0), sql="SUBSTRING({0}, {1}, {2})", gives=STRING),
        ),
        "trim": function(TEXT, sql="TRIM({0}, ' ')", gives=STRING),
        "ltrim": function(TEXT, sql="LTRIM({0}, ' ')", gives=STRING),
        "rtrim": function(TEXT, sql="RTRIM({0}, ' ')", gives=STRING),
        "replace": function(TEXT, constant_text, TEXT, sql="REPLACE({all})", gives=STRING),
        "startswith": function(TEXT, TEXT, sql="STARTS_WITH({all})", gives=BOOLEAN),
        "endswith": function(TEXT, TEXT, sql="ENDS_WITH({all})", gives=BOOLEAN),
        "contains": function(TEXT, TEXT, sql="CONTAINS({all})", gives=BOOLEAN),
        "instr": function(TEXT, TEXT, sql="CAST(INSTR({all}) AS {type})", gives=INT),
        "coalesce": of_one_type("COALESCE({all})"),
        "nvl ifnull": of_one_type("COALESCE({all})", least=2, most=2),
        "nullif": _nullif,
        "if": _if,
        "greatest": of_one_type("GREATEST({all})", least=2, scalar=True),
        "least": of_one_type("LEAST({all})", least=2, scalar=True),
        "isnull": function(anything, sql="({0} IS NULL)", gives=BOOLEAN),
        "isnotnull": function(anything, sql="(NOT ({0} IS NULL))", gives=BOOLEAN),
        "isnan": function(of(DOUBLE), sql="COALESCE(ISNAN({0}), FALSE)", gives=BOOLEAN),
        "abs": function(NUMBER, sql="CAST(ABS({0}) AS {type})", gives=_same),
        "round": either(
            function(INTEGER, sql="{0}", gives=_same),
            function(INTEGER, at_least(0), sql="{0}", gives=_same),
            _rounded_decimal,
        ),
        "floor": _whole_number("FLOOR"),
        "ceil ceiling": _whole_number("CEIL"),
        "sqrt": function(of(DOUBLE), sql="SQRT({0})", gives=DOUBLE),
        "year": _part("YEAR"),
        "quarter": _part("QUARTER"),
        "month": _part("MONTH"),
        "day dayofmonth": _part("DAY"),
        "dayofweek": function(MOMENT, sql="CAST(DAYOFWEEK({0}) + 1 AS {type})", gives=INT),
        "dayofyear": _part("DAYOFYEAR"),
        "weekofyear": _part("WEEKOFYEAR"),
        "hour": _clock_part("HOUR"),
        "minute": _clock_part("MINUTE"),
        "second": _clock_part("SECOND"),
        "date_trunc": function(_unit, INSTANT, sql="DATE_TRUNC({all})", gives=TIMESTAMP),
        "date_add": function(DAY, of(INT), sql="({0} + {1})", gives=DATE),
        "date_sub": function(DAY, of(INT), sql="({0} - {1})", gives=DATE),
        "datediff": function(DAY, DAY, sql="CAST(DATE_DIFF('day', {1}, {0}) AS {type})", gives=INT),
        "date": function(MOMENT, sql="CAST({0} AS {type})", gives=DATE),
        "now current_timestamp": function(sql="NOW()", gives=TIMESTAMP),
        "current_date curdate": function(sql="CAST(NOW() AS {type})", gives=DATE),
    }
)

# --- functions of many rows -------------------------------------------------------------------------


def _decimal_mean(call: Call) -> Typed:
    total = function(DECIMAL, sql="SUM({distinct}{0}){over}", gives=_same)(call)
    count = function(anything, sql="COUNT({distinct}{0}){over}", gives=BIGINT)(call)
    return mean(total.sql, count.sql, total.type)


# Spark adds integers up as doubles. While the sum of their sizes is at most 2^53 every partial sum, in any
# order, is exact, and so is ours.
_INTEGER_MEAN = (
    f"(CASE WHEN COALESCE(SUM(ABS(CAST({{0}} AS DECIMAL(20, 0)))){{over}}, 0) <= {2**53} "
    "THEN CASE WHEN COUNT({0}){over} > 0 "
    "THEN CAST(SUM(CAST({0} AS DECIMAL(20, 0))){over} AS DOUBLE) / CAST(COUNT({0}){over} AS DOUBLE) END "
    "ELSE ERROR('avg of integers whose sum is not exact as a double') END)"
)
_CAST_SUM = "CAST(SUM({distinct}{0}){over} AS {type})"

AGGREGATES = _named(
    {
        "count": either(
            function(sql="COUNT(*){over}", gives=BIGINT),
            function(SCALAR_VALUE, sql="COUNT({distinct}{0}){over}", gives=BIGINT),
        ),
        "sum": either(
            function(INTEGER, sql=_CAST_SUM, gives=BIGINT),
            function(DECIMAL, sql=_CAST_SUM, gives=_total),
            function(DOUBLE_ITSELF, sql="SUM({distinct}{0}){over}", gives=DOUBLE),
        ),
        "avg mean": either(
            function(DOUBLE_ITSELF, sql="AVG({distinct}{0}){over}", gives=DOUBLE),
            function(INTEGER, sql=_INTEGER_MEAN, gives=DOUBLE, distinct=False),
            _decimal_mean,
        ),
        "min": function(ORDERED, sql="MIN({0}){over}", gives=_same),
        "max": function(ORDERED, sql="MAX({0}){over}", gives=_same),
        "bool_and every": function(TRUTH, sql="BOOL_AND({0}){over}", gives=BOOLEAN),
        "bool_or some any": function(TRUTH, sql="BOOL_OR({0}){over}", gives=BOOLEAN),
        "count_if": function(
            TRUTH, sql="COUNT(CASE WHEN {0} THEN 1 END){over}", gives=BIGINT, distinct=False
        ),
    }
)

# --- functions that need OVER -----------------------------------------------------------------------


def _numbering(name: str) -> Rule:
    return function(sql=f"CAST({name}(){{over}} AS {{type}})", gives=INT)


def _neighbour(name: str) -> Rule:
    def with_default(call: Call) -> Typed:
        call.expect(3)
        value, _, default = call.arguments
        if default.type not in (value.type, NULL):
            raise NeedsSpark("a default of another type")
        given = "{0}, {1}" if default.type == NULL else "{all}"
        return function(anything, at_least(0), anything, sql=f"{name}({given}){{over}}", gives=_same)(call)

    return either(
        function(anything, sql=f"{name}({{0}}, 1){{over}}", gives=_same),
        function(anything, at_least(0), sql=f"{name}({{all}}){{over}}", gives=_same),
        with_default,
    )


WINDOW = _named(
    {
        "row_number": _numbering("ROW_NUMBER"),
        "rank": _numbering("RANK"),
        "dense_rank": _numbering("DENSE_RANK"),
        "percent_rank": function(sql="PERCENT_RANK(){over}", gives=DOUBLE),
        "cume_dist": function(sql="CUME_DIST(){over}", gives=DOUBLE),
        "ntile": function(at_least(1), sql="CAST(NTILE({0}){over} AS {type})", gives=INT),
        "lag": _neighbour("LAG"),
        "lead": _neighbour("LEAD"),
        "first_value": function(anything, sql="FIRST_VALUE({0}){over}", gives=_same),
        "last_value": function(anything, sql="LAST_VALUE({0}){over}", gives=_same),
    }
)
