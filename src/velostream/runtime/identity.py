"""When two statements are the same, and what a statement without a name is called."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from velostream.sql.generator import generate

if TYPE_CHECKING:
    from velostream.model import statements as model


def sink_name(statement: model.InsertIntoSink) -> str:
    """The name of a job that has none: what it writes to; a few digits tell places of equal name apart."""
    tail = statement.uri.rest.rstrip("/").rsplit("/", 1)[-1] or statement.uri.scheme
    digits = blake2b(str(statement.uri).encode(), digest_size=3).hexdigest()
    return f"insert-{''.join(c if c.isalnum() or c in '_-.' else '-' for c in tail)}-{digits}"


def kind_of(statement: model.Statement) -> str:
    """The word after CREATE."""
    return type(statement).__name__.removeprefix("Create").upper()


def same_but_replace(one: model.Statement, other: model.Statement) -> bool:
    """Whether two statements make the same, OR REPLACE or not."""
    return _without_replace(one) == _without_replace(other)


def difference(before: str, after: str) -> str:
    """Two texts compared line by line."""
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "remembered", "now", lineterm="", n=1)
    return "\n".join(lines)


def _without_replace(statement: model.Statement) -> str:
    return generate(statement).replace("CREATE OR REPLACE ", "CREATE ", 1)
