"""The read side of a table in memory: lookups, columns, scalars and changes."""

from __future__ import annotations

from itertools import count
from time import sleep
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from velostream.model.columns import HIDDEN, SHOWN
from velostream.model.lifetime import Ended
from velostream.serving.columns.dictionaries import plain_column
from velostream.serving.columns.values import to_python
from velostream.serving.contract.readable import FOUND
from velostream.serving.memory.budget import memory_of
from velostream.serving.sql.cache import Asker
from velostream.serving.table.publication import BATCH_ROWS, PublishedTable
from velostream.serving.table.schemas import align

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator
    from datetime import datetime

    from velostream.model.tables import TableSpec
    from velostream.serving.columns.values import KeyCodec
    from velostream.serving.contract.version import TableVersion
    from velostream.serving.durable.table_files import Journal
    from velostream.serving.index.keys import Link
    from velostream.serving.memory.version import MemoryVersion
    from velostream.serving.sql.questions import Questions
    from velostream.serving.table.record import Row
    from velostream.serving.table.stats import MemoryUse

_BURST = 16
_COURTESY = 0.0001
"""During a commit, a reader that looks up key after key sleeps this long every 16 keys, which releases the
interpreter: readers in a loop would leave a writer a fifth of its speed otherwise."""


class MemoryReader(PublishedTable):
    """Reads the newest version of a table in memory, from any number of threads.

    Reading never waits for the writer, nor the writer for readers.
    """

    _version: MemoryVersion

    def __init__(self, journal: Journal, questions: Questions, clock: Callable[[], datetime]) -> None:
        super().__init__(clock)
        self._journal = journal
        self._questions = questions
        self._asker = Asker(questions)
        self._link: Link
        self._turns = count()

    def _publish(self, version: TableVersion) -> None:
        if self.lifetime.ended:
            # Segments were merged while the table was closed.
            return
        self._version = cast("MemoryVersion", version)
        self._link = self._version.link
        self._wake()

    def _end(self, message: str, hint: str | None) -> None:
        super()._end(message, hint)
        gone = Ended(self.lifetime)
        self._journal = cast("Journal", gone)
        self._link = cast("Link", gone)

    # --- what it is ---------------------------------------------------------------------------------

    @property
    def version_object(self) -> MemoryVersion:
        """The newest version; it stays readable and unchanged as long as it is held."""
        self.lifetime.check()
        return self._version

    @property
    def held(self) -> tuple[int, int]:
        """The number of stored rows, hidden ones included, and the memory that they need."""
        version = self._version
        return version.physical_count, memory_of(version).needed

    def _memory(self) -> MemoryUse:
        return memory_of(self._version)

    def _asked(self) -> tuple[int, int]:
        return self._asker.counts(self.name)

    def _disk_bytes(self) -> int:
        return self._journal.disk_bytes

    # --- reading by key -----------------------------------------------------------------------------

    def get(self, key: Any, *more: Any) -> Row | None:
        """The row with this key, or None."""
        link = self._link
        try:
            row = link.direct[(key, *more) if more else key]
        except (KeyError, TypeError):
            return self._look_up((key, *more))
        # The flag is checked after the row was read: if the version is still the newest, the row is its own.
        return row if link.newest and row is not None else self._look_up((key, *more))

    def _look_up(self, key: tuple[Any, ...]) -> Row | None:
        version = self._version
        if not version.spec.lookup_key or version.index is None:
            raise self._keyless()
        if not version.link.newest and not next(self._turns) % _BURST:
            sleep(_COURTESY)
        codec = version.index.codec
        wanted = key[0] if codec.alone and len(key) == 1 else encoded_key(codec, key)
        # No column that can be a key has values that cannot be hashed.
        return version.lookup(wanted) if _hashable(wanted) else None

    def get_many(self, keys: Iterable[Any]) -> list[Row | None]:
        """The rows of several keys, in their order; None where there is none."""
        version = self._version
        if not version.spec.lookup_key or version.index is None:
            raise self._keyless()
        codec = version.index.codec
        if codec.alone:
            wanted = keys if isinstance(keys, list) else list(keys)
        else:
            wanted = [encoded_key(codec, (key,)) for key in keys]
        try:
            return version.lookup_many(wanted)
        except TypeError:
            if all(map(_hashable, wanted)):
                raise
            return [version.lookup(key) if _hashable(key) else None for key in wanted]

    def fetch(self, keys: pa.Table) -> pa.Table:
        """Physical rows for rows of key columns, in their order."""
        version = self._version
        if version.index is None:
            raise self._keyless()
        ids = version.find_all(version.index.codec.encode_columns(key_columns(keys, version.spec)))
        return version.take(ids).append_column(FOUND, pa.array(ids >= 0))

    # --- reading many -------------------------------------------------------------------------------

    def column(self, column: str, where: str | None = None) -> pa.ChunkedArray:
        """One column as Arrow, of the rows for which the condition holds."""
        name = self._resolve(column)
        if where is None:
            return plain_column(self._version.encoded.column(name))
        return self._asker.column(self._version, name, where)

    def column_values(self, column: str, where: str | None = None) -> list[Any]:
        """The values of one column, of the rows for which the condition holds."""
        version = self._version
        try:
            values = version.lists[column, where]  # type: ignore[index]
        except KeyError:
            if where is None:
                return to_python(self.column(column))
            return self._asker.values(version, self._resolve(column), where)
        next(self._asker.remembered)
        return values.copy()

    def scalar(self, expression: str, where: str | None = None) -> Any:
        """The one value of an expression over the rows."""
        version = self._version
        try:
            answer = version.answers[expression, where]
        except KeyError:
            return self._asker.scalar(version, expression, where)
        next(self._asker.remembered)
        return answer

    def _batches(self, where: str | None) -> Iterator[pa.RecordBatch]:
        version = self._version
        if where is not None:
            yield from self._questions.ask(version, "*", where).to_batches(max_chunksize=BATCH_ROWS)
            return
        for view in version.views:
            batch = view.visible
            for start in range(0, batch.num_rows, BATCH_ROWS):
                yield batch.slice(start, BATCH_ROWS)

    # --- changes ------------------------------------------------------------------------------------

    def changes_between(self, after: int, upto: int, *, forgotten: bool = True) -> pa.Table:
        """The changes after version `after` up to `upto`, from the log."""
        return self._shown_changes(self._journal.changes(after, upto, forgotten=forgotten))

    def only_forgot(self, after: int, upto: int) -> bool:
        """Whether all commits between two versions only forgot rows (`FORGETS`)."""
        return self._journal.only_forgot(after, upto)

    def _changes_by_version(self, after: int, upto: int) -> Iterator[tuple[int, pa.Table]]:
        for version, rows in self._journal.changes_by_version(after, upto):
            yield version, self._shown_changes(rows)

    def _shown_changes(self, rows: pa.Table) -> pa.Table:
        if SHOWN in rows.schema.names:
            rows = rows.filter(rows.column(SHOWN).fill_null(False))
        return rows.select([name for name in rows.schema.names if not name.startswith(HIDDEN)])

    def register_reader(self, reader: str, version: int) -> None:
        """Retain the changes after `version` for a named reader; compaction keeps them."""
        self._journal.register(reader, version)

    def release_reader(self, reader: str) -> None:
        """Stop retaining changes for a named reader."""
        self._journal.release(reader)


def encoded_key(codec: KeyCodec, key: tuple[Any, ...]) -> Hashable:
    """The canonical key; a key of several columns may be given as one tuple."""
    if len(key) == 1 and isinstance(key[0], tuple) and len(codec.columns) > 1:
        key = key[0]
    return codec.encode(key)


def _hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True


def key_columns(keys: pa.Table, spec: TableSpec) -> pa.Table:
    """The key columns of rows, in the table's types."""
    schema = pa.schema([spec.schema.field(name) for name in spec.key])
    return align(keys.select(list(spec.key)), schema, spec.name)
