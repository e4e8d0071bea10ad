"""Whether a step gives the same rows whenever it is computed over the same rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.plan.query.functions import call_name, over_window

if TYPE_CHECKING:
    from collections.abc import Sequence

_ENDS = frozenset({"first", "first_value", "last", "last_value", "any_value"})
"""Functions of the first or last row, which is the same one each time in a window whose order is total."""
_BY_ORDER = frozenset({"row_number", "ntile", "lag", "lead", "nth_value"}) | _ENDS
"""Window functions that depend on the order of rows which ORDER BY leaves equal."""
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
"""Functions whose answer depends on the order in which rows come, or is not promised."""


def unstable_calls(tree: exp.Expr) -> str | None:
    """The first function that may answer differently over the same rows."""
    for node in tree.find_all(exp.Func):
        name = call_name(node)
        if name in _UNSTABLE and not (name in _ENDS and over_window(node)):
            return name
    return None


def ordered_totally(select: exp.Select, columns: Sequence[str]) -> exp.Select:
    """Every OVER that ties could change gets the remaining columns as last ORDER BY: a choice among the ties.

    Any choice is right, but it must be the same each time: a row that goes must be one that came.
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
