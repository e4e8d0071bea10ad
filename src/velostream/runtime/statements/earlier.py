"""What a data directory has under the name of a statement, and whether the statement may replace it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.errors import ChangedStatementError, CycleError, DuplicateNameError
from velostream.model import statements as model
from velostream.runtime.statements.identity import difference, kind_of, same_but_replace, sink_name
from velostream.secrets import redact_statement
from velostream.sql.dependencies import used_names
from velostream.sql.text.generator import generate

if TYPE_CHECKING:
    from velostream.runtime.catalog.catalog import Catalog, Entry

MAKERS = (
    model.CreateTable,
    model.CreateStream,
    model.CreateSource,
    model.CreateView,
    model.InsertIntoSink,
)
"""Statements that make something which stays in the catalogue."""


def made_name(statement: model.Statement) -> str:
    """The name under which the catalogue keeps what the statement makes."""
    if isinstance(statement, model.InsertIntoSink):
        return sink_name(statement)
    return str(getattr(statement, "name", ""))


def made_before(catalog: Catalog, statement: model.Statement) -> Entry | None:
    """The entry that the statement would create again; raises when the existing one differs.

    None when the statement has to be executed (new, or OR REPLACE with a different statement).
    """
    name = made_name(statement)
    entry = catalog.get(name)
    if entry is None:
        return None
    if getattr(statement, "if_not_exists", False) or generate(entry.statement) == generate(statement):
        return entry
    if getattr(statement, "or_replace", False):
        if same_but_replace(entry.statement, statement):
            return entry
        check_replaceable(catalog, entry.name, statement)
        return None
    raise ChangedStatementError(
        f'"{name}" was created by another statement in this data directory',
        detail=difference(redact_statement(entry.text), redact_statement(statement.text)),
        hint=f"write CREATE OR REPLACE to build it anew, or DROP {kind_of(entry.statement)} {name} first",
        location=statement.location,
    )


def check_replaceable(catalog: Catalog, name: str, statement: model.Statement) -> None:
    """Raise where something else is built on what would be replaced, or the statement itself is."""
    check_unused(catalog, name)
    if name in used_names(statement):
        raise CycleError(
            f'"{name}" cannot be built on what it replaces',
            hint="create it under another name, and drop this one when it has loaded",
            location=statement.location,
        )


def check_unused(catalog: Catalog, name: str) -> None:
    """Raise where something else is built on what has this name."""
    users = [e.name for e in catalog if name in used_names(e.statement) and e.name != name]
    if users:
        raise DuplicateNameError(f'"{name}" is used by {", ".join(users)}', hint=f"drop {users[0]} first")
