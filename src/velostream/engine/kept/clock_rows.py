"""Rows of filters on the clock: a table that adds and retracts rows as wall-clock time passes.

Hidden columns hold when, in microseconds: `__from` (until then the row is stored but hidden by `__shown`),
`__until` (then it is retracted) and `__leaves` (then it is forgotten: nothing is computed from it any more).
The clock of a version is the time of its commit, so that a restart continues from there: rows that became due
meanwhile are retracted with the next commit.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.kept.table import KeptTable
from velostream.engine.rows.due import forgetting
from velostream.model.columns import FROM, LEAVES, SHOWN, UNTIL
from velostream.model.moments import micros

if TYPE_CHECKING:
    from velostream.model.changes import Commit
    from velostream.serving.contract.table import Table


def kept_schema(schema: pa.Schema, *, leaves: bool = False) -> pa.Schema:
    """The stored schema: the rows' own, with the hidden columns that their moments need."""
    if leaves and LEAVES not in schema.names:
        schema = schema.append(pa.field(LEAVES, pa.int64()))
    return schema.append(pa.field(SHOWN, pa.bool_())) if FROM in schema.names else schema


class ClockRows(KeptTable):
    """A multiset of rows that age. Each commit advances it to the commit's time, which never decreases."""

    def __init__(self, table: Table, since: int | None = None, ttl: int | None = None) -> None:
        """`since`: the time before which rows were not read. `ttl`: rows are forgotten that long after their
        commit; without it `__leaves` is an event time."""
        self._since = since
        self._ttl = ttl
        super().__init__(table, (FROM, UNTIL, LEAVES))

    @property
    def clock(self) -> int | None:
        """See `KeptTable`."""
        last = self.table.last_commit
        known = [at for at in (self._since, micros(last.at) if last is not None else None) if at is not None]
        return max(known, default=None)

    @property
    def next_due(self) -> int | None:
        """See `KeptTable`."""
        firsts = [self._due[name].first for name in (FROM, UNTIL) if name in self._due]
        return min((first for first in firsts if first is not None), default=None)

    def due(self, at: int | None) -> bool:
        """See `KeptTable`."""
        return at is not None and self.next_due is not None and self.next_due <= at

    @property
    def retracts(self) -> bool:
        """Whether passing time retracts rows, or makes rows visible later than they arrived."""
        return bool({FROM, UNTIL} & self._due.keys())

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add and retract rows, and in the same commit show and retract those that are due by its time.

        The source's retraction of a row that has aged out already changes nothing.
        """
        at = micros(commit.at)
        with ExitStack() as stack:
            due = {
                name: stack.enter_context(self._due[name].taken(at))
                for name in (FROM, UNTIL)
                if name in self._due
            }
            came = [self._present(self._leaving(added, at), at)]
            gone, turned = self._stored(UNTIL, due), self._stored(FROM, due)
            # A row whose whole lifetime passed since the last commit is retracted only.
            turned = self._not_gone(turned, at)
            if turned.num_rows:
                came.append(self._present(turned.drop_columns([SHOWN]), at))
            went = [self._present(removed, at)] if removed is not None else []
            super().rows(pa.concat_tables(came), pa.concat_tables([*went, gone, turned]), commit)
        self._remember(came[0])

    def replace_all(self, rows: pa.Table, commit: Commit) -> None:
        """Make these rows, without those that have aged out, the whole content."""
        at = micros(commit.at)
        present = self._present(self._leaving(rows, at), at)
        super().replace_all(present, commit)
        for due in self._due.values():
            due.clear()
        self._remember(present)

    def age(self, commit: Commit) -> None:
        """See `KeptTable`."""
        nothing = self.table.spec.schema.empty_table()
        self.rows(nothing.drop_columns([SHOWN]) if FROM in self._due else nothing, None, commit)

    def forget_due(self, at: int | None, settled: int | None) -> None:
        """See `KeptTable`."""
        if LEAVES not in self._due:
            return
        leaving = self._due[LEAVES]
        with leaving.taken(at if self._ttl is not None else settled) as moments:
            commit = forgetting(self.table)
            if moments and commit is not None:
                self.table.remove_where(leaving.wanted(moments), commit)

    def _leaving(self, rows: pa.Table, at: int) -> pa.Table:
        """The rows, with a `ttl` also with the time at which they are forgotten, by that of their commit."""
        if self._ttl is None or LEAVES not in self._due:
            return rows
        # Rounded up to eighths of the ttl: few distinct moments, so that few commits forget many rows each.
        step = self._ttl // 8 + 1
        leaves = (at + self._ttl) // step * step + step
        plain = rows.drop_columns([LEAVES]) if LEAVES in rows.schema.names else rows
        moments = pa.array(np.full(rows.num_rows, leaves), pa.int64())
        return plain.append_column(pa.field(LEAVES, pa.int64()), moments)

    def _present(self, rows: pa.Table, at: int) -> pa.Table:
        """The rows that have not aged out at a time, with a flag for those that are visible by then."""
        rows = self._not_gone(rows, at)
        if FROM in self._due:
            shown = pc.fill_null(pc.less_equal(rows.column(FROM), at), True)
            rows = rows.append_column(pa.field(SHOWN, pa.bool_()), shown)
        return rows.select(self.table.spec.schema.names)

    def _not_gone(self, rows: pa.Table, at: int) -> pa.Table:
        if UNTIL not in self._due:
            return rows
        return rows.filter(pc.fill_null(pc.greater(rows.column(UNTIL), at), True))

    def _stored(self, name: str, due: dict[str, list[int]]) -> pa.Table:
        """The stored rows that are due at one of these moments."""
        return self._due[name].rows(due[name]) if name in due else self.table.spec.schema.empty_table()

    def _remember(self, rows: pa.Table) -> None:
        for name, due in self._due.items():
            due.remember(rows.filter(pc.invert(rows.column(SHOWN))) if name == FROM else rows)
