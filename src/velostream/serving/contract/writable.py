"""The contract of tables for their writer: one job, or the statements of users."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import TableError
from velostream.serving.contract.readable import ReadableTable
from velostream.serving.table.end import End

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from velostream.model.changes import Commit
    from velostream.serving.durable.verification import TableReport


class WritableTable(ReadableTable, ABC):
    """Commits, one after the other: each is durable when the call returns, and atomic to readers.

    A commit records, in one step with the rows, the source offsets that the table contains with it. Unchanged
    rows are left out; when no row changes only the commit is recorded, and the version stays.
    """

    @property
    @abstractmethod
    def read_only(self) -> bool:
        """Whether the table was opened for reading only, so that every change is refused."""

    @abstractmethod
    def exclusive(self) -> AbstractContextManager[None]:
        """Block other writers, from reading what a change depends on to its commit; readers go on."""

    @abstractmethod
    def commit_keyed(self, upserts: pa.Table | None, deletes: pa.Table | None, commit: Commit) -> int:
        """Delete keys, then upsert rows by key (the last of equal keys wins); returns the new version.

        `upserts` are physical rows, `deletes` key columns. Raises InternalError where the table has no key.
        """

    @abstractmethod
    def commit_rows(self, rows: pa.Table, weights: pa.Array | None, commit: Commit) -> int:
        """Add physical rows to a multiset with their weights (None: each once); negative weights retract.

        Raises InternalError when more copies of a row are retracted than are stored, and where the table has
        a key; nothing is written then.
        """

    def remove_where(self, keys: pa.Table, commit: Commit) -> int:
        """Retract all rows of a multiset whose columns equal a row of `keys`; returns the version."""
        self._check_writable()
        with self.exclusive():
            rows = self.version_object.physical_where(keys.schema.names, keys)
            if not rows.num_rows:
                return self.version
            return self.commit_rows(rows, pa.array([-1] * rows.num_rows, pa.int64()), commit)

    @abstractmethod
    def replace_all(self, rows: pa.Table, commit: Commit) -> int:
        """Make these physical rows the whole content; followers of the table see the net difference."""

    @abstractmethod
    def evolve(self, schema: pa.Schema) -> None:
        """Widen the physical schema durably: wider types, new nullable columns. No digit may be lost."""

    # --- retention ----------------------------------------------------------------------------------

    @property
    def next_due(self) -> int | None:
        """When the next row expires, in microseconds since 1970; None when none does.

        Always None for storages without expiry; see `StorageTraits.expires`.
        """
        self.lifetime.check()
        return None

    def expire(self, *, forget: bool = False) -> int:
        """Delete the rows whose retention is over, in a commit of their own; returns the version.

        `forget`: followers of the table skip the commit, see `FORGETS`.
        """
        self._check_writable()
        return self.version

    # --- the files ----------------------------------------------------------------------------------

    @abstractmethod
    def checkpoint(self) -> None:
        """Compact the files now, so that the next start reads less."""

    @abstractmethod
    def verify(self) -> TableReport:
        """Check every durable file of the newest version."""

    @abstractmethod
    def close(self, end: End = End.CLOSED) -> None:
        """Release rows and files, after the current commit; `end` is the reason that further use raises."""

    def _check_writable(self) -> None:
        self.lifetime.check()
        if self.read_only:
            raise TableError(f'table "{self.name}" was opened read-only')
