"""Time windows in a SELECT with groups, rewritten as ordinary SQL: their bounds become GROUP BY keys.

They are written as a WINDOW clause, as Spark's window(…) and session_window(…), or as TUMBLE, HOP and SESSION
in GROUP BY. When windows close is not part of the query (see `plan/time/windows.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.statements import WindowKind, WindowSpec
from velostream.sql.bind.aggregation import aggregates
from velostream.sql.functions import GROUP_WINDOWS, TIME_WINDOWS, WINDOW_BOUNDS
from velostream.sql.names.relation_columns import WINDOW_COLUMNS
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.bounds import Bounds, call, number, window_bounds
from velostream.sql.windows.clauses import interval_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    InputColumn = Callable[[str], bool]
    """Whether a name is known to be a column of what a SELECT reads."""

_SEVERAL = ("grouping_sets", "cube", "rollup", "totals")
MILLISECOND = 1000


@dataclass(frozen=True)
class Called:
    """A window function in GROUP BY."""

    spec: WindowSpec
    time: exp.Expr
    call: exp.Anonymous
    keys: tuple[exp.Expr, ...]
    """The GROUP BY expressions, with positions, result names and ALL written out."""
    by_window: bool
    """Whether each group belongs to one window; false where a key is coarser."""


def window_called(select: exp.Select, known: InputColumn) -> Called | None:
    """The one window function in GROUP BY; None where there is none, or one that only Spark can read."""
    group = select.args.get("group")
    if group is None or not _plain_groups(group):
        return None
    keys = tuple(written_keys(select, known))
    calls: dict[str, exp.Anonymous] = {}
    for found in (each for key in keys for each in _calls(key)):
        calls.setdefault(_text(found), found)
    if len(calls) != 1:
        return None
    (only,) = calls.values()
    made = call_spec(only)
    if made is None:
        return None
    spec, time = made
    return Called(spec, time, only, keys, any(_identifies(key) for key in keys))


def groups_by_window(select: exp.Select, known: InputColumn) -> bool:
    """Whether a SELECT groups by a window function."""
    found = window_called(select, known)
    return found is not None and found.by_window


def call_spec(window: exp.Anonymous) -> tuple[WindowSpec, exp.Expr] | None:
    """The window and the time of a call; None where its lengths are not constant."""
    name = window.name.lower()
    if not window.expressions:
        return None
    time, *rest = window.expressions
    try:
        lengths = [_length(each) for each in rest]
    except ValueError:
        return None
    if name in ("session_window", "session"):
        return (WindowSpec(WindowKind.SESSION, gap=lengths[0]), time) if len(lengths) == 1 else None
    if name == "hop" and len(lengths) > 1:
        lengths[:2] = lengths[1::-1]  # HOP names how far it moves before how long it is
    if name == "tumble":
        lengths[1:1] = lengths[:1]
    if not 1 <= len(lengths) <= 3:
        return None
    size, advance = lengths[0], lengths[1] if len(lengths) > 1 else lengths[0]
    offset = lengths[2] if len(lengths) > 2 and lengths[2] else None
    if not timedelta(0) < advance <= size:
        return None
    if advance == size:
        return WindowSpec(WindowKind.TUMBLING, size=size, offset=offset), time
    return WindowSpec(WindowKind.SLIDING, size=size, advance=advance, offset=offset), time


def spec_of(called: Called) -> WindowSpec:
    """The window as a WINDOW clause would specify it, with its time column; UnsupportedError without one."""
    if not isinstance(called.time, exp.Column):
        raise UnsupportedError(
            f"{called.call.name}(…) over a source takes a column and a length",
            hint="write window(ts, '5 minutes'), with a column that holds the time",
        )
    return replace(called.spec, time_column=".".join(part.name for part in called.time.parts))


# --- as ordinary SQL -------------------------------------------------------------------------------------


def with_window(select: exp.Select, spec: WindowSpec, time: exp.Expr, zone: str) -> exp.Select:
    """The SELECT of a WINDOW clause with both bounds as its last keys."""
    group = select.args.get("group")
    if group is not None and not _plain_groups(group):
        raise UnsupportedError(
            "ROLLUP, CUBE and GROUPING SETS over a WINDOW are not executed", hint="make a table per grouping"
        )
    bounds = window_bounds(spec, time, zone)
    keys = [*written_keys(select, lambda _: False), *spec.partition_by]
    return _grouped(select, bounds, keys, [bounds.start, bounds.end])


def with_called(select: exp.Select, called: Called, zone: str, *, whole: bool) -> exp.Select:
    """The SELECT with a window function in GROUP BY; `whole`: both bounds are its last keys in any case."""
    bounds = window_bounds(called.spec, called.time, zone)
    if whole:
        return _grouped(select, bounds, called.keys, [bounds.start, bounds.end])
    named = [key for key in called.keys if _is_call(key)]
    return _grouped(select, bounds, called.keys, [bounds.start, bounds.end] if named else [])


def only_timed(select: exp.Select, spec: WindowSpec, time: exp.Expr) -> exp.Select:
    """The SELECT without rows that have no time: they are in no window. For sessions Spark does so itself."""
    if spec.kind is WindowKind.SESSION:
        return select
    return select.where(exp.not_(exp.Is(this=time.copy(), expression=exp.Null())), copy=False)


def with_rows(select: exp.Select, spec: WindowSpec, time: exp.Expr) -> exp.Select:
    """The SELECT of WINDOW ROWS n: every aggregate without OVER is taken over the last n rows of its key."""
    assert spec.rows is not None
    select = select.copy()
    group = select.args.get("group")
    by = exp.Group(expressions=[*spec.partition_by, *(group.expressions if group is not None else ())])
    keys = list(written_keys(select, lambda _: False, by=by, every=True))
    unique = [key for position, key in enumerate(keys) if key not in keys[:position]]
    frame = exp.WindowSpec(kind="ROWS", end="CURRENT ROW", start="CURRENT ROW")
    if spec.rows > 1:
        frame.set("start", exp.Literal.number(spec.rows - 1))
        frame.set("start_side", "PRECEDING")
    having = select.args.get("having")
    for part in [*select.selects, *([having] if having is not None else [])]:
        for found in list(aggregates(part)):
            aggregate = found.parent if isinstance(found.parent, exp.Filter) else found
            window = exp.Window(
                this=aggregate.copy(),
                partition_by=[key.copy() for key in unique],
                order=exp.Order(expressions=[exp.Ordered(this=time.copy(), nulls_first=True)]),
                spec=frame.copy(),
                over="OVER",
            )
            if aggregate is part:
                items = [_named(window, part) if item is part else item for item in select.selects]
                select.set("expressions", items)
            else:
                aggregate.replace(window)
    if having is not None:
        select.set("qualify", exp.Qualify(this=having.this))
    for clause in ("group", "having"):
        select.set(clause, None)
    return select


def _named(value: exp.Expr, item: exp.Expr) -> exp.Expr:
    return exp.alias_(value, item.sql(dialect=SPARK).lower(), quoted=True)


def _grouped(
    select: exp.Select, bounds: Bounds, keys: Iterable[exp.Expr], last: list[exp.Expr]
) -> exp.Select:
    """The SELECT with names of bounds replaced everywhere, grouped by `keys` and `last`."""
    select = select.copy()
    named = {item.alias.lower(): _bounded(item.unalias(), bounds) for item in select.selects if item.alias}
    groups: list[exp.Expr] = []
    for key in keys:
        written = _bounded(key, bounds)
        if isinstance(key, exp.Column) and not key.table and named.get(key.name.lower()) in last:
            continue  # a name of a bound, which is a key already
        if not _is_call(key) and written not in (*groups, *last):
            groups.append(written)
    _with_bounds(select, bounds)
    if bounds.each is not None:
        select.append("laterals", bounds.lateral())
    select.set("group", exp.Group(expressions=_sessions_whole([*groups, *last])))
    return select


def _sessions_whole(keys: list[exp.Expr]) -> list[exp.Expr]:
    """The keys with session windows whole: Spark forms sessions only where the window itself is a key."""
    found: list[exp.Expr] = []
    for key in keys:
        whole = key.this if isinstance(key, exp.Dot) and _is_call(key.this) else key
        if whole not in found:
            found.append(whole.copy())
    return found


def _with_bounds(select: exp.Select, bounds: Bounds) -> None:
    """Replace the names of bounds by the bounds; an item that is only a name keeps it as its alias."""
    items = []
    for item in select.selects:
        replaced = _bounded(item, bounds)
        if not isinstance(item, exp.Alias) and replaced != item:
            named = isinstance(item, (exp.Column, exp.Dot)) or _is_call(item)
            name = item.name if named else item.sql(dialect=SPARK).lower()
            replaced = exp.alias_(replaced, name, quoted=True)
        items.append(replaced)
    results = {item.alias_or_name.lower() for item in items}
    select.set("expressions", items)
    for clause in ("where", "having", "qualify"):
        part = select.args.get(clause)
        if part is None:
            continue
        condition = _bounded(part.this, bounds)
        if clause == "where" and condition != part.this and isinstance(bounds.start, exp.Dot):
            raise UnsupportedError(
                "WHERE cannot look at sessions, which follow from the rows that it lets through",
                hint="use HAVING",
            )
        part.set("this", condition)
    order = select.args.get("order")
    if order is not None:
        select.set("order", _bounded(order, bounds, results))


def _bounded(node: exp.Expr, bounds: Bounds, results: Iterable[str] = ()) -> exp.Expr:
    """The expression with bounds in place of their names; `results` are columns of the result."""

    def swap(each: exp.Expr) -> exp.Expr:
        name = each.name.lower()
        if isinstance(each, exp.Column):
            return each if not each.table and name in results else _bound_column(each, bounds)
        if isinstance(each, exp.Dot) and isinstance(each.this, exp.Anonymous) and _is_call(each.this):
            field = each.expression.name.lower()
            return (bounds.start if field == "start" else bounds.end).copy() if field in _FIELDS else each
        if not isinstance(each, exp.Anonymous):
            return each
        if name in WINDOW_BOUNDS:
            return _by_name(name, bounds)
        if name == "window_time" and len(each.expressions) == 1 and _stands_for(each.expressions[0]):
            return before(bounds.end, 1)
        return bounds.both() if _is_call(each) else each

    return node.copy().transform(swap)


_FIELDS = ("start", "end")


def _bound_column(column: exp.Column, bounds: Bounds) -> exp.Expr:
    name, table = column.name.lower(), column.table.lower()
    if not table and name in WINDOW_COLUMNS:
        return (bounds.start if name.endswith("start") else bounds.end).copy()
    if table in TIME_WINDOWS and name in _FIELDS:
        return (bounds.start if name == "start" else bounds.end).copy()
    return bounds.both() if not table and name in TIME_WINDOWS else column


def _by_name(name: str, bounds: Bounds) -> exp.Expr:
    """The bound that TUMBLE_START and the like name."""
    if name.endswith("_rowtime"):
        return before(bounds.end, MILLISECOND)
    return (bounds.start if name.endswith("start") else bounds.end).copy()


def before(end: exp.Expr, length: int) -> exp.Expr:
    """The moment that is so many microseconds before a bound."""
    return call("timestamp_micros", exp.Sub(this=call("unix_micros", end.copy()), expression=number(length)))


def _stands_for(node: exp.Expr) -> bool:
    """Whether an expression is the whole window of its group."""
    named = isinstance(node, exp.Column) and not node.table and node.name.lower() in TIME_WINDOWS
    return named or _is_call(node)


# --- GROUP BY --------------------------------------------------------------------------------------------


def _plain_groups(group: exp.Expr) -> bool:
    several = any(group.args.get(name) for name in _SEVERAL)
    return not several and not any(
        isinstance(key, (exp.Rollup, exp.Cube, exp.GroupingSets)) for key in group.expressions
    )


def written_keys(
    select: exp.Select, known: InputColumn, *, by: exp.Expr | None = None, every: bool = False
) -> Iterator[exp.Expr]:
    """The GROUP BY expressions; positions, ALL, and result names with a window (or `every`) written out."""
    group = by if by is not None else select.args.get("group")
    if group is None:
        return
    if group.args.get("all"):
        items = [item.unalias() for item in select.selects]
        yield from (item.copy() for item in items if not any(True for _ in aggregates(item)))
        return
    results = {item.alias.lower(): item.unalias() for item in select.selects if item.alias}
    for key in group.expressions:
        if isinstance(key, exp.Literal) and key.is_int:
            yield select.selects[int(key.this) - 1].unalias().copy()
            continue
        plain = isinstance(key, exp.Column) and not key.table
        result = results.get(key.name.lower()) if plain and not known(key.name) else None
        meant = result is not None and (every or any(True for _ in _calls(result)))
        yield (result if meant and result is not None else key).copy()


def _calls(node: exp.Expr) -> Iterator[exp.Anonymous]:
    return (each for each in node.find_all(exp.Anonymous) if _is_call(each))


def _is_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in GROUP_WINDOWS


def _identifies(key: exp.Expr) -> bool:
    """Whether a key identifies the window: the whole of it, or one of its bounds."""
    while isinstance(key, exp.Paren):
        key = key.this
    if isinstance(key, exp.Dot):
        return _is_call(key.this) and key.expression.name.lower() in _FIELDS
    return _is_call(key)


def _text(node: exp.Expr) -> str:
    """The text without qualifiers: window(t.ts, …) and window(ts, …) are the same to a user."""
    copy = node.copy()
    for column in copy.find_all(exp.Column):
        column.set("table", None)
    return str(copy.sql("spark").lower())


def _length(node: exp.Expr) -> timedelta:
    """A length: `'5 minutes'`, as in Spark's functions, or an interval."""
    if isinstance(node, exp.Literal) and node.is_string:
        words = node.name.lower().removeprefix("interval").split()
        if len(words) % 2 or not words:
            raise ValueError(f'cannot read "{node.name}" as a length')
        pairs = zip(words[::2], words[1::2], strict=True)
        parts = [exp.Interval(this=exp.Literal.string(n), unit=exp.Var(this=u.upper())) for n, u in pairs]
        return sum((interval_duration(part) for part in parts), timedelta())
    return interval_duration(node)
