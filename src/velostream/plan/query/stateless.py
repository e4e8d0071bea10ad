"""Stateless queries: whether each output row depends on one input row alone."""

from __future__ import annotations

from sqlglot import exp

from velostream.plan.query.functions import generator_call, has_aggregates

_REMEMBERING = ("distinct", "limit", "offset", "order", "sort", "cluster", "distribute", "qualify", "windows")


def why_not_stateless(tree: exp.Expr) -> str | None:
    """Why a query is not stateless; None when each output row depends on one input row alone."""
    if isinstance(tree, exp.Subquery):
        for name in ("limit", "offset", "order"):
            if tree.args.get(name):
                return f"{name.upper()} looks at all rows"
        return why_not_ctes(tree) or why_not_stateless(tree.this)
    if isinstance(tree, exp.Union):
        return _why_not_union(tree)
    if isinstance(tree, exp.SetOperation):
        return f"{tree.key.upper()} compares rows with each other"
    if not isinstance(tree, exp.Select):
        return f"{tree.key.upper()} is not a SELECT"
    return _why_not_select(tree)


def _why_not_union(tree: exp.Union) -> str | None:
    if tree.args.get("distinct"):
        return "UNION without ALL compares rows with each other"
    for name in ("limit", "offset", "order"):
        if tree.args.get(name):
            return f"{name.upper()} looks at all rows"
    return why_not_ctes(tree) or why_not_stateless(tree.left) or why_not_stateless(tree.right)


def _why_not_select(select: exp.Select) -> str | None:
    if has_aggregates(select):
        return "it aggregates"
    for name in _REMEMBERING:
        if select.args.get(name):
            return f"{name.upper()} looks at all rows"
    for part in [*select.selects, *filter(None, [select.args.get("where")])]:
        if part.find(exp.Window):
            return "OVER looks at other rows"
        if part.find(exp.Query):
            return "a subquery in an expression looks at other rows"
    return why_not_input(select)


def why_not_input(select: exp.Select) -> str | None:
    """Why the FROM and WHERE of a SELECT need other rows; None when they look at one row at a time."""
    if select.args.get("joins"):
        return "a join looks at the rows of both sides"
    where = select.args.get("where")
    if where is not None and (where.find(exp.Query) or where.find(exp.Window)):
        return "a subquery in WHERE looks at other rows"
    source = select.args.get("from_")
    if source is None:
        return "it has no FROM"
    inner = source.this
    reason = _why_not_relation(inner) or why_not_ctes(select)
    if reason is None and isinstance(inner, exp.Subquery):
        reason = why_not_stateless(inner)
    return reason


def _why_not_relation(relation: exp.Expr) -> str | None:
    if any(not pivot.args.get("unpivot") for pivot in relation.args.get("pivots") or ()):
        return "PIVOT aggregates"
    if relation.args.get("sample"):
        return "TABLESAMPLE looks at all rows"
    if relation.args.get("joins"):
        return "a join looks at the rows of both sides"
    named = isinstance(relation, exp.Table) and isinstance(relation.this, exp.Identifier)
    return (
        None if named or isinstance(relation, exp.Subquery) else "VALUES and functions have rows of their own"
    )


def plain_column(node: exp.Expr, alias: str) -> str | None:
    """The column of relation `alias` that a node is; None for a struct field or anything else."""
    if not isinstance(node, exp.Column):
        return None
    first, *rest = (part.name for part in node.parts)
    if len(rest) == 1 and first == alias:
        return str(rest[0])
    return None if rest else str(first)


def one_row_each(select: exp.Select, relation: str) -> bool:
    """Whether every row of the relation gives at most one row: filtered and projected, nothing else."""
    source = select.args.get("from_")
    if source is None or not isinstance(source.this, exp.Table) or source.this.name != relation:
        return False
    if any(select.args.get(name) for name in ("with_", "laterals", "joins", "distinct", "group")):
        return False
    return not any(generator_call(node) for item in select.selects for node in item.find_all(exp.Func))


def why_not_ctes(tree: exp.Expr) -> str | None:
    """Why a CTE of the query is not stateless; None when all are."""
    with_ = tree.args.get("with_")
    for cte in with_.expressions if with_ else ():
        reason = why_not_stateless(cte.this)
        if reason:
            return f"in {cte.alias}: {reason}"
    return None
