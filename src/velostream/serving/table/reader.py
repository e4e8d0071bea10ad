"""What readers see of a table."""

from __future__ import annotations

import asyncio
from itertools import count
from threading import Condition
from time import sleep
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from velostream.errors import TableError, UnknownNameError, did_you_mean
from velostream.model.columns import HIDDEN, SHOWN
from velostream.model.lifetime import Ended, Lifetime
from velostream.serving.columns.dictionaries import plain, plain_column
from velostream.serving.columns.values import to_python
from velostream.serving.sql.cache import Asker
from velostream.serving.table.budget import memory_of
from velostream.serving.table.record import Row, row_class
from velostream.serving.table.schemas import align
from velostream.serving.table.stats import ColumnInfo, TableStats
from velostream.serving.table.subscription import Subscription

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable, Iterable, Iterator, Sequence

    from velostream.model.changes import Commit
    from velostream.model.tables import TableSpec
    from velostream.serving.columns.values import KeyCodec
    from velostream.serving.durable.journal import Journal
    from velostream.serving.index.keys import Link
    from velostream.serving.sql.questions import Questions
    from velostream.serving.table.version import TableVersion

FOUND = "__found"
"""Column of `fetch` that tells whether the key was there."""

_BATCH_ROWS = 65_536

_BURST = 16
_COURTESY = 0.0001
"""While a commit is being made, a reader that asks for key after key lets go of the interpreter for this
long every so many keys: readers in a loop would leave a writer a fifth of its speed otherwise."""


class TableReader:
    """The newest version of a table and what can be asked of it, by any number of threads.

    Reading never waits for the writer, nor the writer for readers: a version is one immutable object,
    published by one reference store. With a key, rows are found by it; without, equal rows may occur
    several times.
    """

    def __init__(self, journal: Journal, questions: Questions) -> None:
        self._journal = journal
        self._questions = questions
        self._asker = Asker(questions)
        self._published = Condition()
        self._health: tuple[str, str | None] = ("healthy", None)
        self._version: TableVersion
        self._link: Link
        self.lifetime = Lifetime()
        self._turns = count()

    def _publish(self, version: TableVersion) -> None:
        if self.lifetime.ended:
            # Segments were merged while the table was closed.
            return
        self._version = version
        self._link = version.link
        with self._published:
            self._published.notify_all()

    def _end(self, message: str, hint: str | None) -> None:
        """Let go of the rows and files; whoever asks for them from now on is told why they are gone.

        Versions that were handed out stay as they are.
        """
        self.lifetime.end(message, hint=hint)
        gone = Ended(self.lifetime)
        self._journal = cast("Journal", gone)
        self._version = cast("TableVersion", gone)
        self._link = cast("Link", gone)
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
        self.lifetime.check()
        return self._version

    @property
    def last_commit(self) -> Commit | None:
        """The newest commit, with the source offsets that the table contains."""
        return self._version.commit

    def describe(self) -> list[ColumnInfo]:
        """The columns that readers see."""
        spec = self.spec
        return [
            ColumnInfo(field.name, field.type, field.nullable, field.name in spec.lookup_key)
            for field in spec.visible_schema
        ]

    @property
    def health(self) -> tuple[str, str | None]:
        """How the table's source is, and the reason."""
        self.lifetime.check()
        return self._health

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

    @property
    def held(self) -> tuple[int, int]:
        """Rows that are stored, those that readers do not see included, and the memory that they need."""
        version = self._version
        return version.physical_count, memory_of(version).needed

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
        if not version.spec.lookup_key or version.index is None:
            raise self._keyless()
        if not version.link.newest and not next(self._turns) % _BURST:
            sleep(_COURTESY)
        codec = version.index.codec
        return version.lookup(key[0] if codec.alone and len(key) == 1 else encoded_key(codec, key))

    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order, all of one version; None where there is none."""
        version = self._version
        if not version.spec.lookup_key or version.index is None:
            raise self._keyless()
        codec = version.index.codec
        if codec.alone:
            return version.lookup_many(keys if isinstance(keys, list) else list(keys))
        return version.lookup_many([encoded_key(codec, (key,)) for key in keys])

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def _keyless(self) -> TableError:
        spec = self.spec
        hidden = "select all columns of GROUP BY, and both bounds where the query has a WINDOW"
        return TableError(
            f'table "{spec.name}" has no key',
            hint=hidden if spec.key else 'declare one with PRIMARY KEY or WITH ("key" = "…")',
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
        ids = version.find_all(version.index.codec.encode_columns(key_columns(keys, version.spec)))
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
            timeout,
        )

    def changes_between(self, after: int, upto: int, *, forgotten: bool = True) -> pa.Table:
        """The changes after version `after` up to `upto`, in order: visible columns and `_weight`.

        An update is the old row with weight -1 and the new one with +1; equal rows of a multiset may come
        as one row of greater weight. Without `forgotten`, rows that a table only forgot (`FORGETS`) are not
        among them. Raises LaggingReaderError when the log no longer reaches back.
        """
        return self._shown_changes(self._journal.changes(after, upto, forgotten=forgotten))

    def only_forgot(self, after: int, upto: int) -> bool:
        """Whether all changes between two versions are rows that the table only forgot."""
        return self._journal.only_forgot(after, upto)

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


def encoded_key(codec: KeyCodec, key: tuple[Any, ...]) -> Hashable:
    """The canonical key; a key of several columns may be given as one tuple."""
    if len(key) == 1 and isinstance(key[0], tuple) and len(codec.columns) > 1:
        key = key[0]
    return codec.encode(key)


def key_columns(keys: pa.Table, spec: TableSpec) -> pa.Table:
    """The key columns of rows, in the table's types."""
    schema = pa.schema([spec.schema.field(name) for name in spec.key])
    return align(keys.select(list(spec.key)), schema, spec.name)
