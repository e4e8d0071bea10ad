"""The database: one data directory, its tables and jobs, and the entry point for Python programs."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import structlog

from velostream import sql as front
from velostream.config import Settings, load
from velostream.connectors.registry import default_registry
from velostream.engine.bad_rows import dead_letters
from velostream.engine.bad_rows.dead_letters import DeadLetters
from velostream.engine.bad_rows.letter import edition as letters_edition
from velostream.engine.inputs.spreading import Strategies
from velostream.engine.opening.connect import columns_of
from velostream.engine.site import Site
from velostream.engine.storages import spark_storages
from velostream.errors import (
    ClosedError,
    SourceEmptyError,
    SparkEndedError,
    SqlError,
    StorageError,
    TableError,
    UnknownNameError,
    VelostreamError,
)
from velostream.location import SourceText
from velostream.model import statements as model
from velostream.model.health import WELL
from velostream.model.jobs import JobInfo, JobState
from velostream.model.lifetime import Lifetime, while_open
from velostream.model.options import common_options
from velostream.runtime import logs
from velostream.runtime.answers.query import AdHoc
from velostream.runtime.answers.result import Result
from velostream.runtime.catalog.catalog import open_catalog
from velostream.runtime.changing.altering import fit_all
from velostream.runtime.datadir import DataDirectory
from velostream.runtime.expiry_thread import ExpiryThread
from velostream.runtime.jobs.jobs import Jobs
from velostream.runtime.jobs.releases import Releases
from velostream.runtime.shortcuts import Shortcuts
from velostream.runtime.socket.server import ControlServer, listen
from velostream.runtime.statements.executor import Executor
from velostream.runtime.statements.live_select import FOLDER, LiveSelect
from velostream.runtime.statements.read_only import refuse_change
from velostream.runtime.statements.replay import Replays
from velostream.runtime.udfs import Udfs
from velostream.secrets import redact_uri
from velostream.serving.table.store import TableStore
from velostream.sql.bind import parameters
from velostream.sql.check import in_turn

if TYPE_CHECKING:
    from datetime import timedelta
    from tempfile import TemporaryDirectory
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.runtime.catalog.catalog import Entry
    from velostream.runtime.jobs.job import Job
    from velostream.serving.contract.table import Table
    from velostream.serving.durable.verification import TableReport

log = structlog.get_logger("velostream.database")

F = TypeVar("F", bound=Callable[..., Any])

_GRACE = 1.0
"""Seconds that calls of other threads may take to end by themselves when the database closes."""
_PATIENCE = 30.0
"""Seconds that they may take once Spark has stopped; their later writes are refused."""


def open_instance(data_dir: str | os.PathLike[str], **settings: Any) -> Instance:
    """Open a data directory and resume its jobs, with these settings over those of the configuration file."""
    return Instance(load(None, data_dir=data_dir, **settings))


def runnable(checked: front.Checked, *, bound: bool = False) -> tuple[model.Statement, ...]:
    """The statements of a text; raises its first error; unless `bound`, a missing parameter is one."""
    run = [s for s in checked.statements if not bound and not isinstance(s, model.Explain)]
    for error in (*checked.errors, *parameters.check(run, {})):
        raise error
    return checked.statements


class Instance(Shortcuts):
    """One open data directory. Close it, or use it in a `with` statement.

    Users hold a `velostream.api.database.Database` in front of it, or one in front of another process.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        once: bool = False,
        resume: bool = True,
        read_only: bool = False,
        tell: Callable[[str], None] = lambda _: None,
        note: Callable[[str], None] = lambda _: None,
        on_job: Callable[[Job], None] = lambda _: None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        pace: timedelta | None = None,
    ) -> None:
        self.settings = settings
        self.directory = DataDirectory(settings.data_dir)
        self.read_only = read_only
        self._log = None
        logs.silence()
        if not read_only:
            self.directory.hold()
        self._spark: SparkSession | None = None
        self._spark_lock = threading.Lock()
        self._scratch: TemporaryDirectory[str] | None = None
        self._spark_stopped = False
        self.lifetime = Lifetime()
        self._closing = threading.RLock()
        self.udfs = Udfs()
        self.strategies = Strategies()
        self._control: ControlServer | None = None
        self._releases: Releases | None = None
        try:
            if not read_only:
                self._log = logs.log_to(self.directory.logs, settings.log_level)
            self.catalog = open_catalog(self.directory, read_only=read_only)
            releases = self._releases = Releases(
                self.directory.root,
                self.directory.job,
                self.catalog.secrets,
                settings,
                read_only=read_only,
            )
            if not read_only:
                self._remove_leftovers(releases)
            editions = {
                entry.name: entry.edition
                for entry in self.catalog
                if isinstance(entry.statement, model.CreateTable) and entry.founded
            }
            editions[dead_letters.NAME] = letters_edition(self.directory.tables)
            self.store = TableStore(
                self.directory.tables, read_only=read_only, editions=editions, clock=clock
            )
            self.store.awaited = self.catalog.awaited
            self.store.budget.total = settings.memory_total
            if not read_only:
                fit_all(self.catalog, self.store)
            self._storages = spark_storages(self._session, settings.conf, self.store.questions, clock)
            self.store.storages |= self._storages
            self.adhoc = AdHoc(self.store, self._session)
            tmp = None if read_only else self.directory.tmp
            site = Site(
                settings,
                self.store,
                self._session,
                self._storages,
                once,
                tmp,
                clock=clock,
                pace=pace,
                lifetime=self.lifetime,
                strategies=self.strategies,
            )
            self.dead_letters = None
            if not read_only:
                self.dead_letters = DeadLetters(
                    self.store,
                    retention=settings.dead_letters_retention,
                    most_bytes=settings.dead_letters_memory,
                )
                self.catalog.establish()
            self.jobs_by_name = Jobs(
                site,
                self.directory,
                self.catalog,
                self.dead_letters,
                releases,
                self._job_changed,
            )
            self._on_job = on_job
            self._expiry = ExpiryThread(self.catalog, self.store, clock, self.dead_letters)
            replays = Replays(self.catalog, self.jobs_by_name, self.dead_letters, self.adhoc)
            self.executor = Executor(
                self.catalog,
                self.store,
                self.jobs_by_name,
                self.adhoc,
                tell,
                note,
                self._expiry.look,
                replays,
                self.lifetime,
            )
        except BaseException:
            self._let_go()
            raise
        try:
            if not read_only:
                self._control = listen(self)
            if resume and not read_only:
                self.resume()
            if not read_only:
                self._expiry.look()
                releases.retry()
        except BaseException:
            self.close()
            raise

    def _remove_leftovers(self, releases: Releases) -> None:
        """Delete leftovers of crashed statements, and the temporary folders of SELECTs."""
        needed = releases.open(entry.job for entry in self.catalog if entry.job is not None)
        self.catalog.others = releases.texts
        self.directory.remove(self.catalog.unfinished - {f"jobs/{job.partition('/')[0]}" for job in needed})
        for left in self.directory.tmp.glob(f"{FOLDER}*"):
            shutil.rmtree(left, ignore_errors=True)

    @while_open
    def resume(self) -> None:
        """Start every job of the catalogue that is not paused and whose Python functions are registered."""
        for entry in self.catalog:
            ready = set(entry.udfs) <= set(self.udfs.names()) and self._has_strategies(entry)
            if ready and entry.job is not None and self.jobs_by_name.get(entry.job) is None:
                job = self.jobs_by_name.resume(entry)
                if self.jobs_by_name.site.once:
                    # In the order of creation: with `once`, a job's inputs are complete before it starts.
                    job.wait(lambda j: not j.state.alive or self.executor.stopping.is_set())

    # --- SQL --------------------------------------------------------------------------------------------

    @while_open
    def sql(self, text: str, params: Mapping[str, Any] | Iterable[Any] | None = None) -> Result:
        """Run one or more statements; returns the result of the last one.

        `params` bind `:name` (a mapping) or `?` (a sequence). A SELECT over a source reads the rows that are
        there and ends; `stream` follows it.
        """
        bound = params if params is None or isinstance(params, Mapping) else tuple(params)
        result, warnings = Result(), tuple[str, ...]()
        for statement in self.statements(text, bound):
            result = self.executor.run(statement, bound)
            warnings += result.warnings
        return replace(result, warnings=warnings)

    def statements(
        self,
        text: str,
        params: Mapping[str, Any] | tuple[Any, ...] | None = None,
        *,
        read_only: bool = False,
    ) -> Iterator[model.Statement]:
        """The statements of a text to run one after the other: what follows an ALTER is bound after it.

        With `read_only`, and in a database opened for reading, one that changes something is refused.
        """
        for part in in_turn(text) if params is None else [text]:
            found = self.check(part, params=params)
            for statement in found if read_only or self.read_only else ():
                refuse_change(statement)
            yield from found

    @while_open
    def check(
        self, text: str, name: str = "<sql>", params: Mapping[str, Any] | tuple[Any, ...] | None = None
    ) -> tuple[model.Statement, ...]:
        """Parse and bind; raises the first error, including a parameter without a value."""
        return runnable(self.checked(text, name, params), bound=params is not None)

    @while_open
    def checked(
        self, text: str, name: str = "<sql>", params: Mapping[str, Any] | tuple[Any, ...] | None = None
    ) -> front.Checked:
        """Parse and bind; returns every correct statement and every error.

        Sources are asked for their columns only where an error says more with them.
        """
        bind = partial(
            front.check_script,
            SourceText(text, name),
            self.catalog,
            default_registry(),
            udfs=self.udfs.names(),
            environment=os.environ,
            params=params,
        )
        found = bind()
        return bind(discover=self._columns) if found.guessed else found

    def _columns(self, ref: model.SourceRef) -> tuple[str, ...] | None:
        try:
            return columns_of(ref, self.settings)
        except VelostreamError as error:
            log.info("columns", source=redact_uri(str(ref.uri)), reason=error.message)
            return None

    @while_open
    def stream(
        self,
        text: str,
        params: Mapping[str, Any] | Iterable[Any] | None = None,
        *,
        once: bool = False,
        left: threading.Event | None = None,
    ) -> LiveSelect:
        """Follow a SELECT: `with db.stream("SELECT …") as live: for added, removed in live: …`.

        Over a source: rows as they arrive. Over tables: the rows of now, then every change of the result.
        `left` is set when its reader has left.
        """
        bound = params if params is None or isinstance(params, Mapping) else tuple(params)
        (statement,) = self.check(text, params=bound)
        if not isinstance(statement, model.SelectStatement):
            raise SqlError("only a SELECT can be followed", location=statement.location)
        return LiveSelect(self.jobs_by_name.site, statement, bound, once=once, left=left)

    def _check_open(self) -> None:
        self.lifetime.check()

    # --- tables -----------------------------------------------------------------------------------------

    @while_open
    def table(self, name: str) -> Table:
        """A table by name."""
        entry = self.catalog.get(name)
        if entry is None and name not in self.store.names():
            self.catalog.require(name)
        if entry is not None and not isinstance(entry.statement, model.CreateTable):
            raise TableError(f'"{name}" is not a table', hint="select from it with sql()")
        return self.store.open(entry.name if entry is not None else name)

    @while_open
    def verify(self) -> list[TableReport]:
        """Check every durable file of every table; damage is reported, not raised."""
        return [self.store.verify(name) for name in self.store.names()]

    # --- jobs -------------------------------------------------------------------------------------------

    @while_open
    def jobs(self) -> list[JobInfo]:
        """Every job with its state and statistics."""
        return [job.info for job in self.jobs_by_name]

    @while_open
    def job(self, name: str) -> Job:
        """A job by name or id."""
        return self.jobs_by_name.require(name)

    @while_open
    def wait_idle(self, timeout: float = 60.0) -> bool:
        """Wait until every running job has processed all that its sources have now; False on timeout."""
        import time

        deadline = time.monotonic() + timeout
        while True:
            before = [(job, job.stats.batches, job.quiet_looks) for job in self.jobs_by_name]
            for job, _, looks in before:
                # The poll in progress may have begun before the newest rows: only the one after it counts.
                if not job.wait(_quiet_since(looks + 1), max(0.0, deadline - time.monotonic())):
                    return False
            self.lifetime.check()
            if all(job.stats.batches == batches for job, batches, _ in before):
                return True

    def _job_changed(self, job: Job) -> None:
        entry = self.catalog.get(job.name)
        if entry is not None and entry.job == job.id and isinstance(entry.statement, model.CreateTable):
            # A job may not have created its table yet, or may close it as it ends.
            with suppress(UnknownNameError, SourceEmptyError, ClosedError):
                table = self.store.readable(job.name)
                if table is not None:
                    table.set_health(*_health(job))
        self._on_job(job)

    # --- functions --------------------------------------------------------------------------------------

    @while_open
    def udf(self, function: F | None = None, *, returns: str | None = None, name: str | None = None) -> Any:
        """Register a Python function for SQL: `@db.udf` or `@db.udf(returns="decimal(10,2)")`."""
        if function is None:
            return lambda f: self.udf(f, returns=returns, name=name)
        self.udfs.add(function, returns, name)
        if self._spark is not None:
            self.udfs.register(self._spark)
        for storage in self._storages.values():
            if storage.root is not None:
                self.udfs.register(storage.root)
        if not self.read_only:
            self.resume()
        return function

    @while_open
    def partition_strategy(self, name: str, function: Callable[[pa.RecordBatch, int], Any]) -> None:
        """Register a partition strategy for the rows of a source: `"partition.strategy" = "name"`.

        The function gets a record batch and the number of partitions, and returns an integer for each row.
        Rows with the same integer, modulo the number of partitions, are processed by the same task.
        """
        self.strategies.add(name, function)
        if not self.read_only:
            self.resume()

    def _has_strategies(self, entry: Entry) -> bool:
        query = getattr(entry.statement, "query", None)
        refs = query.sources if isinstance(query, model.Query) else ()
        return all(self.strategies.known(common_options(r.properties).partition_strategy) for r in refs)

    # --- Spark ------------------------------------------------------------------------------------------

    @while_open
    def spark(self) -> SparkSession:
        """The Spark session, started on first use; SparkEndedError when Spark has died since."""
        return self._session()

    def _session(self) -> SparkSession:
        """Like `spark`, but also for jobs that finish their batch while the database closes."""
        from velostream.spark.session import running, start_session

        with self._spark_lock:
            if self._spark_stopped:
                raise self.lifetime.error()
            if self._spark is None:
                self._spark = start_session(self.settings.master, self.settings.conf, self._spark_folder())
                self.udfs.register(self._spark)
            elif not running(self._spark):
                raise SparkEndedError
            return self._spark

    @while_open
    def tasks(self) -> tuple[int, int]:
        """Progress of Spark's current stages: finished tasks, and all tasks."""
        from velostream.spark.session import tasks

        spark = self._spark
        return tasks(spark) if spark is not None else (0, 0)

    def _spark_folder(self) -> Path:
        """The folder for Spark's log and temporary files; a reader does not write to the data directory."""
        if not self.read_only:
            return self.directory.root
        import tempfile

        self._scratch = tempfile.TemporaryDirectory(prefix="velostream-", ignore_cleanup_errors=True)
        return Path(self._scratch.name)

    # --- end --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop every job after its current batch, stop Spark, release the directory.

        From its first moment every other call raises ClosedError, including calls in progress in other
        threads. Idempotent: a second call waits until the first is done.
        """
        with self._closing:
            if not self.lifetime.end("the database is closed", hint="open it again: velostream.connect(…)"):
                return
            self.executor.stopping.set()
            # In the reverse order of opening; each step runs even if an earlier one failed.
            with ExitStack() as steps:
                for step in (
                    self._let_go,
                    self.catalog.close,
                    self.store.close,
                    lambda: self.lifetime.drained(_PATIENCE),
                    self.jobs_by_name.stop_all,
                    self._stop_spark,
                    self.adhoc.interrupt,
                    lambda: self.lifetime.drained(_GRACE),
                    self.jobs_by_name.stop_all,
                    self._expiry.stop,
                    self._interrupt_selects,
                    self._control.close if self._control is not None else lambda: None,
                ):
                    steps.callback(_done, step)

    def _interrupt_selects(self) -> None:
        for select in list(self.jobs_by_name.site.selects):
            select.interrupt()

    def _stop_spark(self) -> None:
        with self._spark_lock:
            self._spark_stopped = True
            if self._spark is not None:
                from velostream.spark.session import stop_session

                stop_session(self._spark)
        if self._scratch is not None:
            self._scratch.cleanup()

    def _let_go(self) -> None:
        if self._releases is not None:
            self._releases.close()
        if self._log is not None:
            logs.stop(self._log)
        self.directory.release()

    def __enter__(self) -> Instance:
        self.lifetime.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _done(step: Callable[[], object]) -> None:
    """Run one step of closing; errors of the disk do not prevent the next steps."""
    try:
        step()
    except (OSError, StorageError) as exc:
        log.warning("closing", reason=str(exc))


def _quiet_since(looks: int) -> Callable[[Job], bool]:
    return lambda job: job.quiet_looks > looks or not job.state.alive


def _health(job: Job) -> tuple[str, str | None]:
    unwell = (JobState.WAITING, JobState.DEGRADED, JobState.FAILED)
    return job.health if job.state in unwell else WELL
