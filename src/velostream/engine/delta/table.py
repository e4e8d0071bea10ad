"""A table in Delta Lake, with the same contract as a table in memory."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from velostream.disk.sealed_json import sync_folder
from velostream.engine.delta import closed_state
from velostream.engine.delta import commit_metadata as state
from velostream.engine.delta.reader import STAGING, DeltaReader
from velostream.engine.delta.runner import DeltaRunner
from velostream.engine.delta.source import DeltaTableSource
from velostream.engine.delta.staging import Stage
from velostream.errors import InternalError, TableError, TableWriterError
from velostream.model.columns import DELTA_ROW
from velostream.model.lifetime import Ended
from velostream.serving.columns.segments import make_views
from velostream.serving.columns.values import KeyCodec
from velostream.serving.contract.readable import FOUND
from velostream.serving.durable import description
from velostream.serving.index.keys import KeyIndex, Link
from velostream.serving.index.made_rows import MadeRows
from velostream.serving.memory import changes
from velostream.serving.memory.version import MemoryVersion
from velostream.serving.table.end import End
from velostream.serving.table.schemas import align, check_evolution, to_batches
from velostream.spark import delta
from velostream.sql.types import quote, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.delta.log import DeltaLog
    from velostream.engine.delta.maintenance import Maintenance
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.runner import Runner
    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec
    from velostream.plan.plans import Plan
    from velostream.serving.durable.verification import TableReport


class DeltaTable(DeltaReader):
    """A table in Delta Lake. Every commit is a Spark job.

    The metadata of a commit, with the source positions that it contains, is part of the Delta commit, so that
    rows and positions are durable in one step.
    """

    @property
    def read_only(self) -> bool:
        """Whether the table was opened for reading only."""
        self.lifetime.check()
        return self._read_only

    def source(self, reader: str) -> DeltaTableSource:
        """The table as an input of a job, from its change data feed."""
        return DeltaTableSource(self, reader)

    def runner(self, spark: SparkSession, plan: Plan, shape: ResultShape) -> Runner:
        """Runs the steps that fill the table, part by part."""
        return DeltaRunner(spark, self, plan, shape)

    # --- commits ------------------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Block other writers; readers are not affected."""
        with self._lock:
            self.lifetime.check()
            yield

    @contextmanager
    def staged(self) -> Iterator[Stage]:
        """Combine all commits of the block into one; the block must not read rows that it has changed."""
        with self._lock:
            if self._stage is not None:
                yield self._stage
                return
            self._check_writable()
            self._stage = stage = Stage(self.folder / STAGING, self.spec, self._version.state)
            try:
                yield stage
                if stage.commit is not None:
                    self._finish(stage)
            finally:
                self._stage = None
                stage.close()

    def _finish(self, stage: Stage) -> None:
        before = self._version.state
        session = self._session()
        try:
            after = stage.finish(session, self._path, self._version)
            if after.number == before.number:
                state.move(self.folder, after)
            else:
                self._make_durable()
        except BaseException:
            # Delta's log tells whether the commit was made, whatever failed after it.
            self._show(state.load(self.folder, self._log))
            raise
        found = state.load(self.folder, self._log)
        self._show(found)
        if found.text() != after.text():
            # The JVM of a killed predecessor may still have finished its commit; then Delta ignores ours,
            # which has the same transaction number.
            raise TableWriterError(
                f'another process has written to table "{self.name}"', hint="the job goes on from there"
            )
        self._maintenance.after_commit(session, found)
        newest = state.load(self.folder, self._log)
        if newest != found:
            self._show(newest)

    def _session(self) -> SparkSession:
        if self._writer_session is None:
            self._writer_session = self._delta.session()
        return self._writer_session

    def _make_durable(self) -> None:
        """Sync the files of the newest commit, which Delta does not do, before readers see it."""
        newest = self._log.newest()
        assert newest is not None
        for path in self._log.written(newest):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self._path)
        sync_folder(self._log.folder)

    def commit_keyed(self, upserts: pa.Table | None, deletes: pa.Table | None, commit: Commit) -> int:
        """Delete keys, then insert or replace rows by key; unchanged rows are not written."""
        if not self.spec.key:
            raise InternalError(f'table "{self.name}" has no key')
        with self.staged() as stage:
            schema = self.spec.schema
            rows = schema.empty_table() if upserts is None else align(upserts, schema, self.name)
            keys = [rows.select(list(self.spec.key))]
            if deletes is not None and deletes.num_rows:
                keys.append(align(deletes.select(list(self.spec.key)), self._key_schema, self.name))
            stored, numbers = self._stored_rows(self.spec.key, pa.concat_tables(keys))
            codec = KeyCodec(schema, self.spec.key)
            gone = codec.encode_columns(keys[1]) if len(keys) > 1 else []
            change = changes.keyed_change(_in_memory(self.spec, codec, stored), codec, rows, gone).change
            stage.change(change.added, change.removed, numbers[change.removed_ids], commit)
        return self.version

    def commit_rows(self, rows: pa.Table, weights: pa.Array | None, commit: Commit) -> int:
        """Add rows to a multiset with their weights; negative weights retract."""
        if self.spec.key:
            raise InternalError(f'table "{self.name}" has a key; commit rows by key')
        with self.staged() as stage:
            schema = self.spec.schema
            rows = align(rows, schema, self.name)
            amounts = None if weights is None else np.asarray(weights.cast(pa.int64()), dtype=np.int64)
            taken = rows.slice(0, 0) if amounts is None else rows.filter(pa.array(amounts < 0))
            if taken.num_rows == 0:
                change = changes.appended(rows, amounts)
                numbers = np.empty(0, np.int64)
            else:
                assert amounts is not None
                codec = KeyCodec(schema, schema.names)
                wanted = -amounts[amounts < 0]
                stored, numbers = self._stored_copies(codec, taken, wanted)
                memory = _in_memory(self.spec, codec, stored)
                change = changes.rows_change(memory, codec, rows, amounts).change
            added = change.added
            if change.added_counts is not None:
                added = added.take(pa.array(np.repeat(np.arange(added.num_rows), change.added_counts)))
            stage.change(added, change.removed, numbers[change.removed_ids], commit)
        return self.version

    def replace_all(self, rows: pa.Table, commit: Commit) -> int:
        """Make these physical rows the whole content; the change feed gets the net difference."""
        with self.staged() as stage:
            rows = align(rows, self.spec.schema, self.name)
            if self.spec.key:
                codec = KeyCodec(self.spec.schema, self.spec.key)
                last = dict(zip(codec.encode_columns(rows), range(rows.num_rows), strict=True))
                rows = rows.take(pa.array(sorted(last.values()), pa.int64()))
            stage.replacement(rows, commit)
        return self.version

    def _stored_rows(self, columns: Sequence[str], keys: pa.Table) -> tuple[pa.Table, Any]:
        """Stored rows with these keys, and their numbers."""
        if keys.num_rows == 0 or self._version.state.physical is None:
            return self.spec.schema.empty_table(), np.empty(0, np.int64)
        known = self._looked_up
        self._looked_up = None
        if known is not None and known.version is self._version:
            codec = KeyCodec(self.spec.schema, self.spec.key)
            if known.keys.issuperset(codec.encode_columns(keys)):
                return known.rows, np.asarray(known.numbers, dtype=np.int64)
        return self._brought(self._version.matching(self._session(), columns, keys, nulls_meet=True))

    def _stored_copies(self, codec: KeyCodec, rows: pa.Table, wanted: Any) -> tuple[pa.Table, Any]:
        """Stored rows equal to these, at most as many of each as may be retracted."""
        from pyspark.sql import Window, functions

        counts: Counter[Hashable] = Counter()
        for code, amount in zip(codec.encode_columns(rows), wanted.tolist(), strict=True):
            counts[code] += amount
        names = self.spec.schema.names
        if self._version.state.physical is None:
            return self.spec.schema.empty_table(), np.empty(0, np.int64)
        found = self._version.matching(self._session(), names, rows, nulls_meet=True)
        nth = functions.row_number().over(Window.partitionBy(*map(quote, names)).orderBy(DELTA_ROW))
        found = found.withColumn("__nth", nth).where(f"__nth <= {max(counts.values())}").drop("__nth")
        return self._brought(found)

    def _brought(self, frame: DataFrame) -> tuple[pa.Table, Any]:
        rows, numbers = self._version.numbered(frame)
        return rows, np.asarray(numbers, dtype=np.int64)

    def evolve(self, schema: pa.Schema) -> None:
        """Widen the columns: every row is rewritten, and earlier changes are no longer available."""
        with self._lock:
            self._check_writable()
            before = self._version.state
            if schema.equals(self.spec.schema):
                return
            check_evolution(self.spec.schema, schema, self.spec.key, self.name)
            refuse_types(schema, self.name)
            wider = replace(self.spec, schema=schema)
            if before.physical is not None:
                session = self._session()
                old = self._version.all_rows(session)
                columns = [
                    f"CAST({quote(f.name) if f.name in old.columns else 'NULL'} AS {spark_ddl(f.type)}) "
                    f"AS {quote(f.name)}"
                    for f in schema
                ]
                after = replace(before, sequence=before.sequence + 1, floor=before.number)
                delta.overwrite(old.selectExpr(*columns, DELTA_ROW), self._path, after.text(), after.sequence)
                self._make_durable()
            self._description = description.write_spec(self.folder, wider, self._description)
            self._spec = wider
            self._show(state.load(self.folder, self._log))

    def checkpoint(self) -> None:
        """Compact the files now."""
        with self._lock:
            self._check_writable()
            self._maintenance.run(self._session(), self._version.state)
            self._show(state.load(self.folder, self._log))

    def verify(self) -> TableReport:
        """Check every file of the newest version; no commit is made meanwhile."""
        with self._lock:
            return self._maintenance.verify(self.name)

    # --- changes by hand ----------------------------------------------------------------------------------

    def _there(self, keys: pa.Table) -> Sequence[bool]:
        there: list[bool] = self.fetch(keys).column(FOUND).to_pylist()
        return there

    def _stored_with(self, keys: list[Any]) -> pa.Table:
        known = [key for key in map(self._key, keys) if key is not None]
        if not known:
            return self.spec.schema.empty_table()
        found = self.fetch(pa.concat_tables(known))
        found = found.filter(found.column(FOUND)).drop_columns([FOUND])
        codes = KeyCodec(self.spec.schema, self.spec.key).encode_columns(found)
        once = dict(zip(codes, range(len(codes)), strict=True))
        return found.take(pa.array(once.values(), pa.int64()))

    def close(self, end: End = End.CLOSED) -> None:
        """Close the table and record its state, by which the next start detects damage."""
        with self._lock:
            if not self.lifetime.ended:
                if end is End.CLOSED and not self._read_only:
                    closed_state.note(self.folder, self._description, self._version.state, self._log)
                message, hint = end.told(self.name)
                self._maintenance = cast("Maintenance", Ended(self.lifetime))
                self._log = cast("DeltaLog", Ended(self.lifetime))
                self._end(message, hint)


def _in_memory(spec: TableSpec, codec: KeyCodec, rows: pa.Table) -> MemoryVersion:
    """A few stored rows as an in-memory version, against which the net change of a commit is computed."""
    views = make_views(to_batches(rows), 0, None)
    index = KeyIndex(codec, views) if spec.key else None
    link = Link(MadeRows(), plain=codec.plain)
    return MemoryVersion(spec, 0, views, rows.num_rows, None, index, link)


def refuse_types(schema: pa.Schema, name: str) -> None:
    """Raise for column types that Delta Lake cannot store, or Spark cannot compare."""
    for field in schema:
        if _has(field.type, lambda t: pa.types.is_map(t) or pa.types.is_null(t) or _is_interval(t)):
            raise TableError(
                f'column "{field.name}" of table "{name}" is {spark_ddl(field.type)}, '
                "which a table in Delta Lake does not take",
                hint='cast it, or keep the table in memory: leave out "table.storage"',
            )


def _is_interval(kind: pa.DataType) -> bool:
    return bool(pa.types.is_duration(kind) or pa.types.is_interval(kind))


def _has(kind: pa.DataType, wanted: Any) -> bool:
    if wanted(kind):
        return True
    return any(_has(kind.field(number).type, wanted) for number in range(kind.num_fields))
