"""Plan of OVER over a source: how far a result looks back and ahead, and the SQL over the kept rows.

Rows are kept per PARTITION BY key, as many as a later row's frame can still reach. Where a function depends
on the order of single rows, ties of ORDER BY are broken by the order of arrival.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.columns import (
    EVENT_TIME,
    GROUP,
    NAMED_COLUMNS,
    ORDER,
    POSITION,
    POSITION_KEPT,
    ROW_AS_JSON,
    TIME,
)
from velostream.model.durations import format_duration
from velostream.plan.groups.plan import NeedsColumns
from velostream.plan.over.calls import plain_calls
from velostream.plan.over.clauses import (
    RUNNING,
    WHOLE,
    by_time,
    column_name,
    function_name,
    over_select,
    own_windows,
    relation_of,
    whole_number,
)
from velostream.plan.plans import OverPlan, Reach
from velostream.plan.query.select_names import conjuncts
from velostream.plan.steps import Step, StepKind
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote
from velostream.sql.windows.clauses import interval_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from velostream.model.statements import Query
    from velostream.model.windows import Windowing
    from velostream.plan.plans import Plan

ROWS_VIEW = "__over_rows"
"""View of the rows that OVER is computed over."""
_ONE_BY_ONE = frozenset(
    {"row_number", "ntile", "lag", "lead", "nth_value", "first", "first_value", "last", "last_value"}
    | {"any_value", "collect_list", "array_agg", "listagg", "string_agg", "max_by", "min_by"}
)
"""Functions whose result depends on the order among rows that ORDER BY leaves equal."""


def over_applies(query: Query) -> bool:
    """Whether the query is a SELECT with OVER over a source, in the form that `over_query` returns."""
    return isinstance(query.tree, exp.Select) and over_select(query) is query.tree


def plan_over(tree: exp.Select, used: Sequence[str] | None, *, only_grows: bool) -> OverPlan:
    """The plan of a SELECT with OVER; `used` are the columns of the source that it uses, once known."""
    if any(
        isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star) for item in tree.selects
    ):
        raise NeedsColumns
    windows, relation = own_windows(tree), relation_of(tree)
    partitions = [window.args.get("partition_by") or [] for window in windows]
    shared = [key for key in partitions[0] if all(key in other for other in partitions)]
    ordered = all(by_time(window, relation) for window in windows)
    reach = Reach(0, 0, 0)
    for window in windows:
        reach = reach.and_also(_reach(window) if ordered else Reach(None, None, 0))
    alike = all(len(other) == len(shared) for other in partitions)
    bounded = reach.bounded and alike and only_grows and ordered
    # Without a key that all OVER clauses share, all rows belong to one key.
    kept_by = shared or [exp.Literal.number(0)]
    keys = tuple(f"__k{number}" for number in range(1, len(kept_by) + 1))
    kept = _kept_columns(tree, used or (), kept_by, relation)
    names = [name for name, column in kept.items() if name == column]
    over = _OverSql(tree, kept, alike=alike, ordered=ordered)
    return OverPlan(
        tree.sql(dialect=SPARK),
        rows_sql=_rows_sql(tree, kept_by, names, placed=False),
        placed_sql=_rows_sql(tree, kept_by, names, placed=True),
        over_sql=over.select.sql(dialect=SPARK),
        calls=over.calls,
        alias=relation,
        shown=over.shown,
        detail_sql=_detail_sql(tree, relation),
        keys=keys,
        columns=over.columns,
        reach=reach,
        timed=ordered,
        bounded=bounded,
        peers=any(_peers(window) for window in windows),
        shrinks=not only_grows,
        steps=(_step(shared, reach, bounded=bounded, ordered=ordered),),
    )


def _kept_columns(
    tree: exp.Select, used: Sequence[str], keys: Sequence[exp.Expr], relation: str
) -> dict[str, str]:
    """From each column that the SELECT uses, except in WHERE, to the kept column that holds it.

    The event time and the keys are kept in any case.
    """
    rest = tree.copy()
    rest.set("where", None)
    plain = _names_in(rest, used)
    system = [n for n in _names_in(rest, NAMED_COLUMNS) if n not in plain]
    found = {name: name for name in (*plain, *system)}
    for number, key in enumerate(keys, start=1):
        name = column_name(key, relation)
        found |= {
            each: f"__k{number}" for each in found if name is not None and each.casefold() == name.casefold()
        }
    return {name: TIME if name == EVENT_TIME else column for name, column in found.items()}


def _names_in(tree: exp.Expr, names: Iterable[str]) -> list[str]:
    """The names that occur in column references of the tree."""
    found = {part.name.casefold() for column in tree.find_all(exp.Column) for part in column.parts}
    return [name for name in names if name.casefold() in found]


def closing_over(plan: OverPlan, windowing: Windowing) -> Plan:
    """The plan completed with when its rows are shown, and what happens to late ones."""
    shown = (
        "readers see a row when the watermark has passed it"
        if windowing.final
        else "readers see rows at once"
    )
    late = {
        "dead_letter": "a late row is kept in dead_letters",
        "drop": "a late row is counted and dropped",
        "update": "a late row is computed with the rows that are kept",
    }[windowing.late]
    after = f" and {format_duration(timedelta(microseconds=windowing.grace))} more" if windowing.grace else ""
    step = Step(
        StepKind.WATERMARK,
        "rows in order of time",
        f"rows may arrive in any order until the watermark has passed them{after}; {shown}; {late}",
        state="the watermark of each partition",
    )
    return replace(plan, windowing=windowing, steps=(*plan.steps, step))


def _step(shared: Sequence[exp.Expr], reach: Reach, *, bounded: bool, ordered: bool) -> Step:
    by = ", ".join(key.sql(dialect=SPARK) for key in shared)
    if bounded:
        parts = [f"the last {reach.rows} rows" if reach.rows != 1 else "the last row"] if reach.rows else []
        if reach.span:
            parts.append(f"the rows of {format_duration(timedelta(microseconds=reach.span))}")
        kept = " and ".join(parts) or "no rows"
        state = f"{kept} {'of each key' if by else ''} before the watermark, and all rows after it".replace(
            "  ", " "
        )
    else:
        state = "all rows: it grows with the source"
        if ordered:
            state += "; ROWS BETWEEN n PRECEDING AND … bounds it"
        else:
            state += "; ORDER BY the event time, with ROWS BETWEEN n PRECEDING AND …, bounds it"
    return Step(
        StepKind.AFFECTED_KEYS,
        f"OVER by {by}" if by else "OVER all rows",
        "new rows are computed with the kept rows of their key; kept rows that see them are corrected",
        state=state,
    )


def _reach(window: exp.Window) -> Reach:
    order, spec, call = window.args.get("order"), window.args.get("spec"), window.this
    ignores, name = isinstance(call, exp.IgnoreNulls), function_name(window)
    if isinstance(call, (exp.IgnoreNulls, exp.RespectNulls)):
        call = call.this
    if order is None or not order.expressions or name in WHOLE:
        return Reach(None, None, 0)
    if name in {"lag", "lead"}:
        steps = whole_number(call.args.get("offset"), 1)
        reach = Reach(None, None, 0) if steps is None else _stepping(name, steps, ignores=ignores)
    elif name in RUNNING or spec is None:
        reach = Reach(None, 0, 0)
    else:
        reach = _framed(spec)
    return reach.reversed() if order.expressions[0].args.get("desc") else reach


def _stepping(name: str, steps: int, *, ignores: bool) -> Reach:
    back = (name == "lag") == (steps >= 0)
    far = None if ignores else abs(steps)
    return Reach(far, 0, 0) if back else Reach(0, far, 0)


def _framed(spec: exp.WindowSpec) -> Reach:
    kind = str(spec.args.get("kind")).upper()
    before, after, back, ahead = 0, 0, 0, 0
    unbounded_before = unbounded_after = False
    for end in ("start", "end"):
        bound, side = spec.args.get(end), str(spec.args.get(f"{end}_side") or "").upper()
        if bound is None or bound == "CURRENT ROW":
            continue
        if bound == "UNBOUNDED":
            unbounded_before |= side == "PRECEDING"
            unbounded_after |= side == "FOLLOWING"
            continue
        rows = whole_number(bound, None) if kind == "ROWS" else None
        length = _micros(bound) if kind == "RANGE" else None
        if rows is None and length is None:
            return Reach(None, None, 0)
        if side == "PRECEDING":
            before, back = max(before, rows or 0), max(back, length or 0)
        else:
            after, ahead = max(after, rows or 0), max(ahead, length or 0)
    return Reach(None if unbounded_before else before, None if unbounded_after else after, back, ahead)


def _micros(node: exp.Expr) -> int | None:
    try:
        return interval_duration(node) // timedelta(microseconds=1)
    except ValueError:
        return None


def _peers(window: exp.Window) -> bool:
    """Whether a new row can change the result of an earlier row with the same time."""
    order, spec = window.args.get("order"), window.args.get("spec")
    if order is None or len(order.expressions) > 1 or order.expressions[0].args.get("desc"):
        return True
    return (
        not _one_by_one(window)
        and function_name(window) not in RUNNING
        and (spec is None or str(spec.args.get("kind")).upper() != "ROWS")
    )


def _one_by_one(window: exp.Window) -> bool:
    spec = window.args.get("spec")
    ranged = spec is not None and str(spec.args.get("kind")).upper() == "RANGE"
    bounds = [spec.args.get(end) for end in ("start", "end")] if spec is not None else []
    values = ranged and any(isinstance(bound, exp.Expr) for bound in bounds)
    if values:
        # For a RANGE frame with values Spark allows only one ORDER BY column, so no tie-breaker can be added.
        return False
    by_rows = spec is not None and str(spec.args.get("kind")).upper() == "ROWS"
    return by_rows or function_name(window) in _ONE_BY_ONE


class _OverSql:
    """The SELECT over kept rows, in which keys and the order of time are numbers."""

    def __init__(self, tree: exp.Select, kept: Mapping[str, str], *, alike: bool, ordered: bool) -> None:
        self._relation = relation_of(tree)
        self.select = tree.copy()
        for window in own_windows(self.select):
            if alike and window.args.get("partition_by"):
                window.set("partition_by", [self._own(GROUP)])
            if _one_by_one(window):
                self._order(window, ordered=ordered)
        items = self.select.selects
        self.shown = self._shown(items, kept)
        computed = [item for item, name in zip(items, self.shown, strict=True) if name is None]
        self.select.set("expressions", [*computed, self._own(ORDER)])
        self.select.set("where", None)
        view = exp.Table(
            this=exp.to_identifier(ROWS_VIEW, quoted=True),
            alias=exp.TableAlias(this=exp.to_identifier(self._relation, quoted=True)),
        )
        self.select.set("from_", exp.From(this=view))
        self.columns = {name: kept[name] for name in _names_in(self.select, kept)}
        filtered = self.select.args.get("qualify") is not None
        self.calls = None if filtered else plain_calls(computed, self._relation, self.columns, GROUP, ORDER)

    def _own(self, name: str) -> exp.Column:
        return exp.column(name, table=self._relation, quoted=True)

    def _order(self, window: exp.Window, *, ordered: bool) -> None:
        """Break ties of ORDER BY by the order of arrival."""
        order = window.args.get("order") or exp.Order(expressions=[])
        given = order.expressions
        desc = bool(given and given[0].args.get("desc"))
        last = exp.Ordered(this=self._own(ORDER), desc=desc, nulls_first=not desc)
        # ORDER alone already means "by time, then by arrival".
        before = [] if ordered and len(given) == 1 else given
        window.set("order", exp.Order(expressions=[*before, last]))

    def _shown(self, items: Sequence[exp.Expr], kept: Mapping[str, str]) -> tuple[str | None, ...]:
        """For each item the kept column it equals, which skips Spark; None for computed items."""
        folded = {name.casefold(): name for name in kept}
        plain = [folded.get((column_name(item.unalias(), self._relation) or "").casefold()) for item in items]
        aliases = {
            item.alias.casefold()
            for item, name in zip(items, plain, strict=True)
            if name is not None and item.alias and item.alias.casefold() != name.casefold()
        }
        others = [item for item, name in zip(items, plain, strict=True) if name is None]
        later = {c.name.casefold() for item in others for c in item.find_all(exp.Column)}
        if self.select.args.get("qualify") is not None or aliases & later or not others:
            return (None,) * len(items)
        return tuple(kept[name] if name is not None else None for name in plain)


def _rows_sql(tree: exp.Select, keys: Sequence[exp.Expr], names: Sequence[str], *, placed: bool) -> str:
    """SQL of the state to keep for each new row."""
    relation = tree.args["from_"].this
    select = exp.Select().from_(relation.copy())
    for each in _conditions(tree):
        select = select.where(each.copy(), copy=False)
    alias = relation.alias_or_name
    items = [
        *(exp.alias_(key.copy(), f"__k{number}") for number, key in enumerate(keys, start=1)),
        *(exp.column(name, table=alias, quoted=True) for name in names),
        exp.alias_(exp.column(EVENT_TIME, table=alias, quoted=True), TIME),
    ]
    if placed:
        items.append(exp.alias_(exp.column(POSITION, table=alias, quoted=True), POSITION_KEPT))
    return str(select.select(*items).sql(dialect=SPARK))


def _detail_sql(tree: exp.Select, relation: str) -> str:
    """SQL of the rows that pass the filter: position, time, and the whole row as JSON."""
    select = exp.Select().from_(tree.args["from_"].this.copy())
    for each in _conditions(tree):
        select = select.where(each.copy(), copy=False)
    quoted = quote(relation)
    return str(
        select.select(
            f"{quoted}.`{EVENT_TIME}` AS {TIME}",
            f"{quoted}.`{POSITION}` AS {POSITION_KEPT}",
            f"to_json(struct({quoted}.*)) AS {ROW_AS_JSON}",
            dialect=SPARK,
        ).sql(dialect=SPARK)
    )


def _conditions(tree: exp.Select) -> Iterator[exp.Expr]:
    where = tree.args.get("where")
    yield from conjuncts(where.this) if where is not None else ()
