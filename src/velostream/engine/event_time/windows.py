"""Groups with windows: one step takes in what came, moves the watermark on, and closes what it has passed.

All of it is one commit. A window's row is there from its first record on, with its accumulators; with EMIT
FINAL readers do not see it before it has closed. Late rows are found among the groups of a batch, whose
bounds tell, so that input without late rows pays nothing for it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.event_time.late import LateWindows, among
from velostream.engine.event_time.panes import windows_of
from velostream.engine.event_time.session_windows import joined_sessions, stored_groups
from velostream.engine.event_time.watermark import FOREVER, WATERMARK, Watermarks, take_in
from velostream.engine.kinds.finish import Finisher
from velostream.engine.kinds.pipeline import Progress
from velostream.engine.outputs.outputs import table_of
from velostream.engine.rows.groups import absent, distinct_keys, micros_of
from velostream.model.changes import FORGETS, BadRow
from velostream.model.columns import HAVING, SHOWN
from velostream.model.moments import DueMoments
from velostream.plan.plans import GroupsPlan
from velostream.plan.time.panes import pane_sql
from velostream.spark.dataframes import checked_cast, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.inputs.inputs import Halves, Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.result_schema import ResultShape
    from velostream.model.changes import Commit, SourceOffsets


class WindowPipeline(LateWindows):
    """Runs a plan of groups that close."""

    def __init__(
        self, spark: SparkSession, plan: GroupsPlan, shape: ResultShape, inputs: Inputs, output: JobOutput
    ) -> None:
        super().__init__(spark, plan, shape, inputs, output)
        self._pane_sql = None if shape.inexact else pane_sql(plan)
        self._watched: list[Inputs] = [inputs]
        self._ahead = self.marks
        """As of the batch in hand."""
        self._end: SourceOffsets = {}
        self._replaced: pa.Table | None = None
        """Keys of stored sessions that became part of others in the batch in hand."""
        self.now: Callable[[], float] = lambda: 0.0
        self._followed: Callable[[], bool] = lambda: True
        self._open = DueMoments()
        self._past = DueMoments()
        self._finisher = _WindowFinisher(spark, shape, self._is_closed)

    def begin(self, watched: Iterable[Inputs], now: Callable[[], float]) -> None:
        """Set out from what the table records; `watched` are the inputs whose event times count."""
        self._watched = list(watched)
        self.now = now
        times = {
            item.id: item.time for inputs in self._watched for item in inputs.all.values() if item.watched
        }
        last = table_of(self._output).last_commit
        recorded = last.extra.get(WATERMARK) if last is not None else None
        self.marks = self._ahead = Watermarks(times, recorded, now())
        rows = table_of(self._output).version_object.physical()
        self._remember(rows)

    # --- one step -----------------------------------------------------------------------------------------

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Bring the table from `start` to `end` in one commit, and the watermark with it."""
        self._begin_step(end)
        return super().advance(start, end, commit, careful=careful)

    def advance_around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        """As `advance`, without groups whose sums do not fit."""
        self._begin_step(end)
        return super().advance_around_overflow(start, end, commit, keep)

    def _begin_step(self, end: SourceOffsets) -> None:
        """Until the commit the watermark is what it was: another attempt must find the same rows late."""
        self._forget()
        self._end = end
        self.late_rows = 0
        self._ahead = self.marks.copy()
        self._replaced = None

    def _plus(self, sql: str, changes: dict[str, Halves]) -> pa.Table:
        panes = self._panes(sql)
        return super()._plus(sql, changes) if panes is None else self._windows(super()._plus(panes, changes))

    def _minus(self, sql: str, changes: dict[str, Halves]) -> pa.Table | None:
        panes = self._panes(sql)
        found = super()._minus(sql if panes is None else panes, changes)
        return found if panes is None or found is None else self._windows(found)

    def _panes(self, sql: str) -> str | None:
        """What is asked for instead of the groups of a batch, where windows overlap."""
        assert isinstance(self._plan, GroupsPlan)
        return self._pane_sql if sql == self._plan.partial_sql else None

    def _windows(self, panes: pa.Table) -> pa.Table:
        assert isinstance(self._plan, GroupsPlan)
        return windows_of(self._plan, self._windowing, panes)

    def _taken_in(
        self,
        plan: GroupsPlan,
        plus: pa.Table,
        minus: pa.Table | None,
        start: SourceOffsets | None,
        end: SourceOffsets,
    ) -> tuple[pa.Table, pa.Table | None]:
        gone = self._forgotten_at
        if minus is not None and gone is not None:
            # What was forgotten cannot be corrected.
            minus = minus.filter(pc.invert(self._closed_at(minus, gone)))
            minus = minus if minus.num_rows else None
        plus = self._in_time(plan, plus, minus, start, end)
        self._move()
        return plus, minus

    def _state(
        self,
        plan: GroupsPlan,
        plus: pa.Table,
        minus: pa.Table | None,
        start: SourceOffsets | None,
        end: SourceOffsets,
        careful: bool,
    ) -> pa.Table:
        if not self._windowing.gap:
            return super()._state(plan, plus, minus, start, end, careful)
        closed = self._over_at
        if minus is None and plan.mergeable and self._shape.merges:
            state, self._replaced = joined_sessions(
                plan, self._windowing, table_of(self._output), plus, closed
            )
            return state
        return self._fresh_groups(plan, plus, minus, end, plan.partial_sql, careful=careful)

    def _fresh_groups(
        self,
        plan: GroupsPlan,
        plus: pa.Table,
        minus: pa.Table | None,
        end: SourceOffsets,
        sql: str,
        *,
        careful: bool,
    ) -> pa.Table:
        """For sessions: all of the groups that the batch touched, made again from all rows."""
        if not self._windowing.gap:
            return super()._fresh_groups(plan, plus, minus, end, sql, careful=careful)
        groups = plan.keys[:-2]
        parts = [plus.select(groups), *([minus.select(groups)] if minus is not None else [])]
        touched = distinct_keys(pa.concat_tables(parts))
        self.feed.register(self.feed.restricted(end, plan.below_keys[:-2], touched, careful=careful))
        rows = self._only(touched, sql, groups) if groups else rows_of(self._spark, sql)
        fresh = checked_cast(rows, self._shape.state)
        stored = stored_groups(table_of(self._output), touched)
        over = self._over_at if minus is None else self._forgotten_at
        if over is not None:
            # What has closed stays as it is.
            fresh = fresh.filter(pc.invert(self._closed_at(fresh, over)))
            stored = stored.filter(pc.invert(self._closed_at(stored, over)))
        self._replaced = stored.select(plan.keys)
        return fresh

    def close_windows(self, at: int, commit: Commit) -> Progress:
        """Close what ends up to a time though no row came: partitions are silent, or nothing comes."""
        plan = self._plan
        assert isinstance(plan, GroupsPlan)
        self._forget()
        self._end = commit.offsets
        self._ahead = self.marks.copy()
        self._ahead.move_to(at)
        nothing = self._shape.physical.empty_table()
        return Progress(0, self._commit(plan, nothing, None, commit))

    def _commit_groups(
        self, plan: GroupsPlan, upserts: pa.Table, deletes: pa.Table | None, commit: Commit
    ) -> None:
        if self._replaced is not None and self._replaced.num_rows:
            gone = absent(self._replaced, upserts.select(plan.keys).cast(self._replaced.schema))
            deletes = gone if deletes is None else pa.concat_tables([deletes.cast(gone.schema), gone])
        self._commit(plan, upserts, deletes, commit)

    def _commit(self, plan: GroupsPlan, upserts: pa.Table, deletes: pa.Table | None, commit: Commit) -> int:
        table, at = table_of(self._output), self._ahead.at
        due = self._open.take(at) if at is not None else []
        try:
            closing = self._closing(plan, due, upserts, deletes)
            both = pa.concat_tables([upserts, closing]) if closing.num_rows else upserts
            table.commit_keyed(both, deletes, self._sealed(commit))
        except BaseException:
            self._open.add(due)
            raise
        self.marks = self._ahead
        self._remember(upserts)
        return int(closing.num_rows)

    def _sealed(self, commit: Commit) -> Commit:
        lost = {} if "lost" in commit.extra else {"lost": sorted(self.lost)} if self.lost else {}
        return replace(commit, extra={**lost, **commit.extra, WATERMARK: self._ahead.recorded()})

    def pass_over(self, commit: Commit) -> Progress:
        """Record positions; the watermark stays."""
        self._ahead = self.marks
        return super().pass_over(self._sealed(commit))

    def _cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        """Never: what came has to move the watermark on."""
        return False

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Compute everything anew; the watermark stays, and with it what has closed."""
        self._ahead = self.marks
        done = super().rebuild(end, self._sealed(commit))
        self._open, self._past = DueMoments(), DueMoments()
        self._remember(table_of(self._output).version_object.physical())
        return done

    def _finished(self, found: pa.Table) -> pa.Table:
        rows, gone = super()._finished(found), self._forgotten_at
        return rows if gone is None else rows.filter(pc.invert(self._closed_at(rows, gone)))

    # --- forgetting ---------------------------------------------------------------------------------------

    def forgets(self, after: int, followed: Callable[[], bool] = lambda: True) -> None:
        """Let windows leave the table that long after they have closed.

        `followed`: whether whoever follows the table has begun to, and so learns all of it from the log.
        """
        self._forget_after, self._followed = after, followed
        self._remember(table_of(self._output).version_object.physical())

    @property
    def settled_at(self) -> int | None:
        """The latest end of windows that take no row any more; of sessions, where none is open before it."""
        if self._over_at is None or not self._windowing.bounded:
            return None
        at = self._over_at - self._windowing.grace
        if not self._windowing.gap:
            return at
        rows = table_of(self._output).version_object.physical()
        rows = rows.filter(pc.greater(micros_of(rows.column(self._windowing.end)), at))
        starts = micros_of(rows.column(self._windowing.start))
        return min(at, pc.min(starts).as_py()) if rows.num_rows else at

    def _forget(self) -> None:
        """Take windows out of the table that closed long enough ago, in a commit that tells so."""
        table, at = table_of(self._output), self._forgotten_at
        last = table.last_commit
        if at is None or last is None or not self._windowing.bounded or not self._followed():
            return
        due = self._past.take(at)
        if not due:
            return
        try:
            ends = pa.array([moment - self._windowing.grace for moment in due], pa.int64())
            kind = table.spec.schema.field(self._windowing.end).type
            wanted = pa.table({self._windowing.end: ends.cast(kind)})
            keys = table.version_object.physical_where((self._windowing.end,), wanted)
            if keys.num_rows:
                told = replace(last, extra={**last.extra, FORGETS: True})
                table.commit_keyed(None, keys.select(table.spec.key), told)
        except BaseException:
            self._past.add(due)
            raise

    def _closing(
        self, plan: GroupsPlan, due: list[int], upserts: pa.Table, deletes: pa.Table | None
    ) -> pa.Table:
        """Stored rows whose window closes now and that the batch does not touch, as readers see them then."""
        schema = self._shape.physical
        if not due or not self._windowing.final:
            return schema.empty_table()
        version = table_of(self._output).version_object
        if self._windowing.bounded:
            ends = pa.array([at - self._windowing.grace for at in due], pa.int64())
            kind = schema.field(self._windowing.end).type
            rows = version.physical_where(
                (self._windowing.end,), pa.table({self._windowing.end: ends.cast(kind)})
            )
        else:
            rows = version.physical()
        rows = rows.filter(pc.invert(rows.column(SHOWN)))
        touched = [
            part.select(plan.keys) for part in (upserts, deletes) if part is not None and part.num_rows
        ]
        for keys in touched:
            rows = rows.filter(pc.invert(among(rows, plan.keys, keys)))
        shown = rows.column(HAVING) if plan.having else pa.array([True] * rows.num_rows)
        return rows.set_column(rows.schema.get_field_index(SHOWN), SHOWN, shown).select(schema.names)

    # --- the watermark ------------------------------------------------------------------------------------

    def _ran(self, frame: DataFrame) -> None:
        super()._ran(frame)
        for inputs in self._watched:
            inputs.seen.read(frame)

    def _timeless(self) -> bool:
        return any(inputs.seen.timeless for inputs in self._watched)

    def _move(self) -> None:
        """Where the watermark is once the batch is in."""
        now = self.now()
        take_in(self._ahead, self._watched, self._end, now)
        self._ahead.move_to(self._ahead.reached(now))

    def _is_closed(self, state: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Which groups have closed once the batch is in."""
        return self._closed_at(state, self._ahead.at)

    @property
    def waiting(self) -> bool:
        """Whether a window is open."""
        return self._open.first is not None

    @property
    def close_after(self) -> float | None:
        """Seconds without rows after which windows close."""
        return self._windowing.close_after

    @property
    def furthest(self) -> int | None:
        """When the last window that is open closes."""
        return self._open.last

    def _remember(self, rows: pa.Table) -> None:
        """Wait for the windows of these rows to close."""
        if not self._windowing.bounded:
            self._open.add([FOREVER] if rows.num_rows and self.marks.at != FOREVER else [])
            return
        ends = np.unique(micros_of(rows.column(self._windowing.end)).to_numpy()) + self._windowing.grace
        self._open.add(ends[ends > (self.marks.at if self.marks.at is not None else -FOREVER)].tolist())
        if self._forget_after is not None:
            self._past.add(ends.tolist())


class _WindowFinisher(Finisher):
    """Shows groups that have closed."""

    def __init__(
        self,
        spark: SparkSession,
        shape: ResultShape,
        closed: Callable[[pa.Table], pa.Array | pa.ChunkedArray],
    ) -> None:
        super().__init__(spark, shape)
        self._closed = closed

    def shown(
        self, plan: GroupsPlan, state: pa.Table, having: pa.ChunkedArray | None
    ) -> dict[str, pa.ChunkedArray]:
        """The hidden columns that decide what readers see."""
        assert plan.windowing is not None
        if not plan.windowing.final:
            return super().shown(plan, state, having)
        closed = self._closed(state)
        if having is None:
            return {SHOWN: closed}
        return {SHOWN: pc.and_(closed, having), HAVING: having}
