"""Runs one case in one way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.bad_rows import dead_letters
from velostream.errors import CaseError, CaseFailedError, TableError, VelostreamError, did_you_mean
from velostream.model.columns import ENTERED, WEIGHT
from velostream.model.jobs import JobState
from velostream.model.statements import CreateSource, CreateTable, Query
from velostream.runtime.expiry_thread import LEAVING
from velostream.runtime.instance import Instance
from velostream.testing import cases
from velostream.testing.comparison import letter_line, letters_differ, rows_differ
from velostream.testing.connector import LOOK, NAME, Stage, written_files
from velostream.testing.given_log import Entry, GivenLog, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.location import Location
    from velostream.model.statements import SourceRef
    from velostream.serving.contract.table import Table
    from velostream.testing.bench import Bench

_LOOKS = (
    cases.ExpectRows,
    cases.ExpectChanges,
    cases.ExpectWritten,
    cases.ExpectDeadLetters,
    cases.ExpectError,
)


class CaseRun:
    """Raises CaseFailedError where an expectation fails, CaseError where the case is invalid."""

    def __init__(self, bench: Bench, case: cases.Case, way: cases.Way, folder: Path) -> None:
        from velostream.testing.bench import Clock

        self._bench = bench
        self._case = case
        self._way = way
        self._clock = Clock()
        layouts = {name: Layout.of(case, name, way) for name in case.sources}
        self._stage = Stage(folder, layouts)
        bench.connector.stage = self._stage
        self._settings = bench.settings.model_copy(update={"data_dir": folder / "data"})
        self._logs = {name: GivenLog(self._stage.given(name), layout) for name, layout in layouts.items()}
        self._database: Instance | None = None
        self._seen: dict[str, int] = {}
        """The version of each table at which the case last checked its changes."""
        self._looked: dict[str, int] = {}
        """How many writes to each sink the case has checked."""
        self._refused: VelostreamError | None = None
        self._failing: set[str] = set()
        """Jobs whose failure was expected."""
        self._letters_seen = 0

    def run(self) -> None:
        """All steps."""
        self._known_names()
        self._open()
        try:
            following = [*self._case.steps[1:], None]
            before: cases.Step | None = None
            for step, after in zip(self._case.steps, following, strict=True):
                # Several checks in a row change nothing, so a restart between them could reveal nothing.
                looked = isinstance(step, _LOOKS) and isinstance(before, _LOOKS)
                refusal = isinstance(step, cases.ExpectError) and step.job is None
                again = self._way.restarts and before is not None and not looked and not refusal
                self._step(step, after, again=again)
                before = step
            self._end()
        except CaseFailedError as error:
            self._tell_letters(error)
            if any(layout.relabelled for layout in self._stage.layouts.values()):
                error.hint = error.hint or (
                    "where a case tells the watermark, spread rows are of three partitions, and the slowest "
                    "decides: tell it before whatever depends on it"
                )
            raise
        finally:
            self._close()

    # --- the database -------------------------------------------------------------------------------------

    @property
    def _db(self) -> Instance:
        assert self._database is not None
        return self._database

    def _open(self) -> None:
        if self._database is None:
            self._database = Instance(self._settings, clock=self._clock, pace=LOOK)
            self._bench.prepare(self._database)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    # --- steps --------------------------------------------------------------------------------------------

    def _step(self, step: cases.Step, after: cases.Step | None, *, again: bool) -> None:
        if isinstance(step, cases.Given):
            self._known_columns(step)
        if again or isinstance(step, cases.Restart):
            self._close()
        # Rows given while the database is closed are found when it opens.
        if isinstance(step, cases.Given):
            self._logs[step.source].give(step, self._clock.now)
        elif isinstance(step, cases.Advance):
            self._logs[step.source].append(Entry(watermark=step.to))
        elif isinstance(step, cases.End):
            self._logs[step.source].append(Entry(ended=True))
        self._open()
        if isinstance(step, cases.Run):
            self._run_statements(step, after)
        elif isinstance(step, cases.Wait):
            # Time passes for running jobs: what has begun to wait counts from here.
            self._settle(step, after)
            self._clock.now += step.duration
        if again or not isinstance(step, _LOOKS):
            self._settle(step, after)
        self._look(step)

    def _run_statements(self, step: cases.Run, after: cases.Step | None) -> None:
        self._refused = None
        try:
            checked = self._db.checked(step.sql, step.name)
            for error in checked.errors:
                raise error
            for statement in checked.statements:
                self._db.executor.run(statement, None)
        except VelostreamError as exc:
            if not (isinstance(after, cases.ExpectError) and after.job is None):
                raise CaseFailedError(
                    f"a statement failed: {exc.message}",
                    detail=exc.detail,
                    hint=exc.hint,
                    location=exc.location or step.location,
                ) from exc
            self._refused = exc

    def _settle(self, step: cases.Step, after: cases.Step | None) -> None:
        """Wait until every job has processed everything, at the clock's time."""
        self._expire()
        if not self._db.wait_idle(self._bench.timeout):
            busy = [f'"{job.name}" is {job.state}' for job in self._db.jobs() if job.state.alive]
            raise self._failed(step, f"no rest within {self._bench.timeout:g}s: {', '.join(busy)}")
        for job in self._db.jobs_by_name:
            if job.state is JobState.FAILED and job.name not in self._failing:
                expected = [each for each in (step, after) if isinstance(each, cases.ExpectError)]
                if job.name not in [each.job for each in expected]:
                    raise self._failed(step, f'job "{job.name}" failed: {job.error}')

    def _expire(self) -> None:
        """Delete rows whose retention has expired, without waiting for the thread that does so."""
        for entry in self._db.catalog:
            if isinstance(entry.statement, CreateTable) and LEAVING & entry.statement.properties.keys():
                self._db.wait_idle(self._bench.timeout)
                self._db.table(entry.name).expire()

    def _known_names(self) -> None:
        """Raise for a source or sink that no statement uses."""
        text = "\n".join(step.sql for step in self._case.steps if isinstance(step, cases.Run))
        named = set(re.findall(rf"\b{NAME}://([\w.]+)", text))
        for step in self._case.steps:
            name = getattr(step, "source", getattr(step, "sink", None))
            if name is not None and name not in named:
                raise CaseError(
                    f"no statement of the case names {NAME}://{name}",
                    hint=did_you_mean(name, named),
                    location=step.location,
                )

    def _known_columns(self, step: cases.Given) -> None:
        known = self._columns(step.source)
        for name in step.rows.columns if known else ():
            if known and name not in known and name != ENTERED:
                hint = did_you_mean(name, known) or f"its columns are {', '.join(known)}"
                raise CaseError(
                    f'{NAME}://{step.source} has no column "{name}"', hint=hint, location=step.location
                )

    def _columns(self, source: str) -> list[str] | None:
        """The columns that statements declare for a test source."""
        for ref in self._references():
            if ref.uri.scheme == NAME and ref.uri.rest == source and ref.columns:
                return [column.name for column in ref.columns]
        return None

    def _references(self) -> Iterator[SourceRef | CreateSource]:
        for entry in self._db.catalog:
            query = getattr(entry.statement, "query", None)
            if isinstance(entry.statement, CreateSource):
                yield entry.statement
            elif isinstance(query, Query):
                yield from query.sources

    # --- expectations -------------------------------------------------------------------------------------

    def _look(self, step: cases.Step) -> None:
        if isinstance(step, cases.ExpectRows):
            found = self._table(step.table, step).snapshot()
            self._same(step, step.rows, found, f'table "{step.table}"', "rows of")
        elif isinstance(step, cases.ExpectChanges):
            found = self._changes(self._table(step.table, step))
            self._same(step, step.rows, found, f'table "{step.table}"', "changes in", signed=True)
        elif isinstance(step, cases.ExpectWritten):
            found = self._written(step)
            self._same(step, step.rows, found, f"{NAME}://{step.sink}", "rows written to", signed=True)
        elif isinstance(step, cases.ExpectDeadLetters):
            letters = self._letters()
            difference = letters_differ(step.rows, letters)
            self._letters_seen = len(letters)
            if difference is not None:
                raise self._failed(step, f"dead letters are not as expected\n{difference}")
        elif isinstance(step, cases.ExpectError):
            self._expected_error(step)

    def _same(
        self,
        step: cases.Step,
        expected: cases.Rows | None,
        actual: pa.Table,
        what: str,
        which: str,
        *,
        signed: bool = False,
    ) -> None:
        try:
            difference = rows_differ(expected, actual, what, signed=signed)
        except CaseError as error:
            raise error.at(step.location) from None
        if difference is not None:
            raise self._failed(step, f"{which} {what} are not as expected\n{difference}")

    def _table(self, name: str, step: cases.Step) -> Table:
        try:
            return self._db.table(name)
        except VelostreamError as exc:
            hint = exc.hint if not isinstance(exc, TableError) else None
            raise CaseError(exc.message, hint=hint, location=step.location) from None

    def _changes(self, table: Table) -> pa.Table:
        """The changes since the last check, version by version: a row added and retracted counts twice."""
        after, version = self._seen.get(table.name, 0), table.version
        self._seen[table.name] = version
        parts = [rows for _, rows in table.changes(min(after, version), timeout=0)]
        empty = table.spec.visible_schema.append(pa.field(WEIGHT, pa.int64())).empty_table()
        return pa.concat_tables(parts, promote_options="permissive") if parts else empty

    def _written(self, step: cases.ExpectWritten) -> pa.Table:
        files = written_files(self._stage.written(step.sink))
        new = files[self._looked.get(step.sink, 0) :]
        if not files:
            if step.rows is not None:
                raise self._failed(step, f"nothing was written to {NAME}://{step.sink}")
            return pa.table({})
        self._looked[step.sink] = len(files)
        tables = [pa.ipc.open_file(str(path)).read_all() for path in new or files[:1]]
        return pa.concat_tables(
            [_weighted(table if new else table.slice(0, 0)) for table in tables], promote_options="permissive"
        )

    def _letters(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = self._db.table(dead_letters.NAME).snapshot().to_pylist()
        return rows

    def _expected_error(self, step: cases.ExpectError) -> None:
        if step.job is None:
            error, what = self._refused, "the statements above were accepted"
        else:
            job = self._db.jobs_by_name.get(step.job)
            if job is None:
                names = [each.name for each in self._db.jobs()]
                raise CaseError(
                    f'there is no job "{step.job}"',
                    hint=did_you_mean(step.job, names),
                    location=step.location,
                )
            failed = job.state is JobState.FAILED
            error, what = job.error if failed else None, f'job "{step.job}" is {job.state}'
            self._failing.add(job.name)
        if error is None:
            raise self._failed(step, f"an error was expected, but {what}")
        absent = [text for text in step.texts if text not in str(error)]
        if absent:
            raise self._failed(step, f"the error does not say: {absent[0]}\nit says:\n{error}")

    def _end(self) -> None:
        """Raise CaseFailedError for dead letters that the case did not expect."""
        letters = self._letters() if self._database is not None else []
        looked = any(isinstance(step, cases.ExpectDeadLetters) for step in self._case.steps)
        if letters and (not looked or len(letters) > self._letters_seen):
            told = "\n".join(f"  {letter_line(letter)}" for letter in letters[self._letters_seen :])
            raise CaseFailedError(
                f"there are dead letters that the case does not expect\n{told}",
                hint="if they belong to it: expect dead letters",
                location=self._case.location,
            )

    def _tell_letters(self, error: CaseFailedError) -> None:
        """The dead letters: a missing row may be one that the case did not check."""
        letters = self._letters() if self._database is not None else []
        if letters and self._letters_seen == 0 and "dead letter" not in error.message:
            told = "\n".join(f"  {letter_line(letter)}" for letter in letters)
            error.detail = f"{error.detail or ''}\nthere are dead letters:\n{told}".strip("\n")

    def _failed(self, step: cases.Step, message: str) -> CaseFailedError:
        return _at(step.location, message)


def _at(location: Location, message: str) -> CaseFailedError:
    head, _, rest = message.partition("\n")
    return CaseFailedError(head, detail=rest or None, location=location)


def _weighted(rows: pa.Table) -> pa.Table:
    if WEIGHT in rows.schema.names:
        return rows
    return rows.append_column(WEIGHT, pa.array([1] * rows.num_rows, pa.int64()))
