"""Replaces a statement and what is built on it: all of it built beside the old, and switched in one step."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from velostream.engine.opening.retention import retention_of, stored
from velostream.errors import DuplicateNameError, JobError, SqlError, TypeMismatchError, VelostreamError
from velostream.model.jobs import JobState
from velostream.model.options import common_options
from velostream.model.statements import CreateTable
from velostream.model.table_storage import STORAGES
from velostream.model.tables import TableSpec, with_default
from velostream.runtime.answers.explain import warned
from velostream.runtime.catalog.catalog import Overlaid
from velostream.runtime.changing.group import dependents, no_longer
from velostream.runtime.statements.constants import constant_row
from velostream.sql.types import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from threading import Event

    from velostream.model.statements import ColumnDef
    from velostream.runtime.catalog.catalog import Catalog, Entry
    from velostream.runtime.changing.group import Group, Member
    from velostream.runtime.jobs.job import Job
    from velostream.runtime.jobs.jobs import Jobs
    from velostream.serving.table.store import TableStore

log = structlog.get_logger("velostream.jobs")


@dataclass
class Built:
    """What has been built of a group so far."""

    overlay: Overlaid
    await_loaded: Callable[[Job], None]
    entries: list[Entry] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    places: dict[str, tuple[str, int]] = field(default_factory=dict)
    """See `Site`."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Replacing:
    """Builds the members of a group one after the other, and switches to them when all have loaded."""

    catalog: Catalog
    store: TableStore
    jobs: Jobs
    tell: Callable[[str], None]
    """Told what is waited for."""
    note: Callable[[str], None]
    """Told what is done."""
    stopping: Event

    def replace(self, group: Group, await_loaded: Callable[[Job], None]) -> tuple[str, ...] | None:
        """Replace all members or none; returns warnings, or None when the database closes before the end."""
        built = Built(Overlaid(self.catalog), await_loaded)
        try:
            if not self.build(group, built):
                self.discard(built)
                return None
            with stopped(self.jobs, [member.old for member in group.members]):
                self.jobs.adopt(built.entries)
        except BaseException:
            self.discard(built)
            raise
        self.finish(group, built)
        return built.warnings

    # --- building ---------------------------------------------------------------------------------------

    def build(self, group: Group, built: Built) -> bool:
        """Build every member, and wait until all have loaded; False when the database closes before.

        Until the catalogue names them, everything can be undone by `discard`.
        """
        for member in group.members:
            self._build(member, group, built)
            if self.stopping.is_set() and self._unfinished(built):
                return False
        self._check(group, built)
        return True

    def _build(self, member: Member, group: Group, built: Built) -> None:
        if len(group.members) > 1:
            self.note(f"building {member.what} beside the old one")
        name = member.old.name
        try:
            statement = member.new or built.overlay.bound(member.old.text, name, member.old.udfs)
            if getattr(statement, "query", None) is not None and isinstance(statement, CreateTable):
                self._build_job(statement, member, built)
                return
            entry = self.catalog.draft(statement, member.statement_name)
            if isinstance(statement, CreateTable):
                entry = make_by_hand(self.catalog, self.store, self.jobs, entry, statement)
                built.places[entry.name] = (entry.name, entry.edition)
            self._add(entry, built)
        except VelostreamError as error:
            raise no_longer(error, name, group.target) from error

    def _build_job(self, statement: CreateTable, member: Member, built: Built) -> None:
        draft = self.jobs.draft(statement, statement.name, self.tell, self.stopping, built.places)
        with self.jobs.undone(draft):
            output = self.jobs.create_beside(draft)
        job = self.jobs.start(draft, output)
        built.jobs.append(job)
        built.places[draft.entry.name] = (draft.entry.name, draft.entry.edition)
        self._add(replace(draft.entry, paused=member.new is None and member.old.paused), built)
        built.await_loaded(job)
        built.warnings += warned(draft.opened.strategy)
        if not (job.state is JobState.FINISHED or loaded(job) or self.stopping.is_set()):
            raise JobError(
                f'table "{statement.name}" stays as it was: the new one was stopped before it had loaded'
            )

    def _add(self, entry: Entry, built: Built) -> None:
        built.entries.append(entry)
        built.overlay.put(entry)

    def _unfinished(self, built: Built) -> bool:
        return any(job.state is not JobState.FINISHED and not loaded(job) for job in built.jobs)

    def discard(self, built: Built) -> None:
        """Stop and delete what was built."""
        ids = {job.id for job in built.jobs}
        for job in reversed(built.jobs):
            self.jobs.discard(job)
        for entry in reversed(built.entries):
            if entry.job not in ids:
                self.jobs.remove(entry)

    # --- switching --------------------------------------------------------------------------------------

    def _check(self, group: Group, built: Built) -> None:
        """Raise where a job has failed since it loaded, or the group is not what it was."""
        for job in built.jobs:
            if job.state is JobState.FAILED:
                raise job.error or JobError(f'job "{job.name}" failed')
        late = [each.name for each in dependents(self.catalog, group.names) if each.name != group.target]
        gone = [name for name in group.names if self.catalog.get(name) is None]
        if late or gone:
            what = f'"{late[0]}" was built on it' if late else f'"{gone[0]}" was dropped'
            raise DuplicateNameError(
                f'"{group.target}" stays as it was: {what} meanwhile', hint="run the statement again"
            )

    @contextmanager
    def resting(self, built: Built) -> Iterator[None]:
        """Stop the jobs that were built, and start them when the block has succeeded: they open all anew."""
        for job in built.jobs:
            job.stop()
        yield
        for job in built.jobs:
            if job.state is not JobState.FINISHED:
                job.start()

    def finish(self, group: Group, built: Built) -> None:
        """After the switch: end and delete the old ones, and let those rest that rested before."""
        for member in reversed(group.members):
            if member.old.job is not None:
                self.jobs.end(member.old.job)
            self.jobs.remove(member.old)
        paused = {entry.job for entry in built.entries if entry.paused}
        for job in built.jobs:
            if job.id in paused:
                job.stop(JobState.PAUSED)


@contextmanager
def stopped(jobs: Jobs, entries: Iterable[Entry]) -> Iterator[list[Job]]:
    """Stop the jobs of these entries that run; when the block fails, they run on."""
    found = [jobs.get(entry.job) for entry in entries if entry.job is not None]
    running = [job for job in found if job is not None and job.state.alive]
    for job in running:
        job.stopping.set()
    for job in running:
        job.stop()
    try:
        yield running
    except BaseException:
        for job in running:
            job.start()
        raise


def make_by_hand(
    catalog: Catalog, store: TableStore, jobs: Jobs, entry: Entry, statement: CreateTable
) -> Entry:
    """Create the empty table of a statement without a query; returns its entry, which is not recorded yet."""
    schema = pa.schema([column_field(column) for column in statement.columns])
    entry = replace(entry, result=schema)
    options = common_options(statement.properties)
    retention = retention_of(options, schema)
    kept = STORAGES[options.table_storage].options() | (retention.options() if retention is not None else {})
    spec = TableSpec(statement.name, stored(schema, retention), statement.key, kept, statement=entry.text)
    catalog.announce(entry)
    try:
        store.create(spec, edition=entry.edition)
    except BaseException:
        jobs.remove(entry)
        raise
    return entry


def column_field(column: ColumnDef) -> pa.Field:
    """A column of a table filled by hand, with its default."""
    field = pa.field(column.name, column.type)
    if column.default is None:
        return field
    values = constant_row((column.default,), (column.type,))
    try:
        if values is None:
            raise SqlError("it is not a constant of that type")
        return with_default(field, values[0])
    except (SqlError, pa.ArrowException, TypeError, ValueError) as exc:
        raise TypeMismatchError(
            f'DEFAULT of column "{column.name}" does not fit {spark_ddl(column.type)}',
            detail=str(exc),
            location=column.location,
        ) from exc


def loaded(job: Job) -> bool:
    """Whether rows were read, or there are none: a first batch may be empty while a file is being written."""
    stats = job.stats
    return job.idle or stats.batches > 1 or (stats.batches > 0 and stats.records_in > 0)
