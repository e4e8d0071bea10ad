"""Parameters (`:name` and `?`) of a statement, and whether the values given fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from itertools import count
from typing import Any

from sqlglot import exp

from velostream.errors import SqlError, VelostreamError
from velostream.model.statements import Query, Statement


def placeholders(nodes: Iterable[exp.Expr]) -> list[exp.Placeholder]:
    """The placeholders of some trees in the order of the text."""
    found = [placeholder for node in nodes for placeholder in node.find_all(exp.Placeholder)]
    return sorted(found, key=lambda node: node.meta.get("start", 0))


def names_of(found: Iterable[exp.Placeholder]) -> tuple[str, ...]:
    """Parameter names in order of first use; each `?` is a parameter of its own, numbered from "1"."""
    names: dict[str, None] = {}
    position = 0
    for placeholder in found:
        name = placeholder.args.get("this")
        if name:
            names[str(name)] = None
        else:
            position += 1
            names[str(position)] = None
    return tuple(names)


def parameters_of(statement: Statement) -> tuple[str, ...]:
    """Names of the parameters of a statement in order; `?` are numbered from "1"."""
    return names_of(placeholders(_trees(statement)))


def mixed(statement: Statement) -> bool:
    """Whether a statement mixes `:name` and `?`, for which no one set of values fits."""
    return len({name.isdigit() for name in parameters_of(statement)}) > 1


def check(
    statements: Iterable[Statement], given: Mapping[str, Any] | Sequence[Any]
) -> Iterable[VelostreamError]:
    """Raise for missing values, and for values that no parameter takes."""
    if isinstance(given, Mapping):
        known = {str(name) for name in given}
    else:
        known = {str(position + 1) for position in range(len(given))}
    used: set[str] = set()
    for statement in statements:
        for name in parameters_of(statement):
            used.add(name)
            if name not in known:
                shown = f"number {name}" if name.isdigit() else f":{name}"
                named = f'{{"{name}": …}}' if not name.isdigit() else "[…]"
                hint = f"give it: db.sql(text, {named})" + (
                    f", or velo sql --param {name}=…" if not name.isdigit() else ""
                )
                yield SqlError(f"parameter {shown} has no value", hint=hint, location=statement.location)
    for name in sorted(known - used):
        yield SqlError(f'parameter "{name}" is not used')


def numbered(nodes: Iterable[exp.Expr]) -> dict[int, str]:
    """The name of each placeholder of some trees, by its identity; `?` are numbered from "1"."""
    numbers = count(1)
    return {id(found): str(found.args.get("this") or next(numbers)) for found in placeholders(nodes)}


def by_name(given: Mapping[str, Any] | Sequence[Any]) -> Mapping[str, Any]:
    """Values of parameters by their names."""
    return given if isinstance(given, Mapping) else {str(place): v for place, v in enumerate(given, 1)}


def with_values(query: Query, given: Mapping[str, Any] | Sequence[Any] | None) -> Query:
    """The query with literals in place of its parameters."""
    if not given:
        return query
    tree = query.tree.copy()
    names, values = numbered([tree]), by_name(given)
    for placeholder in placeholders([tree]):
        name = names[id(placeholder)]
        placeholder.replace(literal(values[name], name))
    return replace(query, tree=tree)


def literal(value: Any, name: str = "") -> exp.Expr:
    """A Python value as a literal of the same value and type."""
    if value is None:
        return exp.null()
    if isinstance(value, bool):
        return exp.Boolean(this=value)
    if isinstance(value, str):
        return exp.Literal.string(value)
    if isinstance(value, int | Decimal):
        number = exp.Literal.number(f"{abs(value):f}" if isinstance(value, Decimal) else str(abs(value)))
        return exp.Neg(this=number) if value < 0 else number
    if isinstance(value, float):
        return exp.cast(exp.Literal.string(repr(value)), "double")
    if isinstance(value, datetime):
        return exp.cast(
            exp.Literal.string(value.isoformat(sep=" ")), "timestamp" if value.tzinfo else "timestamp_ntz"
        )
    if isinstance(value, date):
        return exp.cast(exp.Literal.string(value.isoformat()), "date")
    raise SqlError(f'parameter "{name}" is a {type(value).__name__}, which cannot stand in this statement')


def _trees(value: object) -> Iterable[exp.Expr]:
    if isinstance(value, exp.Expr):
        yield value
    elif isinstance(value, Query):
        yield value.tree
    elif isinstance(value, tuple):
        for item in value:
            yield from _trees(item)
    elif isinstance(value, Statement):
        # A query that returns the rows of VALUES holds copies of them.
        rows = "values" if getattr(value, "values", ()) else "query"
        for name in (rows, "assignments", "where", "statement"):
            yield from _trees(getattr(value, name, None))
