"""Entry point of the front end: parses and binds a whole script, with all of its errors."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from velostream.errors import (
    CycleError,
    DuplicateNameError,
    SqlSyntaxError,
    VelostreamError,
)
from velostream.location import SourceText
from velostream.model.statements import Query, Statement
from velostream.sql.bind import parameters
from velostream.sql.bind.binder import bind
from velostream.sql.bind.context import Context
from velostream.sql.bind.relations import BUILT_IN
from velostream.sql.known_relations import (
    Catalog,
    Connectors,
    Discover,
    EmptyCatalog,
    Relation,
    RelationKind,
    unasked,
)
from velostream.sql.parse.parser import parse_piece
from velostream.sql.parse.syntax import Raw, RawAddColumn, RawCreate, RawDrop, RawRename, RawSet
from velostream.sql.text.script import Piece, split

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from velostream.sql.bind.parts import Result


@dataclass(frozen=True)
class Checked:
    """The bound statements and every error, both in file order."""

    statements: tuple[Statement, ...]
    errors: tuple[VelostreamError, ...]
    guessed: bool = False
    """Whether an error would say more if the columns of the sources were known."""


@dataclass(frozen=True)
class Parsed:
    """The parsed statements, and every syntax error."""

    statements: tuple[tuple[Piece, Raw], ...]
    errors: tuple[VelostreamError, ...]


def parse_script(source: SourceText, environment: Mapping[str, str] | None = None) -> Parsed:
    """Parse every statement; after an error continue behind the next semicolon."""
    script = split(source, environment)
    errors = list(script.errors)
    broken = {id(piece) for piece in script.pieces if _holds_error(piece, script.errors)}
    statements = []
    for piece in script.pieces:
        if id(piece) in broken:
            continue
        try:
            statement = parse_piece(piece)
        except VelostreamError as error:
            errors.append(error)
            continue
        if statement is not None:
            statements.append((piece, statement))
    return Parsed(tuple(statements), tuple(_in_order(errors)))


def in_turn(text: str) -> list[str]:
    """A script in parts, each to be checked when the one before has run: an ALTER ends its part.

    What follows an ALTER names things as they are by then. Every part begins with blanks in the place of the
    earlier ones, so that its errors have their location in the script.
    """
    parsed = parse_script(SourceText(text)) if "ALTER" in text.upper() else Parsed((), ())
    alters = [each for _, each in parsed.statements if isinstance(each, RawRename | RawSet | RawAddColumn)]
    if parsed.errors or not alters:
        return [text]
    cuts = [0, *(each.location.end for each in alters), len(text)]
    blank = "".join(each if each == "\n" else " " for each in text)
    parts = [blank[:start] + text[start:end] for start, end in itertools.pairwise(cuts)]
    return [part for part in parts if part.strip(" \n;")]


def check_script(
    source: SourceText,
    catalog: Catalog,
    connectors: Connectors,
    *,
    udfs: Collection[str] = (),
    environment: Mapping[str, str] | None = None,
    params: Mapping[str, Any] | Sequence[Any] | None = None,
    discover: Discover = unasked,
) -> Checked:
    """Parse and bind a script. Has no side effects; all errors are collected.

    With `params`, missing and superfluous values are errors as well. `discover` is asked for the columns of
    every source, also of those that nothing reads; so the columns of what is made of them are known.
    """
    parsed = parse_script(source, environment)
    binding = ScriptBinder(parsed, catalog, connectors, frozenset(udfs), discover)
    statements = binding.bind()
    errors = [*parsed.errors, *binding.errors]
    if params is not None:
        errors.extend(parameters.check(statements, params))
    return Checked(statements, tuple(_in_order(errors)), binding.guessed)


def bind_one(
    text: str,
    catalog: Catalog | None = None,
    connectors: Connectors | None = None,
    *,
    udfs: Collection[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Statement:
    """The one statement of a text; raises its first error."""
    checked = check_script(
        SourceText(text),
        catalog or EmptyCatalog(),
        connectors or NoConnectors(),
        udfs=udfs,
        environment=environment,
    )
    if checked.errors:
        raise checked.errors[0]
    if len(checked.statements) != 1:
        raise SqlSyntaxError(f"expected one statement, found {len(checked.statements)}")
    return checked.statements[0]


@dataclass(frozen=True)
class NoConnectors:
    """No connectors, for statements that only read tables."""

    def by_scheme(self, scheme: str) -> None:
        """None."""

    def by_function(self, name: str) -> None:
        """None."""

    def schemes(self) -> Iterable[str]:
        """Nothing."""
        return ()

    def functions(self) -> Iterable[str]:
        """Nothing."""
        return ()

    def names(self) -> Iterable[str]:
        """Nothing."""
        return ()


@dataclass
class ScriptBinder:
    """Binds the statements of one script; a CREATE is bound when a statement first refers to it."""

    parsed: Parsed
    catalog: Catalog
    connectors: Connectors
    udfs: frozenset[str]
    discover: Discover = unasked
    errors: list[VelostreamError] = field(default_factory=list)
    guessed: bool = False
    _creators: dict[str, int] = field(default_factory=dict)
    _relations: dict[str, Relation] = field(default_factory=dict)
    _results: dict[int, Result | None] = field(default_factory=dict)
    _path: list[str] = field(default_factory=list)
    _active: set[int] = field(default_factory=set)

    def bind(self) -> tuple[Statement, ...]:
        """Every correct statement, in file order."""
        self._collect_creators()
        for index in range(len(self.parsed.statements)):
            self._bind(index)
        found = (self._results[index] for index in range(len(self.parsed.statements)))
        return tuple(result.statement for result in found if result is not None)

    def _collect_creators(self) -> None:
        dropped: set[str] = set()
        for index, (_, statement) in enumerate(self.parsed.statements):
            if isinstance(statement, RawDrop):
                dropped.add(statement.name.text.lower())
            if not isinstance(statement, RawCreate):
                continue
            name = statement.name.text.lower()
            excused = statement.or_replace or statement.if_not_exists or name in dropped
            if name in self._creators and not excused:
                first = self.parsed.statements[self._creators[name]][1].location
                self.errors.append(
                    DuplicateNameError(
                        f'"{statement.name.text}" is created twice',
                        detail=f"the first time at {first}",
                        hint="write CREATE OR REPLACE, or give it another name",
                        location=statement.name.location,
                    )
                )
            if name in BUILT_IN:
                self.errors.append(
                    DuplicateNameError(
                        f'"{statement.name.text}" always exists', location=statement.name.location
                    )
                )
            dropped.discard(name)
            self._creators.setdefault(name, index)

    def _bind(self, index: int) -> None:
        if index in self._results:
            return
        piece, statement = self.parsed.statements[index]
        name = statement.name.text if isinstance(statement, RawCreate) else ""
        context = Context(
            piece,
            statement.location,
            statement.end,
            self._lookup,
            self._names,
            self.connectors,
            self.udfs,
            self.discover,
        )
        self._active.add(index)
        self._path.append(name)
        try:
            result: Result | None = bind(context, statement)
        except VelostreamError as error:
            context.report(error)
            result = None
        except RecursionError:
            context.report(SqlSyntaxError("the statement is nested too deeply"))
            result = None
        finally:
            self._path.pop()
            self._active.discard(index)
        self._finish(index, statement, context, result)

    def _finish(self, index: int, statement: Raw, context: Context, result: Result | None) -> None:
        if result is not None and parameters.mixed(result.statement):
            context.report(SqlSyntaxError("a statement takes either :name or ?, not both"))
        self.errors.extend(context.errors)
        self.guessed |= context.guessed
        relation = result.relation if result is not None else None
        if isinstance(statement, RawCreate):
            name = statement.name.text
            if relation is None:
                # A statement that reads a broken one is not to blame: any column of it is accepted.
                kind = RelationKind(statement.kind.value)
                kind = RelationKind.TABLE if kind in (RelationKind.SOURCE, RelationKind.VIEW) else kind
                relation = Relation(kind, name, by_hand=True)
            elif context.errors and relation.view is None and relation.source is None:
                relation = Relation(
                    relation.kind, relation.name, relation.columns, relation.key, by_hand=relation.by_hand
                )
            self._relations.setdefault(name.lower(), relation)
        if result is not None and context.warnings:
            warned = replace(result.statement, warnings=tuple(context.warnings))
            result = replace(result, statement=warned)
        self._results[index] = None if context.errors else result

    def _lookup(self, name: str) -> Relation | None:
        folded = name.lower()
        if folded in self._relations:
            return self._relations[folded]
        index = self._creators.get(folded)
        if index is not None:
            if index in self._active:
                raise self._cycle(index)
            self._bind(index)
            return self._relations.get(folded)
        return self.catalog.lookup(name) or self._by_folded(folded) or BUILT_IN.get(folded)

    def _by_folded(self, folded: str) -> Relation | None:
        match = next((name for name in self.catalog.names() if name.lower() == folded), None)
        return self.catalog.lookup(match) if match is not None else None

    def _cycle(self, index: int) -> CycleError:
        statement = self.parsed.statements[index][1]
        name = statement.name.text if isinstance(statement, RawCreate) else ""
        path = self._path[self._path.index(name) :]
        return CycleError(
            f"statements depend on each other in a circle: {' → '.join([*path, name])}",
            hint="a table cannot be built on itself",
        )

    def _names(self) -> Iterable[str]:
        created = [
            statement.name.text for _, statement in self.parsed.statements if isinstance(statement, RawCreate)
        ]
        return dict.fromkeys([*created, *self.catalog.names(), *BUILT_IN])


def queries_of(statement: Statement) -> Iterable[Query]:
    """The queries inside a statement."""
    query = getattr(statement, "query", None)
    if isinstance(query, Query):
        yield query
    inner = getattr(statement, "statement", None)
    if isinstance(inner, Statement):
        yield from queries_of(inner)


def _holds_error(piece: Piece, errors: Iterable[VelostreamError]) -> bool:
    if not piece.text:
        return False
    place = piece.location(0, len(piece.text))
    return any(
        error.location is not None and place.start <= error.location.start < place.end for error in errors
    )


def _in_order(errors: Iterable[VelostreamError]) -> list[VelostreamError]:
    return sorted(errors, key=lambda error: error.location.start if error.location else -1)
