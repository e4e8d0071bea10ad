"""A file of statements, run as one: checked whole, started in dependency order, idempotent when run again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.errors import (
    ClosedError,
    DataDirError,
    DeadlineError,
    JavaError,
    JobError,
    SparkEndedError,
    VelostreamError,
)
from velostream.model import statements as model
from velostream.model.jobs import JobState
from velostream.plan.strategy import obstacle
from velostream.runtime.answers.result import Result
from velostream.runtime.statements.earlier import (
    MAKERS,
    altered_in_file,
    findings,
    left_out,
    made_before,
    replaced,
)
from velostream.runtime.statements.executor import DONE_BEFORE, Executor
from velostream.runtime.statements.identity import changes_once, identities
from velostream.sql.dependencies import created_name, dependency_order, used_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from velostream.runtime.instance import Instance

_OF_EVERY_STATEMENT = (ClosedError, DataDirError, JavaError, SparkEndedError)
"""Errors that no other statement would be spared."""


@dataclass(frozen=True)
class Step:
    """One statement of the file and its result."""

    statement: model.Statement
    result: Result


@dataclass(frozen=True)
class NotStarted:
    """A statement of the file that does not run, and why."""

    statement: model.Statement
    error: VelostreamError


class Application:
    """The statements of one file on one database.

    With `keep_going`, a statement that cannot be started does not keep the others from starting, but for
    those that read what it makes.
    """

    def __init__(
        self, database: Instance, statements: tuple[model.Statement, ...], *, keep_going: bool = False
    ) -> None:
        self._database = database
        self.statements = statements
        self._identities = identities(self.statements)
        self._together = replaced(database.catalog, self.statements)
        self._keep_going = keep_going
        self.not_started: list[NotStarted] = []
        """What does not run, in the order of starting; only where the others are kept going."""

    def start(
        self,
        narrate: Callable[[Step], None] = lambda _: None,
        begin: Callable[[model.Statement], None] = lambda _: None,
        leave_out: Callable[[NotStarted], None] = lambda _: None,
    ) -> None:
        """Run every statement in dependency order; a job that ran before is resumed, not created again.

        `begin` is called before a statement, `narrate` or `leave_out` after it; those of `followed` are left
        to the caller. In a database that reads to the end (`once`), every job has ended when this returns.
        Raises the error of a statement that cannot be started, unless the others are kept going.
        """
        ordered = self._checked_order()
        self._database.resume()
        changed = False
        for statement in ordered:
            refusal = self._refusal(statement)
            if refusal is None and self._follows(statement):
                continue
            begin(statement)
            result = refusal if refusal is not None else self._started(statement)
            if isinstance(result, VelostreamError):
                self.not_started.append(NotStarted(statement, result))
                leave_out(self.not_started[-1])
            else:
                changed |= changes_once(statement) and result.message != DONE_BEFORE
                narrate(Step(statement, result))
        if changed and self._once:
            self._catch_up()

    def _refusal(self, statement: model.Statement) -> VelostreamError | None:
        """Why a statement is not even tried; None when it is."""
        if self._executor.stopping.is_set():
            return DeadlineError("the time was over", location=statement.location)
        obstructed = obstacle(statement) if self._keep_going else None
        if obstructed is not None:
            return obstructed
        made = {(created_name(each.statement) or "").casefold() for each in self.not_started}
        lacking = sorted(name for name in used_names(statement) if name.casefold() in made)
        if not lacking:
            return None
        return JobError(f'skipped: it needs "{lacking[0]}", which did not start', location=statement.location)

    def _started(self, statement: model.Statement) -> Result | VelostreamError:
        """The result of a statement; its error where the others are kept going without it."""
        try:
            return self._run(statement)
        except VelostreamError as error:
            if isinstance(error, _OF_EVERY_STATEMENT) or not (self._keep_going or self._over):
                raise
            return error

    @property
    def _over(self) -> bool:
        """Whether nobody waits for the application any more."""
        return self._executor.stopping.is_set()

    def _follows(self, statement: model.Statement) -> bool:
        return not self._once and isinstance(statement, model.SelectStatement) and statement.follows

    @property
    def followed(self) -> tuple[model.SelectStatement, ...]:
        """SELECTs that run for as long as somebody reads: the caller follows them."""
        left_out = [each.statement for each in self.not_started]
        return tuple(
            statement
            for statement in self.statements
            if isinstance(statement, model.SelectStatement)
            and self._follows(statement)
            and not any(statement is each for each in left_out)
        )

    def left_out(self) -> list[str]:
        """A line for each object of the data directory that the file does not name: it stays, and runs on."""
        return [told for _, told in left_out(self._database.catalog, self.statements)]

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
            refusal = None if self._keep_going else obstacle(statement)
            refusal = refusal or altered_in_file(statement)
            if refusal is not None:
                raise refusal
        for finding in findings(self._database.catalog, ordered):
            if finding.error is not None:
                raise finding.error
        return ordered

    @property
    def _executor(self) -> Executor:
        return self._database.executor

    def _run(self, statement: model.Statement) -> Result:
        try:
            if isinstance(statement, MAKERS):
                entry = made_before(self._database.catalog, statement, self._together)
                if entry is not None:
                    return self._resumed(entry.name)
            identity = self._identities.get(id(statement))
            return self._executor.run(statement, identity=identity, together=self._together)
        except VelostreamError as error:
            raise error.at(statement.location) from error

    def _resumed(self, name: str) -> Result:
        job = self._database.jobs_by_name.get(name)
        if job is not None:
            self._executor.await_loaded(job, patient=not self._keep_going)
            if job.state is JobState.WAITING:
                return Result(message=f'"{name}" waits: {job.info.reason}')
            if job.state is JobState.DEGRADED:
                return Result(message=f'"{name}" is degraded: {job.info.reason}')
        return Result(message=f'"{name}" resumed' if job is not None else f'"{name}" is known')
