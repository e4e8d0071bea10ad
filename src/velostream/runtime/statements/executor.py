"""Executes one bound statement."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import partial, singledispatchmethod
from threading import Event
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from velostream.connectors.waiting import Waiting
from velostream.engine.opening.connect import await_sink
from velostream.engine.opening.once import discovered, write_once
from velostream.errors import (
    DuplicateNameError,
    InternalError,
    JobError,
    SourceEmptyError,
    SqlError,
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
from velostream.plan.query.limit import few_at_a_time, limited
from velostream.plan.realtime import refusal
from velostream.plan.sinks import target
from velostream.runtime.answers import show as listing
from velostream.runtime.answers.explain import explain, warned
from velostream.runtime.answers.result import Result
from velostream.runtime.catalog.catalog import Made
from velostream.runtime.changing.altering import Altering
from velostream.runtime.changing.claims import Claims
from velostream.runtime.changing.group import dependents, group_of
from velostream.runtime.changing.replacing import Replacing, loaded, make_by_hand
from velostream.runtime.expiry_thread import LEAVING
from velostream.runtime.statements.dml import Dml, Params
from velostream.runtime.statements.earlier import MAKERS, changed, check_replaceable, check_unused
from velostream.runtime.statements.identity import (
    column_place,
    kind_of,
    made_name,
    quoted,
    same_but_replace,
    sink_name,
)
from velostream.runtime.statements.live_select import LiveSelect
from velostream.secrets import redact_statement, redact_uri
from velostream.spark.failures import translated
from velostream.sql.bind.parameters import with_values
from velostream.sql.dependencies import used_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from velostream.model.lifetime import Lifetime
    from velostream.runtime.answers.query import AdHoc
    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.changing.group import Group
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.jobs.jobs import Continuous, Draft, Jobs
    from velostream.runtime.statements.replay import Replays
    from velostream.serving.table.store import TableStore


log = structlog.get_logger("velostream.jobs")

DONE_BEFORE = "done before in this data directory"
"""The result message of a statement that ran in an earlier start of the same file."""


class Executor:
    """Executes statements; `tell` reports what a slow one waits for, and `note` what it does."""

    def __init__(
        self,
        catalog: Catalog,
        store: TableStore,
        jobs: Jobs,
        adhoc: AdHoc,
        tell: Callable[[str], None],
        note: Callable[[str], None],
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
        self._note = note
        self._made = made
        self._claims = Claims()
        self.stopping = Event()
        self._replacing = Replacing(catalog, store, jobs, tell, note, self.stopping)
        self._altering = Altering(catalog, store, jobs, self._replacing)

    @property
    def busy(self) -> bool:
        """Whether a statement is making or changing something; jobs may be stopped meanwhile."""
        return bool(self._claims)

    @while_open
    def run(
        self,
        statement: model.Statement,
        params: Params = None,
        *,
        identity: str | None = None,
        together: Mapping[str, Made] | None = None,
        once: bool = False,
    ) -> Result:
        """The result of a statement. `identity` marks DML that runs once per data directory.

        With `once`, INSERT INTO a URI writes what its sources have now, and no job goes on.
        `together`: statements that replace others at the same time, by folded name.
        """
        try:
            with translated():
                if once and isinstance(statement, model.InsertIntoSink):
                    result = self._write_once(statement, params, identity)
                else:
                    result = self._run(statement, params, identity, together or {})
                return replace(result, warnings=(*statement.warnings, *result.warnings))
        except UnknownNameError as error:
            # Some columns are known only after their source is opened.
            what, _, name = error.message.partition(' "')
            if what == "unknown column":
                error.at(column_place(name.rstrip('"'), statement))
            raise

    def _run(
        self, statement: model.Statement, params: Params, identity: str | None, together: Mapping[str, Made]
    ) -> Result:
        if isinstance(statement, (model.InsertInto, model.Update, model.Delete)):
            return self._change(statement, params, identity)
        if isinstance(statement, model.InsertIntoSink) and statement.once:
            return self._write_once(statement, params, identity)
        if isinstance(statement, model.SelectStatement):
            return self._select(statement, params)
        if isinstance(statement, model.ReplayDeadLetters):
            return self._replays.run(statement, params)
        if isinstance(statement, MAKERS):
            result = self._make(statement, together)
            self._made()
            written_out = _written_out(made_name(statement), statement)
            return replace(result, warnings=(*result.warnings, *written_out))
        return self._do(statement)

    # --- what makes something ---------------------------------------------------------------------------

    def _make(self, statement: Made, together: Mapping[str, Made]) -> Result:
        name = made_name(statement)
        entry = self._catalog.get(name)
        if entry is None or isinstance(statement, model.InsertIntoSink):
            with self._claims.making(name, used_names(statement), statement.location):
                return self._do(statement)
        if getattr(statement, "if_not_exists", False):
            return Result(message=f"{_what(statement)} exists already")
        if not getattr(statement, "or_replace", False):
            raise DuplicateNameError(
                f'"{name}" exists already',
                hint="drop it, or write CREATE OR REPLACE",
                location=statement.location,
            )
        check_replaceable(self._catalog, entry, statement, together)
        group = group_of(self._catalog, statement, together)
        with self._claims.changing({*group.names, name}, statement.location):
            if isinstance(statement, model.CreateStream):
                return self._do(statement)
            return self._replaced(group, statement)

    def _replaced(self, group: Group, statement: Made) -> Result:
        """Build the group beside the old one, which is served and kept up to date until all has loaded."""
        self._check_leaving(statement)
        plan = tuple(group.told(self._store))
        for line in plan:
            log.info("replace", plan=line)
            self._note(line)
        warnings = self._replacing.replace(group, self.await_loaded)
        if warnings is None:
            late = f"{_what(statement)} stays as it was: the new one had not loaded before the end"
            return Result(message=late, notes=plan)
        rebuilt = ", ".join(f'"{each.statement_name}"' for each in group.dependents)
        with_it = f", and with it {rebuilt}" if rebuilt else ""
        return Result(message=f"{_what(statement)} replaced{with_it}", warnings=warnings, notes=plan)

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
        self._jobs.leave(old)
        try:
            yield
        except BaseException:
            if job is not None and running:
                job.start()
            raise
        if job is not None:
            self._jobs.end(job.id)
        self._jobs.remove(old)

    @singledispatchmethod
    def _do(self, statement: model.Statement) -> Result:
        raise InternalError(f"no way to run {type(statement).__name__}")

    @_do.register
    def _(self, statement: model.CreateTable) -> Result:
        self._check_leaving(statement)
        if statement.query is not None:
            return self._create_job(statement, statement.name)
        entry = self._catalog.draft(statement, statement.name)
        entry = make_by_hand(self._catalog, self._store, self._jobs, entry, statement)
        try:
            self._catalog.put(entry)
        except BaseException:
            self._jobs.remove(entry)
            raise
        self._store.publish(statement.name, entry.edition)
        return Result(message=f"{_what(statement)} created")

    def _check_leaving(self, statement: Made) -> None:
        """Refuse properties by which rows would age out of a storage that keeps them."""
        if not isinstance(statement, model.CreateTable):
            return
        leaving = sorted(LEAVING & statement.properties.keys())
        storage = STORAGES[common_options(statement.properties).table_storage]
        if leaving and not storage.expires:
            raise UnsupportedError(
                f'rows of table "{statement.name}" cannot age out: a table in {storage.title} keeps its rows',
                hint=f'leave out "{leaving[0]}", or keep the table in memory: leave out "table.storage"',
                location=statement.location,
            )

    @_do.register
    def _(self, statement: model.CreateStream) -> Result:
        return self._create_job(statement, statement.name)

    @_do.register(model.CreateSource)
    @_do.register(model.CreateView)
    def _(self, statement: model.CreateSource | model.CreateView) -> Result:
        self._catalog.put(self._catalog.draft(statement, statement.name))
        return Result(message=f"{_what(statement)} created")

    @_do.register
    def _(self, statement: model.InsertIntoSink) -> Result:
        entry = self._catalog.get(sink_name(statement))
        if entry is None:
            made = self._create_job(statement, sink_name(statement))
            made_job = self._catalog.require(sink_name(statement)).job
            return replace(made, message=f"{made.message}; it writes new rows until DROP JOB {made_job}")
        if not same_but_replace(entry.statement, statement):
            raise changed(entry, statement)
        job = self._jobs.get(entry.name) or self._jobs.resume(entry)
        if not entry.paused:
            job.start()
            self.await_loaded(job)
        state = f"is {job.state}: RESUME JOB {job.id}" if entry.paused else f"goes on until DROP JOB {job.id}"
        return Result(message=f"{_what(statement)} was made before by this statement, and {state}")

    def _create_job(self, statement: Continuous, name: str) -> Result:
        old = self._catalog.get(name)
        try:
            draft = self._jobs.draft(statement, name, self._tell, self.stopping)
        except SourceEmptyError as empty:
            if old is not None or self._jobs.site.once or self.stopping.is_set():
                raise
            self._jobs.await_record(statement, name)
            return Result(message=f"{_what(statement)} created, and waits: {empty.message}")
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
        return Result(message=f"{_what(statement)} created", warnings=self._warned(draft))

    def _undo(self, name: str, error: VelostreamError) -> None:
        """Remove everything that was created; leftovers that the disk does not let us remove are logged."""
        try:
            self.drop(name)
        except StorageError:
            error.detail = f'"{name}" was made, and loads by itself when the cause is gone'

    def _warned(self, draft: Draft) -> tuple[str, ...]:
        schemas = draft.opened.columns.values()
        seen = quoted(draft.entry.statement, [name for schema in schemas for name in schema.names])
        found = (*warned(draft.opened.strategy), *seen)
        for warning in found:
            log.warning("job", job=draft.entry.name, reason=warning)
        return found

    def await_loaded(self, job: Job, *, patient: bool = True) -> None:
        """Wait until the job has processed what its sources had when it started, or has failed.

        A job that reads to the end is waited for until it has ended, so that jobs over its table see all
        rows. Not `patient`: a job whose source went away is not waited for.
        """
        once = self._jobs.site.once

        def done(job: Job) -> bool:
            unwell = job.state in (JobState.WAITING, JobState.DEGRADED)
            if not job.state.alive or self.stopping.is_set() or _unkept(job):
                return True
            if not once and (loaded(job) or self._awaits_record(job)):
                return True
            if unwell and job.info.reason is not None:
                self._tell(f'"{job.name}": {job.info.reason}')
            return not patient and job.state is JobState.DEGRADED

        job.wait(done)
        if job.state is JobState.FAILED or _unkept(job):
            raise job.error or JobError(f'job "{job.name}" failed')

    def _awaits_record(self, job: Job) -> bool:
        """Whether the columns of its source are not known yet, so that nothing can be loaded."""
        entry = self._catalog.get(job.name)
        return entry is not None and not entry.founded and job.state is JobState.WAITING

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

    def _write_once(self, statement: model.InsertIntoSink, params: Params, identity: str | None) -> Result:
        if identity is not None and self._catalog.done(identity):
            return Result(message=DONE_BEFORE)
        refused = refusal(statement)
        if refused is not None:
            raise refused
        site, uri = self._jobs.site, statement.uri
        self._jobs.check_written_by_one(statement)
        name = sink_name(statement)
        waiting = Waiting(self.stopping, self._tell, partial(site.attempts.count, name), name)
        await_sink(*target(statement), site.settings, waiting)
        with self._jobs.writing(identity) as folder:
            rows = self._dml.outgoing(
                statement,
                params,
                lambda: discovered(statement, site.settings, folder),
                lambda query: self._select(model.SelectStatement(query, text=statement.text), params).arrow(),
            )
            written = write_once(statement, rows, site.known(statement.query.tables), site.settings, folder)
            if identity is not None:
                self._catalog.mark_done(identity)
        if not written:
            return Result(message=DONE_BEFORE)
        count = f"{rows.num_rows:,} record{'' if rows.num_rows == 1 else 's'}"
        more = (
            "; EMIT CHANGES would go on with every change"
            if statement.once and statement.query.tables
            else ""
        )
        return Result(message=f"{count} written to {redact_uri(str(uri))}{more}")

    # --- questions --------------------------------------------------------------------------------------

    def _select(self, statement: model.SelectStatement, params: Params) -> Result:
        if not statement.query.continuous:
            return self._adhoc.answer(statement.query, params)
        if statement.query.limited:
            return self._select_some(statement, params)
        with LiveSelect(self._jobs.site, statement, params, once=True) as live:
            return Result(live.everything(), engine="spark")

    def _select_some(self, statement: model.SelectStatement, params: Params) -> Result:
        """The rows that LIMIT leaves of what the sources have now."""
        asked = limited(with_values(statement.query, params))
        rows = replace(statement, query=few_at_a_time(asked))
        with LiveSelect(self._jobs.site, rows, once=True) as live:
            versions = live.versions(asked.enough)
            ((name, version),) = versions.items()
            query = model.Query(asked.last(name, version.spec.visible), tables=(name,))
            return replace(self._adhoc.over(query, versions), engine="spark")

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
        lines = explain(statement.statement, self._jobs.site.known(names))
        return Result(pa.table({"plan": [*lines, *self._would_replace(statement.statement)]}))

    def _would_replace(self, statement: model.Statement) -> list[str]:
        """The lines of EXPLAIN CREATE OR REPLACE about what there is already."""
        known = self._catalog.get(made_name(statement)) if isinstance(statement, MAKERS) else None
        if known is None or not getattr(statement, "or_replace", False):
            return []
        try:
            assert isinstance(statement, Made)
            check_replaceable(self._catalog, known, statement)
            return group_of(self._catalog, statement).told(self._store)
        except VelostreamError as error:
            return [f"refused: {error.message}", *([f"  {error.hint}"] if error.hint else [])]

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
    def _(self, statement: model.RenameTable) -> Result:
        entry = self._catalog.require(statement.name)
        users = [each.name for each in dependents(self._catalog, [entry.name])]
        with self._claims.changing([entry.name, statement.to, *users], statement.location):
            rebuilt = self._altering.rename(statement, self.await_loaded)
        with_it = f"; built anew on it: {', '.join(rebuilt)}" if rebuilt else ""
        return Result(message=f'table "{entry.name}" is called "{statement.to}" now{with_it}')

    @_do.register
    def _(self, statement: model.SetProperties) -> Result:
        entry = self._catalog.require(statement.name)
        with self._claims.changing([entry.name], statement.location):
            changed = self._altering.set_properties(statement)
        names = ", ".join(statement.properties)
        return Result(message=f'{names} of table "{entry.name}" {"changed" if changed else "was so already"}')

    @_do.register
    def _(self, statement: model.AddColumn) -> Result:
        entry = self._catalog.require(statement.name)
        users = [each.name for each in dependents(self._catalog, [entry.name])]
        with self._claims.changing([entry.name, *users], statement.location):
            added = self._altering.add_column(statement)
        how = "added to" if added else "is there already in"
        return Result(message=f'column "{statement.column.name}" {how} table "{entry.name}"')

    @_do.register
    def _(self, statement: model.Drop) -> Result:
        entry = self._catalog.get(statement.name)
        if entry is None and statement.if_exists:
            return Result(message=f'"{statement.name}" does not exist')
        found = self._catalog.require(statement.name)
        with self._claims.changing([found.name], statement.location):
            self.drop(found.name)
        return Result(message=f'{statement.called or statement.kind} "{statement.name}" dropped')

    @_do.register
    def _(self, statement: model.DropJob) -> Result:
        job = self._jobs.get(statement.job)
        found = self._catalog.get(job.name if job is not None else statement.job)
        found = found or next((each for each in self._catalog if each.job == statement.job), None)
        if found is None:
            self._jobs.require(statement.job)
            raise UnknownNameError(f'job "{statement.job}" does not exist', location=statement.location)
        if not isinstance(found.statement, model.InsertIntoSink):
            kind = kind_of(found.statement)
            raise SqlError(
                f'job "{statement.job}" belongs to {kind.lower()} "{found.name}"',
                hint=f"write DROP {kind} {found.name}, or STOP JOB {statement.job}",
                location=statement.location,
            )
        with self._claims.changing([found.name], statement.location):
            self.drop(found.name)
        return Result(message=f'job "{found.name}" dropped; what it has written stays')

    def drop(self, name: str) -> None:
        """Drop the entity of a name, unless others depend on it."""
        check_unused(self._catalog, name)
        entry = self._catalog.require(name)
        self._jobs.end(name)
        # Leftovers of a crash after this point are removed when the directory is opened again.
        self._jobs.leave(entry)
        self._catalog.remove(name)
        self._jobs.remove(entry)


def _what(statement: model.Statement) -> str:
    """What a statement makes, as messages name it."""
    if isinstance(statement, model.InsertIntoSink):
        return f"job into {statement.uri}"
    return f'{kind_of(statement).lower()} "{made_name(statement)}"'


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
    return job.state is JobState.DEGRADED and isinstance(job.error, StorageError) and not loaded(job)
