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

from velostream.model.changes import BadRow
from velostream.model.moments import END_OF_TIME, DueMoments, moment
from velostream.model.tables import HAVING, SHOWN
from velostream.plan.panes import pane_sql
from velostream.plan.planner import POSITION
from velostream.plan.plans import GroupsPlan
from velostream.plan.spark import arrow_frame, checked_cast, rows_of, translated
from velostream.runtime.finishing import Finisher
from velostream.runtime.grouping import absent, distinct_keys, micros_of, row_count
from velostream.runtime.multisets import codes
from velostream.runtime.outputs import table_of
from velostream.runtime.panes import windows_of
from velostream.runtime.pipeline import Pipeline, Progress
from velostream.runtime.sessions import continued, joined_sessions, stored_groups
from velostream.runtime.watermarks import FOREVER, WATERMARK, Watermarks, take_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from velostream.model.changes import Commit, SourceOffsets
    from velostream.model.windows import Windowing
    from velostream.runtime.inputs import Halves, Inputs
    from velostream.runtime.outputs import JobOutput
    from velostream.runtime.shapes import ResultShape


class WindowPipeline(Pipeline):
    """Runs a plan of groups that close."""

    def __init__(
        self, spark: SparkSession, plan: GroupsPlan, shape: ResultShape, inputs: Inputs, output: JobOutput
    ) -> None:
        super().__init__(spark, plan, shape, inputs, output)
        assert plan.windowing is not None
        self._windowing: Windowing = plan.windowing
        self._pane_sql = None if shape.inexact else pane_sql(plan)
        self._watched: list[Inputs] = [inputs]
        self.marks = Watermarks({}, None, 0.0)
        """As of the last commit."""
        self._ahead = self.marks
        """As of the batch in hand."""
        self._end: SourceOffsets = {}
        self._replaced: pa.Table | None = None
        """Keys of stored sessions that became part of others in the batch in hand."""
        self.keep_late: Callable[[list[BadRow], str], None] = lambda rows, stage: None
        """Does with rows that were not taken in what the statement says."""
        self.late_rows = 0
        """Rows that came too late, since this was last asked."""
        self.now: Callable[[], float] = lambda: 0.0
        self._open = DueMoments()
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
    ) -> pa.Table:
        plus = self._in_time(plan, plus, minus, start, end)
        self._move()
        return plus

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
        closed = None if self._windowing.late == "update" else self.marks.at
        if minus is None and plan.mergeable and self._shape.ordered:
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
        if self._windowing.late != "update" and minus is None:
            # What has closed stays as it is.
            fresh = fresh.filter(pc.invert(self._closed_at(fresh, self.marks.at)))
            stored = stored.filter(pc.invert(self._closed_at(stored, self.marks.at)))
        self._replaced = stored.select(plan.keys)
        return fresh

    def close_windows(self, at: int, commit: Commit) -> Progress:
        """Close what ends up to a time though no row came: partitions are silent, or nothing comes."""
        plan = self._plan
        assert isinstance(plan, GroupsPlan)
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

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Compute everything anew; the watermark stays, and with it what has closed."""
        self._ahead = self.marks
        done = super().rebuild(end, self._sealed(commit))
        self._open = DueMoments()
        self._remember(table_of(self._output).version_object.physical())
        return done

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
            rows = rows.filter(pc.invert(_among(rows, plan.keys, keys)))
        shown = rows.column(HAVING) if plan.having else pa.array([True] * rows.num_rows)
        return rows.set_column(rows.schema.get_field_index(SHOWN), SHOWN, shown).select(schema.names)

    # --- the watermark ------------------------------------------------------------------------------------

    def _ran(self, frame: DataFrame) -> None:
        super()._ran(frame)
        for inputs in self._watched:
            inputs.seen.read(frame)

    def _move(self) -> None:
        """Where the watermark is once the batch is in."""
        now = self.now()
        take_in(self._ahead, self._watched, self._end, now)
        self._ahead.move_to(self._ahead.reached(now))
        self._ahead.forget_idle(now, {name for inputs in self._watched for name in inputs.seen.named})

    def _is_closed(self, state: pa.Table) -> pa.Array | pa.ChunkedArray:
        """Which groups have closed once the batch is in."""
        return self._closed_at(state, self._ahead.at)

    def _closed_at(self, state: pa.Table, at: int | None) -> pa.Array | pa.ChunkedArray:
        if at is None or not self._windowing.bounded:
            return pa.array([at == FOREVER] * state.num_rows, pa.bool_())
        ended = pc.less_equal(micros_of(state.column(self._windowing.end)), at - self._windowing.grace)
        return pc.fill_null(ended, False)

    @property
    def _shown_mark(self) -> str:
        at = self.marks.at
        return "at the end" if at is None or at >= END_OF_TIME else f"{moment(at):%Y-%m-%d %H:%M:%S.%fZ}"

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

    # --- late rows ----------------------------------------------------------------------------------------

    def _in_time(
        self,
        plan: GroupsPlan,
        plus: pa.Table,
        minus: pa.Table | None,
        start: SourceOffsets | None,
        end: SourceOffsets,
    ) -> pa.Table:
        """The groups of a batch but those that are too late, or have no time: these are counted and kept."""
        windowing = self._windowing
        if not windowing.bounded:
            return plus
        timeless = pc.is_null(plus.column(windowing.end))
        late = pa.array([False] * plus.num_rows, pa.bool_())
        if windowing.late != "update" and self.marks.at is not None:
            late = self._closed_at(plus, self.marks.at)
            if windowing.gap:
                late = pc.and_(late, pc.invert(self._meets_open(plan, plus)))
            if minus is not None:
                # What takes the place of a row that was taken back is a correction.
                late = pc.and_(late, pc.invert(_among(plus, plan.keys, minus.select(plan.keys))))
        refused = pc.or_(timeless, late)
        if not pc.any(refused).as_py():
            return plus
        self._refuse(plan, plus.filter(timeless), "timing", "the event time is null", start, end)
        told = f"late: its window had closed, the watermark was {self._shown_mark}"
        too_late = plus.filter(pc.and_(late, pc.invert(timeless)))
        count = row_count(too_late)
        if count and (windowing.late == "dead_letter" or windowing.advance) and plan.detail_sql:
            rows = list(self._rows_of_groups(plan, too_late, told, start, end))
            count = len(rows)
            if windowing.late == "dead_letter" and rows:
                self.keep_late(rows, "late")
        self.late_rows += count
        return plus.filter(pc.invert(refused))

    def _meets_open(self, plan: GroupsPlan, plus: pa.Table) -> pa.Array:
        """Whether a session of the batch continues one that has not closed."""
        closed = self.marks.at
        stored = table_of(self._output)
        return continued(plan, self._windowing, stored, plus, closed)

    def _refuse(
        self,
        plan: GroupsPlan,
        groups: pa.Table,
        stage: str,
        reason: str,
        start: SourceOffsets | None,
        end: SourceOffsets,
    ) -> None:
        """Keep the rows of these groups as the statement says."""
        if groups.num_rows == 0 or not plan.detail_sql:
            return
        self.keep_late(list(self._rows_of_groups(plan, groups, reason, start, end)), stage)

    def _rows_of_groups(
        self,
        plan: GroupsPlan,
        groups: pa.Table,
        reason: str,
        start: SourceOffsets | None,
        end: SourceOffsets,
    ) -> Iterable[BadRow]:
        changes = self.feed.changes(start, end, (POSITION,), careful=True)
        self.feed.register({key: halves.plus for key, halves in changes.items()})
        arrow_frame(self._spark, groups.select(plan.keys)).createOrReplaceTempView("__refused")
        windowing = self._windowing
        on = [f"r.__k{number} <=> g.`{name}`" for number, name in enumerate(plan.keys[:-2], start=1)]
        on.append(
            f"((g.`{windowing.start}` IS NULL AND r.__time IS NULL) OR "
            f"(r.__time >= g.`{windowing.start}` AND r.__time < g.`{windowing.end}`))"
        )
        sql = f"SELECT r.* FROM ({plan.detail_sql}) r LEFT SEMI JOIN __refused g ON {' AND '.join(on)}"
        if windowing.advance and self.marks.at is not None:
            # A row that one of its windows still takes is not late, though others have closed.
            time = "unix_micros(r.__time)"
            last = f"{time} - pmod({time}, {windowing.advance}L) + {windowing.size + windowing.grace}L"
            sql += f" WHERE r.__time IS NULL OR {last} <= {self.marks.at}L"
        with translated():
            found = self._spark.sql(sql).toArrow()
        source = ", ".join(self.feed.descriptions.values())
        for position, row in zip(
            found.column("__position").to_pylist(), found.column("__row").to_pylist(), strict=True
        ):
            yield BadRow(reason, source, source, position or "", (row or "").encode())


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


def _among(rows: pa.Table, names: tuple[str, ...], keys: pa.Table) -> pa.Array:
    """Whether the key of each row is one of these; null equals null."""
    wanted = set(codes(keys, names))
    return pa.array([code in wanted for code in codes(rows, names)], pa.bool_())
