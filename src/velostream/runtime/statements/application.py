"""A file of statements, run as one: checked whole, started in dependency order, idempotent when run again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from velostream.errors import VelostreamError
from velostream.model import statements as model
from velostream.model.jobs import JobState
from velostream.plan.strategy import obstacle
from velostream.runtime.statements.earlier import MAKERS, made_before, made_name
from velostream.runtime.statements.executor import DONE_BEFORE, Executor
from velostream.runtime.statements.identity import kind_of
from velostream.runtime.statements.result import Result
from velostream.sql.dependencies import dependency_order
from velostream.sql.text.generator import generate
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from velostream.runtime.catalog.catalog import Entry
    from velostream.runtime.database import Database

_CHANGES = (model.InsertInto, model.Update, model.Delete)


@dataclass(frozen=True)
class Step:
    """One statement of the file and its result."""

    statement: model.Statement
    result: Result


class Application:
    """The statements of one file on one database."""

    def __init__(self, database: Database, statements: tuple[model.Statement, ...]) -> None:
        self._database = database
        self.statements = statements
        self._identities = _identities(self.statements)

    def start(
        self,
        narrate: Callable[[Step], None] = lambda _: None,
        begin: Callable[[model.Statement], None] = lambda _: None,
    ) -> None:
        """Run every statement in dependency order; a job that ran before is resumed, not created again.

        `begin` is called before a statement, `narrate` after it. Statements of `followed` are left out. In a
        database that reads to the end (`once`), every job has ended when this returns.
        """
        ordered = self._checked_order()
        self._database.resume()
        changed = False
        for statement in ordered:
            if statement in self.followed:
                continue
            begin(statement)
            step = Step(statement, self._run(statement))
            changed = changed or (isinstance(statement, _CHANGES) and step.result.message != DONE_BEFORE)
            narrate(step)
        if changed and self._once:
            self._catch_up()

    @property
    def followed(self) -> tuple[model.SelectStatement, ...]:
        """SELECTs that run for as long as somebody reads: the caller follows them."""
        if self._once:
            return ()
        return tuple(s for s in self.statements if isinstance(s, model.SelectStatement) and s.follows)

    def left_out(self) -> list[str]:
        """A line for each object of the data directory that the file does not name: it stays, and runs on."""
        named = {made_name(each).casefold() for each in self.statements if isinstance(each, MAKERS)}
        return [_left_out(entry) for entry in self._database.catalog if entry.name.casefold() not in named]

    @property
    def _once(self) -> bool:
        return self._database.jobs_by_name.site.once

    def _catch_up(self) -> None:
        """Start finished jobs over tables once more: a later INSERT of the file may have changed them."""
        jobs = self._database.jobs_by_name
        for entry in self._database.catalog:
            query = getattr(entry.statement, "query", None)
            job = jobs.get(entry.job) if entry.job is not None else None
            derived = isinstance(query, model.Query) and bool(query.tables)
            if derived and job is not None and job.state is JobState.FINISHED:
                job.start()
                self._executor.await_loaded(job)

    def _checked_order(self) -> Iterable[model.Statement]:
        """The dependency order; refuses statements that cannot run or were changed before any is run."""
        ordered = dependency_order(self.statements)
        for statement in ordered:
            refusal = obstacle(statement)
            if refusal is not None:
                raise refusal
            if isinstance(statement, MAKERS):
                made_before(self._database.catalog, statement)
        return ordered

    @property
    def _executor(self) -> Executor:
        return self._database.executor

    def _run(self, statement: model.Statement) -> Result:
        try:
            if isinstance(statement, _CHANGES):
                return self._executor.run(statement, identity=self._identities[id(statement)])
            if isinstance(statement, MAKERS):
                entry = made_before(self._database.catalog, statement)
                if entry is not None:
                    return self._resumed(entry.name)
            return self._executor.run(statement)
        except VelostreamError as error:
            raise error.at(statement.location) from error

    def _resumed(self, name: str) -> Result:
        job = self._database.jobs_by_name.get(name)
        if job is not None:
            self._executor.await_loaded(job)
        return Result(message=f'"{name}" resumed' if job is not None else f'"{name}" is known')


def _left_out(entry: Entry) -> str:
    runs = "stays and runs on" if entry.job is not None and not entry.paused else "stays"
    if isinstance(entry.statement, model.InsertIntoSink):
        return f'job "{entry.name}" is not in this file, but {runs}; STOP JOB {entry.job} ends it'
    kind = kind_of(entry.statement)
    dropped = f"DROP {kind} {quote(entry.name)}"
    return f'{kind.lower()} "{entry.name}" is not in this file, but {runs}; {dropped} ends it'


def _identities(statements: Iterable[model.Statement]) -> dict[int, str]:
    """The identity of each DML statement: its text, and its number among equal texts."""
    seen: Counter[str] = Counter()
    identities = {}
    for statement in statements:
        if isinstance(statement, _CHANGES):
            text = generate(statement)
            seen[text] += 1
            identities[id(statement)] = blake2b(f"{seen[text]} {text}".encode(), digest_size=12).hexdigest()
    return identities
