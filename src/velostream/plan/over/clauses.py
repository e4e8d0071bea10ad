"""OVER over a source, and WINDOW ROWS: finds the SELECT that has it and normalises its clauses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.columns import EVENT_TIME
from velostream.model.statements import EmitMode, WindowKind
from velostream.model.windows import Windowing
from velostream.plan.query.functions import call_name, generator_call, has_aggregates, volatile_calls
from velostream.plan.time.clock_bounds import has_clock
from velostream.sql.parse.dialect import BUFFER
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.window_groups import with_rows

if TYPE_CHECKING:
    from velostream.model.options import CommonOptions
    from velostream.model.statements import Query
    from velostream.model.windows import EventTime

RUNNING = frozenset({"row_number", "rank", "dense_rank"})
"""Functions that depend on all preceding rows."""
WHOLE = frozenset({"ntile", "percent_rank", "cume_dist"})
"""Functions that depend on all rows of a key."""
_FRAMELESS = RUNNING | WHOLE | {"lag", "lead"}
_HINT = "make a table of the source first, then a table or a SELECT over that table"


def over_select(query: Query) -> exp.Select | None:
    """The one SELECT of the query with OVER or WINDOW ROWS over the rows of its source; None without one."""
    if len(query.sources) != 1:
        return None
    name = query.sources[0].id
    if any(has_clock(where) for where in query.tree.find_all(exp.Where)):
        return None
    if query.window is not None and query.window.kind is WindowKind.ROWS:
        top = query.tree
        return top if isinstance(top, exp.Select) and _reads(top, name) else None
    found = {id(each): each for window in query.tree.find_all(exp.Window) if (each := _own(window))}
    direct = [each for each in found.values() if _reads(each, name)]
    named = [table for table in query.tree.find_all(exp.Table) if table.name == name]
    if len(direct) != 1 or len(named) != 1 or has_aggregates(direct[0]):
        return None
    return direct[0]


def _own(window: exp.Window) -> exp.Select | None:
    if window.arg_key == "windows":
        return None
    return window.parent_select if isinstance(window.parent_select, exp.Select) else None


def _reads(select: exp.Select, source: str) -> bool:
    relation = select.args.get("from_")
    return relation is not None and isinstance(relation.this, exp.Table) and relation.this.name == source


@dataclass(frozen=True)
class OverQuery:
    """A query with OVER over a source, its clauses normalised."""

    query: Query
    windowing: Windowing | None
    """None where the OVER clauses are not ordered by event time."""
    inner: Query | None = None
    """The SELECT with OVER, where the query contains more than that SELECT."""


def over_query(query: Query, options: CommonOptions, time: EventTime | None) -> OverQuery | None:
    """The query with WINDOW ROWS and named windows written as OVER; None when it has no OVER over a source.

    `time` is the event time of the source.
    """
    core = over_select(query)
    if core is None:
        if query.window is not None and query.window.kind is WindowKind.ROWS:
            raise UnsupportedError(
                "WINDOW ROWS is executed over one source, named in the FROM of the same SELECT",
                hint="write OVER (PARTITION BY … ORDER BY … ROWS 99 PRECEDING)",
                location=query.window.location or query.location,
            )
        return None
    _refuse(query, core)
    final = query.emit.mode is EmitMode.FINAL
    seconds = options.window_close_timeout
    windowing = Windowing(
        WindowKind.ROWS,
        final,
        options.grace // timedelta(microseconds=1),
        options.late_rows,
        seconds.total_seconds() if seconds is not None else None,
    )
    column = time.column if time is not None else None
    select = core.copy()
    if query.window is not None:
        select = with_rows(select, query.window, exp.column(EVENT_TIME))
    select = _countable(_timed(_unnamed(select), column))
    timed = all(by_time(window, relation_of(select)) for window in own_windows(select))
    if final and not timed:
        raise UnsupportedError(
            "EMIT FINAL needs OVER in the order of the event time: only that shows when a row is final",
            hint='ORDER BY the event time: the column that "event.time.column" names, or _event_time',
            location=query.location,
        )
    if core is query.tree:
        query, inner = replace(query, tree=select, window=None), None
    else:
        inner = replace(query, tree=select, window=None)
    return OverQuery(query, windowing if timed else None, inner)


def rows_time(query: Query) -> str | None:
    """The column that ROWS WINDOW BUFFER orders by: the event time where the source declares none."""
    core = over_select(query)
    if core is None:
        return None
    found = {
        ".".join(part.name for part in first.parts)
        for window in core.find_all(exp.Window)
        if window.args.get(BUFFER) is not None and (first := _first_column(window)) is not None
    }
    relation = core.args["from_"].this.alias_or_name.casefold()
    names = {name.split(".", 1)[1] if name.casefold().startswith(f"{relation}.") else name for name in found}
    return names.pop() if len(names) == 1 else None


def outer_tree(query: Query, result: str) -> exp.Query:
    """The query around the SELECT with OVER; it reads the table that holds the rows of that SELECT."""
    core = over_select(query)
    assert core is not None
    return tree_around(query.tree, core, result)


def tree_around(tree: exp.Query, core: exp.Select, result: str) -> exp.Query:
    """A query with one of its SELECTs replaced by the rows of a table."""
    around = tree.copy()
    place = next(
        each
        for mine, each in zip(tree.find_all(exp.Select), around.find_all(exp.Select), strict=True)
        if mine is core
    )
    place.replace(exp.select("*").from_(exp.to_table(result, quoted=True)))
    return around


def _refuse(query: Query, core: exp.Select) -> None:
    """Raise UnsupportedError for clauses that cannot be executed together with OVER over a source."""
    reason = None
    for clause, text in (
        ("joins", "a join in the FROM of an OVER over a source is not executed"),
        ("laterals", "LATERAL VIEW beside OVER over a source is not executed"),
        ("distinct", "DISTINCT beside OVER over a source is not executed"),
        ("limit", "LIMIT beside OVER over a source is not executed"),
        ("order", "ORDER BY of all rows beside OVER over a source is not executed"),
        ("with_", "WITH in the SELECT that has OVER over a source is not executed"),
    ):
        if core.args.get(clause):
            reason = reason or text
    where = core.args.get("where")
    if where is not None and where.find(exp.Query):
        reason = reason or "a subquery in the WHERE of an OVER over a source is not executed"
    if any(generator_call(node) for item in core.selects for node in item.find_all(exp.Func)):
        reason = reason or "a function that gives several rows beside OVER over a source is not executed"
    if query.tables:
        reason = reason or "tables beside OVER over a source are not executed"
    volatile = next(volatile_calls(core), None)
    if volatile is not None:
        reason = reason or f"{volatile}() may return another value when a row is computed again"
    if reason is not None:
        raise UnsupportedError(reason, hint=_HINT, location=query.location)


# --- clauses written out ------------------------------------------------------------------------------------


def _named(window: exp.Expr, item: exp.Expr) -> exp.Expr:
    return exp.alias_(window, item.sql(dialect=SPARK).lower(), quoted=True)


def _unnamed(select: exp.Select) -> exp.Select:
    """Named windows inlined: `OVER w` becomes the definition of `WINDOW w`."""
    named = {each.this.name.casefold(): each for each in select.args.get("windows") or ()}
    for window in list(select.find_all(exp.Window)):
        alias = window.args.get("alias")
        given = named.get(alias.name.casefold()) if alias is not None else None
        if given is None or window.arg_key == "windows":
            continue
        for part in ("partition_by", "order", "spec"):
            inherited = given.args.get(part)
            if inherited is not None and not window.args.get(part):
                copies = [e.copy() for e in inherited] if isinstance(inherited, list) else inherited.copy()
                window.set(part, copies)
        window.set("alias", None)
    select.set("windows", None)
    return select


def _timed(select: exp.Select, column: str | None) -> exp.Select:
    """Puts `_event_time`, which has the watermark, for the event time column in each ORDER BY of an OVER."""
    relation = select.args["from_"].this.alias_or_name
    for item in list(select.selects):
        if not isinstance(item, (exp.Alias, exp.Column, exp.Star)) and item.find(exp.Window):
            item.replace(_named(item.copy(), item))
    for window in select.find_all(exp.Window):
        if window.args.get(BUFFER) is not None and function_name(window) in _FRAMELESS:
            # These functions take no frame, so the buffer only bounds the state.
            window.set("spec", None)
        order = window.args.get("order")
        if order is None:
            if window.args.get(BUFFER) is None:
                continue
            order = exp.Order(expressions=[exp.Ordered(this=exp.column(EVENT_TIME), nulls_first=True)])
            window.set("order", order)
        for each in order.expressions:
            name = column_name(each.this, relation)
            if column is not None and name is not None and name.casefold() == column.casefold():
                each.set("this", exp.column(EVENT_TIME, table=relation, quoted=True))
    return select


def _countable(select: exp.Select) -> exp.Select:
    """FILTER and COUNT(DISTINCT …) with OVER rewritten, since Spark does not support them there."""
    for window in list(select.find_all(exp.Window)):
        call = window.this
        if isinstance(call, exp.Filter):
            window.set("this", _filtered(call))
            call = window.this
        if isinstance(call, exp.Count) and isinstance(call.this, exp.Distinct):
            values = call.this.expressions
            if len(values) == 1:
                window.set("this", exp.Anonymous(this="collect_set", expressions=[values[0].copy()]))
                size = exp.Anonymous(this="size", expressions=[window.copy()])
                window.replace(exp.cast(size, "bigint"))
    return select


def _filtered(call: exp.Filter) -> exp.Expr:
    condition = call.expression.this
    inner = call.this.copy()
    if isinstance(inner, exp.Count) and (inner.this is None or isinstance(inner.this, exp.Star)):
        inner.set("this", exp.Literal.number(1))
    if not isinstance(inner, (exp.Count, exp.Sum, exp.Avg, exp.Min, exp.Max, exp.Stddev, exp.Variance)):
        raise UnsupportedError(
            f"FILTER of {call_name(inner)} with OVER is not executed", hint="write CASE WHEN … THEN … END"
        )
    target = inner.this.expressions if isinstance(inner.this, exp.Distinct) else [inner.this]
    for value in target:
        value.replace(exp.Case().when(condition.copy(), value.copy()))
    return inner


def column_name(node: exp.Expr, relation: str) -> str | None:
    """The name of a column without its relation; None when the node is no column."""
    if not isinstance(node, exp.Column):
        return None
    names = [part.name for part in node.parts]
    if len(names) > 1 and names[0].casefold() == relation.casefold():
        names = names[1:]
    return ".".join(names)


def function_name(window: exp.Window) -> str | None:
    """The name of the function that an OVER calls."""
    call = window.this
    return call_name(call.this if isinstance(call, (exp.IgnoreNulls, exp.RespectNulls)) else call)


def _first_column(window: exp.Window) -> exp.Column | None:
    order = window.args.get("order")
    first = order.expressions[0].this if order is not None and order.expressions else None
    return first if isinstance(first, exp.Column) else None


def own_windows(select: exp.Select) -> list[exp.Window]:
    """The OVER clauses of the SELECT itself, without subqueries."""
    return [window for window in select.find_all(exp.Window) if _own(window) is select]


def relation_of(select: exp.Select) -> str:
    """The alias of the source in the SELECT."""
    return str(select.args["from_"].this.alias_or_name)


def by_time(window: exp.Window, relation: str) -> bool:
    """Whether an OVER orders its rows by event time, or needs no order."""
    order, spec = window.args.get("order"), window.args.get("spec")
    if order is None or not order.expressions:
        return spec is None or str(spec.args.get("kind")).upper() != "ROWS"
    name = column_name(order.expressions[0].this, relation)
    return name is not None and name.casefold() == EVENT_TIME


def whole_number(node: exp.Expr | None, default: int | None) -> int | None:
    """The value of an integer literal, possibly negative; None for anything else."""
    if node is None:
        return default
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = node.this, -1
    return sign * int(node.this) if isinstance(node, exp.Literal) and node.is_int else None
