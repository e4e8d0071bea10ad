"""What a data directory has under the name of a statement, and whether the statement may replace it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.errors import ChangedStatementError, DuplicateNameError, UnsupportedError, VelostreamError
from velostream.model import statements as model
from velostream.runtime.catalog.catalog import Made
from velostream.runtime.changing.group import group_of
from velostream.runtime.statements.identity import difference, kind_of, made_name, same_but_replace
from velostream.secrets import redact_statement
from velostream.sql.dependencies import used_names
from velostream.sql.text.edits import written

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.changing.group import Group

MAKERS = (
    model.CreateTable,
    model.CreateStream,
    model.CreateSource,
    model.CreateView,
    model.InsertIntoSink,
)
"""Statements that may make something which stays in the catalogue."""


def makes(statement: model.Statement) -> bool:
    """Whether the statement makes something which stays in the catalogue."""
    return isinstance(statement, MAKERS) and not (
        isinstance(statement, model.InsertIntoSink) and statement.once
    )


def made_before(
    catalog: Catalog, statement: model.Statement, together: Mapping[str, Made] | None = None
) -> Entry | None:
    """The entry that the statement would create again; raises when the existing one differs.

    None when the statement has to be executed (new, or OR REPLACE with a different statement). `together`:
    see `group_of`.
    """
    name = made_name(statement)
    entry = catalog.get(name)
    if entry is None:
        return None
    if getattr(statement, "if_not_exists", False) or same_but_replace(entry.statement, statement):
        return entry
    if not makes(statement):
        return None
    if getattr(statement, "or_replace", False):
        check_replaceable(catalog, entry, statement, together)
        return None
    raise changed(entry, statement)


def changed(entry: Entry, statement: model.Statement) -> ChangedStatementError:
    """The error of a statement whose name another one has."""
    instead = "write CREATE OR REPLACE to build it anew, or "
    if isinstance(entry.statement, model.InsertIntoSink):
        instead = "what was written stays: "
    return ChangedStatementError(
        f'"{entry.name}" was created by another statement in this data directory',
        detail=difference(redact_statement(entry.text), redact_statement(statement.text)),
        hint=f"{instead}{_dropping(entry)} first",
        location=statement.location,
    )


def _dropping(entry: Entry) -> str:
    """The statement that drops an entry."""
    name = entry.job if isinstance(entry.statement, model.InsertIntoSink) else written(entry.name)
    return f"DROP {kind_of(entry.statement)} {name}"


@dataclass(frozen=True)
class Finding:
    """What a data directory has for a statement of a file: an entry, a group that it replaces, or nothing."""

    statement: Made
    entry: Entry | None = None
    group: Group | None = None
    error: VelostreamError | None = None
    """Why the statement cannot be run."""


def findings(catalog: Catalog, ordered: Iterable[model.Statement]) -> Iterator[Finding]:
    """What there is for each statement of a file that makes something, in dependency order.

    A statement that is replaced together with an earlier one of the file is part of the group of that one.
    """
    given = tuple(ordered)
    together = replaced(catalog, given)
    covered: set[str] = set()
    for statement in given:
        if not isinstance(statement, MAKERS):
            continue
        assert isinstance(statement, Made)
        known = catalog.get(made_name(statement))
        if known is None and not makes(statement):
            continue
        if known is not None and known.name in covered:
            continue
        try:
            entry = made_before(catalog, statement, together)
            group = group_of(catalog, statement, together) if known is not None and entry is None else None
        except VelostreamError as error:
            yield Finding(statement, error=error.at(statement.location))
            continue
        covered |= group.names if group is not None else set()
        yield Finding(statement, entry, group)


def replaced(catalog: Catalog, statements: Iterable[model.Statement]) -> dict[str, Made]:
    """The statements with OR REPLACE that differ from what there is, by folded name.

    Without those that read what does not exist yet: they are carried out in their turn.
    """
    found: dict[str, Made] = {}
    for statement in statements:
        entry = catalog.get(made_name(statement)) if isinstance(statement, MAKERS) else None
        if entry is None or not getattr(statement, "or_replace", False):
            continue
        known = all(catalog.get(name) is not None for name in used_names(statement))
        if known and not same_but_replace(entry.statement, statement):
            assert isinstance(statement, Made)
            found[entry.name.casefold()] = statement
    return found


def left_out(catalog: Catalog, statements: Iterable[model.Statement]) -> list[tuple[Entry, str]]:
    """What the data directory has and a file does not name: it stays, and runs on."""
    named = {made_name(each).casefold() for each in statements if isinstance(each, MAKERS)}
    return [(entry, _left_out(entry)) for entry in catalog if entry.name.casefold() not in named]


def _left_out(entry: Entry) -> str:
    runs = "stays and runs on" if entry.job is not None and not entry.paused else "stays"
    kind = kind_of(entry.statement).lower()
    return f'{kind} "{entry.name}" is not in this file, but {runs}; {_dropping(entry)} ends it'


def altered_in_file(statement: model.Statement) -> UnsupportedError | None:
    """Why ALTER is no statement of a file: what it alters would no longer be what the file says."""
    if not isinstance(statement, model.Alter):
        return None
    return UnsupportedError(
        "ALTER is not for a file that is run again and again",
        hint="change the CREATE statement of the file, and run ALTER once with velo sql",
        location=statement.location,
    )


def check_replaceable(
    catalog: Catalog, entry: Entry, statement: model.Statement, together: Mapping[str, Made] | None = None
) -> None:
    """Raise the reason why a statement cannot replace what has its name."""
    assert isinstance(statement, Made)
    if isinstance(statement, model.CreateStream):
        check_unused(catalog, entry.name)
    group_of(catalog, statement, together)


def check_unused(catalog: Catalog, name: str) -> None:
    """Raise where something else is built on what has this name."""
    users = [e.name for e in catalog if name in used_names(e.statement) and e.name != name]
    if users:
        raise DuplicateNameError(f'"{name}" is used by {", ".join(users)}', hint=f"drop {users[0]} first")
