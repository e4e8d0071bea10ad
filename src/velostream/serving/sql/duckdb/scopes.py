"""The names that an expression of a query can see."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.serving.sql.duckdb.types import NeedsSpark, Typed

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class OutputColumn:
    """One column of a query's result: the name that readers see, and the type."""

    name: str
    type: pa.DataType


@dataclass
class Relation:
    """A relation in FROM: the user's name of it, its name in DuckDB, and its columns."""

    name: str | None
    internal: str
    columns: list[OutputColumn]

    def typed(self, position: int) -> Typed:
        """One of its columns as an expression."""
        kind = self.columns[position].type
        if pa.types.is_nested(kind) and "duration" in str(kind):
            raise NeedsSpark("intervals in an array, map or struct")
        return Typed(f"{self.internal}.c{position}", kind)


@dataclass
class Scope:
    """The names that an expression can see."""

    relations: list[Relation] = field(default_factory=list)
    ctes: Mapping[str, Relation] = field(default_factory=dict)
    outer: Scope | None = None
    aliases: list[tuple[str, exp.Expr]] = field(default_factory=list)
    zero_keys: set[str] = field(default_factory=set)
    """Floating keys of GROUP BY, which makes one of 0.0 and -0.0."""

    def aliased(self, name: str) -> list[exp.Expr]:
        """The expressions that a folded name is an alias of."""
        return [item for alias, item in self.aliases if alias.casefold() == name]


def find(scope: Scope, name: str, qualifier: str | None) -> Typed | None:
    """The column of a folded name in this scope alone; an ambiguous name is left to Spark to report."""
    found = [
        relation.typed(place)
        for relation in scope.relations
        if qualifier is None or (relation.name or "").casefold() == qualifier
        for place, column in enumerate(relation.columns)
        if column.name.casefold() == name
    ]
    if len(found) > 1:
        raise NeedsSpark(f'column "{name}" is ambiguous')
    return found[0] if found else None


def expand_star(scope: Scope, qualifier: str) -> list[tuple[str, Typed]]:
    """The columns that `*` or `qualifier.*` stands for, with their names."""
    if not scope.relations:
        raise NeedsSpark("* without FROM")
    columns: list[tuple[str, Typed]] = []
    for relation in scope.relations:
        if qualifier and (relation.name or "").casefold() != qualifier.casefold():
            continue
        columns.extend((column.name, relation.typed(place)) for place, column in enumerate(relation.columns))
    if not columns:
        raise NeedsSpark(f"{qualifier}.*")
    return columns


def renamed(columns: list[OutputColumn], alias: exp.Expr | None) -> list[OutputColumn]:
    """The columns under the names of an alias such as `q(a, b)`."""
    names = alias.args.get("columns") if isinstance(alias, exp.TableAlias) else None
    if not names:
        return columns
    if len(names) != len(columns):
        raise NeedsSpark("aliases for some of the columns")
    return [OutputColumn(name.name, column.type) for name, column in zip(names, columns, strict=True)]
