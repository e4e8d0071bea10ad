"""What running a file of statements would change in a data directory: found out without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from velostream.model import statements as model
from velostream.plan.strategy import obstacle
from velostream.runtime.changing.group import figures, inputs
from velostream.runtime.statements.earlier import altered_in_file, findings, left_out
from velostream.runtime.statements.identity import identities, kind_of, made_name
from velostream.secrets import redact_statement
from velostream.sql.dependencies import dependency_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from velostream.errors import VelostreamError
    from velostream.runtime.catalog.catalog import Catalog, Made
    from velostream.runtime.statements.earlier import Finding
    from velostream.serving.table.store import TableStore


class Action(StrEnum):
    """What happens to one thing."""

    CREATE = "create"
    REPLACE = "replace"
    REBUILD = "rebuild"
    RUN = "run"
    DROP = "drop"
    REFUSE = "refuse"
    UNCHANGED = "unchanged"
    STAYS = "stays"

    @property
    def changes(self) -> bool:
        """Whether something would be different afterwards."""
        return self not in (Action.UNCHANGED, Action.STAYS)


@dataclass(frozen=True)
class Step:
    """What happens to one thing, and why."""

    action: Action
    kind: str
    name: str
    detail: str = ""
    error: VelostreamError | None = None


def plan_of(catalog: Catalog, store: TableStore, statements: Iterable[model.Statement]) -> list[Step]:
    """What running these statements would do, in the order in which it would be done."""
    given = tuple(statements)
    return list(_Plan(catalog, store, given).steps())


@dataclass(frozen=True)
class _Plan:
    catalog: Catalog
    store: TableStore
    statements: tuple[model.Statement, ...]

    def steps(self) -> Iterator[Step]:
        ordered = dependency_order(self.statements)
        found = {id(each.statement): each for each in findings(self.catalog, ordered)}
        once = identities(self.statements)
        rebuilt: set[str] = set()
        for statement in ordered:
            if id(statement) in found:
                finding = found[id(statement)]
                rebuilt |= finding.group.names if finding.group is not None else set()
                yield from self._made(finding)
            elif id(statement) in once:
                done = self.catalog.done(once[id(statement)])
                yield _row(Action.UNCHANGED if done else Action.RUN, statement)
            elif isinstance(statement, model.Drop):
                there = self.catalog.get(statement.name) is not None
                yield Step(Action.DROP if there else Action.UNCHANGED, str(statement.kind), statement.name)
            elif isinstance(statement, model.Alter):
                refusal = altered_in_file(statement)
                yield Step(Action.REFUSE, "table", statement.name, str(refusal and refusal.message), refusal)
            elif isinstance(statement, model.DropJob | model.ControlJob):
                yield _row(Action.RUN, statement)
        for entry, told in left_out(self.catalog, self.statements):
            if entry.name not in rebuilt:
                yield Step(Action.STAYS, _kind(entry.statement), entry.name, told)

    def _made(self, finding: Finding) -> Iterator[Step]:
        kind, name = _kind(finding.statement), made_name(finding.statement)
        error = obstacle(finding.statement) or finding.error
        if error is not None:
            yield Step(Action.REFUSE, kind, name, error.message, error)
            return
        if finding.entry is not None:
            yield Step(Action.UNCHANGED, kind, name)
        elif finding.group is None:
            yield Step(Action.CREATE, kind, name, _from(finding.statement))
        for member in finding.group.members if finding.group is not None else ():
            action = Action.REPLACE if member.new is not None else Action.REBUILD
            size = figures(self.store, member.old)
            detail = "; ".join(filter(None, [_from(member.statement), f"now {size}" * bool(size)]))
            yield Step(action, _kind(member.statement), member.statement_name, detail)


def _kind(statement: model.Statement) -> str:
    return kind_of(statement).lower()


def _from(statement: Made) -> str:
    read = inputs(statement)
    return f"from {', '.join(read)}" if read else ""


def _row(action: Action, statement: model.Statement) -> Step:
    words = " ".join(redact_statement(statement.text).split())
    shown = words[:60] + "…" if len(words) > 60 else words
    about = getattr(statement, "table", None) or getattr(statement, "job", "")
    return Step(action, "statement", str(about), shown)
