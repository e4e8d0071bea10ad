"""Names inside one SELECT: which relation a column belongs to, and what it is called after joining."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from velostream.plan.nodes import Node


class NoKeysError(Exception):
    """The query has a part whose keys cannot be followed; the text says which and why."""


@dataclass
class Joined:
    """Relations joined so far: for each alias its columns, as written and as named in `node`."""

    node: Node
    relations: dict[str, dict[str, str]] = field(default_factory=dict)
    """Alias, casefolded, to columns as written to names in the node."""
    merged: dict[str, exp.Expr] = field(default_factory=dict)
    """Columns that USING made one of, casefolded."""

    def find(self, column: exp.Column) -> tuple[str, str] | None:
        """Alias and name in the node of a column, or None when it is not one of these relations."""
        if column.args.get("db") or column.args.get("catalog"):
            raise NoKeysError(f"{column.sql(dialect='spark')} has several parts")
        table, name = column.table.casefold(), column.name.casefold()
        found = [
            (alias, inner)
            for alias, columns in self.relations.items()
            if not table or alias == table
            for written, inner in columns.items()
            if written.casefold() == name
        ]
        if len(found) > 1:
            raise NoKeysError(f"{column.sql(dialect='spark')} is ambiguous")
        return found[0] if found else None


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that AND connects."""
    if condition is None:
        return []
    inner = condition
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.And):
        return [*conjuncts(inner.left), *conjuncts(inner.right)]
    return [condition]


def columns_of(expression: exp.Expr) -> Iterator[exp.Column]:
    """Columns of an expression, `*` left out."""
    for column in expression.find_all(exp.Column):
        if not isinstance(column.this, exp.Star):
            yield column


def rewritten(
    expression: exp.Expr, joined: Joined, aliases: Collection[str] = (), qualifier: str | None = None
) -> exp.Expr:
    """The expression over the columns of the node; names in `aliases` (casefolded) may stay as they are."""
    if expression.find(exp.Query):
        raise NoKeysError("a subquery in an expression looks at other rows")

    def swap(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        if not node.table and node.name.casefold() in joined.merged:
            return joined.merged[node.name.casefold()].copy()
        found = joined.find(node)
        if found is None:
            if not node.table and node.name.casefold() in aliases:
                return node
            raise NoKeysError(f"the column {node.sql(dialect='spark')} is not one of its relations")
        return exp.column(found[1], table=qualifier, quoted=True)

    return expression.copy().transform(swap)
