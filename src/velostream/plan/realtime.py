"""Queries for Spark's real-time mode: one stateless SELECT over one source, as an expression over a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from velostream.plan.query.functions import volatile_calls
from velostream.plan.query.stateless import one_row_each, why_not_stateless
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.model.statements import Query

ROW = "row"


class RowExpression(NamedTuple):
    """A stateless query as one SQL expression over a row of its input."""

    sql: str
    """A struct whose field `row` holds the result's columns, or null where the filter drops the row."""
    name: str
    """The alias of the input in the query."""


def why_not_by_row(query: Query) -> str | None:
    """Why a query cannot run row by row; None if each row of its one source gives at most one row."""
    if query.tables or query.streams:
        return f"it reads {(*query.tables, *query.streams)[0]}, which is no topic"
    if len(query.sources) != 1:
        return "it reads several sources"
    if query.window is not None:
        return "a window looks at other rows"
    if query.emit.every:
        return "EMIT with an interval makes rows wait"
    if query.udfs:
        return f"{query.udfs[0]} is a Python function"
    reason = why_not_stateless(query.tree)
    if reason is not None:
        return reason
    if not isinstance(query.tree, exp.Select) or not one_row_each(query.tree, query.sources[0].id):
        return "it is more than one SELECT with a filter, or makes several rows of one"
    volatile = next(volatile_calls(query.tree), None)
    return f"{volatile}() would be asked once in some minutes, not for each row" if volatile else None


def row_expression(select: exp.Select, names: Sequence[str]) -> RowExpression:
    """The query as an expression. No `*` may be left in it; `names` are the names of the result's columns."""
    values = (item.unalias().sql(dialect=SPARK) for item in select.selects)
    fields = ", ".join(f"{literal(name)}, {value}" for name, value in zip(names, values, strict=True))
    where = select.args.get("where")
    condition = where.this.sql(dialect=SPARK) if where is not None else "true"
    sql = f"named_struct('{ROW}', CASE WHEN {condition} THEN named_struct({fields}) END)"
    return RowExpression(sql, select.args["from_"].this.alias_or_name)
