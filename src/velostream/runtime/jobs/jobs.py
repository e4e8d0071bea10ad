"""The jobs of a database: created from statements, found by name or id, started, stopped, resumed."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

import structlog

from velostream.connectors.waiting import Waiting
from velostream.engine.build import Building
from velostream.engine.opening.connect import await_sink, sole_place
from velostream.engine.opening.open import open_statement
from velostream.engine.opening.retention import retention_of, stored, untouched
from velostream.engine.opening.sink import shown, sink_output
from velostream.engine.outputs.outputs import JobOutput, TableOutput
from velostream.engine.realtime.query import RealtimeOutput
from velostream.engine.realtime.work import RealtimeWork, realtime_output
from velostream.engine.replay.intent import Pending
from velostream.errors import (
    DataDirError,
    DuplicateNameError,
    JobError,
    SourceEmptyError,
    UnknownNameError,
    did_you_mean,
)
from velostream.model.jobs import JobState
from velostream.model.options import common_options
from velostream.model.statements import CreateStream, CreateTable, InsertIntoSink, Query, Statement
from velostream.model.table_storage import STORAGES
from velostream.plan.realtime import refusal, wants_realtime
from velostream.plan.sinks import target
from velostream.runtime.answers.explain import warned
from velostream.runtime.jobs.job import Job
from velostream.secrets import redact_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from threading import Event

    import pyarrow as pa

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.opening.opened_query import Opened
    from velostream.engine.site import Site
    from velostream.engine.work import Work
    from velostream.model.tables import Retention
    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.datadir import DataDirectory
    from velostream.runtime.jobs.releases import Releases

log = structlog.get_logger("velostream.jobs")

Continuous = CreateTable | CreateStream | InsertIntoSink


@dataclass(frozen=True)
class Draft:
    """A statement whose sources are open and whose query is planned, before anything is made of it."""

    entry: Entry
    opened: Opened


class Jobs:
    """Creates and holds the jobs of one database."""

    def __init__(
        self,
        site: Site,
        directory: DataDirectory,
        catalog: Catalog,
        dead_letters: DeadLetters | None,
        releases: Releases,
        on_change: Callable[[Job], None],
    ) -> None:
        self.site = site
        self._releases = releases
        self._directory = directory
        self._catalog = catalog
        self._dead_letters = dead_letters
        self._on_change = on_change
        self._jobs: dict[str, Job] = {}
        self._drafts: dict[str, Entry] = {}
        """Entries of jobs that build a replacement, by job id; the catalogue still has the old entry."""
        self._sites: dict[str, Site] = {}
        """How these jobs see tables that are not adopted yet, by job id."""
        self._drafts_lock = RLock()
        self._writing = RLock()
        """Held while a statement reserves the target it writes to."""

    def writing(self, identity: str | None) -> AbstractContextManager[Path]:
        """The folder of a statement that writes to a sink once."""
        return self._directory.writing(identity)

    def folder(self, job_id: str) -> Path:
        """The folder of a job's own files."""
        return self._directory.job(job_id)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def established(self) -> list[Job]:
        """The jobs of catalogue entries, hence at most one of each name."""
        return [job for job in self if job.id not in self._drafts]

    def get(self, name: str) -> Job | None:
        """The job with that id or name."""
        return self._jobs.get(name) or next((j for j in self.established() if j.name == name), None)

    def require(self, name: str) -> Job:
        """The job with that id or name; UnknownNameError names the nearest."""
        job = self.get(name)
        if job is None:
            names = [j.name for j in self._jobs.values()]
            raise UnknownNameError(
                f'job "{name}" does not exist',
                hint=did_you_mean(name, names)
                or (f"there is: {', '.join(names)}" if names else "no job runs"),
            )
        return job

    # --- making -----------------------------------------------------------------------------------------

    def draft(
        self,
        statement: Continuous,
        name: str,
        tell: Callable[[str], None],
        stop: Event,
        places: Mapping[str, tuple[str, int]] | None = None,
    ) -> Draft:
        """Open the sources of a statement and plan its query; nothing is left of it on failure.

        What the name stands for stays as it is until `create`. `places`: see `Site`.
        """
        entry = self._catalog.draft(statement, name, job=self._catalog.new_job(name))
        if places is not None:
            self._sites[entry.job or ""] = replace(self.site, places=dict(places))
        try:
            self._catalog.announce(entry)
            self.leave(entry)
            opened = self._open(entry, self._waiting(entry, stop, tell), resumed=False)
        except BaseException:
            self.remove(entry)
            raise
        return _drafted(entry, opened)

    def await_record(self, statement: Continuous, name: str) -> Job:
        """Start a job that waits for the first record of its source, then makes what it writes to."""
        entry = self._catalog.draft(statement, name, job=self._catalog.new_job(name))
        self._catalog.put(entry)
        return self._start(entry, None)

    @contextmanager
    def undone(self, draft: Draft) -> Iterator[None]:
        """Leave nothing of a draft whose block fails."""
        try:
            yield
        except BaseException:
            draft.opened.close()
            self.remove(draft.entry)
            raise

    def create(self, draft: Draft) -> JobOutput:
        """Make what a drafted statement writes to, and remember the statement."""
        with self._writing:
            output = self._make_output(draft.entry, draft.opened)
            self._catalog.put(draft.entry)
            self._releases.forget(draft.entry.job or "")
            return output

    def create_beside(self, draft: Draft) -> JobOutput:
        """Make the next edition of a table, which its name stands for once it is adopted."""
        output = self._make_output(draft.entry, draft.opened)
        with self._drafts_lock:
            self._drafts[draft.entry.job or ""] = draft.entry
        return output

    def start(self, draft: Draft, output: JobOutput) -> Job:
        """Start the job of a statement that was created."""
        return self._start(draft.entry, self.work(draft.entry, draft.opened, output))

    def adopt(self, entries: Sequence[Entry], *, gone: str | None = None) -> None:
        """Switch names to what was built for them: one write of the catalogue, one moment for readers.

        `gone`: a name that stands for nothing any more.
        """
        with self._drafts_lock:
            newest = [
                replace(self._drafts.get(each.job or "", each), paused=each.paused, text=each.text)
                for each in entries
            ]
            self._catalog.put(*newest, gone=gone)
            for each in newest:
                self._drafts.pop(each.job or "", None)
                self._releases.forget(each.job or "")
        tables = [each for each in newest if isinstance(each.statement, CreateTable)]
        self.site.store.publish_all({each.name: each.edition for each in tables})
        for each in newest:
            self._sites.pop(each.job or "", None)

    def discard(self, job: Job) -> None:
        """Stop a job that builds a replacement, and delete everything of it."""
        job.stop()
        with self._drafts_lock:
            entry = self._drafts.pop(job.id)
        del self._jobs[job.id]
        self.remove(entry)
        if self._dead_letters is not None:
            self._dead_letters.forget(job.id)

    def resume(self, entry: Entry) -> Job:
        """Start the job of a catalogue entry from its recorded position."""
        return self._start(entry, None)

    def _start(self, entry: Entry, ready: Work | None) -> Job:
        assert entry.job is not None
        job_id, statement = entry.job, _continuous(entry)
        job = Job(
            job_id,
            entry.name,
            _kind(statement),
            redact_statement(statement.text),
            self._directory.job(job_id),
            self.site.spark,
            self._reopen,
            ready=ready,
            once=self.site.once,
            on_change=self._on_change,
            clock=self.site.clock,
            lifetime=self.site.lifetime,
            pace=self.site.pace,
        )
        self._jobs[job_id] = job
        if entry.paused:
            return job
        job.start()
        return job

    def _reopen(self, job: Job) -> Work:
        entry = self._entry(job.id)
        waiting = self._waiting(entry, job.stopping, lambda reason: job.tell(JobState.WAITING, reason))
        if not entry.founded:
            return self._found(entry, job, waiting)
        opened = self._open(entry, waiting, resumed=True)
        if isinstance(entry.statement, CreateTable):
            self._fit_table(entry, opened)
        return self.work(entry, opened, self._output(entry, opened, resumed=True))

    def _found(self, entry: Entry, job: Job, waiting: Waiting) -> Work:
        """Wait for the record that tells the columns of a statement, and make what it writes to."""

        def tell(reason: str) -> None:
            job.tell(JobState.WAITING, reason)
            job.found_nothing()

        waiting = replace(waiting, tell=tell, first_record=not self.site.once)
        opened = self._open(entry, waiting, resumed=False)
        draft = _drafted(entry, opened)
        try:
            if isinstance(entry.statement, CreateTable):
                # Left by a process that ended between making the table and remembering it.
                with suppress(UnknownNameError, SourceEmptyError):
                    self.site.store.drop(entry.name, edition=entry.edition)
            with self._writing:
                output = self._make_output(draft.entry, opened)
                self._catalog.update(entry.name, columns=draft.entry.columns, result=draft.entry.result)
            for warning in warned(opened.strategy):
                log.warning("job", job=entry.name, reason=warning)
            return self.work(draft.entry, opened, output)
        except BaseException:
            opened.close()
            raise

    def _waiting(self, entry: Entry, stop: Event, tell: Callable[[str], None]) -> Waiting:
        return Waiting(stop, tell, partial(self.site.attempts.count, entry.name), entry.name)

    def _entry(self, job_id: str) -> Entry:
        found = self._drafts.get(job_id) or next((e for e in self._catalog if e.job == job_id), None)
        if found is None:
            raise JobError(f'job "{job_id}" was dropped')
        return found

    def _site(self, job_id: str) -> Site:
        return self._sites.get(job_id, self.site)

    def _update(self, job_id: str, **changes: object) -> None:
        with self._drafts_lock:
            entry = self._entry(job_id)
            if job_id in self._drafts:
                self._drafts[job_id] = replace(entry, **changes)  # type: ignore[arg-type]
            else:
                self._catalog.update(entry.name, **changes)

    def _open(self, entry: Entry, waiting: Waiting, *, resumed: bool) -> Opened:
        assert entry.job is not None
        statement = _continuous(entry)
        refused = refusal(statement, once=self.site.once)
        if refused is not None:
            raise refused
        if not isinstance(statement, CreateTable):
            await_sink(*target(statement), self.site.settings, waiting)
        return open_statement(
            self._site(entry.job),
            statement,
            self._directory.job(entry.job),
            known=entry.columns,
            reader=entry.job,
            waiting=waiting,
            resumed=resumed,
            narrowed=entry.narrowed,
        )

    def work(self, entry: Entry, opened: Opened, output: JobOutput) -> Work:
        """The work of a job: the steps that it runs, built from what was opened for it."""
        assert self._dead_letters is not None
        job_id = entry.job or ""

        def widen(source_id: str, schema: pa.Schema) -> None:
            self._update(job_id, columns={**self._entry(job_id).columns, source_id: schema})

        options = common_options(_continuous(entry).properties)
        if isinstance(output, RealtimeOutput):
            folder = self._directory.job(job_id) / "checkpoint"
            letters = self._dead_letters.of_job(job_id)
            return RealtimeWork(entry.name, job_id, opened, output, options, letters, folder)
        letters = self._dead_letters.of_job(job_id)
        outputs = [output, *(each.output for each in opened.kept)]
        outputs += [TableOutput(each) for each in (opened.table, opened.state) if each is not None]
        Pending(self._directory.job(job_id), job_id, letters).settle(outputs, self.site.clock())
        building = Building(
            entry.name,
            options,
            letters,
            widen,
            self.site.clock,
            patient=not self.site.once,
            every=_query(_continuous(entry)).emit.every,
        )
        return building.work(opened, output)

    # --- results ----------------------------------------------------------------------------------------

    def _make_output(self, entry: Entry, opened: Opened) -> JobOutput:
        """The output of a new job; creates its table."""
        if isinstance(entry.statement, CreateTable):
            kind = ", ".join(sorted({item.kind for item in opened.read.values()}))
            retention = _retention(entry, opened)
            storage = STORAGES[common_options(entry.statement.properties).table_storage]
            options = storage.options() | (retention.options() if retention is not None else {})
            if storage.in_memory and self.site.settings.memory_per_table:
                options["memory.budget"] = str(self.site.settings.memory_per_table)
            spec = opened.shape.spec(entry.name, options, kind, owner=entry.name)
            schema = stored(spec.schema, retention)
            spec = replace(
                spec, schema=schema, statement=self._catalog.secrets.hide(entry.text), job=entry.job
            )
            self.site.store.create(spec, edition=entry.edition)
        else:
            self.check_written_by_one(_continuous(entry), entry.name)
        return self._output(entry, opened, resumed=False)

    def check_written_by_one(self, statement: Statement, name: str | None = None) -> None:
        """Refuse a target that another statement writes to: neither would know the other's rows.

        `name` is what the statement itself is called in the catalogue, if it is there.
        """
        place = self._place(statement)
        for other in self._catalog:
            if place is None or other.name == name or self._place(other.statement) != place:
                continue
            raise DuplicateNameError(
                f'"{other.name}" writes to the same file already',
                hint=f"write to another place, or drop {other.name} first",
                location=statement.location,
            )

    def _place(self, statement: Statement) -> str | None:
        if not isinstance(statement, CreateStream | InsertIntoSink):
            return None
        return sole_place(*target(statement), self.site.settings)

    def _fit_table(self, entry: Entry, opened: Opened) -> None:
        """After a restart: widen the table where source columns have widened meanwhile."""
        table = self.site.store.open(entry.name, edition=entry.edition)
        schema = stored(opened.shape.physical, _retention(entry, opened))
        if table.spec.schema != schema:
            table.evolve(schema)
            self._update(entry.job or "", result=opened.shape.visible)

    def _output(self, entry: Entry, opened: Opened, *, resumed: bool) -> JobOutput:
        statement = _continuous(entry)
        if isinstance(statement, CreateTable):
            return TableOutput(self.site.store.open(entry.name, edition=entry.edition))
        assert entry.job is not None
        folder = self._directory.job(entry.job) / "sink"
        if wants_realtime(statement):
            return realtime_output(statement, entry.job, folder, opened, self.site.settings, resumed=resumed)
        letters = self._dead_letters.of_job(entry.job) if self._dead_letters is not None else None
        settings = self.site.settings
        return sink_output(
            statement, entry.name, entry.job, folder, opened, settings, letters, resumed=resumed
        )

    # --- ending -----------------------------------------------------------------------------------------

    def end(self, name: str) -> None:
        """Stop the job of a statement that is about to be dropped."""
        job = self.get(name)
        if job is not None:
            job.stop()
            del self._jobs[job.id]

    def leave(self, entry: Entry) -> None:
        """Note what the job of an entry made outside, or will make: to be removed unless the entry stays."""
        if entry.job is not None:
            self._releases.note(entry.job, _query(_continuous(entry)).sources)

    def remove(self, entry: Entry) -> None:
        """Delete the table and the files of the ended job of a dropped statement.

        Files that cannot be deleted now are deleted when the directory is opened again, as the catalogue
        records.
        """
        if entry.job is not None:
            for name in _query(_continuous(entry)).tables:
                with suppress(UnknownNameError, SourceEmptyError, DataDirError):
                    self._site(entry.job).table(name).release_reader(entry.job)
            self._sites.pop(entry.job, None)
            if self._releases.release(entry.job, _query(_continuous(entry)).sources):
                shutil.rmtree(self._directory.job(entry.job), ignore_errors=True)
        if isinstance(entry.statement, CreateTable):
            with suppress(UnknownNameError, SourceEmptyError, DataDirError, OSError):
                self.site.store.drop(entry.name, edition=entry.edition)
        self._catalog.retract(entry)

    def stop_all(self) -> None:
        """Stop every job after its current batch, all at the same time."""
        for job in self:
            job.stopping.set()
        for job in self:
            if job.state.alive:
                job.stop()


def _drafted(entry: Entry, opened: Opened) -> Draft:
    return Draft(replace(entry, columns=opened.columns, result=shown(opened.shape.visible)), opened)


def _kind(statement: Continuous) -> str:
    return {CreateTable: "table", CreateStream: "stream", InsertIntoSink: "insert"}[type(statement)]


def _continuous(entry: Entry) -> Continuous:
    assert isinstance(entry.statement, Continuous)
    return entry.statement


def _query(statement: Continuous) -> Query:
    query = statement.query
    assert query is not None
    return query


def _retention(entry: Entry, opened: Opened) -> Retention | None:
    """The retention of a statement's table."""
    options = common_options(_continuous(entry).properties)
    kept = retention_of(options, opened.shape.visible)
    return kept if kept is not None or opened.below is not None else untouched(options, opened)
