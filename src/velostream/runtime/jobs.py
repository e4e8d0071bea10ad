"""The jobs of a database: made from statements, found by name or id, started, stopped, restarted."""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from velostream.errors import UnknownNameError, UnsupportedError, VelostreamError, did_you_mean
from velostream.model.jobs import JobState
from velostream.model.statements import CreateStream, CreateTable, InsertIntoSink, Properties, Query
from velostream.model.uri import Uri
from velostream.plan.plans import RowsPlan
from velostream.runtime.blueprint import Opened, Site, open_query
from velostream.runtime.job import Job, Work
from velostream.runtime.opening import common_options, key_of, open_sink
from velostream.runtime.outputs import JobOutput, SinkOutput, TableOutput
from velostream.runtime.pipeline import Pipeline
from velostream.runtime.work import ContinuousWork

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from threading import Event

    import pyarrow as pa

    from velostream.runtime.catalog import Catalog, Entry
    from velostream.runtime.datadir import DataDirectory
    from velostream.runtime.dead_letters import DeadLetters

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

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._jobs.values()))

    def get(self, name: str) -> Job | None:
        """The job with that id or name."""
        return self._jobs.get(name) or next((j for j in self._jobs.values() if j.name == name), None)

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

    def create(self, statement: Continuous, name: str, tell: Callable[[str], None], stop: Event) -> Job:
        """Check the statement against its sources, make what it needs, remember it, and start its job."""
        job_id = self._catalog.new_job(name)
        folder = self._directory.job(job_id)
        try:
            opened = self._open(statement, name, job_id, {}, stop, tell)
            if isinstance(statement, CreateTable):
                self._make_table(statement, name, opened)
            output = self._output(statement, name, job_id, opened)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            with suppress(VelostreamError):
                self.site.store.drop(name)
            raise
        self._catalog.add(statement, name, job=job_id)
        entry = self._catalog.update(name, columns=opened.columns, result=opened.shape.visible)
        ready = self._work(statement, name, opened, output)
        return self._start(entry, statement, ready)

    def resume(self, entry: Entry) -> Job:
        """Start the job of a remembered statement where it was."""
        statement = entry.statement
        assert isinstance(statement, Continuous)
        return self._start(entry, statement, None)

    def _start(self, entry: Entry, statement: Continuous, ready: Work | None) -> Job:
        assert entry.job is not None
        job_id, name = entry.job, entry.name
        prepared = [ready] if ready is not None else []

        def open_work(job: Job) -> Work:
            return prepared.pop() if prepared else self._reopen(job, name)

        job = Job(
            job_id,
            name,
            _kind(statement),
            statement.text,
            self._directory.job(job_id),
            self.site.spark,
            open_work,
            once=self.site.once,
            on_change=self._on_change,
        )
        self._jobs[job_id] = job
        if entry.paused:
            return job
        job.start()
        return job

    def _reopen(self, job: Job, name: str) -> Work:
        entry = self._catalog.require(name)
        statement = entry.statement
        assert isinstance(statement, Continuous)

        def tell(reason: str) -> None:
            job.tell(JobState.WAITING, reason)

        opened = self._open(statement, name, job.id, entry.columns, job.stopping, tell)
        if isinstance(statement, CreateTable):
            self._fit_table(name, opened)
        return self._work(statement, name, opened, self._output(statement, name, job.id, opened))

    def _open(
        self,
        statement: Continuous,
        name: str,
        job_id: str,
        known: Mapping[str, pa.Schema],
        stop: Event,
        tell: Callable[[str], None],
    ) -> Opened:
        query = _query(statement)
        is_table = isinstance(statement, CreateTable)
        declared: tuple[tuple[str, pa.DataType], ...] = ()
        if isinstance(statement, CreateTable) and statement.columns:
            declared = tuple((column.name, column.type) for column in statement.columns)
        return open_query(
            self.site,
            query,
            key_of(statement.properties, statement.key) if isinstance(statement, CreateTable) else (),
            self._directory.job(job_id),
            known=known,
            table=is_table,
            reader=job_id,
            stop=stop,
            tell=tell,
            declared=declared,
        )

    def _work(self, statement: Continuous, name: str, opened: Opened, output: JobOutput) -> Work:
        assert self._dead_letters is not None
        pipeline = Pipeline(opened.spark, opened.plan, opened.shape, opened.inputs, output)
        return ContinuousWork(
            name,
            pipeline,
            opened.inputs,
            output,
            common_options(statement.properties),
            self._dead_letters,
            lambda source, schema: self._widen(name, source, schema),
        )

    def _widen(self, name: str, source_id: str, schema: pa.Schema) -> None:
        entry = self._catalog.require(name)
        self._catalog.update(name, columns={**entry.columns, source_id: schema})

    # --- results ----------------------------------------------------------------------------------------

    def _make_table(self, statement: CreateTable, name: str, opened: Opened) -> None:
        kind = ", ".join(sorted({item.kind for item in opened.inputs.all.values()}))
        options = {}
        if self.site.settings.memory_per_table:
            options["memory.budget"] = str(self.site.settings.memory_per_table)
        self.site.store.create(opened.shape.spec(name, options, kind, owner=name))

    def _fit_table(self, name: str, opened: Opened) -> None:
        """After a restart: columns that widened meanwhile widen the table."""
        table = self.site.store.open(name)
        if table.spec.schema != opened.shape.physical:
            table.evolve(opened.shape.physical)
            self._catalog.update(name, result=opened.shape.visible)

    def _output(self, statement: Continuous, name: str, job_id: str, opened: Opened) -> JobOutput:
        if isinstance(statement, CreateTable):
            return TableOutput(self.site.store.open(name))
        uri, properties = _target(statement)
        if not isinstance(opened.plan, RowsPlan):
            raise UnsupportedError(
                f"{uri.scheme}:// can only be appended to, and rows of this query change after they came",
                hint="make a table of the query: CREATE TABLE name AS SELECT …",
                location=statement.location,
            )
        folder = self._directory.job(job_id) / "sink"
        sink = open_sink(uri, properties, self.site.settings, folder, opened.shape.visible, opened.shape.key)
        return SinkOutput(sink, folder / "journal")

    # --- ending -----------------------------------------------------------------------------------------

    def end(self, name: str) -> None:
        """Stop the job of a statement that is about to be dropped."""
        job = self.get(name)
        if job is not None:
            job.stop()
            del self._jobs[job.id]

    def remove(self, entry: Entry) -> None:
        """Delete what the ended job of a dropped statement kept."""
        if entry.job is None or not isinstance(entry.statement, Continuous):
            return
        for name in _query(entry.statement).tables:
            self.site.store.open(name).release_reader(entry.job)
        shutil.rmtree(self._directory.job(entry.job), ignore_errors=True)

    def stop_all(self) -> None:
        """Stop every job after the batch in hand, all at the same time."""
        for job in self:
            job.stopping.set()
        for job in self:
            if job.state.alive:
                job.stop()


def _kind(statement: Continuous) -> str:
    return {CreateTable: "table", CreateStream: "stream", InsertIntoSink: "insert"}[type(statement)]


def _query(statement: Continuous) -> Query:
    query = statement.query
    assert query is not None
    return query


def _target(statement: CreateStream | InsertIntoSink) -> tuple[Uri, Properties]:
    if isinstance(statement, InsertIntoSink):
        return statement.uri, statement.properties
    return Uri(statement.properties.get("sink", "console://")), statement.properties
