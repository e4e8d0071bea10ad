"""Windows of time as groups: WINDOW becomes two more GROUP BY columns, computed from the event time.

The remaining query contains no windows. When a window closes, and what happens to late rows, is a property of
the result (`Windowing`), not of the query.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.columns import EVENT_TIME, POSITION
from velostream.model.durations import format_duration
from velostream.model.statements import Emit, EmitMode, WindowKind, WindowSpec
from velostream.model.windows import Windowing
from velostream.plan.groups.plan import group_expressions
from velostream.plan.over.plan import closing_over
from velostream.plan.plans import GroupsPlan, OverPlan
from velostream.plan.query.functions import has_aggregates
from velostream.plan.steps import Step, StepKind
from velostream.plan.time.window_rows import detail_sql
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.bounds import micros
from velostream.sql.windows.window_groups import spec_of, window_called, with_called, with_window

if TYPE_CHECKING:
    from velostream.model.options import CommonOptions
    from velostream.model.statements import Query
    from velostream.plan.plans import Plan
    from velostream.sql.windows.window_groups import Called


def windowed(query: Query, options: CommonOptions) -> tuple[Query, Windowing | None]:
    """The query with its window rewritten as group keys; the Windowing is None where nothing ever closes."""
    spec, tree, called = query.window, query.tree, _called(query)
    final = query.emit.mode is EmitMode.FINAL
    if called is not None and called.by_window:
        spec = spec_of(called)
    elif called is not None:
        query = replace(query, tree=_computed(query, called, options))
    if spec is None:
        if not final:
            return query, None
        return query, _everything(query, options)
    if spec.kind is WindowKind.ROWS:
        return query, None
    if not isinstance(tree, exp.Select):
        raise UnsupportedError("a WINDOW is executed in one SELECT, not in a UNION", location=query.location)
    time = _time(query, tree, spec)
    if called is not None:
        timed = replace(called, time=time)
        select = with_called(tree, timed, options.time_zone, whole=True)
    else:
        select = with_window(tree, spec, time, options.time_zone)
    # A row exactly one gap later still belongs to the session, so a session closes one microsecond later.
    grace = micros(options.grace) + (1 if spec.gap is not None else 0)
    windowing = Windowing(
        spec.kind,
        final,
        grace,
        options.late_rows,
        _seconds(options.window_close_timeout),
        gap=micros(spec.gap) if spec.gap is not None else 0,
        size=micros(spec.size) if spec.size is not None else 0,
        advance=_apart(spec),
        offset=micros(spec.offset) if spec.offset is not None else 0,
        span=_span(spec),
        ttl=micros(options.state_ttl) if options.state_ttl is not None else None,
        time=time.sql(dialect=SPARK),
    )
    return replace(query, tree=select, window=None), windowing


def _apart(spec: WindowSpec) -> int:
    """The largest distance between a row's last window and the latest window before that without the row."""
    if spec.kind is WindowKind.CUMULATING:
        assert spec.size is not None
        return micros(spec.size)
    return micros(spec.advance) if spec.advance is not None else 0


def _computed(query: Query, called: Called, options: CommonOptions) -> exp.Select:
    """The SELECT that groups by an expression of window bounds: its groups span windows and never close."""
    assert isinstance(query.tree, exp.Select)
    spec = spec_of(called)
    if spec.kind is WindowKind.SESSION:
        raise UnsupportedError(
            "groups that span several sessions are not executed over a source",
            hint="GROUP BY the session itself, and group the table of sessions again",
            location=query.location,
        )
    time = _time(query, query.tree, spec)
    return with_called(query.tree, replace(called, time=time), options.time_zone, whole=False)


def _span(spec: WindowSpec) -> int:
    """How long after an event time its last window can end; a day more, as daylight saving may extend it."""
    if spec.gap is not None:
        return micros(spec.gap)
    length = spec.size if spec.size is not None else timedelta(days=31 * (spec.months or 0))
    return micros(length + timedelta(days=1) if length >= timedelta(days=1) else length)


def _everything(query: Query, options: CommonOptions) -> Windowing:
    """EMIT FINAL without a WINDOW: the result is emitted when the source has ended."""
    if not isinstance(query.tree, exp.Select) or not has_aggregates(query.tree):
        raise UnsupportedError(
            "EMIT FINAL without a WINDOW needs an aggregate: rows that stay as they are have no other end",
            hint="leave the clause out",
            location=query.location,
        )
    return Windowing(None, True, late=options.late_rows)


def time_column(query: Query) -> str | None:
    """The column that the WINDOW itself names, without its alias; None where it names none."""
    spec, called = query.window, _called(query)
    if called is not None:
        spec = spec_of(called)
    if spec is None or spec.time_column is None:
        return None
    aliases = {table.alias_or_name.casefold() for table in query.tree.find_all(exp.Table)}
    first, _, rest = spec.time_column.partition(".")
    return rest if rest and first.casefold() in aliases else spec.time_column


def inner_windows(query: Query) -> Query | None:
    """The inner query that groups a source by windows, where the statement contains more than that.

    The outer query reads the windows as a table, as they are emitted.
    """
    core = inner_select(query)
    if core is None:
        return None
    emit = query.emit if query.emit.explicit else Emit(EmitMode.FINAL)
    return replace(query, tree=core.copy(), emit=emit, closes=True)


def inner_select(query: Query) -> exp.Select | None:
    """The SELECT of `inner_windows` within the tree of the query; None where there is none."""
    if len(query.sources) != 1 or query.tables or query.window is not None:
        return None
    name = query.sources[0].id
    tables = [table for table in query.tree.find_all(exp.Table) if table.name == name]
    core = tables[0].parent_select if len(tables) == 1 else None
    if not isinstance(core, exp.Select) or core is query.tree or core.args.get("with_"):
        return None
    called = _called(replace(query, tree=core))
    return core if called is not None and called.by_window else None


def timed_table(query: Query) -> str | None:
    """The table whose column a window over tables names; None where no table has an event time."""
    column = time_column(query)
    if column is None or query.sources:
        return None
    if len(query.tables) == 1:
        return query.tables[0]
    spec, called = query.window, _called(query)
    written = (spec_of(called) if called is not None else spec).time_column or ""  # type: ignore[union-attr]
    alias = written.partition(".")[0].casefold()
    named = [t.name for t in query.tree.find_all(exp.Table) if t.alias_or_name.casefold() == alias]
    if len(named) != 1 or named[0] not in query.tables:
        raise UnsupportedError(
            "a window that closes needs to know which table has the time",
            hint="name it with the column: WINDOW TUMBLING(t.ts, INTERVAL '5' MINUTE)",
            location=query.location,
        )
    return named[0]


def closing(plan: Plan, windowing: Windowing | None, query: Query) -> Plan:
    """The plan of a windowed query, completed with when its groups close."""
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
    """Whether the grouped rows are rows of one relation, so that late ones can be listed one by one."""
    if plan.below is None:
        return True
    tree = query.tree
    alone = isinstance(tree, exp.Select) and not tree.args.get("joins") and not tree.args.get("with_")
    return alone and plan.stream is None and isinstance(tree.args["from_"].this, exp.Table)


def _detail(tree: exp.Expr, time: str) -> str:
    """SQL of the single rows that the query groups, each with its keys and its time."""
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
        "dead_letter": "a late row is kept in dead_letters",
        "drop": "a late row is counted and dropped",
        "update": "a late row corrects its window",
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
    """The event time of a row: `_event_time` of the one source, or the named column of a table."""
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


def _called(query: Query) -> Called | None:
    """The window function in GROUP BY, where rows come from a source or windows close; None otherwise."""
    declared = {column.name.casefold() for ref in query.sources for column in ref.columns}
    if query.window is not None or not isinstance(query.tree, exp.Select):
        return None
    if not query.sources and not query.closes:
        return None
    return window_called(query.tree, lambda name: name.casefold() in declared)


def _seconds(length: timedelta | None) -> float | None:
    return length.total_seconds() if length is not None else None
