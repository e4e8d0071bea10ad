"""A table: what readers and the one writer see."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from threading import Condition
from time import sleep
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.errors import KeyExistsError, TableError, UnknownNameError, did_you_mean
from velostream.model.changes import Commit
from velostream.model.tables import HIDDEN, SHOWN, TableSpec
from velostream.serving.asking import Asker
from velostream.serving.dictionaries import plain, plain_column
from velostream.serving.memory import MemoryUse, memory_of
from velostream.serving.record import Row, row_class
from velostream.serving.rows import to_table
from velostream.serving.schemas import align
from velostream.serving.subscription import Subscription
from velostream.serving.values import to_python
from velostream.serving.writer import Writer

if TYPE_CHECKING:
    from velostream.serving.index import Link
    from velostream.serving.journal import Journal
    from velostream.serving.memory import MemoryBudget
    from velostream.serving.questions import Questions
    from velostream.serving.values import KeyCodec
    from velostream.serving.verification import TableReport
    from velostream.serving.version import TableVersion

FOUND = "__found"
"""Column of `fetch` that tells whether the key was there."""

_BATCH_ROWS = 65_536

_BURST = 16
_COURTESY = 0.0001
"""While a commit is being made, a reader that asks for key after key lets go of the interpreter for this
long every so many keys: readers in a loop would leave a writer a fifth of its speed otherwise."""


@dataclass(frozen=True)
class TableStats:
    """Figures of one table."""

    record_count: int
    last_updated: datetime | None
    datasource_type: str
    health: str
    health_reason: str | None
    version: int
    queries: int
    cache_hits: int
    bytes: int
    """Memory of the rows, their indexes, and the rows kept ready for lookups."""
    disk_bytes: int
    memory: MemoryUse
    """The same bytes, by what they are for."""

    @property
    def bytes_per_row(self) -> float:
        """Memory per row."""
        return self.bytes / self.record_count if self.record_count else 0.0

    @property
    def cache_hit_rate(self) -> float:
        """The part of all questions that found their answer or their plan ready."""
        return self.cache_hits / self.queries if self.queries else 0.0


@dataclass(frozen=True)
class ColumnInfo:
    """One column as DESCRIBE shows it."""

    name: str
    type: pa.DataType
    nullable: bool
    key: bool


class Table:
    """Rows that one writer changes commit by commit, while any number of threads read whole versions.

    Reading never waits for the writer, nor the writer for readers: a version is one immutable object,
    published by one reference store. With a key, rows are found by it; without, equal rows may occur
    several times.
    """

    def __init__(self, journal: Journal, questions: Questions, budget: MemoryBudget) -> None:
        self._journal = journal
        self._questions = questions
        self._asker = Asker(questions)
        self._published = Condition()
        self._health: tuple[str, str | None] = ("healthy", None)
        self._version: TableVersion
        self._link: Link
        self._budget = budget
        self._writer = Writer(journal, self._publish, budget)
        self._closed: str | None = None
        self._turns = count()

    def _publish(self, version: TableVersion) -> None:
        self._version = version
        self._link = version.link
        with self._published:
            self._published.notify_all()

    # --- what it is ---------------------------------------------------------------------------------

    @property
    def spec(self) -> TableSpec:
        """Name, columns, key and options."""
        return self._version.spec

    @property
    def name(self) -> str:
        """The table's name."""
        return self._version.spec.name

    @property
    def version(self) -> int:
        """Number of the newest version; 0 when nothing was ever written."""
        return self._version.number

    @property
    def version_object(self) -> TableVersion:
        """The newest version, to hold and read from."""
        return self._version

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit, with the source offsets that the table contains."""
        return self._version.commit

    def describe(self) -> list[ColumnInfo]:
        """The columns that readers see."""
        spec = self.spec
        return [
            ColumnInfo(field.name, field.type, field.nullable, field.name in spec.key)
            for field in spec.visible_schema
        ]

    def set_health(self, health: str, reason: str | None = None) -> None:
        """Say how the table's source is: healthy, degraded, disconnected, "file not found", failed."""
        self._health = (health, reason)

    def stats(self) -> TableStats:
        """The table's figures now."""
        version = self._version
        memory = memory_of(version)
        queries, hits = self._asker.counts(version.spec.name)
        return TableStats(
            record_count=len(version),
            last_updated=version.commit.at if version.commit else None,
            datasource_type=version.spec.datasource_type,
            health=self._health[0],
            health_reason=self._health[1],
            version=version.number,
            queries=queries,
            cache_hits=hits,
            bytes=memory.total,
            memory=memory,
            disk_bytes=self._journal.disk_bytes,
        )

    # --- reading by key -----------------------------------------------------------------------------

    def get(self, key: Any, *more: Any) -> Row | None:
        """The row with this key, or None. Several key columns: `get(a, b)`."""
        link = self._link
        try:
            row = link.direct[(key, *more) if more else key]
        except (KeyError, TypeError):
            return self._look_up((key, *more))
        # Read before asking: while the version was the newest nothing newer was there to be read.
        return row if link.newest and row is not None else self._look_up((key, *more))

    def _look_up(self, key: tuple[Any, ...]) -> Row | None:
        version = self._version
        if version.index is None:
            raise self._keyless()
        if not version.link.newest and not next(self._turns) % _BURST:
            sleep(_COURTESY)
        codec = version.index.codec
        return version.lookup(key[0] if codec.alone and len(key) == 1 else _encoded(codec, key))

    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order, all of one version; None where there is none."""
        version = self._version
        if version.index is None:
            raise self._keyless()
        codec = version.index.codec
        if codec.alone:
            return version.lookup_many(keys if isinstance(keys, list) else list(keys))
        return version.lookup_many([_encoded(codec, (key,)) for key in keys])

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def _keyless(self) -> TableError:
        return TableError(
            f'table "{self.name}" has no key',
            hint='declare one with PRIMARY KEY or WITH ("key" = "…")',
        )

    def __len__(self) -> int:
        return len(self._version)

    def __bool__(self) -> bool:
        return True

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Physical rows for rows of key columns, in their order.

        A key that is not there gives a row of nulls; the boolean column `__found` tells the difference.
        """
        version = self._version
        if version.index is None:
            raise self._keyless()
        ids = version.find_all(version.index.codec.encode_columns(_key_columns(keys, version.spec)))
        return version.take(ids).append_column(FOUND, pa.array(ids >= 0))

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows whose `columns` equal a row of `keys`; see TableVersion.fetch_where."""
        return self._version.fetch_where(columns, keys)

    # --- reading many -------------------------------------------------------------------------------

    def snapshot(self) -> pa.Table:
        """All rows as Arrow."""
        return self._version.snapshot()

    def column(self, column: str, where: str | None = None) -> pa.ChunkedArray:
        """One column as Arrow, of the rows for which the SQL condition holds."""
        name = self._resolve(column)
        if where is None:
            return plain_column(self._version.encoded.column(name))
        return self._asker.column(self._version, name, where)

    def column_values(self, column: str, where: str | None = None) -> list[Any]:
        """The values of one column, of the rows for which the SQL condition holds."""
        version = self._version
        try:
            values = version.lists[column, where]  # type: ignore[index]
        except KeyError:
            if where is None:
                return to_python(self.column(column))
            return self._asker.values(version, self._resolve(column), where)
        next(self._asker.remembered)
        return values.copy()

    def _resolve(self, column: str) -> str:
        names = self.spec.visible
        if column in names:
            return column
        folded = [name for name in names if name.casefold() == column.casefold()]
        if len(folded) != 1:
            raise UnknownNameError(
                f'table "{self.name}" has no column "{column}"', hint=did_you_mean(column, names)
            )
        return folded[0]

    def scalar(self, expression: str, where: str | None = None) -> Any:
        """The one value of a SQL expression over the rows, usually an aggregate: `SUM(volume)`."""
        version = self._version
        try:
            answer = version.answers[expression, where]
        except KeyError:
            return self._asker.scalar(version, expression, where)
        next(self._asker.remembered)
        return answer

    def count(self, where: str | None = None) -> int:
        """How many rows there are for which the SQL condition holds."""
        if where is None:
            return len(self._version)
        return int(self.scalar("COUNT(*)", where))

    def stream(self, where: str | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one version as record batches of bounded size."""
        for batch in self._stored(where):
            yield from plain(pa.Table.from_batches([batch])).to_batches()

    def _stored(self, where: str | None) -> Iterator[pa.RecordBatch]:
        version = self._version
        if where is not None:
            yield from self._questions.ask(version, "*", where).to_batches(max_chunksize=_BATCH_ROWS)
            return
        for view in version.views:
            batch = view.visible
            for start in range(0, batch.num_rows, _BATCH_ROWS):
                yield batch.slice(start, _BATCH_ROWS)

    async def astream(self, where: str | None = None) -> AsyncIterator[pa.RecordBatch]:
        """`stream` for asyncio: the event loop stays free while a batch is made."""
        batches = self.stream(where)
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch

    def rows(self, where: str | None = None) -> Iterator[Row]:
        """The rows of one version, one by one."""
        for batch in self._stored(where):
            make = row_class(tuple(batch.schema.names))
            for values in zip(*(to_python(column) for column in batch.columns), strict=True):
                yield make(values)

    def page(self, limit: int = 1000, offset: int = 0) -> list[Row]:
        """Up to `limit` rows after the first `offset`, in the order in which they were written."""
        rows = self._version.slice(offset, limit)
        make = row_class(tuple(rows.schema.names))
        return [make(values) for values in zip(*(to_python(each) for each in rows.columns), strict=True)]

    # --- changes ------------------------------------------------------------------------------------

    def changes(self, after: int | None = None, *, timeout: float | None = None) -> Subscription:
        """Follow the changes after a version (None: from now on); see Subscription."""
        start = self.version if after is None else after
        return Subscription(
            start,
            lambda: self._version.number,
            self._changes_by_version,
            self._published,
            lambda: self._closed is not None,
            timeout,
        )

    def changes_between(self, after: int, upto: int) -> pa.Table:
        """The changes after version `after` up to `upto`, in order: visible columns and `_weight`.

        An update is the old row with weight -1 and the new one with +1; equal rows of a multiset may come
        as one row of greater weight. Raises LaggingReaderError when the log no longer reaches back.
        """
        return self._shown_changes(self._journal.changes(after, upto))

    def _changes_by_version(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        for version, rows in self._journal.changes_by_version(after, upto):
            yield version, self._shown_changes(rows)

    def _shown_changes(self, rows: pa.Table) -> pa.Table:
        if SHOWN in rows.schema.names:
            rows = rows.filter(rows.column(SHOWN).fill_null(False))
        return rows.select([name for name in rows.schema.names if not name.startswith(HIDDEN)])

    def register_reader(self, reader: str, version: int) -> None:
        """Keep the changes after `version` for a named reader, also across restarts, up to a size."""
        self._journal.register(reader, version)

    def release_reader(self, reader: str) -> None:
        """Forget a named reader."""
        self._journal.release(reader)

    # --- the job's side -----------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other writers out, from reading what a change depends on to its commit; readers go on."""
        with self._writer.lock:
            yield

    def commit_keyed(self, upserts: pa.Table | None, deletes: pa.Table | None, commit: Commit) -> int:
        """Delete keys, then insert or replace rows by key (the last of equal keys counts); the new version.

        `upserts` are physical rows, `deletes` key columns. When it returns, the commit is durable. Rows that
        stay as they are drop out; when nothing changes only the commit is recorded, and the version stays.
        """
        self._check_writable()
        keys: list[Hashable] = []
        if deletes is not None and deletes.num_rows:
            keys = self._writer.codec.encode_columns(_key_columns(deletes, self.spec))
        return self._writer.keyed(upserts, keys, commit)

    def commit_rows(self, rows: pa.Table, weights: pa.Array | None, commit: Commit) -> int:
        """Add rows to a multiset with their weights (None: each once); negative weights take rows back.

        Raises InternalError when a row would be there less than zero times; nothing is kept then.
        """
        self._check_writable()
        amounts = None if weights is None else np.asarray(weights.cast(pa.int64()), dtype=np.int64)
        return self._writer.rows(rows, amounts, commit)

    def replace_all(self, rows: pa.Table, commit: Commit) -> int:
        """Make these physical rows the whole content; the log gets the net difference."""
        self._check_writable()
        return self._writer.replace(rows, commit)

    def truncate(self, commit: Commit | None = None) -> int:
        """Delete all rows."""
        self._check_writable()
        return self._writer.replace(self.spec.schema.empty_table(), commit or self.manual_commit())

    def evolve(self, schema: pa.Schema) -> None:
        """Widen the physical schema durably: wider types, new nullable columns. No digit may be lost."""
        self._check_writable()
        self._writer.evolve(schema)

    def checkpoint(self) -> None:
        """Write a snapshot now, so that the next start reads less log."""
        self._check_writable()
        self._writer.snapshot()

    def verify(self) -> TableReport:
        """Check every durable file; commits go on meanwhile."""
        return self._writer.verify()

    # --- the user's side ----------------------------------------------------------------------------

    def insert(self, rows: Any) -> int:
        """Add rows; returns how many. A key that exists raises KeyExistsError, and nothing is kept."""
        self._check_by_hand()
        table = to_table(rows, self.spec)
        with self._writer.lock:
            if not self.spec.key:
                self._writer.rows(table, None, self.manual_commit())
                return int(table.num_rows)
            self.check_new(table)
            self._writer.keyed(table, [], self.manual_commit())
        return int(table.num_rows)

    def check_new(self, rows: pa.Table) -> None:
        """Raise KeyExistsError when the table has the key of one of these rows, or two of them share one."""
        version = self._version
        seen: set[Hashable] = set()
        keys = self._writer.codec.encode_columns(rows)
        for number, key in enumerate(keys):
            if key in seen or version.find(key) is not None:
                shown = ", ".join(
                    f"{name} = {to_python(rows.column(name).slice(number, 1))[0]!r}" for name in self.spec.key
                )
                raise KeyExistsError(
                    f'table "{self.name}" already has a row with {shown}',
                    hint="use upsert, or INSERT OR REPLACE",
                )
            seen.add(key)

    def upsert(self, rows: Any) -> int:
        """Insert rows, or replace those with the same key; returns how many were given."""
        self._check_by_hand()
        if not self.spec.key:
            raise self._keyless()
        table = to_table(rows, self.spec)
        with self._writer.lock:
            self._writer.keyed(table, [], self.manual_commit())
        return int(table.num_rows)

    def update(self, key: Any, /, **columns: Any) -> int:
        """Change columns of the row with this key; returns 1, or 0 when there is none."""
        self._check_by_hand()
        if not self.spec.key:
            raise self._keyless()
        touched = [name for name in columns if name in self.spec.key]
        if touched:
            raise TableError(f'key column "{touched[0]}" of table "{self.name}" cannot be updated')
        with self._writer.lock:
            row_id = self._version.find(_encoded(self._writer.codec, (key,)))
            if row_id is None:
                return 0
            old = self._version.take(np.array([row_id], dtype=np.int64))
            changed = to_table([columns], self.spec, partial=True)
            for name in changed.schema.names:
                place = old.schema.get_field_index(name)
                old = old.set_column(place, old.schema.field(place), changed.column(name))
            self._writer.keyed(old, [], self.manual_commit())
        return 1

    def delete(self, keys: Any) -> int:
        """Delete rows by key, or, without a key, one equal row for each row given; returns how many."""
        self._check_by_hand()
        with self._writer.lock:
            if not self.spec.key:
                rows = to_table(keys, self.spec)
                self._writer.rows(rows, np.full(rows.num_rows, -1, dtype=np.int64), self.manual_commit())
                return int(rows.num_rows)
            if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
                keys = [keys]
            wanted = {_encoded(self._writer.codec, (key,)) for key in keys}
            known = [key for key in wanted if self._version.find(key) is not None]
            self._writer.keyed(None, known, self.manual_commit())
        return len(known)

    def manual_commit(self, statement: str | None = None) -> Commit:
        """The next commit by hand; `statement` identifies one that must not run twice.

        Without one, the commit keeps that of the commit before: who has to know of it may not know yet.
        """
        last = self._version.commit
        mark = statement or (last.extra.get("statement") if last else None)
        extra = {"statement": mark} if mark else {}
        return Commit("manual", last.batch + 1 if last else 1, {}, datetime.now(UTC), extra)

    def _check_by_hand(self) -> None:
        self._check_writable()
        owner = self.spec.owner
        if owner is not None:
            raise TableError(
                f'table "{self.name}" is filled by job "{owner}"',
                hint="change what the job reads, or create a table without AS SELECT",
            )

    def _check_writable(self) -> None:
        if self._closed is not None:
            raise TableError(f'table "{self.name}" was {self._closed}')
        if self._journal.read_only:
            raise TableError(f'table "{self.name}" was opened read-only')

    def close(self, *, dropped: bool = False) -> None:
        """Let go of files; rows already in memory stay readable."""
        with self._writer.lock:
            self._closed = "dropped" if dropped else self._closed or "closed"
            self._budget.leave(self._writer)
        self._writer.close(dropped=dropped)
        with self._published:
            self._published.notify_all()


def _encoded(codec: KeyCodec, key: tuple[Any, ...]) -> Hashable:
    """The canonical key; a key of several columns may be given as one tuple."""
    if len(key) == 1 and isinstance(key[0], tuple) and len(codec.columns) > 1:
        key = key[0]
    return codec.encode(key)


def _key_columns(keys: pa.Table, spec: TableSpec) -> pa.Table:
    schema = pa.schema([spec.schema.field(name) for name in spec.key])
    return align(keys.select(list(spec.key)), schema, spec.name)
