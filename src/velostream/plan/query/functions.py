"""Function calls in a tree: aggregates, generators, and non-deterministic functions (clock, random)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.sql.functions import CLOCK, functions, is_aggregate, is_deterministic
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator


def call_name(node: exp.Expr) -> str | None:
    """The function's lowercase name as Spark knows it, or None when `node` is not a call."""
    if isinstance(node, exp.Anonymous):
        return node.name.lower()
    if isinstance(node, exp.AnonymousAggFunc):
        return str(node.this).lower()
    if isinstance(node, exp.Func):
        text: str = node.sql(dialect=SPARK)
        return text.split("(", 1)[0].strip().lower()
    return None


def aggregate_call(node: exp.Expr) -> bool:
    """Whether `node` is a call of an aggregate function, outside of any OVER."""
    if over_window(node):
        return False
    if isinstance(node, exp.AggFunc):
        return True
    if isinstance(node, exp.Anonymous):
        return is_aggregate(node.name.lower())
    return False


AROUND = (exp.Filter, exp.WithinGroup, exp.IgnoreNulls, exp.RespectNulls)
"""Clauses around a call that belong to it."""


def whole_call(call: exp.Expr) -> exp.Expr:
    """The call with the FILTER, WITHIN GROUP and IGNORE NULLS around it."""
    while isinstance(call.parent, AROUND) and call.arg_key == "this":
        call = call.parent
    return call


def over_window(call: exp.Expr) -> bool:
    """Whether a function is called with OVER."""
    whole = whole_call(call)
    return isinstance(whole.parent, exp.Window) and whole.arg_key == "this"


def generator_call(node: exp.Expr) -> bool:
    """Whether `node` calls a function that returns several rows, such as explode."""
    function = functions().get(call_name(node) or "")
    return function is not None and function.generator


def aggregates_in(tree: exp.Expr) -> Iterator[exp.Expr]:
    """The outermost aggregate calls of a tree, with their FILTER; subqueries are left out."""
    stack = [tree]
    while stack:
        node = stack.pop()
        if aggregate_call(node):
            yield whole_call(node)
            continue
        if node is not tree and isinstance(node, exp.Query):
            continue
        stack.extend(reversed(list(node.iter_expressions())))


def has_aggregates(select: exp.Select) -> bool:
    """Whether the SELECT itself (not a subquery of it) aggregates."""
    parts = [*select.selects, *filter(None, [select.args.get("having"), select.args.get("order")])]
    return bool(select.args.get("group")) or any(True for part in parts for _ in aggregates_in(part))


def volatile_calls(tree: exp.Expr) -> Iterator[str]:
    """Names of non-deterministic functions, such as rand and now.

    Python functions are assumed to be deterministic, as Spark assumes.
    """
    for node in tree.find_all(exp.Func):
        name = call_name(node)
        if name in functions() and not is_deterministic(name) and (name not in CLOCK or clock_call(node)):
            yield name


def clock_call(node: exp.Expr) -> bool:
    """Whether `node` reads the clock; `unix_timestamp(ts)` does not."""
    # sqlglot classes AND and comparisons as functions too, and their SQL may begin with a call.
    if not isinstance(node, exp.Func) or isinstance(node, exp.Binary | exp.Predicate):
        return False
    name = call_name(node)
    return name in CLOCK and not (name == "unix_timestamp" and bool(node.expressions))
