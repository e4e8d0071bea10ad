"""The functions that DuckDB answers exactly as Spark does.

Each rule gives Spark's result type and the DuckDB expression for it, or raises NeedsSpark for arguments
outside of what the agreement test covers. A function that is not listed here needs Spark.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from sqlglot import exp

from velostream.serving.sql.duckdb import division
from velostream.serving.sql.duckdb.typed import (
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
    call,
    cast_node,
    coerce,
    coerce_all,
    guard,
    is_decimal,
    is_int,
    number,
    require,
    scalar_type,
    sql_name,
)

Rule = Callable[[list[Typed]], Typed]

_LONGEST_EXACT = 2**53
"""Integers up to this are exact as doubles."""


def _needs(arguments: list[Typed], *counts: int) -> None:
    if len(arguments) not in counts:
        raise NeedsSpark(f"{len(arguments)} arguments")


def _text(value: Typed) -> exp.Expr:
    return require(value, STRING, "text function")


def _literal_int(value: Typed, least: int, what: str) -> int:
    if not isinstance(value.literal, int) or isinstance(value.literal, bool) or value.literal < least:
        raise NeedsSpark(f"{what} that is not a constant of at least {least}")
    return value.literal


def _literal_text(value: Typed, what: str) -> str:
    if not isinstance(value.literal, str) or not value.literal:
        raise NeedsSpark(f"{what} that is not a constant")
    return value.literal


# --- text -------------------------------------------------------------------------------------------


def _ascii_only(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 1)
        text = _text(arguments[0])
        # Beyond ASCII the two engines follow different Unicode rules: straße, İ, final sigma.
        plain = exp.EQ(this=call("strlen", text.copy()), expression=call("length", text.copy()))
        missing = exp.Is(this=text.copy(), expression=exp.null())
        return Typed(
            guard(exp.Or(this=missing, expression=plain), call(name, text), f"{name} beyond ASCII"), STRING
        )

    return rule


def _length(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    return Typed(cast_node(call("length", _text(arguments[0])), INT), INT)


def concatenation(arguments: list[Typed]) -> Typed:
    """Text joined end to end; null when any part is."""
    if not arguments:
        raise NeedsSpark("concat of nothing")
    joined = _text(arguments[0])
    for argument in arguments[1:]:
        joined = exp.Paren(this=exp.DPipe(this=joined, expression=_text(argument), safe=False))
    return Typed(joined, STRING)


def _concat_ws(arguments: list[Typed]) -> Typed:
    if len(arguments) < 2:
        raise NeedsSpark("concat_ws of nothing")
    return Typed(call("concat_ws", *(_text(argument) for argument in arguments)), STRING)


def substring(arguments: list[Typed]) -> Typed:
    """Characters from a constant position of at least 1."""
    _needs(arguments, 2, 3)
    start = _literal_int(arguments[1], 1, "a position")
    parts = [_text(arguments[0]), number(start)]
    if len(arguments) == 3:
        parts.append(number(_literal_int(arguments[2], 0, "a length")))
    return Typed(call("substring", *parts), STRING)


def _trim(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 1)
        return Typed(call(name, _text(arguments[0]), exp.Literal.string(" ")), STRING)

    return rule


def _replace(arguments: list[Typed]) -> Typed:
    _needs(arguments, 3)
    _literal_text(arguments[1], "text to replace")
    return Typed(call("replace", *(_text(argument) for argument in arguments)), STRING)


def _text_test(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 2)
        return Typed(call(name, _text(arguments[0]), _text(arguments[1])), BOOLEAN)

    return rule


def position(arguments: list[Typed]) -> Typed:
    """Where the second text stands in the first, from 1; 0 when nowhere."""
    _needs(arguments, 2)
    return Typed(cast_node(call("instr", _text(arguments[0]), _text(arguments[1])), INT), INT)


# --- choosing ---------------------------------------------------------------------------------------


def coalesce(arguments: list[Typed]) -> Typed:
    """The first that is not null."""
    nodes, kind = coerce_all(arguments, "coalesce")
    return Typed(exp.Coalesce(this=nodes[0], expressions=nodes[1:]), kind)


def _nvl(arguments: list[Typed]) -> Typed:
    _needs(arguments, 2)
    return coalesce(arguments)


def _if(arguments: list[Typed]) -> Typed:
    _needs(arguments, 3)
    nodes, kind = coerce_all(arguments[1:], "if")
    condition = require(arguments[0], BOOLEAN, "if")
    return Typed(exp.Case(ifs=[exp.If(this=condition, true=nodes[0])], default=nodes[1]), kind)


def _nullif(arguments: list[Typed]) -> Typed:
    _needs(arguments, 2)
    nodes, _ = coerce_all(arguments, "nullif")
    same = exp.EQ(this=nodes[0], expression=nodes[1])
    return Typed(
        exp.Case(ifs=[exp.If(this=same, true=exp.null())], default=arguments[0].node.copy()),
        arguments[0].type,
    )


def _extreme(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        if len(arguments) < 2:
            raise NeedsSpark(f"{name} of one value")
        nodes, kind = coerce_all(arguments, name)
        if not scalar_type(kind):
            raise NeedsSpark(f"{name} of {sql_name(kind)}")
        return Typed(call(name, *nodes), kind)

    return rule


def _is_null(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    return Typed(exp.Paren(this=exp.Is(this=arguments[0].node, expression=exp.null())), BOOLEAN)


def _is_not_null(arguments: list[Typed]) -> Typed:
    return Typed(exp.Paren(this=exp.Not(this=_is_null(arguments).node)), BOOLEAN)


def _is_nan(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    tested = call("isnan", require(arguments[0], DOUBLE, "isnan"))
    return Typed(exp.Coalesce(this=tested, expressions=[exp.false()]), BOOLEAN)


# --- numbers ----------------------------------------------------------------------------------------


def _abs(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    value = arguments[0]
    if not (is_int(value.type) or is_decimal(value.type) or value.type == DOUBLE):
        raise NeedsSpark(f"abs of {sql_name(value.type)}")
    return Typed(cast_node(call("abs", value.node), value.type), value.type)


def _round(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1, 2)
    value = arguments[0]
    digits = _literal_int(arguments[1], 0, "a number of digits") if len(arguments) == 2 else 0
    if is_int(value.type):
        return Typed(value.node, value.type)
    if not is_decimal(value.type):
        # Of doubles Spark rounds the shortest decimal text, DuckDB the binary value.
        raise NeedsSpark(f"round of {sql_name(value.type)}")
    precision, scale = value.type.precision, value.type.scale
    kept = min(digits, scale)
    kind = pa.decimal128(min(38, precision - scale + kept + 1), kept)
    return Typed(cast_node(call("round", value.node, number(kept)), kind), kind)


def _whole(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 1)
        value = arguments[0]
        if is_int(value.type):
            return Typed(cast_node(value.node, BIGINT), BIGINT)
        if not is_decimal(value.type):
            raise NeedsSpark(f"{name} of {sql_name(value.type)}")
        kind = pa.decimal128(min(38, value.type.precision - value.type.scale + 1), 0)
        return Typed(cast_node(call(name, value.node), kind), kind)

    return rule


def _sqrt(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    value = require(arguments[0], DOUBLE, "sqrt")
    return Typed(call("sqrt", value), DOUBLE)


# --- dates and times --------------------------------------------------------------------------------


def _moment(value: Typed, what: str) -> exp.Expr:
    if value.type not in (DATE, TIMESTAMP):
        raise NeedsSpark(f"{what} of {sql_name(value.type)}")
    return value.node


def _part(name: str, *, clock: bool = False, shift: int = 0) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 1)
        if clock:
            node = call(name, require(arguments[0], TIMESTAMP, name))
        else:
            node = call(name, _moment(arguments[0], name))
        shifted = exp.Add(this=node, expression=number(shift)) if shift else node
        return Typed(cast_node(shifted, INT), INT)

    return rule


_TRUNCATED = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")


def _date_trunc(arguments: list[Typed]) -> Typed:
    _needs(arguments, 2)
    unit = _literal_text(arguments[0], "a unit").lower()
    if unit not in _TRUNCATED:
        raise NeedsSpark(f'date_trunc to "{unit}"')
    moment = require(arguments[1], TIMESTAMP, "date_trunc")
    return Typed(call("date_trunc", exp.Literal.string(unit), moment), TIMESTAMP)


def _shifted_date(sign: int) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 2)
        day = require(arguments[0], DATE, "date arithmetic")
        days = require(arguments[1], INT, "a number of days")
        operator = exp.Add if sign > 0 else exp.Sub
        return Typed(exp.Paren(this=operator(this=day, expression=days)), DATE)

    return rule


def _datediff(arguments: list[Typed]) -> Typed:
    _needs(arguments, 2)
    end = require(arguments[0], DATE, "datediff")
    start = require(arguments[1], DATE, "datediff")
    return Typed(cast_node(call("date_diff", exp.Literal.string("day"), start, end), INT), INT)


def _to_date(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    return Typed(cast_node(_moment(arguments[0], "date"), DATE), DATE)


def now(arguments: list[Typed]) -> Typed:
    """The moment at which the query started."""
    _needs(arguments, 0)
    return Typed(call("now"), TIMESTAMP)


def today(arguments: list[Typed]) -> Typed:
    """The day, in UTC, at which the query started."""
    _needs(arguments, 0)
    return Typed(cast_node(call("now"), DATE), DATE)


SCALAR: dict[str, Rule] = {
    "upper": _ascii_only("upper"),
    "ucase": _ascii_only("upper"),
    "lower": _ascii_only("lower"),
    "lcase": _ascii_only("lower"),
    "length": _length,
    "len": _length,
    "char_length": _length,
    "character_length": _length,
    "concat": concatenation,
    "concat_ws": _concat_ws,
    "substring": substring,
    "trim": _trim("trim"),
    "ltrim": _trim("ltrim"),
    "rtrim": _trim("rtrim"),
    "replace": _replace,
    "startswith": _text_test("starts_with"),
    "endswith": _text_test("ends_with"),
    "contains": _text_test("contains"),
    "instr": position,
    "coalesce": coalesce,
    "nvl": _nvl,
    "ifnull": _nvl,
    "nullif": _nullif,
    "if": _if,
    "greatest": _extreme("greatest"),
    "least": _extreme("least"),
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "isnan": _is_nan,
    "abs": _abs,
    "round": _round,
    "floor": _whole("floor"),
    "ceil": _whole("ceil"),
    "ceiling": _whole("ceil"),
    "sqrt": _sqrt,
    "year": _part("year"),
    "quarter": _part("quarter"),
    "month": _part("month"),
    "day": _part("day"),
    "dayofmonth": _part("day"),
    "dayofweek": _part("dayofweek", shift=1),
    "dayofyear": _part("dayofyear"),
    "weekofyear": _part("weekofyear"),
    "hour": _part("hour", clock=True),
    "minute": _part("minute", clock=True),
    "second": _part("second", clock=True),
    "date_trunc": _date_trunc,
    "date_add": _shifted_date(1),
    "date_sub": _shifted_date(-1),
    "datediff": _datediff,
    "date": _to_date,
    "now": now,
    "current_timestamp": now,
    "current_date": today,
    "curdate": today,
}
"""Functions of one row."""


# --- aggregates -------------------------------------------------------------------------------------


def _count(arguments: list[Typed], distinct: bool) -> Typed:
    if not arguments:
        return Typed(call("count", exp.Star()), BIGINT)
    if len(arguments) > 1 or not scalar_type(arguments[0].type):
        raise NeedsSpark("count of several columns or nested values")
    return Typed(call("count", _maybe_distinct(arguments[0].node, distinct)), BIGINT)


def _maybe_distinct(node: exp.Expr, distinct: bool) -> exp.Expr:
    return exp.Distinct(expressions=[node]) if distinct else node


def _sum(arguments: list[Typed], distinct: bool) -> Typed:
    _needs(arguments, 1)
    value = arguments[0]
    node = call("sum", _maybe_distinct(value.node, distinct))
    if is_int(value.type):
        return Typed(cast_node(node, BIGINT), BIGINT)
    if is_decimal(value.type):
        kind = pa.decimal128(min(38, value.type.precision + 10), value.type.scale)
        return Typed(cast_node(node, kind), kind)
    if value.type == DOUBLE:
        return Typed(node, DOUBLE)
    raise NeedsSpark(f"sum of {sql_name(value.type)}")


def _avg(arguments: list[Typed], distinct: bool) -> Typed:
    _needs(arguments, 1)
    value = arguments[0]
    if value.type == DOUBLE:
        return Typed(call("avg", _maybe_distinct(value.node, distinct)), DOUBLE)
    if is_decimal(value.type):
        total = call("sum", _maybe_distinct(value.node, distinct))
        return division.mean(total, call("count", _maybe_distinct(value.node.copy(), distinct)), value.type)
    if not is_int(value.type) or distinct:
        raise NeedsSpark(f"avg of {sql_name(value.type)}")
    # Spark adds integers up as doubles. While the sum of their sizes is below 2^53 every partial sum, in
    # any order, is exact, and so is ours.
    wide = cast_node(value.node, pa.decimal128(20, 0))
    size = call("coalesce", call("sum", call("abs", wide.copy())), number(0))
    exact = exp.LTE(this=size, expression=number(_LONGEST_EXACT))
    total = cast_node(call("sum", wide), DOUBLE)
    mean = exp.Div(this=total, expression=cast_node(call("count", value.node.copy()), DOUBLE))
    several = exp.GT(this=call("count", value.node.copy()), expression=number(0))
    meant = exp.Case(ifs=[exp.If(this=several, true=mean)])
    return Typed(guard(exact, meant, "avg of integers whose sum is not exact as a double"), DOUBLE)


def _min_max(name: str) -> Callable[[list[Typed], bool], Typed]:
    def rule(arguments: list[Typed], distinct: bool) -> Typed:
        _needs(arguments, 1)
        kind = arguments[0].type
        if not scalar_type(kind) or kind == pa.binary():
            raise NeedsSpark(f"{name} of {sql_name(kind)}")
        return Typed(call(name, arguments[0].node), kind)

    return rule


def _truth(name: str) -> Callable[[list[Typed], bool], Typed]:
    def rule(arguments: list[Typed], distinct: bool) -> Typed:
        _needs(arguments, 1)
        return Typed(call(name, require(arguments[0], BOOLEAN, name)), BOOLEAN)

    return rule


def _count_if(arguments: list[Typed], distinct: bool) -> Typed:
    _needs(arguments, 1)
    if distinct:
        raise NeedsSpark("count_if of distinct values")
    hit = exp.Case(ifs=[exp.If(this=require(arguments[0], BOOLEAN, "count_if"), true=number(1))])
    return Typed(call("count", hit), BIGINT)


AGGREGATES: dict[str, Callable[[list[Typed], bool], Typed]] = {
    "count": _count,
    "sum": _sum,
    "avg": _avg,
    "mean": _avg,
    "min": _min_max("min"),
    "max": _min_max("max"),
    "bool_and": _truth("bool_and"),
    "every": _truth("bool_and"),
    "bool_or": _truth("bool_or"),
    "some": _truth("bool_or"),
    "any": _truth("bool_or"),
    "count_if": _count_if,
}
"""Functions of many rows; the second argument says whether DISTINCT was written."""


# --- window functions -------------------------------------------------------------------------------


def _numbering(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 0)
        return Typed(call(name), INT)

    return rule


def _fraction(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 0)
        return Typed(call(name), DOUBLE)

    return rule


def _ntile(arguments: list[Typed]) -> Typed:
    _needs(arguments, 1)
    return Typed(call("ntile", number(_literal_int(arguments[0], 1, "a number of parts"))), INT)


def _neighbour(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 1, 2, 3)
        value = arguments[0]
        step = _literal_int(arguments[1], 0, "a distance") if len(arguments) > 1 else 1
        parts = [value.node, number(step)]
        if len(arguments) == 3 and arguments[2].type != NULL:
            if arguments[2].type != value.type:
                raise NeedsSpark(f"{name} with a default of another type")
            parts.append(coerce(arguments[2], value.type))
        return Typed(call(name, *parts), value.type)

    return rule


def _edge(name: str) -> Rule:
    def rule(arguments: list[Typed]) -> Typed:
        _needs(arguments, 1)
        return Typed(call(name, arguments[0].node), arguments[0].type)

    return rule


WINDOW: dict[str, Rule] = {
    "row_number": _numbering("row_number"),
    "rank": _numbering("rank"),
    "dense_rank": _numbering("dense_rank"),
    "percent_rank": _fraction("percent_rank"),
    "cume_dist": _fraction("cume_dist"),
    "ntile": _ntile,
    "lag": _neighbour("lag"),
    "lead": _neighbour("lead"),
    "first_value": _edge("first_value"),
    "last_value": _edge("last_value"),
}
"""Functions that need OVER; their results are cast after it, since OVER must follow the call itself."""
