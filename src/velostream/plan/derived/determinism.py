"""Deterministic steps: whether a step gives the same rows whenever it is computed over the same rows.

A retracted row is found by computing it again, so a step that answers differently the second time would
retract a row that was never added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.query.functions import call_name, over_window

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDS = frozenset({"first", "first_value", "last", "last_value", "any_value"})
"""Functions of the first or last row, which is the same one each time in a window whose order is total."""
_BY_ORDER = frozenset({"row_number", "ntile", "lag", "lead", "nth_value"}) | _ENDS
"""Window functions whose result depends on the order among rows that ORDER BY leaves equal."""
_UNSTABLE = frozenset(
    {
        "first",
        "first_value",
        "last",
        "last_value",
        "any_value",
        "collect_list",
        "collect_set",
        "array_agg",
        "string_agg",
        "listagg",
        "max_by",
        "min_by",
        "mode",
        "approx_percentile",
        "percentile_approx",
        "approx_top_k",
        "hll_sketch_agg",
        "count_min_sketch",
        "histogram_numeric",
    }
)
"""Functions whose result depends on the order in which rows arrive, or is not specified."""


def unstable_calls(tree: exp.Expr) -> str | None:
    """The first non-deterministic function of the tree; None where all are deterministic."""
    for node in tree.find_all(exp.Func):
        name = call_name(node)
        if name in _UNSTABLE and not (name in _ENDS and over_window(node)):
            return name
    return None


def ordered_totally(select: exp.Select, columns: Sequence[str]) -> exp.Select:
    """Adds all columns as the last ORDER BY of every OVER whose result depends on ties.

    Any order among ties is correct, but it must be the same each time, or a row could not be retracted.
    """

    def order(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Window):
            return node
        spec = node.args.get("spec")
        by_rows = spec is not None and str(spec.args.get("kind") or "").upper() == "ROWS"
        inner = node.this.this if isinstance(node.this, (exp.IgnoreNulls, exp.RespectNulls)) else node.this
        if not by_rows and call_name(inner) not in _BY_ORDER:
            return node
        window = node.copy()
        given = window.args.get("order") or exp.Order(expressions=[])
        more = [exp.Ordered(this=exp.column(name, quoted=True), nulls_first=True) for name in columns]
        window.set("order", exp.Order(expressions=[*given.expressions, *more]))
        return window

    ordered = select.transform(order)
    assert isinstance(ordered, exp.Select)
    return ordered
