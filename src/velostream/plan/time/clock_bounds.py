"""Clock filters: from a comparison with `now()` to the moment at which a row starts or stops passing.

The side of the comparison that moves with the clock is brought to one form, in microseconds of UTC:
`floor(clock + shift, unit) + offset`. It never decreases, so each comparison changes its answer once per row,
at a moment that Spark computes from the row alone, in whole numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from velostream.plan.query.functions import call_name, clock_call, volatile_calls
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind = Literal["time", "seconds"]

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

_UNITS = {
    "microsecond": 1,
    "millisecond": 1000,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "dd": DAY,
    "week": 7 * DAY,
}
_TRUNCATED = {name: _UNITS[name] for name in ("second", "minute", "hour", "day", "dd")}
_MONTHS = ("year", "month", "quarter")
_CONSTANT = (
    exp.Literal,
    exp.Interval,
    exp.IntervalSpan,
    exp.Var,
    exp.Paren,
    exp.Neg,
    exp.Mul,
    exp.Add,
    exp.Sub,
)
_FLIPPED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
}
_NEGATED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
}
_FARTHEST_SECOND = 9_000_000_000_000
"""Seconds beyond this never come in practice, and would overflow when counted in microseconds."""


class NotFollowedError(Exception):
    """A clock filter whose moment of change cannot be computed; the text says why."""


@dataclass(frozen=True)
class Bound:
    """One comparison with the clock: a row passes from its moment on (`begins`), or until its moment."""

    value: exp.Expr
    """The expression compared with the clock; its type must be a time, or whole seconds."""
    kind: Kind
    begins: bool
    moment: str
    """SQL of the moment, in microseconds; meaningless where the value is null."""


@dataclass(frozen=True)
class _Moving:
    """`floor(clock + shift, unit) + offset`; shift and offset are SQL of whole numbers."""

    kind: Kind
    unit: int = 1
    shift: str = "0"
    offset: str = "0"

    def moved(self, by: str) -> _Moving:
        if self.unit == 1:
            return replace(self, shift=f"{self.shift} + {by}")
        return replace(self, offset=f"{self.offset} + {by}")

    def floored(self, unit: int, what: str) -> _Moving:
        if self.offset != "0" or unit % self.unit:
            raise NotFollowedError(f"{what} rounds what was rounded before")
        return replace(self, unit=unit)


def bounds(condition: exp.Expr) -> Iterator[Bound]:
    """The bounds of a condition with the clock; NotFollowedError unless it is comparisons joined by AND."""
    for operator, left, right in _comparisons(condition):
        operator, value, moving = _sides(operator, left, right)
        for name in volatile_calls(value):
            raise NotFollowedError(f"{name}() may return another value each time")
        yield _bound(operator, value, moving)


def _comparisons(condition: exp.Expr) -> Iterator[tuple[type[exp.Expr], exp.Expr, exp.Expr]]:
    """The comparisons of a condition whose parts are joined by AND."""
    negated = False
    while isinstance(condition, exp.Paren | exp.Not):
        negated ^= isinstance(condition, exp.Not)
        condition = condition.this
    if isinstance(condition, exp.Between) and not negated and not condition.args.get("symmetric"):
        yield exp.GTE, condition.this, condition.args["low"]
        yield exp.LTE, condition.this, condition.args["high"]
    elif isinstance(condition, exp.EQ) and not negated:
        yield exp.GTE, condition.this, condition.expression
        yield exp.LTE, condition.this, condition.expression
    elif isinstance(condition, exp.GT | exp.GTE | exp.LT | exp.LTE):
        operator: type[exp.Expr] = type(condition)
        yield _NEGATED[operator] if negated else operator, condition.left, condition.right
    elif isinstance(condition, exp.And) and not negated:
        for part in (condition.left, condition.right):
            yield from _comparisons(part)
    else:
        raise NotFollowedError("only comparisons that AND connects tell when a row comes or goes")


def _sides(
    operator: type[exp.Expr], left: exp.Expr, right: exp.Expr
) -> tuple[type[exp.Expr], exp.Expr, _Moving]:
    """The comparison turned so that the clock is on the right."""
    here, there = has_clock(left), has_clock(right)
    if here and there:
        raise NotFollowedError("the clock is on both sides")
    if not here and not there:
        raise NotFollowedError("a part of it has no clock; connect it with AND by itself")
    if here:
        operator, left, right = _FLIPPED[operator], right, left
    inner = _bare(right)
    if isinstance(inner, exp.Sub) and _constant(left) and (inner.find(exp.Column) is not None):
        return _from_difference(operator, left, inner)
    return operator, left, _moving(right)


def _from_difference(
    operator: type[exp.Expr], length: exp.Expr, difference: exp.Sub
) -> tuple[type[exp.Expr], exp.Expr, _Moving]:
    """`INTERVAL … > now() - ts` and `INTERVAL … > ts - now()`, solved for `ts`."""
    by = _length(length)
    if has_clock(difference.left):
        if difference.right.find(exp.Column) is None:
            raise NotFollowedError(f"{_text(difference)} does not simply move with the clock")
        # length OP clock - value  is  value OP clock - length
        value, moving, sign = difference.right, _moving(difference.left), "-"
    else:
        # length OP value - clock  is  value FLIPPED clock + length
        value, moving, sign, operator = difference.left, _moving(difference.right), "+", _FLIPPED[operator]
    if moving.kind != "time" or moving.unit != 1:
        raise NotFollowedError(f"{_text(difference)} counts whole days or seconds")
    return operator, value, moving.moved(f"({sign}{by})")


def _bound(operator: type[exp.Expr], value: exp.Expr, moving: _Moving) -> Bound:
    text = _text(value)
    micros = f"unix_micros(CAST({text} AS TIMESTAMP))"
    if moving.kind == "seconds":
        far = _FARTHEST_SECOND
        micros = f"least(greatest(CAST({text} AS BIGINT), {-far}), {far}) * {SECOND}L"
    at = f"({micros} - ({moving.offset}))"
    # The first moment at which the clock side exceeds the value (`>`), or reaches it (`>=`): with a unit, the
    # start of the next unit, or of the unit that begins no earlier than the value.
    if operator in (exp.GTE, exp.LT):
        turned = f"{at} - pmod({at}, {moving.unit}L) + {moving.unit}L" if moving.unit > 1 else f"{at} + 1"
    else:
        turned = f"{at} + pmod(-{at}, {moving.unit}L)" if moving.unit > 1 else at
    begins = operator in (exp.LT, exp.LTE)
    return Bound(value, moving.kind, begins, f"({turned}) - ({moving.shift})")


# --- what moves with the clock ------------------------------------------------------------------------------


def has_clock(expression: exp.Expr) -> bool:
    """Whether an expression reads the clock, subqueries included."""
    return any(clock_call(node) for node in expression.find_all(exp.Func))


def _moving(expression: exp.Expr) -> _Moving:
    expression = _bare(expression)
    if isinstance(expression, exp.Add | exp.Sub):
        return _shifted(expression)
    if isinstance(expression, exp.Cast):
        inner = _moving(expression.this)
        if inner.kind == "time" and expression.to.this == exp.DType.DATE:
            return inner.floored(DAY, _text(expression))
        if inner.kind == "time" and expression.to.this in (exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ):
            return inner
        raise _beyond(expression)
    name = call_name(expression)
    arguments = list(expression.expressions) if isinstance(expression, exp.Anonymous) else []
    if clock_call(expression):
        return _clock(expression, name or "")
    if name in {"to_date", "date"} and len(arguments) == 1:
        return _time(arguments[0]).floored(DAY, _text(expression))
    if name in {"date_sub", "date_add"} and len(arguments) == 2:
        sign = "-" if name == "date_sub" else "+"
        whole = _time(arguments[0])
        whole = whole if whole.unit == DAY else whole.floored(DAY, _text(expression))
        return whole.moved(f"({sign}({_number(arguments[1])}) * {DAY}L)")
    if name == "date_trunc" and len(arguments) == 2:
        unit = _TRUNCATED.get(arguments[0].name.casefold())
        if unit is None:
            raise NotFollowedError(f"date_trunc is followed by {', '.join(_TRUNCATED)}")
        return _time(arguments[1]).floored(unit, _text(expression))
    if name in {"timestampadd", "dateadd", "date_add"} and len(arguments) == 3:
        unit = _UNITS.get(arguments[0].name.casefold())
        if unit is None:
            raise _months(expression)
        return _time(arguments[2]).moved(f"(({_number(arguments[1])}) * {unit}L)")
    raise _beyond(expression)


def _clock(call: exp.Expr, name: str) -> _Moving:
    if call.expressions or name == "current_time":
        raise NotFollowedError(f"{_text(call)} does not simply go forward")
    if name == "unix_timestamp":
        return _Moving("seconds", SECOND)
    return _Moving("time", DAY if name in {"current_date", "curdate"} else 1)


def _shifted(expression: exp.Binary) -> _Moving:
    sign = "-" if isinstance(expression, exp.Sub) else "+"
    moving, by = expression.left, expression.right
    if sign == "+" and has_clock(by):
        moving, by = by, moving
    if not has_clock(moving):
        raise NotFollowedError(f"{_text(expression)} decreases as the clock advances")
    if by.find(exp.Column) is not None:
        raise NotFollowedError(f"{_text(by)} is not the same for every row")
    found = _moving(moving)
    if by.find(exp.Interval) is not None and found.kind == "time":
        return found.moved(f"({sign}{_length(by)})")
    if found.kind == "seconds":
        return found.moved(f"({sign}({_number(by)}) * {SECOND}L)")
    if found.unit == DAY:
        return found.moved(f"({sign}({_number(by)}) * {DAY}L)")
    raise _beyond(expression)


def _time(expression: exp.Expr) -> _Moving:
    found = _moving(expression)
    if found.kind != "time":
        raise _beyond(expression)
    return found


def _length(constant: exp.Expr) -> str:
    """SQL of the length of a constant interval in microseconds; NotFollowedError for months and years."""
    if not _constant(constant) or constant.find(exp.Interval) is None:
        raise NotFollowedError(f"{_text(constant)} is not a constant interval")
    for interval in constant.find_all(exp.Interval):
        text = _text(interval).casefold()
        if any(word in text for word in _MONTHS):
            raise _months(interval)
    return f"unix_micros(TIMESTAMP '1970-01-01 00:00:00' + ({_text(constant)}))"


def _number(constant: exp.Expr) -> str:
    literals = list(constant.find_all(exp.Literal))
    if not _constant(constant) or not literals or not all(each.is_int for each in literals):
        raise NotFollowedError(f"{_text(constant)} is not a constant whole number")
    return _text(constant)


def _constant(expression: exp.Expr) -> bool:
    return all(isinstance(node, _CONSTANT) for node in expression.walk())


def _bare(expression: exp.Expr) -> exp.Expr:
    while isinstance(expression, exp.Paren):
        expression = expression.this
    return expression


def _months(expression: exp.Expr) -> NotFollowedError:
    return NotFollowedError(
        f"{_text(expression)} is not always equally long; it may be added to the column: "
        "ts + INTERVAL 1 MONTH > now()"
    )


def _beyond(expression: exp.Expr) -> NotFollowedError:
    return NotFollowedError(f"{_text(expression)} does not simply move with the clock")


def _text(expression: exp.Expr) -> str:
    text: str = expression.sql(dialect=SPARK)
    return text
