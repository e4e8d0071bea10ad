"""Groups with windows: one step aggregates new rows, advances the watermark and closes windows.

All of it is one commit. A window is stored from its first record on, with its accumulators; with EMIT FINAL
its row is hidden from readers until the window has closed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.event_time.closing import Closing
from velostream.engine.event_time.late_windows import LateWindows, among
from velostream.engine.event_time.panes import aggregation
from velostream.engine.event_time.session_windows import joined_sessions, stored_groups
from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.kinds.finish import Finisher
from velostream.engine.kinds.groups import LOST, GroupsPipeline
from velostream.engine.rows.due import DueRows, forget
from velostream.engine.rows.group_keys import absent, distinct_keys, micros_of, row_count
from velostream.engine.runner import Progress, Runner
from velostream.model.columns import HAVING, SHOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.changes import BadRow, Commit, SourceOffsets
    from velostream.plan.plans import GroupsPlan


class Follower(Protocol):
    """A stage that follows the table of windows."""

    def offsets(self) -> SourceOffsets | None:
        """The positions that it has committed."""


class WindowPipeline(GroupsPipeline):
    """Runs a plan of groups with windows, each step exactly once: the watermark is part of its commit."""

    clock: EventClock

    def __init__(
        self,
        plan: GroupsPlan,
        shape: ResultShape,
        inputs: Inputs,
        output: JobOutput,
        runner: Runner,
        clock: EventClock,
    ) -> None:
        assert plan.windowing is not None
        super().__init__(plan, shape, inputs, output, runner, clock)
        self.windowing = plan.windowing
        self._closing = Closing(plan.windowing, clock)
        self._finisher = WindowFinisher(runner, shape, self._closing)
        self._aggregation = aggregation(plan, shape)
        self.late = LateWindows(
            self._aggregation, clock, self._closing, self._table, runner, inputs, self.feed
        )
        self._follower: Follower | None = None
        self._open = self._window_ends()
        """Open windows, by the watermark at which they close."""
        self._past: DueRows | None = None
        """Stored windows, by the watermark after which they are forgotten; None where they stay."""
        self._remember(self._table.version_object.physical())

    def _window_ends(self) -> DueRows:
        return DueRows(self._table, self.windowing.end, later=self.windowing.grace)

    # --- one step -----------------------------------------------------------------------------------------

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        self._begin_step(start)
        plus, minus = self._batch_groups(start, end, careful=careful)
        rows_in = row_count(plus) + (row_count(minus) if minus is not None else 0)
        minus = self._correctable(minus)
        # Late rows are told before the watermark moves: a batch is never late because of itself.
        plus = self.late.left_out(plus, minus, start, end)
        self.clock.move(end)
        state, replaced = self._window_state(plus, minus, start, end, careful=careful)
        upserts, deletes = self._finisher.split(self.plan, state, self._watermark)
        self._commit(upserts, self._also(deletes, replaced, upserts), commit)
        return Progress(rows_in, state.num_rows)

    def _around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        self._begin_step(start)
        plus, minus = self._tolerant_groups(start, end)
        minus = self._correctable(minus)
        plus = self.late.left_out(plus, minus, start, end)
        self.clock.move(end)
        state, replaced = plus, None
        if start is not None or minus is not None:
            state, replaced = self._fresh_windows(plus, minus, end, self.plan.tolerant_sql, careful=True)
        upserts, deletes, told = self._computable(state, commit, keep)
        self._commit(upserts, self._also(deletes, replaced, upserts), told)
        return Progress(row_count(plus), state.num_rows)

    def _begin_step(self, start: SourceOffsets | None) -> None:
        self._forget()
        self.clock.begin_step(start)

    def _correctable(self, minus: pa.Table | None) -> pa.Table | None:
        """The groups of retracted rows whose window is still stored; forgotten windows are not corrected."""
        minus = None if minus is None else self._closing.open(minus, self._closing.forgotten_at)
        return minus if minus is not None and minus.num_rows else None

    def _window_state(
        self,
        plus: pa.Table,
        minus: pa.Table | None,
        start: SourceOffsets | None,
        end: SourceOffsets,
        *,
        careful: bool,
    ) -> tuple[pa.Table, pa.Table | None]:
        """The new state of the groups that a batch changed, and the keys of stored sessions it replaces."""
        if not self.windowing.gap:
            return self._state(plus, minus, start, end, careful=careful), None
        if minus is None and self._merges:
            return joined_sessions(self.plan, self.windowing, self._table, plus, self._closing.over_at)
        return self._fresh_windows(plus, minus, end, self.plan.partial_sql, careful=careful)

    def _fresh_windows(
        self, plus: pa.Table, minus: pa.Table | None, end: SourceOffsets, sql: str, *, careful: bool
    ) -> tuple[pa.Table, pa.Table | None]:
        """As `_window_state`, recomputed from the source: for sessions, all those of the changed keys."""
        if not self.windowing.gap:
            return self._fresh_groups(plus, minus, end, sql, careful=careful), None
        keys = self.plan.keys[:-2]
        parts = [plus.select(keys), *([minus.select(keys)] if minus is not None else [])]
        touched = distinct_keys(pa.concat_tables(parts))
        self._runner.show(self.feed.restricted(end, self.plan.below_keys[:-2], touched, careful=careful))
        fresh = self._as_state(self._only(touched, sql, keys) if keys else self._runner.run(sql))
        # Closed windows keep their result, unless the source retracts rows: then all that are stored change.
        over = self._closing.over_at if minus is None else self._closing.forgotten_at
        stored = self._closing.open(stored_groups(self._table, touched), over)
        return self._closing.open(fresh, over), stored.select(self.plan.keys)

    def _also(
        self, deletes: pa.Table | None, replaced: pa.Table | None, upserts: pa.Table
    ) -> pa.Table | None:
        """The keys to delete, including those of sessions that were merged into others."""
        if replaced is None or not replaced.num_rows:
            return deletes
        gone = absent(replaced, upserts.select(self.plan.keys).cast(replaced.schema))
        return gone if deletes is None else pa.concat_tables([deletes.cast(gone.schema), gone])

    def _commit(self, upserts: pa.Table, deletes: pa.Table | None, commit: Commit) -> int:
        """Commit groups, and make windows visible that the watermark passed; returns their number."""
        with self._open.taken(self.clock.ahead.at) as moments:
            closing = self._closing_rows(moments, upserts, deletes)
            both = pa.concat_tables([upserts, closing]) if closing.num_rows else upserts
            self._table.commit_keyed(both, deletes, self._sealed(commit))
        self.clock.committed()
        self._remember(upserts)
        return int(closing.num_rows)

    def _sealed(self, commit: Commit) -> Commit:
        lost = {} if LOST in commit.extra else {LOST: sorted(self.lost)} if self.lost else {}
        return self.clock.sealed(replace(commit, extra={**lost, **commit.extra}))

    def pass_over(self, commit: Commit) -> Progress:
        """Record positions without reading rows; the watermark stays."""
        self.clock.stay()
        return super().pass_over(self._sealed(commit))

    def _cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        """Never: recomputing would not observe the new rows, which have to advance the watermark."""
        return False

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Recompute everything; the watermark stays, and closed windows stay closed."""
        self.clock.stay()
        done = super().rebuild(end, self._sealed(commit))
        self._open = self._window_ends()
        self._past = self._window_ends() if self._past is not None else None
        self._remember(self._table.version_object.physical())
        return done

    def _finished(self, found: pa.Table) -> pa.Table:
        rows = self._finisher.finished(self.plan, self._as_state(found), self._watermark)
        return self._closing.open(rows, self._closing.forgotten_at)

    # --- closing ------------------------------------------------------------------------------------------

    def closes_at(self, *, ended: bool) -> int | None:
        """See `Pipeline`."""
        if not self.waiting:
            return None
        return self.clock.closes_at(
            ended=ended, close_after=self.windowing.close_after, furthest=self._open.last
        )

    def close(self, at: int, commit: Commit) -> Progress:
        """Close windows that end up to `at` without new rows: partitions are idle or have ended."""
        self._forget()
        self.clock.begin_step(commit.offsets)
        self.clock.ahead.move_to(at)
        return Progress(0, self._commit(self._shape.physical.empty_table(), None, commit))

    @property
    def waiting(self) -> bool:
        """Whether a window is open."""
        return self._open.first is not None

    def _closing_rows(self, moments: list[int], upserts: pa.Table, deletes: pa.Table | None) -> pa.Table:
        """Stored rows whose window closes in this step and that the batch does not change, made visible.

        Rows that the batch changes are finished with it: `_WindowFinisher` makes them visible.
        """
        schema = self._shape.physical
        if not moments or not self.windowing.final:
            return schema.empty_table()
        bounded = self.windowing.bounded
        rows = self._open.rows(moments) if bounded else self._table.version_object.physical()
        rows = rows.filter(pc.invert(rows.column(SHOWN)))
        touched = [
            part.select(self.plan.keys) for part in (upserts, deletes) if part is not None and part.num_rows
        ]
        for keys in touched:
            rows = rows.filter(pc.invert(among(rows, self.plan.keys, keys)))
        shown = rows.column(HAVING) if self.plan.having else pa.array([True] * rows.num_rows)
        return rows.set_column(rows.schema.get_field_index(SHOWN), SHOWN, shown).select(schema.names)

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """See `Pipeline`."""
        return self.late.too_late(at)

    # --- forgetting ---------------------------------------------------------------------------------------

    def forgets(self, after: int, follower: Follower | None = None) -> None:
        """Delete windows from the table `after` microseconds of event time after they have closed.

        Not before the stage that follows the table, if one does, has its first position: it would start
        from a snapshot, in which forgotten windows are missing; afterwards it reads the log.
        """
        self._closing.forget_after, self._follower = after, follower
        self._past = self._window_ends()
        self._remember(self._table.version_object.physical())

    @property
    def settled_at(self) -> int | None:
        """The event time before which no window is computed again, so that kept rows before it can go.

        An open session may start before the watermark: then its start is that time.
        """
        if self._closing.over_at is None or not self.windowing.bounded:
            return None
        at = self._closing.over_at - self.windowing.grace
        if not self.windowing.gap:
            return at
        rows = self._table.version_object.physical()
        rows = rows.filter(pc.greater(micros_of(rows.column(self.windowing.end)), at))
        starts = micros_of(rows.column(self.windowing.start))
        return min(at, pc.min(starts).as_py()) if rows.num_rows else at

    def _forget(self) -> None:
        """Delete windows that closed long enough ago, in a commit that followers skip."""
        if self._past is None or not self.windowing.bounded:
            return
        if self._follower is not None and self._follower.offsets() is None:
            return
        with self._past.taken(self._closing.forgotten_at) as moments:
            forget(self._table, self._past.rows(moments))

    def _remember(self, rows: pa.Table) -> None:
        """Schedule the windows of these rows to close, and to be forgotten."""
        at = self.clock.at
        if not self.windowing.bounded:
            self._open.add([FOREVER] if rows.num_rows and at != FOREVER else [])
            return
        self._open.remember(rows, after=at)
        if self._past is not None:
            self._past.remember(rows)


class WindowFinisher(Finisher):
    """Makes groups visible to readers once their window has closed."""

    def __init__(self, runner: Runner, shape: ResultShape, closing: Closing) -> None:
        super().__init__(runner, shape)
        self._closing = closing

    def shown(
        self, plan: GroupsPlan, state: pa.Table, having: pa.ChunkedArray | None, at: int | None
    ) -> dict[str, pa.ChunkedArray]:
        """The hidden columns that decide whether readers see a row.

        HAVING is stored too: a window that closes later, without new rows, becomes visible by it.
        """
        assert plan.windowing is not None
        if not plan.windowing.final:
            return super().shown(plan, state, having, at)
        closed = self._closing.closed(state, at)
        if having is None:
            return {SHOWN: closed}
        return {SHOWN: pc.and_(closed, having), HAVING: having}
