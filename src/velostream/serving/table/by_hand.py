"""INSERT, UPDATE and DELETE by users, for tables of any storage: each call is one durable commit."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import TableError
from velostream.model.changes import Commit
from velostream.serving.columns.values import KeyCodec
from velostream.serving.contract.writable import WritableTable
from velostream.serving.table.rows import key_exists, to_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


class ByHand(WritableTable):
    """INSERT, UPDATE and DELETE of the Python API. Raises TableError where a job fills the table."""

    def insert(self, rows: Any) -> int:
        """Add rows; returns how many. A key that exists raises KeyExistsError, and nothing is kept."""
        self._check_by_hand()
        table = to_table(rows, self.spec)
        with self.exclusive():
            if not self.spec.key:
                self.commit_rows(table, None, self.manual_commit())
            else:
                self.check_new(table)
                self.commit_keyed(table, None, self.manual_commit())
        return int(table.num_rows)

    def check_new(self, rows: pa.Table) -> None:
        """Raise KeyExistsError when the table has the key of one of these rows, or two of them share one."""
        self.lifetime.check()
        spec = self.spec
        keys = rows.select(list(spec.key))
        there = self._there(keys)
        seen: set[Hashable] = set()
        for number, key in enumerate(KeyCodec(spec.schema, spec.key).encode_columns(keys)):
            if there[number] or key in seen:
                raise key_exists(spec, keys, number)
            seen.add(key)

    def upsert(self, rows: Any) -> int:
        """Insert rows, or replace those with the same key; returns how many were given."""
        self._check_by_hand()
        if not self.spec.key:
            raise self._keyless()
        table = to_table(rows, self.spec)
        with self.exclusive():
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
        with self.exclusive():
            row = self._stored_with([key])
            if not row.num_rows:
                return 0
            changed = to_table([columns], self.spec, partial=True)
            for name in changed.schema.names:
                place = row.schema.get_field_index(name)
                row = row.set_column(place, row.schema.field(place), changed.column(name))
            self.commit_keyed(row, None, self.manual_commit())
        return 1

    def delete(self, keys: Any) -> int:
        """Delete rows by key, or, without a key, one equal row for each row given; returns how many."""
        self._check_by_hand()
        with self.exclusive():
            if not self.spec.key:
                rows = to_table(keys, self.spec)
                self.commit_rows(rows, pa.array([-1] * rows.num_rows, pa.int64()), self.manual_commit())
                return int(rows.num_rows)
            if isinstance(keys, str | bytes) or not isinstance(keys, Iterable):
                keys = [keys]
            known = self._stored_with(list(keys)).select(list(self.spec.key))
            self.commit_keyed(None, known, self.manual_commit())
        return int(known.num_rows)

    def truncate(self, commit: Commit | None = None) -> int:
        """Delete all rows; returns the new version."""
        self._check_writable()
        return self.replace_all(self.spec.schema.empty_table(), commit or self.manual_commit())

    def manual_commit(self, statement: str | None = None) -> Commit:
        """The next commit by a user; `statement` identifies a statement that must not run twice.

        Without one, the commit repeats that of the last commit, whose statement may not be recorded elsewhere
        yet.
        """
        last = self.version_object.commit
        mark = statement or (last.extra.get("statement") if last else None)
        extra = {"statement": mark} if mark else {}
        return Commit("manual", last.batch + 1 if last else 1, {}, self._now(), extra)

    def _check_by_hand(self) -> None:
        self._check_writable()
        owner = self.spec.owner
        if owner is not None:
            raise TableError(
                f'table "{self.name}" is filled by job "{owner}"',
                hint="change what the job reads, or create a table without AS SELECT",
            )

    # --- implemented by each storage ----------------------------------------------------------------

    @abstractmethod
    def _there(self, keys: pa.Table) -> Sequence[bool]:
        """For each row of key columns whether the table has it."""

    @abstractmethod
    def _stored_with(self, keys: list[Any]) -> pa.Table:
        """The physical rows with these keys, as users give them; each once, in no order."""

    @abstractmethod
    def _now(self) -> datetime:
        """The time of a commit."""
