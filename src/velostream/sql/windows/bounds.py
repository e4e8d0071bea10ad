"""Bounds of the windows that contain a row, as SQL over its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.statements import WindowKind
from velostream.sql.names.spelling import called
from velostream.sql.windows.calendar import calendar_bounds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.model.statements import WindowSpec

EACH = "__window"
"""The relation that repeats every row once for each window that contains it."""


@dataclass(frozen=True)
class Bounds:
    """The first instant of a window, and the first instant after it."""

    start: exp.Expr
    end: exp.Expr
    each: exp.Expr | None = None
    """For overlapping windows: an array with a number for each window of a row; the bounds use `column`."""
    column: str = ""
    relation: str = EACH

    def both(self) -> exp.Expr:
        """The struct that Spark's window(…) returns."""
        names = (exp.Literal.string("start"), self.start.copy(), exp.Literal.string("end"), self.end.copy())
        return call("named_struct", *names)

    def lateral(self) -> exp.Lateral:
        """The LATERAL VIEW that repeats every row once for each of its windows."""
        assert self.each is not None
        return exp.Lateral(
            this=call("explode", self.each.copy()),
            view=True,
            # OUTER: a row without a time is in no window, and must not be dropped for that.
            outer=True,
            alias=exp.TableAlias(
                this=exp.to_identifier(self.relation), columns=[exp.to_identifier(self.column)]
            ),
        )


def window_bounds(spec: WindowSpec, time: exp.Expr, zone: str) -> Bounds:
    """The window bounds, marked with the names that users know."""
    bounds = _window_bounds(spec, time, zone)
    return replace(bounds, start=called(bounds.start, "window_start"), end=called(bounds.end, "window_end"))


def _window_bounds(spec: WindowSpec, time: exp.Expr, zone: str) -> Bounds:
    """The bounds of the windows of this kind that contain a time.

    Windows are counted from 1970 in UTC, or follow the calendar of a time zone. The start is inclusive, the
    end exclusive.
    """
    calendar = calendar_bounds(spec, time, zone)
    if calendar is not None:
        return Bounds(*calendar)
    if spec.kind is WindowKind.SESSION:
        assert spec.gap is not None
        window = call("session_window", time.copy(), exp.Literal.string(f"{micros(spec.gap)} microseconds"))
        return Bounds(field_of(window, "start"), field_of(window, "end"))
    assert spec.size is not None
    size, offset = micros(spec.size), micros(spec.offset) if spec.offset is not None else 0
    at = call("unix_micros", time.copy())
    if spec.kind is WindowKind.SLIDING:
        assert spec.advance is not None
        start: exp.Expr = exp.column("start", table=EACH)
        each = _sliding(at, size, micros(spec.advance), offset)
        return Bounds(_instant(start), _instant(_plus(start, size)), each, "start")
    first = _aligned(at, size, offset)
    if spec.kind is WindowKind.CUMULATING:
        assert spec.advance is not None
        end = exp.column("end", table=EACH)
        before = exp.paren(exp.Sub(this=end.copy(), expression=number(1)))
        each = _growing(at, first, size, micros(spec.advance))
        return Bounds(_instant(_aligned(before, size, offset)), _instant(end), each, "end")
    return Bounds(_instant(first), _instant(_plus(first, size)))


def session_sql(
    columns: str, relation: str, keys: Sequence[str], time: exp.Expr, gap: int, start: str, end: str
) -> str:
    """SQL of the rows of a relation with the bounds of their session; null without a time.

    `columns` are the selected columns, `keys` the columns that separate sessions, all as text. A row with
    none within the gap before it starts a session, one with none within the gap after it ends it; all others
    take the bounds of their neighbours. Rows of the same time are neighbours, in any order.
    """
    at = "__time"
    by = f"PARTITION BY {', '.join(keys)} ORDER BY {at}" if keys else f"ORDER BY {at}"
    timed = f"SELECT *, unix_micros({time.sql(dialect='spark')}) AS {at} FROM `{relation}`"
    edges = (
        f"SELECT *, CASE WHEN {at} - lag({at}) OVER ({by}) <= {gap}L THEN NULL ELSE {at} END AS __begins,"
        f" CASE WHEN lead({at}) OVER ({by}) - {at} <= {gap}L THEN NULL ELSE {at} + {gap}L END AS __ends"
        f" FROM ({timed}) WHERE {at} IS NOT NULL"
    )
    following = "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING"
    return (
        f"SELECT {columns}, timestamp_micros(max(__begins) OVER ({by})) AS `{start}`,"
        f" timestamp_micros(min(__ends) OVER ({by} {following})) AS `{end}` FROM ({edges})"
    )


def _sliding(at: exp.Expr, size: int, advance: int, offset: int) -> exp.Expr:
    """The starts of the sliding windows that contain a time."""
    last = _aligned(at, advance, offset)
    if size % advance == 0:
        before: exp.Expr = number(size - advance)
    else:
        # The number of windows depends on the position of the time between two window starts.
        since = exp.Sub(this=number(size - 1), expression=_into(at, advance, offset))
        steps = exp.IntDiv(this=exp.paren(since), expression=number(advance))
        before = exp.Mul(this=steps, expression=number(advance))
    return call("sequence", exp.Sub(this=last, expression=before), last.copy(), number(advance))


def _growing(at: exp.Expr, first: exp.Expr, size: int, step: int) -> exp.Expr:
    """The ends of the cumulating windows that contain a time: they start together, each a step longer."""
    since = exp.Sub(this=at.copy(), expression=exp.paren(first.copy()))
    steps = exp.IntDiv(this=exp.paren(since), expression=number(step))
    shortest = exp.Mul(this=exp.paren(exp.Add(this=steps, expression=number(1))), expression=number(step))
    return call("sequence", exp.Add(this=first.copy(), expression=shortest), _plus(first, size), number(step))


def _aligned(at: exp.Expr, every: int, offset: int) -> exp.Expr:
    """The last of the moments `every` apart that is not after a time."""
    return exp.Sub(this=at.copy(), expression=_into(at, every, offset))


def _into(at: exp.Expr, every: int, offset: int) -> exp.Expr:
    from_offset = exp.Sub(this=at.copy(), expression=number(offset)) if offset else at.copy()
    return call("pmod", from_offset, number(every))


def _plus(moment: exp.Expr, length: int) -> exp.Expr:
    return exp.Add(this=moment.copy(), expression=number(length))


def _instant(moment: exp.Expr) -> exp.Expr:
    return call("timestamp_micros", moment.copy())


def field_of(struct: exp.Expr, name: str) -> exp.Expr:
    """A field of a struct."""
    return exp.Dot(this=struct.copy(), expression=exp.to_identifier(name))


def call(name: str, *arguments: exp.Expr) -> exp.Anonymous:
    """A call of a Spark function."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def number(value: int) -> exp.Expr:
    """A BIGINT literal: Spark would otherwise use INT for lengths below 36 minutes, and overflow in sums."""
    if value < 0:
        return exp.Neg(this=number(-value))
    return exp.Cast(this=exp.Literal.number(value), to=exp.DataType.build("bigint"))


def micros(length: timedelta) -> int:
    """A length in microseconds."""
    return length // timedelta(microseconds=1)
