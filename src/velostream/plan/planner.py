"""The cheapest exact plan for a query, chosen in pure Python.

Inputs that can shrink hand over two sets of rows per batch, those added and those taken back. A stateless
query is run on each; groups subtract where subtraction is exact and otherwise recompute the keys touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.tables import SHOWN
from velostream.plan.aggregates import Aggregate, Finish, Merge, decompose
from velostream.plan.calls import aggregates_in, has_aggregates, volatile_calls
from velostream.plan.plans import (
    EVERYTHING,
    ROWS,
    GroupsPlan,
    Output,
    Plan,
    RecomputePlan,
    RowsPlan,
    UpsertPlan,
)
from velostream.plan.shape import why_not_input, why_not_stateless
from velostream.plan.steps import Step, StepKind

if TYPE_CHECKING:
    from velostream.model.statements import Query

SPARK = "spark"
POSITION = "_position"
"""System column that orders the rows of a source; asked of it where a later row replaces an earlier one."""


def plan_query(
    query: Query,
    key: tuple[str, ...] = (),
    *,
    only_grows: bool = True,
    inputs: frozenset[str] = frozenset(),
) -> Plan:
    """Choose the plan.

    `key` is the declared key of the table, `only_grows` holds for all inputs, and `inputs` are the names
    of their columns (casefolded) where they are known.
    """
    _refuse_later_features(query)
    tree = query.tree
    if not query.sources and len(query.tables) != 1:
        return _recompute(tree, "it reads several tables")
    if not only_grows:
        _refuse_volatile(tree)
    reason = why_not_stateless(tree)
    if reason is None:
        return _upsert(tree, key) if key else _rows(tree)
    if isinstance(tree, exp.Select) and _groups_apply(tree):
        return _groups(tree, key, inputs)
    if not query.sources:
        return _recompute(tree, reason)
    raise UnsupportedError(
        f"this query cannot be kept up to date over a source yet: {reason}",
        hint="make a table of the source first, then a table or a SELECT over that table",
        location=query.location,
    )


def _refuse_later_features(query: Query) -> None:
    if query.window is not None:
        raise UnsupportedError(
            f"{query.window.kind} windows are not executed in this version",
            hint="the statement is valid; group by a truncated time such as date_trunc('minute', ts) meanwhile",  # noqa: E501
            location=query.window.location or query.location,
        )
    if query.streams:
        raise UnsupportedError(
            f'reading stream "{query.streams[0]}" from another statement is not executed in this version',
            hint="name the stream's source, or use a table",
            location=query.location,
        )
    if query.sources and query.tables:
        raise UnsupportedError(
            "joins of a source with a table are not executed in this version",
            hint="make a table of the source, then join the two tables",
            location=query.location,
        )
    if len(query.sources) > 1 and not isinstance(query.tree, exp.Union):
        raise UnsupportedError(
            "joins of several sources are not executed in this version",
            hint="make a table of each source, then join the tables",
            location=query.location,
        )
    if query.emit.explicit and (query.emit.every is not None or query.emit.mode.value == "final"):
        raise UnsupportedError(
            "EMIT FINAL and EMIT CHANGES EVERY are not executed in this version",
            hint="leave the clause out: every change is emitted",
            location=query.location,
        )


def _refuse_volatile(tree: exp.Expr) -> None:
    for name in volatile_calls(tree):
        raise UnsupportedError(
            f"{name}() gives another answer when a row is taken back",
            detail="the input can shrink, and a row that leaves must compute to what it was when it came",
            hint="keep the value in the data; _timestamp is when a row came",
        )


def _rows(tree: exp.Query) -> RowsPlan:
    step = Step(
        StepKind.STATELESS, "filter and project", "each row is looked at by itself; its weight rides along"
    )
    return RowsPlan(tree.sql(dialect=SPARK), steps=(step,))


def _upsert(tree: exp.Query, key: tuple[str, ...]) -> UpsertPlan:
    inner = not isinstance(tree, exp.Select) or tree.args.get("with_")
    if inner or not isinstance(tree.args["from_"].this, exp.Table):
        raise UnsupportedError(
            "a key over a subquery or UNION is not executed in this version",
            hint="make a table of the inner query first, and give the key to a table over it",
        )
    table = tree.args["from_"].this
    ordered = tree.copy().select(exp.column(POSITION, table=table.alias_or_name).as_("__position"))
    step = Step(
        StepKind.MERGE,
        f"last row per {', '.join(key)}",
        "a later row of the same key replaces the earlier; keys that lose a row are looked up again",
        state="one row per key",
    )
    return UpsertPlan(tree.sql(dialect=SPARK), key, ordered.sql(dialect=SPARK), steps=(step,))


def _recompute(tree: exp.Query, reason: str) -> RecomputePlan:
    step = Step(
        StepKind.RECOMPUTE,
        "the whole query",
        f"{reason}; the result is computed again and the difference applied",
        state="the result",
    )
    return RecomputePlan(tree.sql(dialect=SPARK), steps=(step,))


# --- groups -----------------------------------------------------------------------------------------


def _groups_apply(select: exp.Select) -> bool:
    if why_not_input(select) is not None:
        return False
    if any(select.args.get(name) for name in ("limit", "offset", "order", "qualify")):
        return False
    if any(part.find(exp.Window) or part.find(exp.Query) for part in _result_parts(select)):
        return False
    group = select.args.get("group")
    if group is not None and any(group.args.get(n) for n in ("grouping_sets", "cube", "rollup", "totals")):
        return False
    if group is not None and any(isinstance(e, (exp.Rollup, exp.Cube)) for e in group.expressions):
        return False
    if select.args.get("distinct"):
        return not has_aggregates(select) and not isinstance(
            select.args["distinct"].args.get("on"), exp.Tuple
        )
    return has_aggregates(select)


def _result_parts(select: exp.Select) -> list[exp.Expr]:
    having = select.args.get("having")
    return [*select.selects, *([having.this] if having else [])]


def _groups(select: exp.Select, declared_key: tuple[str, ...], inputs: frozenset[str]) -> Plan:
    stars = [item for item in select.selects if item.find(exp.Star) and not item.find(exp.Count)]
    if stars:
        # DISTINCT * : the columns are known only to the source; the runtime expands them first.
        raise NeedsColumns
    keys = _group_expressions(select, inputs)
    names = _key_names(select, keys)
    aggregates = _collect(select)
    visible = tuple(n for n in names if not n.startswith("__"))
    if declared_key and set(declared_key) != set(visible):
        raise UnsupportedError(
            f"the key ({', '.join(declared_key)}) differs from the GROUP BY columns ({', '.join(visible)})",
            hint="leave the key out: a grouped table is keyed by its groups",
        )
    accumulators = [
        exp.alias_(accumulator.expression.copy(), accumulator.name)
        for aggregate in aggregates
        for accumulator in aggregate.accumulators
    ]
    partial = _per_group(select, keys, names, [exp.alias_(exp.Count(this=exp.Star()), ROWS), *accumulators])
    values = _per_group(select, keys, names, [exp.alias_(a.call.copy(), a.value) for a in aggregates])
    outputs, finish = _finish(select, keys, names, aggregates)
    return GroupsPlan(
        select.sql(dialect=SPARK),
        partial.sql(dialect=SPARK),
        partial.transform(_tolerant_sum).sql(dialect=SPARK),
        values.sql(dialect=SPARK),
        names or (EVERYTHING,),
        aggregates,
        outputs,
        finish,
        having=bool(select.args.get("having")),
        grouped=bool(names),
        steps=_group_steps(names, aggregates),
    )


class NeedsColumns(Exception):  # noqa: N818
    """The query has a `*` that must be expanded into columns before it can be planned."""


def _group_expressions(select: exp.Select, inputs: frozenset[str]) -> tuple[exp.Expr, ...]:
    if select.args.get("distinct"):
        return tuple(item.unalias() for item in select.selects)
    group = select.args.get("group")
    if group is None:
        return ()
    by_alias = {item.alias: item.unalias() for item in select.selects if item.alias}
    if group.args.get("all"):
        return tuple(i.unalias() for i in select.selects if not any(True for _ in aggregates_in(i)))
    resolved: list[exp.Expr] = []
    for expression in group.expressions:
        if isinstance(expression, exp.Literal) and expression.is_int:
            expression = select.selects[int(expression.this) - 1].unalias()
        elif isinstance(expression, exp.Column) and not expression.table:
            # As in Spark, a name in GROUP BY means a column of the input first, then one of the result.
            known = expression.name.casefold() in inputs
            expression = expression if known else by_alias.get(expression.name, expression)
        if expression not in resolved:
            resolved.append(expression)
    return tuple(resolved)


def _key_names(select: exp.Select, keys: tuple[exp.Expr, ...]) -> tuple[str, ...]:
    names: list[str] = []
    for number, key in enumerate(keys, start=1):
        selected = next((i.alias_or_name for i in select.selects if i.unalias() == key), None)
        names.append(selected if selected and selected not in names else f"__k{number}")
    return tuple(names)


def _collect(select: exp.Select) -> tuple[Aggregate, ...]:
    calls: list[exp.Expr] = []
    for part in _result_parts(select):
        for call in aggregates_in(part):
            if call not in calls:
                calls.append(call)
    return tuple(decompose(call, number) for number, call in enumerate(calls, start=1))


def _per_group(
    select: exp.Select,
    keys: tuple[exp.Expr, ...],
    names: tuple[str, ...],
    columns: list[exp.Expr],
) -> exp.Select:
    """The query with its result replaced by the key columns and `columns`."""
    grouped = select.copy()
    for name in ("having", "distinct", "group"):
        grouped.set(name, None)
    named = [exp.alias_(key.copy(), name, quoted=True) for key, name in zip(keys, names, strict=True)]
    if not keys:
        named = [exp.alias_(exp.Literal.number(0), EVERYTHING)]
    grouped.set("expressions", [*named, *columns])
    if keys:
        grouped.set("group", exp.Group(expressions=[key.copy() for key in keys]))
    return grouped


def _tolerant_sum(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Sum):
        return exp.Anonymous(this="try_sum", expressions=[node.this])
    return node


def _finish(
    select: exp.Select,
    keys: tuple[exp.Expr, ...],
    names: tuple[str, ...],
    aggregates: tuple[Aggregate, ...],
) -> tuple[tuple[Output, ...], str | None]:
    replacements: list[tuple[exp.Expr, str]] = [(a.call, a.value) for a in aggregates]
    replacements += [(key, name) for key, name in zip(keys, names, strict=True)]
    outputs: list[Output] = []
    items: list[exp.Expr] = []
    for position, item in enumerate(select.selects):
        name = item.alias_or_name or _spark_name(item, position)
        replaced = _replace(item.unalias().copy(), replacements)
        direct = replaced.name if isinstance(replaced, exp.Column) and not replaced.table else None
        outputs.append(Output(name, direct))
        items.append(exp.alias_(replaced, name, quoted=True))
    having = select.args.get("having")
    if having is None and all(output.column for output in outputs):
        return tuple(outputs), None
    if having is not None:
        condition = exp.Coalesce(this=_replace(having.this.copy(), replacements), expressions=[exp.false()])
        items.append(exp.alias_(condition, SHOWN))
    tree = exp.Select(expressions=items).from_(exp.to_table("__groups"))
    return tuple(outputs), tree.sql(dialect=SPARK)


def _spark_name(item: exp.Expr, position: int) -> str:
    """The name that Spark gives a column without alias is its text; ours is the same, lowercased."""
    return str(item.sql(dialect=SPARK)).lower() or f"column{position + 1}"


def _replace(tree: exp.Expr, replacements: list[tuple[exp.Expr, str]]) -> exp.Expr:
    def swap(node: exp.Expr) -> exp.Expr:
        for original, name in replacements:
            if node == original:
                return exp.column(name, quoted=True)
        return node

    return tree.transform(swap, copy=False)


def _group_steps(names: tuple[str, ...], aggregates: tuple[Aggregate, ...]) -> tuple[Step, ...]:
    by = f"by {', '.join(names)}" if names else "over everything"
    replaced = [a.call.sql(dialect=SPARK) for a in aggregates if not a.mergeable]
    extremes = [
        a.call.sql(dialect=SPARK)
        for a in aggregates
        if a.finish is Finish.SAME and any(c.merge in {Merge.MIN, Merge.MAX} for c in a.accumulators)
    ]
    if replaced:
        return (
            Step(
                StepKind.AFFECTED_KEYS,
                f"groups {by}",
                f"{', '.join(replaced)} cannot be merged; the groups a batch touches are computed again",
                state="one row per group",
            ),
        )
    why = "partial aggregates of each batch are merged into the table; a group without rows is deleted"
    if extremes:
        why += f"; when rows are taken back, {', '.join(extremes)} of those groups are computed again"
    return (Step(StepKind.MERGE, f"groups {by}", why, state="one row of accumulators per group"),)
