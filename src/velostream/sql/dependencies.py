"""Dependency order of statements: a relation is created before the statements that use it."""

from __future__ import annotations

import itertools
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from velostream.errors import CycleError
from velostream.model import statements as model
from velostream.sql.check import queries_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_CREATES = (model.CreateTable, model.CreateStream, model.CreateSource, model.CreateView)


def created_name(statement: model.Statement) -> str | None:
    """The name that a CREATE statement creates; None for others."""
    return statement.name if isinstance(statement, _CREATES) else None


def used_names(statement: model.Statement) -> frozenset[str]:
    """Names of everything that a statement reads or changes."""
    if isinstance(statement, model.Explain):
        return used_names(statement.statement)
    names: set[str] = set()
    for query in queries_of(statement):
        names.update((*query.tables, *query.streams, *query.views))
        names.update(source.declared_in for source in query.sources if source.declared_in)
    if isinstance(statement, model.InsertInto | model.Update | model.Delete):
        names.add(statement.table)
    if isinstance(statement, model.ShowCreate | model.Describe | model.Drop | model.Alter):
        names.add(statement.name)
    return frozenset(names)


def dependency_order(statements: Iterable[model.Statement]) -> tuple[model.Statement, ...]:
    """The statements in dependency order; otherwise in file order.

    DROP keeps its place among the statements with the same name. CycleError names the path.
    """
    given = tuple(statements)
    edges = _edges(given)
    waiting = {index: len(before) for index, before in edges.items()}
    after: dict[int, list[int]] = {index: [] for index in edges}
    for index, before in edges.items():
        for other in before:
            after[other].append(index)
    ready = [index for index, count in waiting.items() if not count]
    heapify(ready)
    order: list[model.Statement] = []
    while ready:
        index = heappop(ready)
        order.append(given[index])
        del waiting[index]
        for other in after[index]:
            waiting[other] -= 1
            if not waiting[other]:
                heappush(ready, other)
    if waiting:
        raise _cycle(given, edges, set(waiting))
    return tuple(order)


def _edges(given: tuple[model.Statement, ...]) -> dict[int, set[int]]:
    creators: dict[str, list[int]] = {}
    mentions: dict[str, list[int]] = {}
    for index, statement in enumerate(given):
        name = created_name(statement)
        if name is not None:
            creators.setdefault(name.lower(), []).append(index)
        for used in {*used_names(statement), *([name] if name else [])}:
            mentions.setdefault(used.lower(), []).append(index)
    edges: dict[int, set[int]] = {index: set() for index in range(len(given))}
    dropped = {statement.name.lower() for statement in given if isinstance(statement, model.Drop)}
    for index, statement in enumerate(given):
        for used in used_names(statement):
            folded = used.lower()
            if folded in dropped:
                continue
            edges[index].update(creator for creator in creators.get(folded, ())[:1] if creator != index)
    for folded in dropped:
        # The same name before and after DROP means different relations: only the file's order is right.
        named = mentions.get(folded, [])
        for earlier, later in itertools.pairwise(named):
            edges[later].add(earlier)
    _keep_changes_in_order(given, edges)
    return edges


def _keep_changes_in_order(given: tuple[model.Statement, ...], edges: dict[int, set[int]]) -> None:
    last: dict[str, int] = {}
    for index, statement in enumerate(given):
        if isinstance(statement, model.InsertInto | model.Update | model.Delete):
            table = statement.table.lower()
            if table in last:
                edges[index].add(last[table])
            last[table] = index


def _cycle(given: tuple[model.Statement, ...], edges: dict[int, set[int]], left: set[int]) -> CycleError:
    path = [min(left)]
    while True:
        before = min(index for index in edges[path[-1]] if index in left)
        if before in path:
            path = path[path.index(before) :]
            break
        path.append(before)
    names = [created_name(given[index]) or "statement" for index in path]
    return CycleError(
        f"statements depend on each other in a circle: {' → '.join([*names, names[0]])}",
        hint="a table cannot be built on itself",
        location=given[path[0]].location,
    )
