"""A followed SELECT: its rows as they arrive and change, for as long as somebody reads."""

from __future__ import annotations

import queue
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.waiting import Waiting
from velostream.disk.full_disk import storing
from velostream.disk.private import make_folder
from velostream.engine.bad_rows.dead_letters import DeadLetters
from velostream.engine.build import Building
from velostream.engine.opening.connect import release_sources
from velostream.engine.opening.open import open_statement
from velostream.engine.outputs.outputs import JobOutput, ReaderOutput, TableOutput
from velostream.errors import JobError
from velostream.model.changes import Commit
from velostream.model.jobs import JobState
from velostream.model.lifetime import Lifetime
from velostream.model.options import common_options
from velostream.model.tables import TableSpec
from velostream.plan.realtime import refusal
from velostream.runtime.jobs.job import Job
from velostream.serving.table.schemas import align
from velostream.serving.table.store import TableStore
from velostream.sql.bind.parameters import with_values

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence
    from threading import Event
    from types import TracebackType

    from velostream.engine.site import Site
    from velostream.engine.work import Work
    from velostream.model.statements import SelectStatement
    from velostream.runtime.statements.dml import Params
    from velostream.serving.contract.table import Table
    from velostream.serving.contract.version import TableVersion

NAME = "select"
FOLDER = "select-"
"""Prefix of the temporary folders of SELECTs."""


class LiveSelect:
    """Runs a continuous SELECT in a folder that is deleted with it.

    Rows of a stateless query are passed on and not kept; a grouped query maintains a table, `table`, as its
    live view.
    """

    def __init__(
        self,
        site: Site,
        statement: SelectStatement,
        params: Params = None,
        *,
        once: bool = False,
        left: Event | None = None,
    ) -> None:
        self._left = left
        """Set when the reader has left, perhaps before the columns of the source were known."""
        refused = refusal(statement)
        if refused is not None:
            raise refused
        self.lifetime = Lifetime(within=site.lifetime)
        with storing(site.tmp or tempfile.gettempdir()):
            if site.tmp is not None:
                make_folder(site.tmp)
            self._folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=site.tmp))
        self._reader = f"select-{self._folder.name}"
        self._store = TableStore(self._folder / "tables")
        self._site = replace(site, once=once)
        self._statement = statement
        self.query = with_values(statement.query, params)
        self._begun = False
        self._output: JobOutput | None = None
        self._known: dict[str, pa.Schema] = {}
        """Columns of sources that turned out wider than discovered."""
        self.schema: pa.Schema | None = None
        self.job = Job(
            NAME,
            NAME,
            "select",
            statement.text,
            self._folder / "job",
            site.spark,
            self._open,
            once=once,
            lifetime=self.lifetime,
            pace=site.pace,
        )

    def _open(self, job: Job) -> Work:
        options = common_options(self._statement.properties)
        opened = open_statement(
            self._site,
            replace(self._statement, query=self.query),
            self._folder / "job",
            known=self._known,
            reader=self._reader,
            waiting=Waiting(
                job.stopping,
                lambda reason: job.tell(JobState.WAITING, reason),
                name=NAME,
                first_record=not self._site.once,
            ),
        )
        self.schema = opened.shape.visible
        if self._output is None:
            # A table may retract any row of the result, and then others of its key may replace it.
            if opened.plan.passing and self.query.continuous:
                self._output = ReaderOutput()
            else:
                self._output = TableOutput(
                    self._store.create(opened.shape.spec(NAME, {}, "select", owner=NAME))
                )
        elif isinstance(self._output, TableOutput):
            self._output.table.evolve(opened.shape.physical)
        building = Building(
            NAME,
            options,
            DeadLetters(self._store),
            self._known.__setitem__,
            self._site.clock,
            every=self.query.emit.every,
        )
        return building.work(opened, self._output)

    @property
    def table(self) -> Table | None:
        """The live view of a grouped query; None for a stateless one."""
        return self._output.table if isinstance(self._output, TableOutput) else None

    def __enter__(self) -> LiveSelect:
        for _ in self.begin():
            pass
        return self

    def begin(self) -> Generator[str]:
        """Start, unless it has started; each reason for waiting, until its sources are there.

        Ends also when the reader has left. What was started is stopped when it fails, or is closed before.
        """
        self.lifetime.check()
        if self._begun:
            return
        with self.lifetime.use():
            self._begun = True
            self._site.selects.add(self)
            self.job.start()
        try:
            yield from self._reasons()
            self._raise_failure(self._left)
        except BaseException:
            # An interrupt does not wait until Spark has started: the job sees the stop when it has.
            self._end(timeout=1.0)
            raise

    def _reasons(self) -> Iterator[str]:
        told: str | None = None

        def news(job: Job) -> bool:
            waits = job.state in {JobState.STARTING, JobState.WAITING}
            return not waits or self._gone or job.info.reason not in (None, told)

        while True:
            self.job.wait(news)
            if self.job.state is not JobState.WAITING or self._gone:
                return
            told = self.job.info.reason
            if told is not None:
                yield told

    @property
    def _gone(self) -> bool:
        return self._left is not None and self._left.is_set()

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def interrupt(self, timeout: float = 30.0) -> None:
        """Stop the job and end its reader's iteration; leaving the `with` cleans up."""
        self._drain()
        self.job.stop(timeout=timeout)

    def _end(self, timeout: float = 30.0) -> None:
        self.lifetime.end("the SELECT has ended", hint="follow it again: db.stream(…)")
        self.interrupt(timeout)
        self._site.selects.discard(self)
        self._store.close()
        release_sources(self.query.sources, self._site.settings, self._folder / "job", self._reader)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _drain(self) -> None:
        """Empty the queue, so that a batch blocked on its reader (backpressure) can end."""
        self.job.stopping.set()
        if isinstance(self._output, ReaderOutput):
            self._output.abandon()

    def __iter__(self) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        return self.batches()

    def batches(self, stop: Event | None = None) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        """Rows added and rows retracted, until the job ends or `stop` is set.

        Raises ClosedError when the database was closed meanwhile, or the `with` was left.
        """
        self.lifetime.check()
        if isinstance(self._output, ReaderOutput):
            yield from self._passing(self._output, stop)
        elif isinstance(self._output, TableOutput):
            yield from self._kept(self._output.table, stop)

    def _passing(
        self, output: ReaderOutput, stop: Event | None
    ) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        while stop is None or not stop.is_set():
            ended = not self.job.state.alive
            try:
                yield output.batches.get(timeout=0.1)
            except queue.Empty:
                if ended:
                    break
        self._raise_failure(stop)

    def _kept(self, table: Table, stop: Event | None) -> Iterator[tuple[pa.Table, pa.Table | None]]:
        from velostream.engine.inputs.inputs import split_weights

        seen = 0
        while stop is None or not stop.is_set():
            ended = not self.job.state.alive
            version = table.version
            if version > seen:
                yield split_weights(table.changes_between(seen, version))
                seen = version
            elif ended:
                break
            else:
                self._await_version(table, seen)
        self._raise_failure(stop)

    def _await_version(self, table: Table, seen: int) -> None:
        self.job.wait(lambda job: table.version > seen or not job.state.alive, 0.1)

    def versions(self, enough: int | None = None) -> Mapping[str, TableVersion]:
        """The rows of a SELECT that ends, in a table for questions; not many more than `enough`, if given."""
        if self.table is None:
            rows = self._first(enough) if enough is not None else self.everything()
            made = self._store.create(TableSpec(NAME, rows.schema))
            made.commit_rows(rows, None, Commit(NAME, 0, {}, self._site.clock()))
        else:
            self.everything()
        return self._store.versions([NAME])

    def _first(self, most: int) -> pa.Table:
        parts: list[pa.Table] = []
        for added, _ in self.batches():
            parts.append(added)
            if sum(part.num_rows for part in parts) >= most:
                break
        return self._together(parts).slice(0, most)

    def everything(self) -> pa.Table:
        """All rows of a SELECT that ends (started with `once`)."""
        self.lifetime.check()
        self.job.wait(lambda job: not job.state.alive or self._waiting_rows())
        if isinstance(self._output, TableOutput):
            self.job.wait(lambda job: not job.state.alive)
            self._raise_failure(whole=True)
            return self._output.table.snapshot()
        parts = [added for added, _ in self.batches()]
        self._raise_failure(whole=True)
        return self._together(parts)

    def _together(self, parts: Sequence[pa.Table]) -> pa.Table:
        schema = self.schema
        assert schema is not None
        # Columns may have widened after the first rows.
        return (
            pa.concat_tables(align(part, schema, NAME) for part in parts) if parts else schema.empty_table()
        )

    def _waiting_rows(self) -> bool:
        return isinstance(self._output, ReaderOutput) and not self._output.batches.empty()

    def _raise_failure(self, stop: Event | None = None, *, whole: bool = False) -> None:
        if stop is None or not stop.is_set():
            self.lifetime.check()
        never_opened = self.schema is None and self.job.error is not None and not self._gone
        if self.job.state is JobState.FAILED or never_opened:
            raise self.job.error or JobError("the SELECT failed")
        if whole and self.job.stopping.is_set():
            raise JobError("the SELECT was stopped before it had read everything")
