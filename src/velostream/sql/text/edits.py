"""Changes statements as users wrote them: other names and properties, and every other character as it was."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import SqlError
from velostream.location import SourceText
from velostream.sql.bind.relations import visible_ctes
from velostream.sql.check import parse_script
from velostream.sql.parse.dialect import WITH
from velostream.sql.parse.parser import tokenize
from velostream.sql.parse.syntax import RawCreate, RawInsert
from velostream.sql.text.generator import text_literal
from velostream.sql.text.node_locations import anchor, span
from velostream.sql.text.script import split
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from velostream.sql.parse.syntax import RawWith
    from velostream.sql.text.script import Piece

Edit = tuple[int, int, str]
"""The characters from a start up to an end, and what stands in their place."""


def with_name(text: str, new: str) -> str:
    """A CREATE statement that creates another name."""
    _, statement = _parsed(text)
    assert isinstance(statement, RawCreate)
    place = statement.name.location
    return _edited(text, [(place.start, place.end, written(new))])


def with_table(text: str, old: str, new: str) -> str:
    """A statement that reads the table `new` in every place where it read `old`.

    Its columns may still be addressed by the old name, which becomes an alias.
    """
    piece, statement = _parsed(text)
    query = statement.query
    edits: list[Edit] = []
    tree = query.tree if query is not None else exp.Select()
    anchor(tree, piece)
    addressed = any(column.parts[0].name.casefold() == old.casefold() for column in _qualified(tree))
    for node in tree.find_all(exp.Table):
        place = span(node.this) if isinstance(node.this, exp.Identifier) else None
        if place is None or node.name.casefold() != old.casefold() or node.args.get("db") is not None:
            continue
        if old.lower() in visible_ctes(node):
            continue
        alias = f" AS {text[slice(*place)]}" if addressed and not node.alias else ""
        edits.append((*place, f"{written(new)}{alias}"))
    return _edited(text, edits)


def _qualified(tree: exp.Expr) -> Iterator[exp.Column]:
    return (column for column in tree.find_all(exp.Column) if len(column.parts) > 1)


def with_properties(text: str, properties: Mapping[str, str]) -> str:
    """A statement with these properties: changed where they are written, else added at its end."""
    _, statement = _parsed(text)
    clauses = list(_clauses(statement))
    edits: list[Edit] = []
    added: dict[str, str] = {}
    for name, value in properties.items():
        places = [item.value_location for clause in clauses for item in clause.properties if item.key == name]
        if len(places) > 1:
            raise SqlError(f'property "{name}" stands in several places of the statement')
        if places:
            edits.append((places[0].start, places[0].end, text_literal(value)))
        else:
            added[name] = value
    last = next((clause for clause in clauses if clause.end == statement.end), None)
    items = ", ".join(f"{text_literal(name)} = {text_literal(value)}" for name, value in added.items())
    if added and last is not None:
        comma = ", " if last.properties else ""
        edits.append((last.location.end - 1, last.location.end - 1, f"{comma}{items}"))
    elif added:
        edits.append((statement.location.end, statement.location.end, f" WITH ({items})"))
    return _edited(text, edits)


def written(name: str) -> str:
    """A name as it can stand in a statement: in backticks only where it has to."""
    if not re.fullmatch(r"[A-Za-z_]\w*", name):
        return quote(name)
    (piece,) = split(SourceText(f"SELECT 1 FROM x AS {name}")).pieces
    # A keyword would be another kind of token.
    plain = tokenize(piece)[-1].token_type.name == "VAR"
    return name if plain else quote(name)


def _parsed(text: str) -> tuple[Piece, RawCreate | RawInsert]:
    parsed = parse_script(SourceText(text))
    if parsed.errors:
        raise parsed.errors[0]
    piece, statement = parsed.statements[0]
    assert isinstance(statement, RawCreate | RawInsert)
    return piece, statement


def _clauses(statement: RawCreate | RawInsert) -> Iterator[RawWith]:
    """Every WITH (…) of a statement."""
    if statement.properties is not None:
        yield statement.properties
    trees = [statement.query.tree] if statement.query is not None else []
    relation = statement.relation if isinstance(statement, RawCreate) else statement.target
    for tree in (*trees, *([relation] if relation is not None else [])):
        for node in tree.find_all(exp.Table):
            clause = node.args.get(WITH)
            if clause is not None:
                yield clause.value


def _edited(text: str, edits: Iterable[Edit]) -> str:
    for start, end, instead in sorted(edits, reverse=True):
        text = text[:start] + instead + text[end:]
    return text
