"""Which columns of each relation a query touches, so that sources read no more than that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.statements import Query, WindowKind, WindowSpec
from velostream.sql.places import locate
from velostream.sql.scopes import Analysis
from velostream.sql.shapes import WINDOW_COLUMNS, Shape, source_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from velostream.errors import SqlError


def column_usage(
    query: Query, columns: Mapping[str, Collection[str]] | None = None
) -> Mapping[str, frozenset[str] | None]:
    """Relation name (a source's id, a table's or stream's name) to the columns used; None means all of `*`.

    System columns are included where they are named. `columns` may tell the columns of relations that the
    query itself does not know; a name that could belong to several unknown relations counts for each.
    """
    analysis = _analysed(query, columns or {})
    return {name: frozenset(used) if used is not None else None for name, used in analysis.usage.items()}


def system_usage(
    query: Query, columns: Mapping[str, Collection[str]] | None = None
) -> Mapping[str, frozenset[str]]:
    """System columns that are named, per relation, also where `*` takes everything else."""
    analysis = _analysed(query, columns or {})
    found = {name: set(used) for name, used in analysis.system.items()}
    for name, used in analysis.usage.items():
        found.setdefault(name, set()).update(column for column in used or () if column.startswith("_"))
    return {name: frozenset(used) for name, used in found.items()}


def column_errors(query: Query, columns: Mapping[str, Collection[str]]) -> list[SqlError]:
    """What is wrong with the query once the columns of its sources are known (relation name to columns)."""
    errors: list[SqlError] = []

    def report(error: SqlError, node: exp.Expr) -> None:
        if query.location is not None:
            error.at(locate(node, query.location.source, query.location))
        errors.append(error)

    _analysed(query, columns, report)
    return errors


def _ignore(error: SqlError, node: exp.Expr) -> None:
    """The binder has reported it already."""


def _analysed(
    query: Query,
    columns: Mapping[str, Collection[str]],
    report: Callable[[SqlError, exp.Expr], None] = _ignore,
) -> Analysis:
    shapes: dict[str, Shape] = {}
    for source in query.sources:
        declared = (
            tuple(columns.get(source.id) or ()) or tuple(column.name for column in source.columns) or None
        )
        shapes[source.id] = source_shape(declared, source.id, source.uri.scheme)
    for name in (*query.tables, *query.streams):
        shapes[name.lower()] = Shape(tuple(columns[name]) if name in columns else None, (), name)
    window = query.window
    extra = WINDOW_COLUMNS if window is not None and window.kind is not WindowKind.ROWS else ()
    tree = query.tree
    top: exp.Expr = tree
    while isinstance(top, exp.Subquery):
        top = top.this
    also = _window_columns(window) if window is not None else []
    analysis = Analysis(
        shapes, report, extra=extra, top=top if isinstance(top, exp.Query) else None, also=also
    )
    analysis.query(tree, None, {})
    return analysis


def _window_columns(window: WindowSpec) -> list[exp.Expr]:
    """The columns that the WINDOW clause names."""
    found = list(window.partition_by)
    if window.time_column:
        names = window.time_column.split(".")
        found.append(exp.column(names[-1], table=names[-2] if len(names) > 1 else None))
    return found
