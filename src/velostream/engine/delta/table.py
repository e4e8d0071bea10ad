"""A table in Delta Lake, behind the same face as a table in memory."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

from velostream.connectors.sealed import sync_folder
from velostream.engine.delta import closing, state
from velostream.engine.delta.reading import STAGING, DeltaReading, in_types
from velostream.engine.delta.stage import Stage
from velostream.errors import InternalError, TableError, TableWriterError
from velostream.model.columns import DELTA_ROW
from velostream.model.lifetime import Ended
from velostream.model.nested_keys import grouped
from velostream.serving.columns.segments import make_views
from velostream.serving.columns.values import KeyCodec
from velostream.serving.durable import description
from velostream.serving.index.keys import KeyIndex, Link
from velostream.serving.index.made_rows import ReadyRows
from velostream.serving.table import changes
from velostream.serving.table.ending import End
from velostream.serving.table.reader import FOUND
from velostream.serving.table.rows import key_exists, to_table
from velostream.serving.table.schemas import align, check_evolution, to_batches
from velostream.serving.table.version import TableVersion
from velostream.spark import delta
from velostream.sql.types import quote, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.delta.log import DeltaLog
    from velostream.engine.delta.maintenance import Maintenance
    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec
    from velostream.serving.durable.verification import TableReport


class DeltaTable(DeltaReading):
    """A table in Delta Lake. Every commit is a Spark job, too.

    What each commit is, and which source positions it contains, stands in the commit itself, so rows and
    positions are durable in one step.
    """

    # --- the job's side -----------------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other writers out; readers go on."""
        with self._lock:
            self.lifetime.check()
            yield

    @contextmanager
    def staged(self) -> Iterator[Stage]:
        """Make all commits of the block one; it must not read what it has changed, as parts by key do not."""
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
            # Whether the commit was made is in the log, whatever went wrong after it.
            self._show(state.load(self.folder, self._log))
            raise
        found = state.load(self.folder, self._log)
        self._show(found)
        if found.text() != after.text():
            # Spark of a process that was killed may still commit what it had in hand; Delta then takes ours
            # for the same batch again, and keeps nothing of it.
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
        """Delta leaves it to the system when files reach the disk; nobody is told of a commit before."""
        newest = self._log.newest()
        assert newest is not None
        for path in self._log.written(newest):
            with path.open("rb") as file:
                os.fsync(file.fileno())
        sync_folder(self._path)
        sync_folder(self._log.folder)

    def commit_keyed(self, upserts: pa.Table | None, deletes: pa.Table | None, commit: Commit) -> int:
        """Delete keys, then insert or replace rows by key; rows that stay as they are drop out."""
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
        """Add rows to a multiset with their weights; negative weights take rows back."""
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

    def truncate(self, commit: Commit | None = None) -> int:
        """Delete all rows."""
        return self.replace_all(self.spec.schema.empty_table(), commit or self.manual_commit())

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
        """Stored rows equal to these, of each no more than could be taken back."""
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
        """Widen the columns: every row is written anew, and earlier changes are not kept."""
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
        """Few large files instead of many small ones, and none that nobody needs."""
        with self._lock:
            self._check_writable()
            self._maintenance.run(self._session(), self._version.state)
            self._show(state.load(self.folder, self._log))

    def verify(self) -> TableReport:
        """Check every file of the newest version; no commit is made meanwhile."""
        with self._lock:
            return self._maintenance.verify(self.name)

    # --- the user's side ----------------------------------------------------------------------------------

    def insert(self, rows: Any) -> int:
        """Add rows; returns how many. A key that exists raises KeyExistsError, and nothing is kept."""
        self._check_by_hand()
        table = to_table(rows, self.spec)
        with self._lock:
            if not self.spec.key:
                self.commit_rows(table, None, self.manual_commit())
            else:
                self.check_new(table)
                self.commit_keyed(table, None, self.manual_commit())
        return int(table.num_rows)

    def check_new(self, rows: pa.Table) -> None:
        """Raise KeyExistsError when the table has the key of one of these rows, or two of them share one."""
        self.lifetime.check()
        keys = rows.select(list(self.spec.key))
        codec = KeyCodec(self.spec.schema, self.spec.key)
        there = self.fetch(keys).column(FOUND).to_pylist()
        seen: set[Hashable] = set()
        for number, (code, known) in enumerate(zip(codec.encode_columns(keys), there, strict=True)):
            if known or code in seen:
                raise key_exists(self.spec, keys, number)
            seen.add(code)

    def upsert(self, rows: Any) -> int:
        """Insert rows, or replace those with the same key; returns how many were given."""
        self._check_by_hand()
        table = to_table(rows, self.spec)
        if not self.spec.key:
            raise self._keyless()
        self.commit_keyed(table, None, self.manual_commit())
        return int(table.num_rows)

    def update(self, key: Any, /, **columns: Any) -> int:
        """Change columns of the row with this key; returns 1, or 0 when there is none."""
        self._check_by_hand()
        if not self.spec.key:
            raise self._keyless()
        touched = [name for name in columns if name in self.spec.key]
        if touched:
            raise TableError(f'key column "{touched[0]}" of table "{self.name}" cannot be updated')
        fields = [self.spec.schema.field(name) for name in self.spec.key]
        with self._lock:
            asked = in_types(key if isinstance(key, tuple) else (key,), fields)
            old = self.fetch(asked) if asked is not None else None
            if old is None or not old.column(FOUND)[0].as_py():
                return 0
            old = old.drop_columns([FOUND])
            changed = to_table([columns], self.spec, partial=True)
            for name in changed.schema.names:
                place = old.schema.get_field_index(name)
                old = old.set_column(place, old.schema.field(place), changed.column(name))
            self.commit_keyed(old, None, self.manual_commit())
        return 1

    def delete(self, keys: Any) -> int:
        """Delete rows by key, or, without a key, one equal row for each row given; returns how many."""
        self._check_by_hand()
        with self._lock:
            if not self.spec.key:
                rows = to_table(keys, self.spec)
                self.commit_rows(rows, pa.array([-1] * rows.num_rows, pa.int64()), self.manual_commit())
                return int(rows.num_rows)
            if isinstance(keys, str | bytes) or not isinstance(keys, list | set | tuple | pa.Array):
                keys = [keys]
            several = len(self.spec.key) > 1
            fields = [self.spec.schema.field(name) for name in self.spec.key]
            asked = [in_types(key if several and isinstance(key, tuple) else (key,), fields) for key in keys]
            known = [key for key in asked if key is not None]
            if not known:
                return 0
            found = self.fetch(pa.concat_tables(known))
            there = found.filter(found.column(FOUND)).select(list(self.spec.key))
            there = grouped(there, self.spec.key)
            self.commit_keyed(None, there, self.manual_commit())
        return int(there.num_rows)

    @property
    def next_due(self) -> int | None:
        """None: no row leaves by itself."""
        self.lifetime.check()
        return None

    def _check_writable(self) -> None:
        self.lifetime.check()
        if self._read_only:
            raise TableError(f'table "{self.name}" was opened read-only')

    def close(self, end: End = End.CLOSED) -> None:
        """Nothing is read or written any more."""
        with self._lock:
            if not self.lifetime.ended:
                if end is End.CLOSED and not self._read_only:
                    closing.note(self.folder, self._description, self._version.state, self._log)
                message, hint = end.told(self.name)
                self._maintenance = cast("Maintenance", Ended(self.lifetime))
                self._log = cast("DeltaLog", Ended(self.lifetime))
                self._end(message, hint)


def _in_memory(spec: TableSpec, codec: KeyCodec, rows: pa.Table) -> TableVersion:
    """A few stored rows as a version, against which a change is worked out; a row's id is its place."""
    views = make_views(to_batches(rows), 0, None)
    index = KeyIndex(codec, views) if spec.key else None
    link = Link(ReadyRows(), plain=codec.plain)
    return TableVersion(spec, 0, views, rows.num_rows, None, index, link)


def refuse_types(schema: pa.Schema, name: str) -> None:
    """Raise for columns that Delta Lake cannot keep, or Spark cannot compare."""
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
