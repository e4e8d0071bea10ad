"""Rows of VALUES as a query."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Sequence


def rows_query(rows: Sequence[Sequence[exp.Expr]]) -> exp.Query:
    """A query that returns these rows. Its UNION ALLs form a balanced tree, so any number of rows will do."""
    queries: list[exp.Query] = [exp.Select(expressions=[value.copy() for value in row]) for row in rows]
    while len(queries) > 1:
        pairs = zip(queries[::2], queries[1::2], strict=False)
        joined: list[exp.Query] = [_union(one, other) for one, other in pairs]
        queries = joined + queries[len(joined) * 2 :]
    return queries[0]


def _union(one: exp.Query, other: exp.Query) -> exp.Union:
    left, right = (q if isinstance(q, exp.Select) else exp.Subquery(this=q) for q in (one, other))
    return exp.Union(this=left, expression=right, distinct=False)
