"""A table: what readers and the one writer see."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.errors import TableError
from velostream.model.changes import FORGETS, Commit
from velostream.model.moments import micros
from velostream.serving.table.ending import End
from velostream.serving.table.reader import TableReader, encoded_key, key_columns
from velostream.serving.table.rows import key_exists, to_table
from velostream.serving.table.writer import Writer

if TYPE_CHECKING:
    from velostream.serving.durable.journal import Journal
    from velostream.serving.durable.verification import TableReport
    from velostream.serving.sql.questions import Questions
    from velostream.serving.table.budget import MemoryBudget


class Table(TableReader):
    """Rows that one writer changes commit by commit, while any number of threads read whole versions."""

    def __init__(
        self,
        journal: Journal,
        questions: Questions,
        budget: MemoryBudget,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(journal, questions)
        self._clock = clock
        self._budget = budget
        self._writer = Writer(journal, self._publish, budget, self.lifetime)

    # --- the job's side -----------------------------------------------------------------------------

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Keep other writers out, from reading what a change depends on to its commit; readers go on."""
        with self._writer.lock:
            self.lifetime.check()
            yield

    def commit_keyed(self, upserts: pa.Table | None, deletes: pa.Table | None, commit: Commit) -> int:
        """Delete keys, then insert or replace rows by key (the last of equal keys counts); the new version.

        `upserts` are physical rows, `deletes` key columns. When it returns, the commit is durable. Rows that
        stay as they are drop out; when nothing changes only the commit is recorded, and the version stays.
        """
        self._check_writable()
        keys: list[Hashable] = []
        if deletes is not None and deletes.num_rows:
            keys = self._writer.codec.encode_columns(key_columns(deletes, self.spec))
        return self._writer.keyed(upserts, keys, commit)

    def commit_rows(self, rows: pa.Table, weights: pa.Array | None, commit: Commit) -> int:
        """Add rows to a multiset with their weights (None: each once); negative weights take rows back.

        Raises InternalError when a row would be there less than zero times; nothing is kept then.
        """
        self._check_writable()
        amounts = None if weights is None else np.asarray(weights.cast(pa.int64()), dtype=np.int64)
        return self._writer.rows(rows, amounts, commit)

    def remove_where(self, keys: pa.Table, commit: Commit) -> int:
        """Take all rows out of a multiset whose columns equal a row of `keys`; the version then."""
        self._check_writable()
        return self._writer.remove_where(keys, commit)

    def replace_all(self, rows: pa.Table, commit: Commit) -> int:
        """Make these physical rows the whole content; the log gets the net difference."""
        self._check_writable()
        return self._writer.replace(rows, commit)

    def truncate(self, commit: Commit | None = None) -> int:
        """Delete all rows."""
        self._check_writable()
        return self._writer.replace(self.spec.schema.empty_table(), commit or self.manual_commit())

    @property
    def next_due(self) -> int | None:
        """When the next row leaves by itself, in microseconds since 1970; None when none does."""
        return self._writer.next_due()

    def expire(self, *, forget: bool = False) -> int:
        """Take out the rows whose retention is over, in a commit of their own; the version then.

        `forget`: whoever follows the table passes over it, see `FORGETS`.
        """
        self._check_writable()
        with self._writer.lock:
            last, at = self._version.commit, self._clock()
            commit = replace(last, at=at) if self.spec.owner is not None and last else self.manual_commit()
            extra = {name: value for name, value in commit.extra.items() if name != FORGETS}
            commit = replace(commit, extra=extra | ({FORGETS: True} if forget else {}))
            return self._writer.expire(micros(at), commit)

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
        self.lifetime.check()
        version = self._version
        seen: set[Hashable] = set()
        keys = self._writer.codec.encode_columns(rows)
        for number, key in enumerate(keys):
            if key in seen or version.find(key) is not None:
                raise key_exists(self.spec, rows, number)
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
            row_id = self._version.find(encoded_key(self._writer.codec, (key,)))
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
            wanted = {encoded_key(self._writer.codec, (key,)) for key in keys}
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
        return Commit("manual", last.batch + 1 if last else 1, {}, self._clock(), extra)

    def _check_by_hand(self) -> None:
        self._check_writable()
        owner = self.spec.owner
        if owner is not None:
            raise TableError(
                f'table "{self.name}" is filled by job "{owner}"',
                hint="change what the job reads, or create a table without AS SELECT",
            )

    def _check_writable(self) -> None:
        self.lifetime.check()
        if self._journal.read_only:
            raise TableError(f'table "{self.name}" was opened read-only')

    def close(self, end: End = End.CLOSED) -> None:
        """Let go of rows and files, after the commit in hand; versions that were handed out stay readable."""
        with self._writer.lock:
            if self.lifetime.ended:
                return
            message, hint = end.told(self.name)
            self._budget.leave(self._writer)
            self._end(message, hint)
        self._writer.close(dropped=end is not End.CLOSED)
