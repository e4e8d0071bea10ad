"""Windows of time as groups: WINDOW becomes two more columns of GROUP BY, computed from the event time.

What is left of the query knows nothing of windows. When they close, and what becomes of rows that come later,
is a matter of the result (`Windowing`), not of the query.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.durations import format_duration
from velostream.model.statements import EmitMode, WindowKind, WindowSpec
from velostream.model.windows import Windowing
from velostream.plan.calendar import calendar_bounds
from velostream.plan.calls import has_aggregates
from velostream.plan.detail import SLIDING, detail_sql
from velostream.plan.event_time import EVENT_TIME
from velostream.plan.groups import group_expressions
from velostream.plan.over import closing_over
from velostream.plan.planner import POSITION
from velostream.plan.plans import GroupsPlan, OverPlan
from velostream.plan.steps import Step, StepKind
from velostream.sql.functions import TIME_WINDOWS, WINDOW_BOUNDS
from velostream.sql.naming import called
from velostream.sql.shapes import WINDOW_COLUMNS
from velostream.sql.spark_text import SPARK
from velostream.sql.windows import interval_duration

if TYPE_CHECKING:
    from velostream.model.options import CommonOptions
    from velostream.model.statements import Query
    from velostream.plan.plans import Plan

START, END = "window_start", "window_end"


def windowed(query: Query, options: CommonOptions) -> tuple[Query, Windowing | None]:
    """The query with its window among its groups; the same query and None where nothing ever closes."""
    spec, tree = query.window, query.tree
    if spec is None and isinstance(tree, exp.Select):
        spec, tree = _called(tree)
    final = query.emit.mode is EmitMode.FINAL
    if spec is None:
        if not final:
            return query, None
        return query, _everything(query, options)
    if spec.kind is WindowKind.ROWS:
        return query, None
    if not isinstance(tree, exp.Select):
        raise UnsupportedError("a WINDOW stands in one SELECT, not in a UNION", location=query.location)
    time = _time(query, tree, spec)
    select = _grouped(tree, spec, time, options.time_zone)
    # A row exactly the gap later belongs to its session, which is open while the watermark is just there.
    grace = _micros(options.grace) + (1 if spec.gap is not None else 0)
    windowing = Windowing(
        spec.kind,
        final,
        grace,
        options.late_rows,
        _seconds(options.window_close_timeout),
        gap=_micros(spec.gap) if spec.gap is not None else 0,
        size=_micros(spec.size) if spec.size is not None else 0,
        advance=_micros(spec.advance) if spec.advance is not None else 0,
        span=_span(spec),
        ttl=_micros(options.state_ttl) if options.state_ttl is not None else None,
        time=time.sql(dialect=SPARK),
    )
    return replace(query, tree=select, window=None), windowing


def _span(spec: WindowSpec) -> int:
    """How long after a time the last window that it is in ends at most; a day more where clocks change."""
    if spec.gap is not None:
        return _micros(spec.gap)
    length = spec.size if spec.size is not None else timedelta(days=31 * (spec.months or 0))
    return _micros(length + timedelta(days=1) if length >= timedelta(days=1) else length)


def _everything(query: Query, options: CommonOptions) -> Windowing:
    """EMIT FINAL without a window."""
    if not isinstance(query.tree, exp.Select) or not has_aggregates(query.tree):
        raise UnsupportedError(
            "EMIT FINAL without a WINDOW needs an aggregate: rows that stay as they are have no other end",
            hint="leave the clause out",
            location=query.location,
        )
    return Windowing(None, True, late=options.late_rows)


def time_column(query: Query) -> str | None:
    """The column of the source that the WINDOW itself names, without its alias."""
    spec = query.window
    if spec is None and isinstance(query.tree, exp.Select):
        spec, _ = _called(query.tree)
    if spec is None or spec.time_column is None:
        return None
    aliases = {table.alias_or_name.casefold() for table in query.tree.find_all(exp.Table)}
    first, _, rest = spec.time_column.partition(".")
    return rest if rest and first.casefold() in aliases else spec.time_column


def closing(plan: Plan, windowing: Windowing | None, query: Query) -> Plan:
    """The plan of a windowed query, which knows when its groups close."""
    if windowing is None:
        return plan
    if isinstance(plan, OverPlan):
        return closing_over(plan, windowing)
    if not isinstance(plan, GroupsPlan):
        raise UnsupportedError(
            "this query with a WINDOW is not executed in this version",
            hint="make a table of the inner query first, and the window over that table",
        )
    detail = ""
    if windowing.bounded:
        windowing = replace(windowing, start=plan.keys[-2], end=plan.keys[-1])
        detail = _detail(query.tree, windowing.time) if _of_one(plan, query) else plan.detail_sql
    return replace(plan, windowing=windowing, detail_sql=detail, steps=(*plan.steps, _step(windowing)))


def _of_one(plan: Plan, query: Query) -> bool:
    """Whether the rows that are grouped are rows of one relation, which can be named one by one."""
    if plan.below is None:
        return True
    tree = query.tree
    alone = isinstance(tree, exp.Select) and not tree.args.get("joins") and not tree.args.get("with_")
    return alone and plan.stream is None and isinstance(tree.args["from_"].this, exp.Table)


def _detail(tree: exp.Expr, time: str) -> str:
    """The rows that the query groups, each with its keys and its time."""
    assert isinstance(tree, exp.Select)
    alias = tree.args["from_"].this.alias_or_name
    place, row = f"`{alias}`.`{POSITION}`", f"to_json(struct(`{alias}`.*))"
    return detail_sql(tree, group_expressions(tree), time, place, row)


def _step(windowing: Windowing) -> Step:
    if not windowing.bounded:
        return Step(StepKind.WATERMARK, "close", "readers see the groups when the source has ended")
    seen = (
        "readers see a window when it has closed" if windowing.final else "readers see windows as they grow"
    )
    late = {
        "dead_letter": "a row that comes later is kept in dead_letters",
        "drop": "a row that comes later is counted and dropped",
        "update": "a row that comes later corrects its window",
    }[windowing.late]
    grace = timedelta(microseconds=windowing.grace - (1 if windowing.gap else 0))
    after = f" and {format_duration(grace)} more" if grace else ""
    return Step(
        StepKind.WATERMARK,
        f"close {windowing.kind} windows",
        f"a window closes when the watermark has passed its end{after}; {seen}; {late}",
        state="the watermark of each partition",
    )


# --- the tree ---------------------------------------------------------------------------------------


def _time(query: Query, tree: exp.Select, spec: WindowSpec) -> exp.Expr:
    """The event time of a row: of the one source, or the column of a table."""
    if query.sources:
        ids = {ref.id for ref in query.sources}
        tables = [table for table in tree.find_all(exp.Table) if table.name in ids]
        direct = [table for table in tables if table.find_ancestor(exp.Select) is tree]
        if len(direct) != 1 or len(tables) != 1:
            raise UnsupportedError(
                "a WINDOW is executed over one source, named in the FROM of the same SELECT",
                hint="make a table of the inner query first, and the window over that table",
                location=spec.location or query.location,
            )
        return exp.column(EVENT_TIME, table=direct[0].alias_or_name, quoted=True)
    if spec.time_column is None:
        raise UnsupportedError(
            "a WINDOW over a table has to name the column that holds the time",
            hint="write WINDOW TUMBLING(ts, INTERVAL '5' MINUTE)",
            location=spec.location or query.location,
        )
    parts = spec.time_column.split(".")
    return (
        exp.Dot.build([exp.to_identifier(part, quoted=True) for part in parts])
        if len(parts) > 2
        else (exp.column(parts[-1], table=parts[0] if len(parts) == 2 else None, quoted=True))
    )


def _grouped(tree: exp.Select, spec: WindowSpec, time: exp.Expr, zone: str) -> exp.Select:
    select = tree.copy()
    calendar = calendar_bounds(spec, time, zone)
    start, end = calendar or _bounds(select, spec, time)
    start, end = called(start, START), called(end, END)
    by = select.args.get("group")
    keys = _written_keys(select, by)
    select = _with_bounds(select, start, end)
    groups = [_bounded(key, start, end) for key in (*keys, *spec.partition_by)]
    unique = [
        key for number, key in enumerate(groups) if key not in (start, end) and key not in groups[:number]
    ]
    session = spec.kind is WindowKind.SESSION
    bounds = [start.this.copy()] if session else [start.copy(), end.copy()]
    select.set("group", exp.Group(expressions=[*unique, *bounds]))
    return select


def _written_keys(select: exp.Select, by: exp.Expr | None) -> list[exp.Expr]:
    """What GROUP BY says, ALL resolved."""
    if by is None:
        return []
    if by.args.get("all"):
        items = [item.unalias() for item in select.selects]
        return [item for item in items if not has_aggregates(exp.Select(expressions=[item.copy()]))]
    if any(by.args.get(name) for name in ("grouping_sets", "cube", "rollup", "totals")):
        raise UnsupportedError(
            "ROLLUP, CUBE and GROUPING SETS over a WINDOW are not executed", hint="make a table per grouping"
        )
    return [key.copy() for key in by.expressions]


def _bounds(select: exp.Select, spec: WindowSpec, time: exp.Expr) -> tuple[exp.Expr, exp.Expr]:
    """The expressions of both bounds; what makes several rows of one is added to the SELECT."""
    if spec.kind is WindowKind.SESSION:
        assert spec.gap is not None
        length = exp.Literal.string(f"{_micros(spec.gap)} microseconds")
        call = _call("session_window", time, length)
        return exp.Dot(this=call, expression=exp.to_identifier("start")), exp.Dot(
            this=call.copy(), expression=exp.to_identifier("end")
        )
    assert spec.size is not None
    size = _micros(spec.size)
    micros = _call("unix_micros", time)
    if spec.kind is WindowKind.TUMBLING:
        first: exp.Expr = exp.Sub(this=micros, expression=_call("pmod", micros.copy(), _number(size)))
    else:
        assert spec.advance is not None
        first = _slide(select, micros, size, _micros(spec.advance))
    end = exp.Add(this=first.copy(), expression=_number(size))
    return _call("timestamp_micros", first), _call("timestamp_micros", end)


def _slide(select: exp.Select, micros: exp.Expr, size: int, advance: int) -> exp.Expr:
    """Every row once for each window that it is in; the start of the window."""
    last = exp.Sub(this=micros.copy(), expression=_call("pmod", micros.copy(), _number(advance)))
    steps = -(-size // advance) - 1
    earliest = exp.Sub(this=last.copy(), expression=_number(steps * advance))
    starts = _call("sequence", earliest, last, _number(advance))
    lateral = exp.Lateral(
        this=exp.Explode(this=starts),
        view=True,
        # A row without a time is in no window, and must not be lost for that.
        outer=True,
        alias=exp.TableAlias(this=exp.to_identifier(SLIDING), columns=[exp.to_identifier("start")]),
    )
    select.append("laterals", lateral)
    start = exp.column("start", table=SLIDING)
    if size % advance:
        inside = exp.LT(this=micros.copy(), expression=exp.Add(this=start.copy(), expression=_number(size)))
        nowhere = exp.Is(this=start.copy(), expression=exp.Null())
        select.where(exp.or_(nowhere, inside), copy=False)
    return start


def _with_bounds(select: exp.Select, start: exp.Expr, end: exp.Expr) -> exp.Select:
    """The SELECT with its names for the bounds replaced; a bare one keeps its name."""
    items = []
    for item in select.selects:
        replaced = _bounded(item, start, end)
        if not isinstance(item, exp.Alias) and replaced != item:
            name = item.name if isinstance(item, exp.Column) else item.sql(dialect=SPARK).lower()
            replaced = exp.alias_(replaced, name, quoted=True)
        items.append(replaced)
    select.set("expressions", items)
    having = select.args.get("having")
    if having is not None:
        having.set("this", _bounded(having.this, start, end))
    return select


def _bounded(node: exp.Expr, start: exp.Expr, end: exp.Expr) -> exp.Expr:
    def swap(each: exp.Expr) -> exp.Expr:
        if isinstance(each, exp.Column):
            name, table = each.name.lower(), each.table.lower()
            if not table and name in WINDOW_COLUMNS:
                return (start if name.endswith("start") else end).copy()
            if table in TIME_WINDOWS and name in ("start", "end"):
                return (start if name == "start" else end).copy()
            if not table and name in TIME_WINDOWS:
                return _both(start, end)
        if isinstance(each, exp.Anonymous) and each.name.lower() in WINDOW_BOUNDS:
            return (start if each.name.lower().endswith("start") else end).copy()
        if isinstance(each, exp.Anonymous) and each.name.lower() in TIME_WINDOWS:
            return _both(start, end)
        return each

    return node.copy().transform(swap)


def _both(start: exp.Expr, end: exp.Expr) -> exp.Expr:
    names = [exp.Literal.string("start"), start.copy(), exp.Literal.string("end"), end.copy()]
    return _call("named_struct", *names)


# --- Spark's own window(…) and session_window(…) in GROUP BY --------------------------------------------


def _called(tree: exp.Select) -> tuple[WindowSpec | None, exp.Select]:
    """The window that GROUP BY calls for, and the SELECT without that call."""
    group = tree.args.get("group")
    calls = [
        key
        for key in (group.expressions if group is not None else ())
        if isinstance(key, exp.Anonymous) and key.name.lower() in TIME_WINDOWS
    ]
    if len(calls) != 1 or not calls[0].expressions:
        return None, tree
    call = calls[0]
    column, *lengths = call.expressions
    try:
        durations = [_length(each) for each in lengths]
    except ValueError as exc:
        raise UnsupportedError(f"{call.name}(…) {exc}", hint="write window(ts, '5 minutes')") from exc
    if not isinstance(column, exp.Column) or not durations:
        raise UnsupportedError(
            f"{call.name}(…) takes a column and a length", hint="write window(ts, '5 minutes')"
        )
    name = ".".join(part.name for part in column.parts)
    if call.name.lower() == "session_window":
        spec = WindowSpec(WindowKind.SESSION, gap=durations[0], time_column=name)
    elif len(durations) > 1 and durations[1] != durations[0]:
        spec = WindowSpec(WindowKind.SLIDING, size=durations[0], advance=durations[1], time_column=name)
    else:
        spec = WindowSpec(WindowKind.TUMBLING, size=durations[0], time_column=name)
    if len(durations) > 2:
        raise UnsupportedError(
            "window(…) with a start time is not executed", hint="leave the last argument out"
        )
    select = tree.copy()
    select.args["group"].set("expressions", [key for key in select.args["group"].expressions if key != call])
    return spec, select


def _length(node: exp.Expr) -> timedelta:
    """`'5 minutes'`, as Spark's functions take it, or an interval."""
    if isinstance(node, exp.Literal) and node.is_string:
        words = node.name.lower().removeprefix("interval").split()
        if len(words) % 2 or not words:
            raise ValueError(f'cannot read "{node.name}" as a length')
        pairs = zip(words[::2], words[1::2], strict=True)
        parts = [exp.Interval(this=exp.Literal.string(n), unit=exp.Var(this=u.upper())) for n, u in pairs]
        return sum((interval_duration(part) for part in parts), timedelta())
    return interval_duration(node)


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _number(value: int) -> exp.Expr:
    # A BIGINT literal: Spark would otherwise take lengths of under 36 minutes for an INT and add as such.
    return exp.Literal.number(f"{value}L")


def _micros(length: timedelta) -> int:
    return length // timedelta(microseconds=1)


def _seconds(length: timedelta | None) -> float | None:
    return length.total_seconds() if length is not None else None
