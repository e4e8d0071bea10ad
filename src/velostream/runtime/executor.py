"""One bound statement, carried out."""

from __future__ import annotations

from contextlib import contextmanager
from functools import singledispatchmethod
from hashlib import blake2b
from threading import Event, Lock
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import (
    ChangedStatementError,
    DuplicateNameError,
    InternalError,
    JobError,
    UnsupportedError,
    VelostreamError,
)
from velostream.model import statements as model
from velostream.model.jobs import JobState
from velostream.model.tables import TableSpec
from velostream.runtime import listing
from velostream.runtime.dml import Dml, Params
from velostream.runtime.explain import explain
from velostream.runtime.results import Result
from velostream.runtime.select import LiveSelect
from velostream.sql.dependencies import used_names
from velostream.sql.generator import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from velostream.runtime.adhoc import AdHoc
    from velostream.runtime.catalog import Catalog, Entry
    from velostream.runtime.job import Job
    from velostream.runtime.jobs import Continuous, Jobs
    from velostream.serving.store import TableStore


_MAKERS = (
    model.CreateTable,
    model.CreateStream,
    model.CreateSource,
    model.CreateView,
    model.InsertIntoSink,
)
DONE_BEFORE = "done before in this data directory"
"""The message of a change of a file that ran in an earlier start."""


class Executor:
    """Carries out statements; `tell` narrates what takes long."""

    def __init__(
        self, catalog: Catalog, store: TableStore, jobs: Jobs, adhoc: AdHoc, tell: Callable[[str], None]
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._jobs = jobs
        self._adhoc = adhoc
        self._dml = Dml(store, adhoc)
        self._tell = tell
        self._making: set[str] = set()
        self._making_lock = Lock()
        self.stopping = Event()

    def run(
        self, statement: model.Statement, params: Params = None, *, identity: str | None = None
    ) -> Result:
        """The statement's answer. `identity` marks a change that runs once per data directory."""
        if isinstance(statement, (model.InsertInto, model.Update, model.Delete)):
            return self._change(statement, params, identity)
        if isinstance(statement, model.SelectStatement):
            return self._select(statement, params)
        if isinstance(statement, _MAKERS):
            name = sink_name(statement) if isinstance(statement, model.InsertIntoSink) else statement.name
            with self._claimed(name, statement):
                return self._do(statement)
        return self._do(statement)

    # --- what makes something ---------------------------------------------------------------------------

    def made_before(self, statement: model.Statement, name: str) -> Entry | None:
        """The entry that the statement would make again; raises when it differs from the statement.

        None when the statement has to be carried out (new, or OR REPLACE of something else).
        """
        entry = self._catalog.get(name)
        if entry is None:
            return None
        same = generate(entry.statement) == generate(statement)
        if same or getattr(statement, "if_not_exists", False):
            return entry
        if getattr(statement, "or_replace", False):
            if _without_replace(entry.statement) == _without_replace(statement):
                return entry
            self.drop(entry.name)
            return None
        raise ChangedStatementError(
            f'"{name}" was created by another statement in this data directory',
            detail=_difference(entry.text, statement.text),
            hint=f"write CREATE OR REPLACE to build it anew, or DROP {_kind(entry.statement)} {name} first",
            location=statement.location,
        )

    def _new(self, statement: model.Statement, name: str) -> bool:
        """Whether a CREATE given by hand has something to do."""
        entry = self._catalog.get(name)
        if entry is None:
            return True
        if getattr(statement, "if_not_exists", False):
            return False
        if getattr(statement, "or_replace", False):
            self.drop(entry.name)
            return True
        raise DuplicateNameError(
            f'"{name}" exists already',
            hint="drop it, or write CREATE OR REPLACE",
            location=statement.location,
        )

    @contextmanager
    def _claimed(self, name: str, statement: model.Statement) -> Iterator[None]:
        """Keep another thread from making the same name until the block has ended."""
        folded = name.casefold()
        with self._making_lock:
            if folded in self._making:
                raise DuplicateNameError(f'"{name}" is being created already', location=statement.location)
            self._making.add(folded)
        try:
            yield
        finally:
            with self._making_lock:
                self._making.discard(folded)

    @singledispatchmethod
    def _do(self, statement: model.Statement) -> Result:
        raise InternalError(f"no way to run {type(statement).__name__}")

    @_do.register
    def _(self, statement: model.CreateTable) -> Result:
        if not self._new(statement, statement.name):
            return Result(message=f'table "{statement.name}" exists already')
        if statement.query is not None:
            return self._create_job(statement, statement.name, f'table "{statement.name}"')
        schema = pa.schema([pa.field(column.name, column.type) for column in statement.columns])
        self._store.create(TableSpec(statement.name, schema, statement.key))
        self._catalog.add(statement, statement.name)
        self._catalog.update(statement.name, result=schema)
        return Result(message=f'table "{statement.name}" created')

    @_do.register
    def _(self, statement: model.CreateStream) -> Result:
        if not self._new(statement, statement.name):
            return Result(message=f'stream "{statement.name}" exists already')
        return self._create_job(statement, statement.name, f'stream "{statement.name}"')

    @_do.register
    def _(self, statement: model.CreateSource) -> Result:
        if not self._new(statement, statement.name):
            return Result(message=f'source "{statement.name}" exists already')
        self._catalog.add(statement, statement.name)
        return Result(message=f'source "{statement.name}" created')

    @_do.register
    def _(self, statement: model.CreateView) -> Result:
        if not self._new(statement, statement.name):
            return Result(message=f'view "{statement.name}" exists already')
        self._catalog.add(statement, statement.name)
        return Result(message=f'view "{statement.name}" created')

    @_do.register
    def _(self, statement: model.InsertIntoSink) -> Result:
        name = sink_name(statement)
        before = self._jobs.get(name)
        if before is not None and before.state.alive:
            raise DuplicateNameError(
                f'job "{name}" writes to {statement.uri} already',
                hint=f"stop it first: STOP JOB {before.id}",
                location=statement.location,
            )
        if self._catalog.get(name) is not None:
            self.drop(name)
        return self._create_job(statement, name, f"job into {statement.uri}")

    def _create_job(self, statement: Continuous, name: str, what: str) -> Result:
        if statement.properties.get("table.storage") == "delta":
            raise UnsupportedError('"table.storage" = "delta" is not executed in this version')
        job = self._jobs.create(statement, name, self._tell, self.stopping)
        try:
            self.await_loaded(job)
        except VelostreamError:
            self.drop(name)
            raise
        return Result(message=f"{what} created")

    def await_loaded(self, job: Job) -> None:
        """Until the job has taken in what its sources had when it started, or cannot.

        A job that reads what is there and ends is waited for to its end, so that what is built on its
        table sees all of it.
        """
        once = self._jobs.site.once
        job.wait(lambda j: not j.state.alive or self.stopping.is_set() or (not once and _loaded(j)))
        if job.state is JobState.FAILED:
            raise job.error or JobError(f'job "{job.name}" failed')

    # --- what changes rows ------------------------------------------------------------------------------

    def _change(
        self, statement: model.InsertInto | model.Update | model.Delete, params: Params, identity: str | None
    ) -> Result:
        if identity is not None and self._done(statement.table, identity):
            return Result(message=DONE_BEFORE)
        if isinstance(statement, model.InsertInto):
            count, verb = self._dml.insert(statement, params, identity), "inserted into"
        elif isinstance(statement, model.Update):
            count, verb = self._dml.update(statement, params, identity), "updated in"
        else:
            count, verb = self._dml.delete(statement, params, identity), "deleted from"
        if identity is not None:
            self._catalog.mark_done(identity)
        return Result(message=f'{count} row{"" if count == 1 else "s"} {verb} "{statement.table}"')

    def _done(self, table: str, identity: str) -> bool:
        if self._catalog.done(identity):
            return True
        # The commit is durable before the catalogue knows of it: a crash between the two shows here.
        last = self._store.open(table).last_commit
        if last is not None and last.extra.get("statement") == identity:
            self._catalog.mark_done(identity)
            return True
        return False

    # --- questions --------------------------------------------------------------------------------------

    def _select(self, statement: model.SelectStatement, params: Params) -> Result:
        if not statement.query.continuous:
            return self._adhoc.answer(statement.query, params)
        with LiveSelect(self._jobs.site, statement, once=True) as live:
            return Result(live.everything(), engine="spark")

    @_do.register
    def _(self, statement: model.Show) -> Result:
        return Result(listing.show(statement, self._catalog, self._store, self._jobs))

    @_do.register
    def _(self, statement: model.ShowCreate) -> Result:
        return Result(pa.table({"statement": [self._catalog.require(statement.name).text]}))

    @_do.register
    def _(self, statement: model.Describe) -> Result:
        return Result(listing.describe(statement.name, self._catalog, self._store))

    @_do.register
    def _(self, statement: model.Explain) -> Result:
        return Result(pa.table({"plan": explain(statement.statement)}))

    # --- what ends something ----------------------------------------------------------------------------

    @_do.register
    def _(self, statement: model.ControlJob) -> Result:
        asleep = self._catalog.get(statement.job)
        if asleep is not None and asleep.job is not None and self._jobs.get(asleep.job) is None:
            return self._control_asleep(asleep, statement.action)
        job = self._jobs.require(statement.job)
        if statement.action is model.JobAction.RESUME:
            self._set_paused(job.name, paused=False)
            job.start()
            return Result(message=f'job "{job.name}" resumed')
        pause = statement.action is model.JobAction.PAUSE
        self._set_paused(job.name, paused=True)
        job.stop(JobState.PAUSED if pause else JobState.STOPPED)
        return Result(message=f'job "{job.name}" {"paused" if pause else "stopped"}')

    def _control_asleep(self, entry: Entry, action: model.JobAction) -> Result:
        """A job that this process did not resume: remember what was asked for its next start."""
        resume = action is model.JobAction.RESUME
        self._catalog.update(entry.name, paused=not resume)
        return Result(
            message=f'job "{entry.name}" {"resumes" if resume else "stays stopped"} at the next start'
        )

    def _set_paused(self, name: str, *, paused: bool) -> None:
        if self._catalog.get(name) is not None:
            self._catalog.update(name, paused=paused)

    @_do.register
    def _(self, statement: model.Drop) -> Result:
        entry = self._catalog.get(statement.name)
        if entry is None and statement.if_exists:
            return Result(message=f'"{statement.name}" does not exist')
        self.drop(self._catalog.require(statement.name).name)
        return Result(message=f'{statement.kind} "{statement.name}" dropped')

    def drop(self, name: str) -> None:
        """Drop what a name stands for, unless something is built on it."""
        users = [e.name for e in self._catalog if name in used_names(e.statement) and e.name != name]
        if users:
            raise DuplicateNameError(f'"{name}" is used by {", ".join(users)}', hint=f"drop {users[0]} first")
        entry = self._catalog.require(name)
        self._jobs.end(name)
        # What a crash leaves behind after this is removed when the directory is opened again.
        self._catalog.remove(name)
        self._jobs.remove(entry)
        if isinstance(entry.statement, model.CreateTable):
            self._store.drop(name)

    @_do.register
    def _(self, statement: model.ReplayDeadLetters) -> Result:
        raise UnsupportedError("REPLAY DEAD LETTERS is not executed in this version")


def _loaded(job: Job) -> bool:
    """Whether rows came, or there are none. A first batch may be empty because a file was being written."""
    stats = job.stats
    return job.idle or stats.batches > 1 or (stats.batches > 0 and stats.records_in > 0)


def sink_name(statement: model.InsertIntoSink) -> str:
    """The name of a job that has none: what it writes to; a few digits tell places of equal name apart."""
    tail = statement.uri.rest.rstrip("/").rsplit("/", 1)[-1] or statement.uri.scheme
    digits = blake2b(str(statement.uri).encode(), digest_size=3).hexdigest()
    return f"insert-{''.join(c if c.isalnum() or c in '_-.' else '-' for c in tail)}-{digits}"


def _kind(statement: model.Statement) -> str:
    return type(statement).__name__.removeprefix("Create").upper()


def _without_replace(statement: model.Statement) -> str:
    return generate(statement).replace("CREATE OR REPLACE ", "CREATE ", 1)


def _difference(before: str, after: str) -> str:
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), after.splitlines(), "remembered", "now", lineterm="", n=1)
    return "\n".join(lines)
