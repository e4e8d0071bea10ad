"""What a statement replaces, and everything that is built on it: one group, switched together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.connectors.registry import default_registry
from velostream.errors import CycleError, DuplicateNameError, VelostreamError
from velostream.location import SourceText
from velostream.model import statements as model
from velostream.plan.sinks import Writing, target
from velostream.runtime.catalog.catalog import Made, Overlaid
from velostream.runtime.statements.identity import kind_of, made_name
from velostream.secrets import redact_uri
from velostream.sql.check import check_script, queries_of
from velostream.sql.dependencies import used_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.serving.table.store import TableStore


@dataclass(frozen=True)
class Member:
    """One entry of a group: replaced by another statement, or built anew from its own."""

    old: Entry
    new: Made | None = None

    @property
    def statement(self) -> Made:
        """The statement by which it will be made."""
        return self.new if self.new is not None else self.old.statement

    @property
    def what(self) -> str:
        """Its kind and name."""
        return f'{kind_of(self.statement).lower()} "{self.statement_name}"'

    @property
    def statement_name(self) -> str:
        """The name that it will have; the case may differ from before."""
        return made_name(self.statement)


@dataclass(frozen=True)
class Group:
    """What is replaced together, in the order in which it is built."""

    members: tuple[Member, ...]
    target: str
    """The name that the statement replaces."""

    @property
    def names(self) -> frozenset[str]:
        """The names that the members have now."""
        return frozenset(each.old.name for each in self.members)

    @property
    def dependents(self) -> tuple[Member, ...]:
        """All but what the statement names."""
        return tuple(each for each in self.members if each.old.name != self.target)

    def told(self, store: TableStore) -> list[str]:
        """The plan, a line for each member: what is rebuilt, from where, and how much there is now."""
        lines = []
        for member in self.members:
            how = "replaced" if member.new is not None else "rebuilt"
            read = inputs(member.statement)
            size = figures(store, member.old)
            came = f" from {', '.join(read)}" if read else ""
            lines.append(f"{how}: {member.what}{came}" + (f"; now {size}" if size else ""))
        if len(self.members) > 1:
            lines.append("switched together once all of it has loaded; until then the old ones answer")
        return lines


def dependents(catalog: Catalog, names: Collection[str]) -> list[Entry]:
    """Everything that is built on what has these names, directly or not, in the order of creation."""
    known, found = set(names), []
    for entry in catalog:
        if entry.name not in known and used_names(entry.statement) & known:
            known.add(entry.name)
            found.append(entry)
    return found


def group_of(catalog: Catalog, statement: Made, together: Mapping[str, Made] | None = None) -> Group:
    """The group of a statement that replaces something; raises the reason why it cannot be replaced.

    `together`: statements, by folded name, that replace others at the same time, so that what is built on
    this one is built by its new statement.
    """
    old = catalog.require(made_name(statement))
    news = {**(together or {}), old.name.casefold(): statement}
    entries = [old, *dependents(catalog, [old.name])]
    members = [Member(entry, news.get(entry.name.casefold())) for entry in entries]
    for member in members[1:]:
        refuse_sink(member.old, old.name)
    group = Group(_ordered(members, statement), old.name)
    _check_binding(catalog, group)
    return group


def refuse_sink(entry: Entry, base: str) -> None:
    """Refuse to rebuild what writes to a sink: what it has written cannot be taken back."""
    statement = entry.statement
    if not isinstance(statement, Writing):
        return
    uri, _ = target(statement)
    to, stream = redact_uri(str(uri)), isinstance(statement, model.CreateStream)
    drop = f"DROP STREAM {entry.name}" if stream else f"DROP JOB {entry.job}"
    raise DuplicateNameError(
        f'"{entry.name}" writes what it reads of "{base}" to {to}, and that cannot be taken back',
        hint=f"{drop} first; created again afterwards, it writes the rows of the new one from the start",
    )


def _ordered(members: list[Member], statement: Made) -> tuple[Member, ...]:
    """The members in dependency order, otherwise in the order of creation."""
    by_name = {member.old.name.casefold(): member for member in members}
    done: dict[str, Member] = {}
    path: list[str] = []

    def visit(folded: str) -> None:
        if folded in done:
            return
        if folded in path:
            raise CycleError(
                f'"{by_name[folded].old.name}" cannot be built on what it replaces',
                hint="create it under another name, and drop this one when it has loaded",
                location=statement.location,
            )
        path.append(folded)
        for used in used_names(by_name[folded].statement):
            if used.casefold() in by_name:
                visit(used.casefold())
        path.pop()
        done[folded] = by_name[folded]

    for member in members:
        visit(member.old.name.casefold())
    return tuple(done.values())


def _check_binding(catalog: Catalog, group: Group) -> None:
    """Raise where a statement that is built on the new one does not fit it any more."""
    if not group.dependents:
        return
    bases = Overlaid(catalog, dict.fromkeys((name.casefold() for name in group.names), None))
    text, ends = "", []
    for member in group.members:
        text += member.statement.text + ";\n"
        ends.append(len(text))
    udfs = {name for member in group.members for name in (*member.old.udfs, *_udfs(member.statement))}
    source = SourceText(text, f"statements with the new {group.target}")
    checked = check_script(source, bases, default_registry(), udfs=udfs, environment=os.environ)
    for error in checked.errors:
        at = error.location.start if error.location is not None else 0
        member = next(each for each, end in zip(group.members, ends, strict=True) if at < end)
        raise no_longer(error, member.old.name, group.target)


def no_longer(error: VelostreamError, name: str, target: str) -> VelostreamError:
    """The error of something that is built on what is replaced, telling whose it is."""
    if name != target:
        error.message = f'"{name}", which is built on "{target}", would not work any more: {error.message}'
        error.hint = error.hint or f"nothing was changed; change {name} first, or drop it"
    return error


def _udfs(statement: Made) -> Iterable[str]:
    return (name for query in queries_of(statement) for name in query.udfs)


def inputs(statement: Made) -> list[str]:
    """What a statement reads."""
    found: dict[str, None] = {}
    for query in queries_of(statement):
        found |= dict.fromkeys(redact_uri(str(ref.uri)) for ref in query.sources)
        found |= dict.fromkeys((*query.tables, *query.streams))
    if isinstance(statement, model.CreateSource):
        found[redact_uri(str(statement.uri))] = None
    return list(found)


def figures(store: TableStore, entry: Entry) -> str:
    """How much a table holds; empty where that is not known."""
    if not isinstance(entry.statement, model.CreateTable):
        return ""
    try:
        stats = store.open(entry.name).stats()
    except VelostreamError:
        return ""
    rows = f"{stats.record_count:,} row{'' if stats.record_count == 1 else 's'}"
    return f"{rows}, {_size(stats.bytes)}" if stats.bytes else rows


def _size(count: int) -> str:
    for unit, least in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= least:
            return f"{count / least:.1f} {unit}"
    return f"{count} bytes"
