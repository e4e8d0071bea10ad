"""Plans of groups: from a SELECT with GROUP BY, DISTINCT or aggregates to accumulators."""

from __future__ import annotations

from sqlglot import exp

from velostream.errors import UnsupportedError
from velostream.model.columns import EVERYTHING, GROUP_ROWS, HIDDEN, SHOWN
from velostream.plan.groups.aggregates import Aggregate, Finish, Merge, decompose
from velostream.plan.plans import GROUPS_VIEW, GroupsPlan, Output
from velostream.plan.query.functions import aggregates_in, generator_call, has_aggregates
from velostream.plan.query.stateless import why_not_input
from velostream.plan.steps import Step, StepKind
from velostream.sql.names.spelling import called, told
from velostream.sql.text.spark_text import SPARK


class NeedsColumns(Exception):  # noqa: N818
    """The plan depends on columns of the inputs that are not known yet; plan again with `*` expanded."""


def groups_apply(select: exp.Select) -> bool:
    """Whether the SELECT only groups: no OVER, LIMIT, join or anything else that needs other rows."""
    if why_not_input(select) is not None:
        return False
    if any(select.args.get(name) for name in ("limit", "offset", "order", "qualify")):
        return False
    if any(part.find(exp.Window) or part.find(exp.Query) for part in _result_parts(select)):
        return False
    if several_groupings(select):
        return False
    if any(generator_call(call) for item in select.selects for call in item.find_all(exp.Func)):
        return False
    if select.args.get("distinct"):
        return not has_aggregates(select) and not isinstance(
            select.args["distinct"].args.get("on"), exp.Tuple
        )
    return has_aggregates(select)


def several_groupings(select: exp.Select) -> bool:
    """Whether a row counts in several groups: GROUPING SETS, CUBE, ROLLUP."""
    group = select.args.get("group")
    if group is None:
        return False
    if any(group.args.get(name) for name in ("grouping_sets", "cube", "rollup", "totals")):
        return True
    return any(isinstance(each, (exp.Rollup, exp.Cube, exp.GroupingSets)) for each in group.expressions)


def _result_parts(select: exp.Select) -> list[exp.Expr]:
    having = select.args.get("having")
    return [*select.selects, *([having.this] if having else [])]


def plan_groups(
    select: exp.Select, declared_key: tuple[str, ...], by: tuple[str, ...] | None = None
) -> GroupsPlan:
    """The accumulators, keys and finishing step of a SELECT that groups.

    `by` are the group expressions as the user wrote them, where the SELECT has internal names.
    """
    stars = [item for item in select.selects if item.find(exp.Star) and not item.find(exp.Count)]
    if stars:
        # DISTINCT * : the columns are known only to the source; the runtime expands them first.
        raise NeedsColumns
    keys = group_expressions(select)
    names = _key_names(select, keys)
    by = by or tuple(map(told, keys))
    by = tuple(name if not name.startswith(HIDDEN) else text for name, text in zip(names, by, strict=True))
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
    partial = _per_group(
        select, keys, names, [exp.alias_(exp.Count(this=exp.Star()), GROUP_ROWS), *accumulators]
    )
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
        steps=_group_steps(by, aggregates),
    )


def group_expressions(select: exp.Select) -> tuple[exp.Expr, ...]:
    """The group expressions of a SELECT whose names are resolved."""
    if select.args.get("distinct"):
        return tuple(item.unalias() for item in select.selects)
    group = select.args.get("group")
    if group is None:
        return ()
    expressions = group.expressions
    if group.args.get("all"):
        expressions = [i.unalias() for i in select.selects if not any(True for _ in aggregates_in(i))]
    resolved: list[exp.Expr] = []
    for expression in expressions:
        resolved += [each for each in _bounds_of(expression) if each not in resolved]
    return tuple(resolved)


def _bounds_of(key: exp.Expr) -> list[exp.Expr]:
    """The key, or the two bounds of a session window: a table cannot have a struct as its key."""
    if not is_session(key):
        return [key]
    sides = {side: exp.Dot(this=key.copy(), expression=exp.to_identifier(side)) for side in ("start", "end")}
    return [called(bound, f"window_{side}") for side, bound in sides.items()]


def is_session(node: exp.Expr) -> bool:
    """Whether the node calls Spark's session_window(…)."""
    return isinstance(node, exp.Anonymous) and node.name.lower() == "session_window"


def _grouped_by(keys: tuple[exp.Expr, ...]) -> list[exp.Expr]:
    """The expressions for GROUP BY: Spark forms sessions only where session_window itself is grouped by."""
    found: list[exp.Expr] = []
    for key in keys:
        whole = key.this if isinstance(key, exp.Dot) and is_session(key.this) else key
        if whole not in found:
            found.append(whole.copy())
    return found


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
        grouped.set("group", exp.Group(expressions=_grouped_by(keys)))
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
    tree = exp.Select(expressions=items).from_(exp.to_table(GROUPS_VIEW))
    return tuple(outputs), tree.sql(dialect=SPARK)


def _spark_name(item: exp.Expr, position: int) -> str:
    """The name of a column without an alias: like Spark its text, but lowercased."""
    return str(item.sql(dialect=SPARK)).lower() or f"column{position + 1}"


def _replace(tree: exp.Expr, replacements: list[tuple[exp.Expr, str]]) -> exp.Expr:
    def swap(node: exp.Expr) -> exp.Expr:
        for original, name in replacements:
            if node == original:
                return exp.column(name, quoted=True)
        return node

    return tree.transform(swap, copy=False)


def _group_steps(keys: tuple[str, ...], aggregates: tuple[Aggregate, ...]) -> tuple[Step, ...]:
    by = f"by {', '.join(keys)}" if keys else "over everything"
    replaced = [told(a.call) for a in aggregates if not a.mergeable]
    extremes = [
        told(a.call)
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
        why += f"; when rows are retracted, {', '.join(extremes)} of those groups are computed again"
    return (Step(StepKind.MERGE, f"groups {by}", why, state="one row of accumulators per group"),)
