"""Column names within one SELECT: the relation of each, and its name after joining."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.sql.names.spelling import WRITTEN
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from velostream.plan.derived.nodes import Node


class NoKeysError(Exception):
    """A part of the query has no keys to maintain it by; the text says which part and why."""


@dataclass
class Joined:
    """Relations joined so far: for each alias its columns, as written and as named in `node`."""

    node: Node
    relations: dict[str, dict[str, str]] = field(default_factory=dict)
    """From the casefolded alias to its columns: the name as written, and the name in `node`."""

    def find(self, column: exp.Column) -> tuple[str, str] | None:
        """Alias and node column of a column reference; None when it belongs to none of these relations."""
        table, name, _ = self._parts(column)
        found = [
            (alias, inner)
            for alias, columns in self.relations.items()
            if not table or alias == table
            for written, inner in columns.items()
            if written.casefold() == name
        ]
        if len(found) > 1:
            raise NoKeysError(f"{column.sql(dialect=SPARK)} is ambiguous")
        return found[0] if found else None

    def written(self, column: exp.Column) -> str:
        """The column's name as written in the query, without its relation."""
        first, *rest = column.parts
        return str(column.meta.get(WRITTEN) or (rest[0] if rest and self._parts(column)[0] else first).name)

    def fields(self, column: exp.Column) -> list[exp.Expr]:
        """The struct fields that a column reference selects."""
        return self._parts(column)[2]

    def _parts(self, column: exp.Column) -> tuple[str, str, list[exp.Expr]]:
        """Alias of the relation (or empty), name of the column, struct fields."""
        first, *rest = column.parts
        if rest and first.name.casefold() in self.relations:
            return first.name.casefold(), rest[0].name.casefold(), rest[1:]
        return "", first.name.casefold(), rest


def with_fields(column: exp.Expr, fields: Sequence[exp.Expr]) -> exp.Expr:
    """The column, or the struct field of it that `fields` select."""
    return exp.Dot.build([column, *(each.copy() for each in fields)]) if fields else column


def conjuncts(condition: exp.Expr | None) -> list[exp.Expr]:
    """The parts of a condition that AND joins."""
    if condition is None:
        return []
    inner = condition
    while isinstance(inner, exp.Paren):
        inner = inner.this
    if isinstance(inner, exp.And):
        return [*conjuncts(inner.left), *conjuncts(inner.right)]
    return [condition]


def columns_of(expression: exp.Expr) -> Iterator[exp.Column]:
    """The column references of an expression, without `*`."""
    for column in expression.find_all(exp.Column):
        if not isinstance(column.this, exp.Star):
            yield column


def rewritten(
    expression: exp.Expr, joined: Joined, aliases: Collection[str] = (), qualifier: str | None = None
) -> exp.Expr:
    """The expression over the columns of the node; names in `aliases` (casefolded) may remain."""
    if expression.find(exp.Query):
        raise NoKeysError("a subquery in an expression looks at other rows")

    def swap(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        found = joined.find(node)
        if found is None:
            if not node.table and node.name.casefold() in aliases:
                return node
            raise NoKeysError(f"the column {node.sql(dialect=SPARK)} is not one of its relations")
        column = exp.column(found[1], table=qualifier, quoted=True)
        column.meta[WRITTEN] = joined.written(node)
        return with_fields(column, joined.fields(node))

    return expression.copy().transform(swap)
