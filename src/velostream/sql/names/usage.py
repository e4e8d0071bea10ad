"""Queries whose columns are known: names resolved, and the columns of each relation that are used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.statements import Query, WindowKind, WindowSpec
from velostream.sql.names import spelling as naming
from velostream.sql.names.relation_columns import WINDOW_COLUMNS, Shape, source_shape
from velostream.sql.names.resolution import Analysis
from velostream.sql.text.node_locations import locate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from velostream.errors import SqlError


def resolved(query: Query, columns: Mapping[str, Collection[str]] | None = None) -> Query:
    """The query with all names resolved; raises its first error.

    `columns` are those of relations that the query itself does not know. Afterwards a column is written as
    its relation declares it, with the relation in front where the SELECT reads several. NATURAL and USING
    joins have ON, `*` over them is expanded, and neither GROUP BY nor HAVING refers to columns of the result.
    Columns of unknown relations are accepted unchecked; names that differ only in case are then the same.
    """
    _, found, errors = _analysed(query, columns or {})
    if errors:
        raise errors[0]
    return found


def result_names(query: Query, columns: Mapping[str, Collection[str]]) -> tuple[str, ...] | None:
    """The columns of the query's result; None where they are not known."""
    return _analysed(query, columns)[0].names


def spelled_key(
    query: Query, columns: Mapping[str, Collection[str]], key: tuple[str, ...]
) -> tuple[str, ...]:
    """The key columns in the spelling of the query's result."""
    names = result_names(query, columns) or ()
    return tuple(next((each for each in names if each.lower() == name.lower()), name) for name in key)


def column_usage(
    query: Query, columns: Mapping[str, Collection[str]] | None = None
) -> Mapping[str, frozenset[str] | None]:
    """From each relation (a source's id, a table's or stream's name) to the columns used; None means all.

    System columns are included where they are named. `columns` may have the columns of relations that the
    query itself does not know; a name that could belong to several unknown relations counts for each.
    """
    analysis, _, _ = _analysed(query, columns or {})
    return {name: frozenset(used) if used is not None else None for name, used in analysis.usage.items()}


def _analysed(query: Query, columns: Mapping[str, Collection[str]]) -> tuple[Analysis, Query, list[SqlError]]:
    errors: list[SqlError] = []

    def report(error: SqlError, node: exp.Expr) -> None:
        if query.location is not None:
            error.at(locate(node, query.location.source, query.location))
        errors.append(error)

    tree, window = query.tree.copy(), query.window
    extra = WINDOW_COLUMNS if window is not None and window.kind is not WindowKind.ROWS else ()
    also = exp.Tuple(expressions=_window_columns(window) if window is not None else [])
    analysis = Analysis(_shapes(query, columns), report, extra=extra, top=_top(tree), also=also)
    analysis.names = analysis.query(tree, None, {}).names
    if window is not None:
        window = _window(window, also.expressions)
    return analysis, replace(query, tree=tree, window=window), errors


def _shapes(query: Query, columns: Mapping[str, Collection[str]]) -> dict[str, Shape]:
    shapes: dict[str, Shape] = {}
    for source in query.sources:
        declared = (
            tuple(columns.get(source.id) or ()) or tuple(column.name for column in source.columns) or None
        )
        shapes[source.id] = source_shape(declared, source.id, source.system_columns)
    for name in dict.fromkeys((*query.tables, *query.streams, *columns)):
        if name in shapes:
            continue
        shapes[name.lower()] = Shape(tuple(columns[name]) if name in columns else None, (), name)
    return shapes


def _top(tree: exp.Query) -> exp.Query | None:
    top: exp.Expr = tree
    while isinstance(top, exp.Subquery):
        top = top.this
    return top if isinstance(top, exp.Query) else None


def _window_columns(window: WindowSpec) -> list[exp.Expr]:
    """The columns that the WINDOW clause names."""
    found = [part.copy() for part in window.partition_by]
    if window.time_column:
        found.append(naming.column(window.time_column.split(".")))
    return found


def _window(window: WindowSpec, columns: list[exp.Expr]) -> WindowSpec:
    """The WINDOW clause with its columns resolved."""
    many = len(window.partition_by)
    time = columns[many] if len(columns) > many else None
    text = window.time_column
    if isinstance(time, exp.Column):
        text = ".".join(part.name for part in time.parts)
    return replace(window, partition_by=tuple(part.copy() for part in columns[:many]), time_column=text)
