"""Identity of statements: equality, names of unnamed jobs, and the place of a column in the text."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.model.uri import Uri
from velostream.sql.check import queries_of
from velostream.sql.text.generator import generate
from velostream.sql.text.node_locations import locate

if TYPE_CHECKING:
    from velostream.location import Location
    from velostream.model import statements as model


def sink_name(statement: model.InsertIntoSink) -> str:
    """The name of an unnamed job: that of its sink, with a few digits of a hash to make it unique."""
    tail = Uri(str(statement.uri)).rest.rstrip("/").rsplit("/", 1)[-1] or statement.uri.scheme
    digits = blake2b(statement.uri.text.encode(), digest_size=3).hexdigest()
    return f"insert-{''.join(c if c.isalnum() or c in '_-.' else '-' for c in tail)}-{digits}"


def kind_of(statement: model.Statement) -> str:
    """The keyword after CREATE."""
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


def column_place(name: str, statement: model.Statement) -> Location | None:
    """The place where a statement names a column, within its own text and not in a view it reads."""
    for query in queries_of(statement):
        for column in query.tree.find_all(exp.Column):
            place = locate(column, statement.location.source) if statement.location is not None else None
            if place is not None and place.text.replace("`", "").casefold() == name.casefold():
                return place
    return None
