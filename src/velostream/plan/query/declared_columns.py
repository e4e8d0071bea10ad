"""Columns as CREATE TABLE declares them: renamed, and cast where the query has another type."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.sql.names.spelling import is_star
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Sequence


def declared_columns(tree: exp.Query, names: Sequence[str], casts: Sequence[str | None]) -> exp.Query:
    """The query with its columns renamed, and cast to the type in `casts` where it is not None.

    A column that needs no cast keeps its expression, so that it can still serve as the key of groups.
    """
    if not isinstance(tree, exp.Select) or not in_place(tree, len(names)):
        inner = exp.Subquery(this=tree.copy(), alias=exp.TableAlias(this="q"))
        columns = [exp.column(name, table="q", quoted=True) for name in names]
        return exp.Select(expressions=_named(columns, names, casts)).from_(inner)
    made = tree.copy()
    made.set("expressions", _named([item.unalias() for item in made.selects], names, casts))
    return made


def _named(values: Sequence[exp.Expr], names: Sequence[str], casts: Sequence[str | None]) -> list[exp.Expr]:
    return [
        exp.alias_(value if cast is None else exp.cast(value, cast, dialect=SPARK), name, quoted=True)
        for value, name, cast in zip(values, names, casts, strict=True)
    ]


def in_place(tree: exp.Query, width: int) -> bool:
    """Whether columns can be renamed by position; otherwise the query becomes a subquery.

    A SELECT with `*`, or whose items refer to aliases of its own list, must stay unchanged.
    """
    if not isinstance(tree, exp.Select) or len(tree.selects) != width:
        return False
    aliases = {item.alias for item in tree.selects if item.alias}
    parts = [*tree.selects, *filter(None, (tree.args.get(clause) for clause in ("order", "qualify")))]
    return not any(is_star(item) for item in tree.selects) and not any(
        not column.table and column.name in aliases for part in parts for column in part.find_all(exp.Column)
    )
