"""Panes: the disjoint slices that overlapping (sliding) windows share.

A window whose length is a multiple of its advance consists of that many panes, and each pane belongs to that
many windows. Grouping rows by pane and merging panes into windows gives the same groups as repeating every
row for each of its windows, at a fraction of the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp, parse_one

from velostream.model.statements import WindowKind
from velostream.sql.text.spark_text import SPARK
from velostream.sql.windows.bounds import EACH

if TYPE_CHECKING:
    from velostream.plan.plans import GroupsPlan


def pane_sql(plan: GroupsPlan) -> str | None:
    """`partial_sql` by pane instead of by window; a pane gets the bounds of the last window that contains it.

    None where windows do not consist of panes, or groups cannot be merged.
    """
    windowing = plan.windowing
    if windowing is None or windowing.kind is not WindowKind.SLIDING or not plan.mergeable:
        return None
    if windowing.size % windowing.advance:
        return None
    select = parse_one(plan.partial_sql, dialect=SPARK)
    laterals = select.args.get("laterals") or []
    own = [lateral for lateral in laterals if lateral.alias == EACH]
    calls = own[0].find_all(exp.Anonymous) if len(own) == 1 else ()
    series = next((call for call in calls if call.name.lower() == "sequence"), None)
    if series is None:
        return None
    # The sequence lists the windows of a row; the last of them starts with the row's pane, and identifies it.
    last = series.expressions[1]
    select.set("laterals", [lateral for lateral in laterals if lateral is not own[0]])

    def swap(node: exp.Expr) -> exp.Expr:
        return exp.paren(last) if isinstance(node, exp.Column) and node.table == EACH else node

    return select.transform(swap).sql(dialect=SPARK)
