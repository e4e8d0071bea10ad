"""UNION, EXCEPT and INTERSECT as nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.derived.nodes import Both, Node, Side
from velostream.plan.query.select_names import NoKeysError
from velostream.plan.steps import Step, StepKind

if TYPE_CHECKING:
    from velostream.plan.derived.build import CTEs, Derivation


def set_operation(build: Derivation, tree: exp.SetOperation, ctes: CTEs) -> Node:
    """The node of UNION, EXCEPT or INTERSECT; NoKeysError for LIMIT, BY NAME and the like."""
    if any(tree.args.get(name) for name in ("limit", "offset", "by_name", "on", "side", "kind")):
        raise NoKeysError(f"{tree.key.upper()} with LIMIT or BY NAME is not followed")
    left, right = build.query(tree.left, ctes), build.query(_told_apart(tree.right), ctes)
    if len(left.columns) != len(right.columns):
        raise NoKeysError("both sides need equally many columns")
    if isinstance(tree, exp.Union):
        sql = f"SELECT * FROM `{left.view}` UNION ALL SELECT * FROM `{right.view}`"
        both = Both(build.view(), left.columns, sql, (left, right))
        return build.distinct(both) if tree.args.get("distinct") else both
    word = "EXCEPT" if isinstance(tree, exp.Except) else "INTERSECT"
    every = "" if tree.args.get("distinct") else " ALL"
    sql = f"SELECT * FROM `{left.view}` {word}{every} SELECT * FROM `{right.view}`"
    step = Step(
        StepKind.AFFECTED_KEYS,
        word,
        "rows are compared by all columns; those that a change touches are looked up on both sides",
    )
    sides = (Side(left, left.columns), Side(right, right.columns))
    return build.keyed(sql, left.columns, sides, {name: (0, name) for name in left.columns}, step)


def _told_apart(tree: exp.Expr) -> exp.Expr:
    """The right side of a set operation with unique column names; the left side names the result."""
    tree = tree.copy()
    first = tree
    while isinstance(first, exp.SetOperation | exp.Subquery):
        first = first.left if isinstance(first, exp.SetOperation) else first.this
    if not isinstance(first, exp.Select):
        return tree
    names = [item.alias_or_name.casefold() for item in first.selects]
    for place, item in enumerate(first.selects):
        if not item.is_star and names[place] in names[:place]:
            item.replace(exp.alias_(item.unalias().copy(), f"__{place}", quoted=True))
    return tree
