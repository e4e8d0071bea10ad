"""Rows that come and go by the clock: a table that holds each row from when it is known until it is due.

A row's moments stand in hidden columns, in microseconds: `__from` (a row that is not there yet is stored, and
hidden by `__shown`) and `__until`. The clock of a version is the time of its commit, so that what a restart
finds is what was there, and rows that were due meanwhile go with the next commit.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.outputs.outputs import TableOutput
from velostream.model.changes import FORGETS
from velostream.model.columns import FROM, LEAVES, SHOWN, UNTIL
from velostream.model.moments import DueMoments, micros

if TYPE_CHECKING:
    from velostream.model.changes import Commit
    from velostream.serving.table.table import Table


def live_schema(schema: pa.Schema, *, leaves: bool = False) -> pa.Schema:
    """What is stored of rows that have moments."""
    if leaves and LEAVES not in schema.names:
        schema = schema.append(pa.field(LEAVES, pa.int64()))
    return schema.append(pa.field(SHOWN, pa.bool_())) if FROM in schema.names else schema


class LiveOutput(TableOutput):
    """A multiset of rows with moments. Every commit moves it to the commit's time; none goes back."""

    def __init__(self, table: Table, since: int | None = None) -> None:
        super().__init__(table)
        self._since = since
        names = [name for name in (FROM, UNTIL) if name in table.spec.schema.names]
        self._due = {name: DueMoments() for name in names}
        self._remember(table.version_object.physical())

    @property
    def clock(self) -> int | None:
        """The time that the rows are of, and before which no commit may go; None when there is none."""
        last = self.table.last_commit
        known = [at for at in (self._since, micros(last.at) if last is not None else None) if at is not None]
        return max(known, default=None)

    @property
    def next_due(self) -> int | None:
        """When the next row comes or goes, if one does."""
        firsts = [queue.first for queue in self._due.values() if queue.first is not None]
        return min(firsts, default=None)

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add rows and take rows back; those whose time has come or gone by the commit's time move too.

        A row that is taken back after it has gone by itself changes nothing: it is not there any more.
        """
        at = micros(commit.at)
        due = {name: queue.take(at) for name, queue in self._due.items()}
        try:
            self._move(at, due, added, removed, commit)
        except BaseException:
            for name, moments in due.items():
                self._due[name].add(moments)
            raise

    def _move(
        self, at: int, due: dict[str, list[int]], added: pa.Table, removed: pa.Table | None, commit: Commit
    ) -> None:
        came = [self._present(added, at)]
        gone, turned = self._stored(UNTIL, due), self._stored(FROM, due)
        # A row that comes and goes at once is among those that go.
        turned = self._not_gone(turned, at)
        if turned.num_rows:
            came.append(self._present(turned.drop_columns([SHOWN]), at))
        went = [self._present(removed, at)] if removed is not None else []
        super().rows(pa.concat_tables(came), pa.concat_tables([*went, gone, turned]), commit)
        self._remember(came[0])

    def replace_all(self, rows: pa.Table, commit: Commit) -> None:
        """Make these rows, as far as they have not gone, the whole content."""
        present = self._present(rows, micros(commit.at))
        super().replace_all(present, commit)
        self._due = {name: DueMoments() for name in self._due}
        self._remember(present)

    def age(self, commit: Commit) -> None:
        """Move on to the commit's time, without anything new."""
        nothing = self.table.spec.schema.empty_table()
        self.rows(nothing.drop_columns([SHOWN]) if FROM in self._due else nothing, None, commit)

    def _present(self, rows: pa.Table, at: int) -> pa.Table:
        """Rows that have not gone at a time, and whether they are there yet."""
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
        """The stored rows with one of these moments."""
        version = self.table.version_object
        if not due.get(name):
            return version.spec.schema.empty_table()
        return version.physical_where((name,), pa.table({name: pa.array(due[name], pa.int64())}))

    def _remember(self, rows: pa.Table) -> None:
        for name, queue in self._due.items():
            coming = rows.filter(pc.invert(rows.column(SHOWN))) if name == FROM else rows
            queue.add(np.unique(coming.column(name).drop_null().to_numpy()).tolist())


class ForgettingOutput(LiveOutput):
    """Rows that groups are computed from again, until what is computed from them is settled.

    `__leaves` has when that is: a moment of event time, or, with a `ttl`, of the clock. They are forgotten in
    commits of their own, which whoever reads the rows passes over.
    """

    def __init__(self, table: Table, since: int | None = None, ttl: int | None = None) -> None:
        super().__init__(table, since)
        self.ttl = ttl
        self._leaving = DueMoments()
        self._wait_for(table.version_object.physical())

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add rows; with a `ttl` the time that they leave follows from the commit's."""
        if self.ttl is not None:
            step = self.ttl // 8 + 1
            leaves = (micros(commit.at) + self.ttl) // step * step + step
            moments = pa.array(np.full(added.num_rows, leaves), pa.int64())
            plain = added.drop_columns([LEAVES]) if LEAVES in added.schema.names else added
            added = plain.append_column(pa.field(LEAVES, pa.int64()), moments)
        super().rows(added, removed, commit)
        self._wait_for(added)

    def due(self, at: int | None) -> bool:
        """Whether rows are to be forgotten when it is that late."""
        return at is not None and self._leaving.first is not None and self._leaving.first <= at

    def forget(self, at: int) -> None:
        """Forget the rows that are settled by a time."""
        last, moments = self.table.last_commit, self._leaving.take(at)
        if last is None or not moments:
            return
        try:
            wanted = pa.table({LEAVES: pa.array(moments, pa.int64())})
            self.table.remove_where(wanted, replace(last, extra={**last.extra, FORGETS: True}))
        except BaseException:
            self._leaving.add(moments)
            raise

    def _wait_for(self, rows: pa.Table) -> None:
        self._leaving.add(np.unique(rows.column(LEAVES).to_numpy()).tolist())
