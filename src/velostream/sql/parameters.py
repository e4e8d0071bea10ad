"""`:name` and `?`: which parameters a statement has, and whether those given fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlglot import exp

from velostream.errors import SqlError, VelostreamError
from velostream.model.statements import Query, Statement


def placeholders(nodes: Iterable[exp.Expr]) -> list[exp.Placeholder]:
    """The placeholders of some trees in the order of the text."""
    found = [placeholder for node in nodes for placeholder in node.find_all(exp.Placeholder)]
    return sorted(found, key=lambda node: node.meta.get("start", 0))


def names_of(found: Iterable[exp.Placeholder]) -> tuple[str, ...]:
    """Names in order of first use; each `?` is one of its own, numbered from "1"."""
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
    """Whether a statement has both `:name` and `?`, which no one set of values can fill."""
    return len({name.isdigit() for name in parameters_of(statement)}) > 1


def check(
    statements: Iterable[Statement], given: Mapping[str, Any] | Sequence[Any]
) -> Iterable[VelostreamError]:
    """What is missing among the given values, and what is too much."""
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
                yield SqlError(f"parameter {shown} has no value", location=statement.location)
    for name in sorted(known - used):
        yield SqlError(f'parameter "{name}" is not used')


def _trees(value: object) -> Iterable[exp.Expr]:
    if isinstance(value, exp.Expr):
        yield value
    elif isinstance(value, Query):
        yield value.tree
    elif isinstance(value, tuple):
        for item in value:
            yield from _trees(item)
    elif isinstance(value, Statement):
        for name in ("query", "values", "assignments", "where", "statement"):
            yield from _trees(getattr(value, name, None))
