"""Identity of statements: equality, names of unnamed jobs, and the place of a column in the text."""

from __future__ import annotations

from collections import Counter
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.statements import Delete, InsertInto, InsertIntoSink, Update
from velostream.model.uri import Uri
from velostream.sql.check import queries_of
from velostream.sql.parse.structure import quoted_columns
from velostream.sql.text.generator import generate
from velostream.sql.text.node_locations import locate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from velostream.location import Location
    from velostream.model import statements as model


def sink_name(statement: model.InsertIntoSink) -> str:
    """The name of an unnamed job: that of its sink, with a few digits of a hash to make it unique."""
    tail = Uri(str(statement.uri)).rest.rstrip("/").rsplit("/", 1)[-1] or statement.uri.scheme
    digits = blake2b(statement.uri.text.encode(), digest_size=3).hexdigest()
    return f"insert-{''.join(c if c.isalnum() or c in '_-.' else '-' for c in tail)}-{digits}"


def made_name(statement: model.Statement) -> str:
    """The name under which the catalogue keeps what the statement makes."""
    if isinstance(statement, InsertIntoSink):
        return sink_name(statement)
    return str(getattr(statement, "name", ""))


def kind_of(statement: model.Statement) -> str:
    """The keyword after CREATE, and after DROP."""
    if isinstance(statement, InsertIntoSink):
        return "JOB"
    return type(statement).__name__.removeprefix("Create").upper()


def same_but_replace(one: model.Statement, other: model.Statement) -> bool:
    """Whether two statements create the same, apart from OR REPLACE."""
    return _without_replace(one) == _without_replace(other)


def difference(before: str, after: str) -> str:
    """The line-by-line difference of two texts."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "remembered", "now", lineterm="", n=1)
    return "\n".join(lines)


def _without_replace(statement: model.Statement) -> str:
    return generate(statement).replace("CREATE OR REPLACE ", "CREATE ", 1)


def quoted(statement: model.Statement, columns: Iterable[str]) -> tuple[str, ...]:
    """Warnings of texts in double quotes that have the name of a column, known since it was bound."""
    if statement.location is None:
        return ()
    source, names = statement.location.source, tuple(columns)
    told = [
        each
        for query in queries_of(statement)
        for each in quoted_columns(query.tree, names, partial(locate, source=source))
    ]
    return tuple(each for each in dict.fromkeys(told) if each not in statement.warnings)


def column_place(name: str, statement: model.Statement) -> Location | None:
    """The place where a statement names a column, within its own text and not in a view it reads."""
    for query in queries_of(statement):
        for column in query.tree.find_all(exp.Column):
            place = locate(column, statement.location.source) if statement.location is not None else None
            if place is not None and place.text.replace("`", "").casefold() == name.casefold():
                return place
    return None


def changes_once(statement: model.Statement) -> bool:
    """Whether the statement changes rows, or writes them to a sink, once per data directory."""
    if isinstance(statement, InsertIntoSink):
        return statement.once
    return isinstance(statement, InsertInto | Update | Delete)


def identities(statements: Iterable[model.Statement]) -> dict[int, str]:
    """The identity of each statement that changes rows, by its `id`: text, and number among equal texts."""
    seen: Counter[str] = Counter()
    found = {}
    for statement in statements:
        if changes_once(statement):
            text = generate(statement)
            seen[text] += 1
            found[id(statement)] = blake2b(f"{seen[text]} {text}".encode(), digest_size=12).hexdigest()
    return found
