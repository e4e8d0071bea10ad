"""Executes one bound statement."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import singledispatchmethod
from threading import Event, Lock
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from velostream.engine.opening.retention import retention_of, stored
from velostream.errors import (
    DuplicateNameError,
    InternalError,
    JobError,
    StorageError,
    UnknownNameError,
    UnsupportedError,
    VelostreamError,
)
from velostream.model import statements as model
from velostream.model.jobs import JobState
from velostream.model.lifetime import while_open
from velostream.model.options import common_options
from velostream.model.table_storage import STORAGES
from velostream.model.tables import TableSpec
from velostream.runtime.expiry_thread import LEAVING
from velostream.runtime.statements import show as listing
from velostream.runtime.statements.dml import Dml, Params
from velostream.runtime.statements.earlier import MAKERS, check_replaceable, check_unused, made_name
from velostream.runtime.statements.explain import explain, warned
from velostream.runtime.statements.identity import (
    column_place,
    kind_of,
    sink_name,
)
from velostream.runtime.statements.live_select import LiveSelect
from velostream.runtime.statements.result import Result
from velostream.secrets import redact_statement
from velostream.spark.failures import translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from velostream.model.lifetime import Lifetime
    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.jobs.registry import Continuous, Draft, Jobs
    from velostream.runtime.statements.query import AdHoc
    from velostream.runtime.statements.replay import Replays
    from velostream.serving.table.store import TableStore


log = structlog.get_logger("velostream.jobs")

DONE_BEFORE = "done before in this data directory"
"""The result message of a statement that ran in an earlier start of the same file."""


class Executor:
    """Executes statements; `tell` reports progress of slow ones."""

    def __init__(
        self,
        catalog: Catalog,
        store: TableStore,
        jobs: Jobs,
        adhoc: AdHoc,
        tell: Callable[[str], None],
        made: Callable[[], None],
        replays: Replays,
        lifetime: Lifetime,
    ) -> None:
        self.lifetime = lifetime
        self._replays = replays
        self._catalog = catalog
        self._store = store
        self._jobs = jobs
        self._adhoc = adhoc
        self._dml = Dml(store, adhoc)
        self._tell = tell
        self._made = made
        self._making: set[str] = set()
        self._making_lock = Lock()
        self.stopping = Event()

    @while_open
    def run(
        self, statement: model.Statement, params: Params = None, *, identity: str | None = None
    ) -> Result:
        """The result of a statement. `identity` marks DML that runs once per data directory."""
        try:
            with translated():
                result = self._run(statement, params, identity)
                return replace(result, warnings=(*statement.warnings, *result.warnings))
        except UnknownNameError as error:
            # Some columns are known only after their source is opened.
            what, _, name = error.message.partition(' "')
            if what == "unknown column":
                error.at(column_place(name.rstrip('"'), statement))
            raise

    def _run(self, statement: model.Statement, params: Params, identity: str | None) -> Result:
        if isinstance(statement, (model.InsertInto, model.Update, model.Delete)):
            return self._change(statement, params, identity)
        if isinstance(statement, model.SelectStatement):
            return self._select(statement, params)
        if isinstance(statement, model.ReplayDeadLetters):
            return self._replays.run(statement, params)
        if isinstance(statement, MAKERS):
            name = made_name(statement)
            with self._claimed(name, statement):
                result = self._do(statement)
            self._made()
            return replace(result, warnings=(*result.warnings, *_written_out(name, statement)))
        return self._do(statement)

    # --- what makes something ---------------------------------------------------------------------------

    def _exists(self, statement: model.Statement, name: str) -> bool:
        """Whether IF NOT EXISTS finds nothing to do; raises when the name is taken."""
        entry = self._catalog.get(name)
        if entry is None:
            return False
        if getattr(statement, "or_replace", False):
            check_replaceable(self._catalog, entry.name, statement)
            return False
        if getattr(statement, "if_not_exists", False):
            return True
        raise DuplicateNameError(
            f'"{name}" exists already',
            hint="drop it, or write CREATE OR REPLACE",
            location=statement.location,
        )

    @contextmanager
    def _room(self, name: str) -> Iterator[None]:
        """Replaces the entity of that name: dropped when the block succeeds, kept unchanged when it fails.

        The block puts the new entry into the catalogue, as its last step that can fail.
        """
        old = self._catalog.get(name)
        if old is None:
            yield
            return
        check_unused(self._catalog, old.name)
        job = self._jobs.get(old.job) if old.job is not None else None
        running = job is not None and job.state.alive
        if job is not None and running:
            job.stop()
        try:
            yield
        except BaseException:
            if job is not None and running:
                job.start()
            raise
        if job is not None:
            self._jobs.end(job.id)
        self._jobs.remove(old)

    @contextmanager
    def _claimed(self, name: str, statement: model.Statement) -> Iterator[None]:
        """Reserve the name until the block has ended, so that no other thread creates it."""
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
        if self._exists(statement, statement.name):
            return Result(message=f'table "{statement.name}" exists already')
        leaving = sorted(LEAVING & statement.properties.keys())
        storage = STORAGES[common_options(statement.properties).table_storage]
        if leaving and not storage.expires:
            raise UnsupportedError(
                f'rows of table "{statement.name}" cannot age out: a table in {storage.title} keeps its rows',
                hint=f'leave out "{leaving[0]}", or keep the table in memory: leave out "table.storage"',
                location=statement.location,
            )
        if statement.query is not None:
            return self._create_job(statement, statement.name, f'table "{statement.name}"')
        schema = pa.schema([pa.field(column.name, column.type) for column in statement.columns])
        entry = replace(self._catalog.draft(statement, statement.name), result=schema)
        retention = retention_of(common_options(statement.properties), schema)
        options = storage.options() | (retention.options() if retention is not None else {})
        spec = TableSpec(
            statement.name, stored(schema, retention), statement.key, options, statement=entry.text
        )
        with self._room(statement.name):
            self._catalog.announce(entry)
            try:
                self._store.create(spec, edition=entry.edition)
                self._catalog.put(entry)
            except BaseException:
                self._jobs.remove(entry)
                raise
            self._store.publish(statement.name, entry.edition)
        return Result(message=f'table "{statement.name}" created')

    @_do.register
    def _(self, statement: model.CreateStream) -> Result:
        if self._exists(statement, statement.name):
            return Result(message=f'stream "{statement.name}" exists already')
        return self._create_job(statement, statement.name, f'stream "{statement.name}"')

    @_do.register(model.CreateSource)
    @_do.register(model.CreateView)
    def _(self, statement: model.CreateSource | model.CreateView) -> Result:
        what = f'{kind_of(statement).lower()} "{statement.name}"'
        if self._exists(statement, statement.name):
            return Result(message=f"{what} exists already")
        with self._room(statement.name):
            self._catalog.put(self._catalog.draft(statement, statement.name))
        return Result(message=f"{what} created")

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
        return self._create_job(statement, name, f"job into {statement.uri}")

    def _create_job(self, statement: Continuous, name: str, what: str) -> Result:
        old = self._catalog.get(name)
        if old is not None and isinstance(statement, model.CreateTable):
            return self._replace_table(statement, name, what)
        draft = self._jobs.draft(statement, name, self._tell, self.stopping)
        with self._jobs.undone(draft), self._room(name):
            output = self._jobs.create(draft)
        job = self._jobs.start(draft, output)
        try:
            self.await_loaded(job)
        except VelostreamError as error:
            # The replaced entity is gone already: a failed job that shows its reason is better than nothing.
            if old is None:
                self._undo(name, error)
            raise
        return Result(message=f"{what} created", warnings=self._warned(draft))

    def _undo(self, name: str, error: VelostreamError) -> None:
        """Remove everything that was created; leftovers that the disk does not let us remove are logged."""
        try:
            self.drop(name)
        except StorageError:
            error.detail = f'"{name}" was made, and loads by itself when the cause is gone'

    def _replace_table(self, statement: model.CreateTable, name: str, what: str) -> Result:
        """Fill the new table beside the old one, which is served and kept up to date until it is loaded."""
        draft = self._jobs.draft(statement, name, self._tell, self.stopping)
        with self._jobs.undone(draft):
            output = self._jobs.create_beside(draft)
        job = self._jobs.start(draft, output)
        try:
            self.await_loaded(job)
            if job.state is JobState.FINISHED or _loaded(job):
                with self._room(name):
                    self._jobs.adopt(job)
                return Result(message=f"{what} replaced", warnings=self._warned(draft))
            if not self.stopping.is_set():
                raise JobError(f"{what} stays as it was: the new one was stopped before it had loaded")
        except BaseException:
            self._jobs.discard(job)
            raise
        self._jobs.discard(job)
        return Result(message=f"{what} stays as it was: the new one had not loaded before the end")

    def _warned(self, draft: Draft) -> tuple[str, ...]:
        found = warned(draft.opened.strategy)
        for warning in found:
            log.warning("job", job=draft.entry.name, reason=warning)
        return found

    def await_loaded(self, job: Job) -> None:
        """Wait until the job has processed what its sources had when it started, or has failed.

        A job that reads to the end is waited for until it has ended, so that jobs over its table see all
        rows.
        """
        once = self._jobs.site.once
        job.wait(
            lambda j: not j.state.alive or self.stopping.is_set() or _unkept(j) or (not once and _loaded(j))
        )
        if job.state is JobState.FAILED or _unkept(job):
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
        # The commit is durable before the catalogue records it, so a crash in
        # between is detected here, by the statement's mark in the commit. Later
        # commits by hand carry the mark on, until another statement sets its own.
        last = self._store.open(table).last_commit
        mark = last.extra.get("statement") if last is not None else None
        if mark is not None and not self._catalog.done(mark):
            self._catalog.mark_done(mark)
        return self._catalog.done(identity)

    # --- questions --------------------------------------------------------------------------------------

    def _select(self, statement: model.SelectStatement, params: Params) -> Result:
        if not statement.query.continuous:
            return self._adhoc.answer(statement.query, params)
        with LiveSelect(self._jobs.site, statement, params, once=True) as live:
            return Result(live.everything(), engine="spark")

    @_do.register
    def _(self, statement: model.Show) -> Result:
        return Result(listing.show(statement, self._catalog, self._store, self._jobs))

    @_do.register
    def _(self, statement: model.ShowCreate) -> Result:
        return Result(pa.table({"statement": [redact_statement(self._catalog.require(statement.name).text)]}))

    @_do.register
    def _(self, statement: model.Describe) -> Result:
        return Result(listing.describe(statement.name, self._catalog, self._store))

    @_do.register
    def _(self, statement: model.Explain) -> Result:
        query = getattr(statement.statement, "query", None)
        names = query.tables if isinstance(query, model.Query) else ()
        return Result(pa.table({"plan": explain(statement.statement, self._jobs.site.known(names))}))

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
        if job.ending:
            how = "pauses" if pause else "stops"
            return Result(message=f'job "{job.name}" {how} when the batch in hand is done')
        return Result(message=f'job "{job.name}" {"paused" if pause else "stopped"}')

    def _control_asleep(self, entry: Entry, action: model.JobAction) -> Result:
        """Record pause, resume or stop for a job that this process did not start."""
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
        """Drop the entity of a name, unless others depend on it."""
        check_unused(self._catalog, name)
        entry = self._catalog.require(name)
        self._jobs.end(name)
        # Leftovers of a crash after this point are removed when the directory is opened again.
        self._catalog.remove(name)
        self._jobs.remove(entry)


def _written_out(name: str, statement: model.Statement) -> tuple[str, ...]:
    """The warning for a secret written out in the statement, which is stored so that the job can resume."""
    if redact_statement(statement.text) == statement.text:
        return ()
    return (
        f'the statement of "{name}" holds a secret, which is kept in secrets.json, a file for you alone: '
        "write ${env:NAME} or ${file:path} instead",
    )


def _unkept(job: Job) -> bool:
    """Whether the disk refuses the job's data, so that waiting for it would never end."""
    return job.state is JobState.DEGRADED and isinstance(job.error, StorageError) and not _loaded(job)


def _loaded(job: Job) -> bool:
    """Whether rows were read, or there are none: a first batch may be empty while a file is being written."""
    stats = job.stats
    return job.idle or stats.batches > 1 or (stats.batches > 0 and stats.records_in > 0)
