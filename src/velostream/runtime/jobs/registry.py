"""The jobs of a database: made from statements, found by name or id, started, stopped, restarted."""

from __future__ import annotations

import shutil
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING

import structlog

from velostream.engine.bad_rows.replay.intent import Pending
from velostream.engine.build import continuous_work, whole_work
from velostream.engine.connect import await_sink, sole_place
from velostream.engine.kept.properties import retention_of, stored, untouched
from velostream.engine.open import open_kept, open_query, open_retained
from velostream.engine.outputs.outputs import JobOutput, TableOutput
from velostream.engine.outputs.sink import shown, sink_output
from velostream.engine.realtime.query import RealtimeOutput
from velostream.engine.realtime.work import RealtimeWork, realtime_output
from velostream.errors import (
    DataDirError,
    DuplicateNameError,
    JobError,
    UnknownNameError,
    UnsupportedError,
    did_you_mean,
)
from velostream.model.jobs import JobState
from velostream.model.options import common_options, key_of
from velostream.model.statements import CreateStream, CreateTable, InsertIntoSink, Query
from velostream.plan.planner import NeedsColumns
from velostream.plan.realtime_rules import refusal, wants_realtime
from velostream.plan.sinks import Writing, keeps_result, only_added, outgoing, target
from velostream.plan.strategy import decide
from velostream.runtime.jobs.job import Job
from velostream.secrets import redact_statement
from velostream.serving.table.store import STORAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path
    from threading import Event

    import pyarrow as pa

    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.opened import Opened
    from velostream.engine.site import Site
    from velostream.engine.stages import LiveInput
    from velostream.engine.step import ContinuousWork
    from velostream.engine.work import Work
    from velostream.model.tables import Retention
    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.datadir import DataDirectory

log = structlog.get_logger("velostream.jobs")

Continuous = CreateTable | CreateStream | InsertIntoSink


class Jobs:
    """Makes and keeps the jobs of one database."""

    def __init__(
        self,
        site: Site,
        directory: DataDirectory,
        catalog: Catalog,
        dead_letters: DeadLetters | None,
        on_change: Callable[[Job], None],
    ) -> None:
        self.site = site
        self._directory = directory
        self._catalog = catalog
        self._dead_letters = dead_letters
        self._on_change = on_change
        self._jobs: dict[str, Job] = {}
        self._drafts: dict[str, Entry] = {}
        """Entries of jobs that build a replacement, by job id; until then the catalogue has the old entry."""
        self._drafts_lock = RLock()
        self._writing = RLock()
        """Held while a statement claims what it writes to."""

    def folder(self, job_id: str) -> Path:
        """Where a job keeps what is its own."""
        return self._directory.job(job_id)

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def established(self) -> list[Job]:
        """The jobs of what the catalogue holds, so one of each name."""
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

    def create(
        self,
        statement: Continuous,
        name: str,
        tell: Callable[[str], None],
        stop: Event,
        room: AbstractContextManager[None],
    ) -> Job:
        """Check the statement against its sources, make what it needs, remember it, and start its job.

        `room` is entered when the sources are open and the query is planned: until then, and if anything
        fails later, what the name stands for stays as it is.
        """
        with self._drafted(statement, name, tell, stop) as (entry, opened), room, self._writing:
            output = self._make_output(entry, opened)
            self._catalog.put(entry)
        return self._start(entry, self.work(entry, opened, output))

    def build_beside(
        self, statement: CreateTable, name: str, tell: Callable[[str], None], stop: Event
    ) -> Job:
        """Start a job that fills the next edition of a table, until `adopt` or `discard`."""
        with self._drafted(statement, name, tell, stop) as (entry, opened):
            output = self._make_output(entry, opened)
        with self._drafts_lock:
            self._drafts[entry.job or ""] = entry
        return self._start(entry, self.work(entry, opened, output))

    def adopt(self, job: Job) -> None:
        """From now on the name of the job stands for what it built."""
        with self._drafts_lock:
            entry = self._drafts[job.id]
            self._catalog.put(entry)
            del self._drafts[job.id]
        self.site.store.publish(entry.name, entry.edition)

    def discard(self, job: Job) -> None:
        """End a job that builds a replacement, and leave nothing of it."""
        job.stop()
        with self._drafts_lock:
            entry = self._drafts.pop(job.id)
        del self._jobs[job.id]
        self.remove(entry)
        if self._dead_letters is not None:
            self._dead_letters.forget(job.id)

    @contextmanager
    def _drafted(
        self, statement: Continuous, name: str, tell: Callable[[str], None], stop: Event
    ) -> Iterator[tuple[Entry, Opened]]:
        """An entry whose sources are open and whose query is planned; nothing is left of it on failure."""
        entry = self._catalog.draft(statement, name, job=self._catalog.new_job(name))
        opened: Opened | None = None
        try:
            self._catalog.announce(entry)
            opened = self._open(entry, stop, tell, resumed=False)
            yield replace(entry, columns=opened.columns, result=shown(opened.shape.visible)), opened
        except BaseException:
            if opened is not None:
                opened.close()
            self.remove(entry)
            raise

    def resume(self, entry: Entry) -> Job:
        """Start the job of a remembered statement where it was."""
        return self._start(entry, None)

    def _start(self, entry: Entry, ready: Work | None) -> Job:
        assert entry.job is not None
        job_id, statement = entry.job, _continuous(entry)
        prepared = [ready] if ready is not None else []

        def open_work(job: Job) -> Work:
            return prepared.pop() if prepared else self._reopen(job)

        job = Job(
            job_id,
            entry.name,
            _kind(statement),
            redact_statement(statement.text),
            self._directory.job(job_id),
            self.site.spark,
            open_work,
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
        def tell(reason: str) -> None:
            job.tell(JobState.WAITING, reason)

        entry = self._entry(job.id)
        opened = self._open(entry, job.stopping, tell, resumed=True)
        if isinstance(entry.statement, CreateTable):
            self._fit_table(entry, opened)
        return self.work(entry, opened, self._output(entry, opened, resumed=True))

    def _entry(self, job_id: str) -> Entry:
        found = self._drafts.get(job_id) or next((e for e in self._catalog if e.job == job_id), None)
        if found is None:
            raise JobError(f'job "{job_id}" was dropped')
        return found

    def _update(self, job_id: str, **changes: object) -> None:
        with self._drafts_lock:
            entry = self._entry(job_id)
            if job_id in self._drafts:
                self._drafts[job_id] = replace(entry, **changes)  # type: ignore[arg-type]
            else:
                self._catalog.update(entry.name, **changes)

    def _open(self, entry: Entry, stop: Event, tell: Callable[[str], None], *, resumed: bool) -> Opened:
        assert entry.job is not None
        statement = _continuous(entry)
        refused = refusal(statement, once=self.site.once)
        if refused is not None:
            raise refused
        if isinstance(statement, CreateTable):
            return self._open_table(entry, statement, stop, tell, resumed=resumed)
        await_sink(*target(statement), self.site.settings, stop, tell)
        return self._open_writing(entry, statement, stop, tell, resumed=resumed)

    def _open_writing(
        self, entry: Entry, statement: Writing, stop: Event, tell: Callable[[str], None], *, resumed: bool
    ) -> Opened:
        """A statement that writes to a sink, opened once unless Spark's types make it another plan."""
        assert entry.job is not None
        query = outgoing(_query(statement))
        retracts, beside = self._decided(entry, statement)
        opened = self._open_query(entry, query, stop, tell, table=retracts, beside=beside, resumed=resumed)
        try:
            kept = keeps_result(statement, opened.plan)
            # Rows that are written once, when they are final, cannot be retracted.
            if (retracts, beside) != (kept and not only_added(opened.plan), kept):
                retracts = kept and not only_added(opened.plan)
                opened.close()
                opened = self._open_query(
                    entry, query, stop, tell, table=retracts, beside=kept, resumed=resumed
                )
            forgets = untouched(common_options(statement.properties), opened)
            if not kept:
                return opened
            folder = self._directory.job(entry.job)
            return open_kept(self.site, opened, folder, entry.job, forgets, table=False, resumed=resumed)
        except BaseException:
            opened.close()
            raise

    def _decided(self, entry: Entry, statement: Writing) -> tuple[bool, bool]:
        """Whether sources retract rows, and whether the result is kept beside the job, as far as is known."""
        try:
            strategy = decide(statement, self.site.known(_query(statement).tables, entry.columns))
        except (NeedsColumns, UnsupportedError):
            # What is wrong is told by whoever opens it, with all columns at hand.
            return False, False
        return strategy.retracts, strategy.beside

    def _open_table(
        self,
        entry: Entry,
        statement: CreateTable,
        stop: Event,
        tell: Callable[[str], None],
        *,
        resumed: bool,
    ) -> Opened:
        assert entry.job is not None
        options = common_options(statement.properties)
        opened = self._open_query(entry, _query(statement), stop, tell, table=True, resumed=resumed)
        try:
            forgets = untouched(options, opened)
            if options.retention is None:
                return opened
            retention_of(options, opened.shape.visible)
            folder = self._directory.job(entry.job)
            return open_retained(self.site, opened, folder, entry.job, forgets, resumed=resumed)
        except BaseException:
            opened.close()
            raise

    def _open_query(
        self,
        entry: Entry,
        query: Query,
        stop: Event,
        tell: Callable[[str], None],
        *,
        table: bool,
        resumed: bool,
        beside: bool = False,
    ) -> Opened:
        assert entry.job is not None
        statement = _continuous(entry)
        key: tuple[str, ...] = ()
        declared: tuple[tuple[str, pa.DataType], ...] = ()
        if isinstance(statement, CreateTable):
            key = key_of(statement.properties, statement.key)
            declared = tuple((column.name, column.type) for column in statement.columns)
        return open_query(
            self.site,
            query,
            key,
            self._directory.job(entry.job),
            known=entry.columns,
            table=table,
            materialized=isinstance(statement, CreateTable),
            reader=entry.job,
            stop=stop,
            tell=tell,
            options=common_options(statement.properties),
            declared=declared,
            beside=beside,
            resumed=resumed,
        )

    def work(self, entry: Entry, opened: Opened, output: JobOutput) -> Work:
        """The work of a job, of what was opened for it."""
        assert self._dead_letters is not None
        job_id = entry.job or ""

        def widen(source_id: str, schema: pa.Schema) -> None:
            self._update(job_id, columns={**self._entry(job_id).columns, source_id: schema})

        options = common_options(_continuous(entry).properties)
        if isinstance(output, RealtimeOutput):
            folder = self._directory.job(job_id) / "checkpoint"
            letters = self._dead_letters.of_job(job_id)
            return RealtimeWork(entry.name, job_id, opened, output, options, letters, folder)
        letters, patient = self._dead_letters, not self.site.once
        watched = [each.inputs for each in opened.live]
        pending = Pending(self._directory.job(job_id), job_id, letters)

        def continuous(part: Opened | LiveInput, output: JobOutput) -> ContinuousWork:
            kept = output.table.name if part is not opened and isinstance(output, TableOutput) else ""
            return continuous_work(
                entry.name,
                part,
                output,
                options,
                letters.of_job(job_id, kept),
                widen,
                clock=self.site.clock,
                patient=patient,
                watched=watched,
                every=_query(_continuous(entry)).emit.every,
            )

        outputs = [output, *(each.output for each in opened.live)]
        outputs += [TableOutput(each) for each in (opened.table, opened.state) if each is not None]
        pending.settle(outputs, self.site.clock())
        return whole_work(opened, output, options, self.site.clock, continuous)

    # --- results ----------------------------------------------------------------------------------------

    def _make_output(self, entry: Entry, opened: Opened) -> JobOutput:
        """The output of a new job; a table is made."""
        if isinstance(entry.statement, CreateTable):
            kind = ", ".join(sorted({item.kind for item in opened.read.values()}))
            retention = _retention(entry, opened)
            options = retention.options() if retention is not None else {}
            if common_options(entry.statement.properties).table_storage == "delta":
                options[STORAGE] = "delta"
            elif self.site.settings.memory_per_table:
                options["memory.budget"] = str(self.site.settings.memory_per_table)
            spec = opened.shape.spec(entry.name, options, kind, owner=entry.name)
            schema = stored(spec.schema, retention)
            spec = replace(
                spec, schema=schema, statement=self._catalog.secrets.hide(entry.text), job=entry.job
            )
            self.site.store.create(spec, edition=entry.edition)
        else:
            self._check_written_by_one(entry)
        return self._output(entry, opened, resumed=False)

    def _check_written_by_one(self, entry: Entry) -> None:
        """Refuse a place that another statement writes to: neither would know the other's rows."""
        place = self._place(entry)
        for other in self._catalog:
            if place is None or other.name == entry.name or self._place(other) != place:
                continue
            raise DuplicateNameError(
                f'"{other.name}" writes to the same file already',
                hint=f"write to another place, or drop {other.name} first",
                location=entry.statement.location,
            )

    def _place(self, entry: Entry) -> str | None:
        if not isinstance(entry.statement, CreateStream | InsertIntoSink):
            return None
        return sole_place(*target(entry.statement), self.site.settings)

    def _fit_table(self, entry: Entry, opened: Opened) -> None:
        """After a restart: columns that widened meanwhile widen the table."""
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

    def remove(self, entry: Entry) -> None:
        """Delete the table and what the ended job of a dropped statement kept.

        What cannot be deleted now is when the directory is opened again, since the catalogue says so.
        """
        if entry.job is not None:
            for name in _query(_continuous(entry)).tables:
                with suppress(UnknownNameError, DataDirError):
                    self.site.store.open(name).release_reader(entry.job)
            shutil.rmtree(self._directory.job(entry.job), ignore_errors=True)
        if isinstance(entry.statement, CreateTable):
            with suppress(UnknownNameError, DataDirError, OSError):
                self.site.store.drop(entry.name, edition=entry.edition)
        self._catalog.retract(entry)

    def stop_all(self) -> None:
        """Stop every job after the batch in hand, all at the same time."""
        for job in self:
            job.stopping.set()
        for job in self:
            if job.state.alive:
                job.stop()


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
    """How rows leave the table of a statement."""
    options = common_options(_continuous(entry).properties)
    kept = retention_of(options, opened.shape.visible)
    return kept if kept is not None or opened.below is not None else untouched(options, opened)
