"""A table in memory, durable by its log and snapshots."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.model.changes import FORGETS, Commit
from velostream.model.moments import micros
from velostream.serving.memory.reader import MemoryReader, encoded_key, key_columns
from velostream.serving.memory.writer import Writer
from velostream.serving.table.end import End

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    from velostream.serving.durable.table_files import Journal
    from velostream.serving.durable.verification import TableReport
    from velostream.serving.memory.budget import MemoryBudget
    from velostream.serving.sql.questions import Questions


class MemoryTable(MemoryReader):
    """Rows in segments of Arrow memory, with an index by key."""

    def __init__(
        self,
        journal: Journal,
        questions: Questions,
        budget: MemoryBudget,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        super().__init__(journal, questions, clock)
        self._budget = budget
        self._writer = Writer(journal, self._publish, budget, self.lifetime)

    @property
    def read_only(self) -> bool:
        """Whether the table was opened for reading only."""
        return self._journal.read_only

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Block other writers; readers are not affected."""
        with self._writer.lock:
            self.lifetime.check()
            yield

    # --- commits ------------------------------------------------------------------------------------

    def commit_keyed(self, upserts: pa.Table | None, deletes: pa.Table | None, commit: Commit) -> int:
        """Delete keys, then insert or replace rows by key; returns the new version."""
        self._check_writable()
        keys: list[Hashable] = []
        if deletes is not None and deletes.num_rows:
            keys = self._writer.codec.encode_columns(key_columns(deletes, self.spec))
        return self._writer.keyed(upserts, keys, commit)

    def commit_rows(self, rows: pa.Table, weights: pa.Array | None, commit: Commit) -> int:
        """Add rows to a multiset with their weights; negative weights retract."""
        self._check_writable()
        amounts = None if weights is None else np.asarray(weights.cast(pa.int64()), dtype=np.int64)
        return self._writer.rows(rows, amounts, commit)

    def remove_where(self, keys: pa.Table, commit: Commit) -> int:
        """Retract rows of a multiset that have these values, without comparing whole rows."""
        self._check_writable()
        return self._writer.remove_where(keys, commit)

    def replace_all(self, rows: pa.Table, commit: Commit) -> int:
        """Make these physical rows the whole content; the log gets the net difference."""
        self._check_writable()
        return self._writer.replace(rows, commit)

    def evolve(self, schema: pa.Schema) -> None:
        """Widen the physical schema durably."""
        self._check_writable()
        self._writer.evolve(schema)

    # --- retention ----------------------------------------------------------------------------------

    @property
    def next_due(self) -> int | None:
        """When the next row expires, in microseconds since 1970; None when none does."""
        return self._writer.next_due()

    def expire(self, *, forget: bool = False) -> int:
        """Delete the rows whose retention is over, in a commit of their own; returns the version.

        With `forget` readers of the changes skip the commit. The table of a job keeps the job's positions.
        """
        self._check_writable()
        with self._writer.lock:
            last, at = self._version.commit, self._clock()
            commit = replace(last, at=at) if self.spec.owner is not None and last else self.manual_commit()
            extra = {name: value for name, value in commit.extra.items() if name != FORGETS}
            commit = replace(commit, extra=extra | ({FORGETS: True} if forget else {}))
            return self._writer.expire(micros(at), commit)

    # --- changes by hand ----------------------------------------------------------------------------

    def _there(self, keys: pa.Table) -> Sequence[bool]:
        version = self._version
        there: list[bool] = (version.find_all(self._writer.codec.encode_columns(keys)) >= 0).tolist()
        return there

    def _stored_with(self, keys: list[Any]) -> pa.Table:
        wanted = {encoded_key(self._writer.codec, (key,)) for key in keys}
        ids = self._version.find_all(list(wanted))
        return self._version.take(ids[ids >= 0])

    # --- the files ----------------------------------------------------------------------------------

    def checkpoint(self) -> None:
        """Write a snapshot now, so that the next start reads less log."""
        self._check_writable()
        self._writer.snapshot()

    def verify(self) -> TableReport:
        """Check every durable file; commits go on meanwhile."""
        return self._writer.verify()

    def close(self, end: End = End.CLOSED) -> None:
        """Release rows and files, after the current commit."""
        with self._writer.lock:
            if self.lifetime.ended:
                return
            message, hint = end.told(self.name)
            self._budget.leave(self._writer)
            self._end(message, hint)
        self._writer.close(dropped=end is not End.CLOSED)
