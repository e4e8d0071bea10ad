"""Late rows of windows: groups of a batch whose window has closed, retracted from it and told one by one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.located import refused, rows_found
from velostream.engine.event_time.session_windows import continued
from velostream.engine.event_time.watermark import FOREVER, Watermarks
from velostream.engine.inputs.inputs import Halves
from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.outputs.outputs import table_of
from velostream.engine.rows.groups import micros_of, row_count
from velostream.engine.rows.multisets import codes
from velostream.model.columns import POSITION
from velostream.model.moments import END_OF_TIME, moment
from velostream.plan.derived.nodes import Both, Each, Keyed, Scan, walk
from velostream.plan.plans import GroupsPlan
from velostream.spark.dataframes import arrow_frame, checked_cast
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.bad_rows.located import Row
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.inputs.origin import Origin
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.result_schema import ResultShape
    from velostream.model.changes import BadRow, SourceOffsets
    from velostream.model.windows import Windowing

_TIMELESS = "the event time is null"


class LateWindows(Pipeline):
    """A plan of groups that take no more rows when the watermark has passed them."""

    def __init__(
        self, spark: SparkSession, plan: GroupsPlan, shape: ResultShape, inputs: Inputs, output: JobOutput
    ) -> None:
        super().__init__(spark, plan, shape, inputs, output)
        assert plan.windowing is not None
        self._windowing: Windowing = plan.windowing
        self.marks = Watermarks({}, None, 0.0)
        """As of the last commit."""
        self._forget_after: int | None = None
        """How long after it has closed a window leaves the table; None: it stays."""
        self.keep_late: Callable[[list[BadRow], str], None] = lambda rows, stage: None
        """Does with rows that were not taken in what the statement says."""
        self.late_rows = 0
        """Rows that came too late, since this was last asked."""
        self._origin: Origin | None = None
        """The step that brought the rows at hand, where they are kept beside the job and it is known."""

    @property
    def _forgotten_at(self) -> int | None:
        """The watermark at which windows closed that are forgotten by now; None when none are."""
        if self._forget_after is None or self.marks.at is None:
            return None
        return self.marks.at - self._forget_after

    @property
    def _over_at(self) -> int | None:
        """The watermark at which windows closed that take no row any more; None when there are none such."""
        return self.marks.at if self._windowing.late != "update" else self._forgotten_at

    def _closed_at(self, state: pa.Table, at: int | None) -> pa.Array | pa.ChunkedArray:
        if at is None or not self._windowing.bounded:
            return pa.array([at == FOREVER] * state.num_rows, pa.bool_())
        ended = pc.less_equal(micros_of(state.column(self._windowing.end)), at - self._windowing.grace)
        return pc.fill_null(ended, False)

    @property
    def _shown_mark(self) -> str:
        at = self.marks.at
        return "at the end" if at is None or at >= END_OF_TIME else f"{moment(at):%Y-%m-%d %H:%M:%S.%fZ}"

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
        if windowing.gap and self._timeless() and plan.detail_sql:
            # A session has a time: no group shows rows without one.
            rows = self._rows_without_time(plan, start, end)
            if rows:
                self.keep_late(self._as_known(rows, _TIMELESS, end), "timing")
        timeless, late = self._refused(plan, plus, minus)
        refused = pc.or_(timeless, late)
        if not pc.any(refused).as_py():
            return plus
        self._refuse(plan, plus.filter(timeless), "timing", _TIMELESS, start, end)
        too_late = plus.filter(late)
        count = row_count(too_late)
        if count and (windowing.late != "drop" or windowing.advance) and plan.detail_sql:
            rows = self._rows_of_groups(plan, too_late, start, end, self._over_at)
            count = len(rows)
            if windowing.late != "drop" and rows:
                self.keep_late(self._as_known(rows, self._told_late, end), "late")
        self.late_rows += count
        return plus.filter(pc.invert(refused))

    def _refused(self, plan: GroupsPlan, plus: pa.Table, minus: pa.Table | None) -> tuple[pa.Array, pa.Array]:
        """Which groups of a batch have no time, and which are too late."""
        windowing, over = self._windowing, self._over_at
        none = pa.array([False] * plus.num_rows, pa.bool_())
        if not windowing.bounded:
            return none, none
        timeless = pc.is_null(plus.column(windowing.end))
        if over is None:
            return timeless, none
        late = self._closed_at(plus, over)
        if windowing.gap:
            late = pc.and_(late, pc.invert(self._meets_open(plan, plus, over)))
        if minus is not None:
            # What takes the place of a row that was taken back is a correction.
            late = pc.and_(late, pc.invert(among(plus, plan.keys, minus.select(plan.keys))))
        return timeless, pc.and_(late, pc.invert(timeless))

    @property
    def _told_late(self) -> str:
        return f"late: its window had closed, the watermark was {self._shown_mark}"

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """See `Pipeline`."""
        found = self._not_taken(self.feed.changes(at, at, (), careful=True), at)
        # They have not come in yet.
        self._inputs.seen.forget()
        return found

    def too_late_from(self, origin: Origin) -> dict[str, str]:
        """The same, of records that are kept before windows are made of them."""
        kept = origin.frame()
        if kept is None:
            return {}
        self._origin = origin
        try:
            # From one session to the other, by the driver: letters are few.
            rows = arrow_frame(self._spark, kept.drop(POSITION).toArrow())
            return self._not_taken(self._through_steps(rows), {})
        finally:
            self._origin = None

    def _through_steps(self, rows: DataFrame) -> dict[str, Halves]:
        """Rows of the one input as the groups read them: computed by the steps below, if there are any."""
        below = self._plan.below
        if below is None:
            return {self._inputs.only.id: Halves(rows, None)}
        for step in walk(below):
            if isinstance(step, Scan):
                frame = rows.select(*step.columns)
            else:
                assert isinstance(step, Each | Both | Keyed)
                frame = self._spark.sql(step.sql)
            frame.createOrReplaceTempView(quote(step.view))
        return {below.view: Halves(self._spark.table(quote(below.view)), None)}

    def _not_taken(self, changes: dict[str, Halves], at: SourceOffsets) -> dict[str, str]:
        """Why no window takes rows, by position."""
        plan = self._plan
        assert isinstance(plan, GroupsPlan)
        if not plan.detail_sql:
            return {}
        plus = checked_cast(self._plus(plan.partial_sql, changes), self._shape.state)
        timeless, late = self._refused(plan, plus, None)
        found: dict[str, str] = {}
        if self._windowing.gap:
            found |= {position: _TIMELESS for position, _ in self._rows_without_time(plan, at, at)}
        for groups, why in ((plus.filter(timeless), _TIMELESS), (plus.filter(late), self._told_late)):
            if groups.num_rows:
                over = self._over_at if why != _TIMELESS else None
                found |= {position: why for position, _ in self._rows_of_groups(plan, groups, at, at, over)}
        return found

    def _meets_open(self, plan: GroupsPlan, plus: pa.Table, over: int) -> pa.Array:
        """Whether a session of the batch continues one that is not over."""
        return continued(plan, self._windowing, table_of(self._output), plus, over)

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
        self.keep_late(self._as_known(self._rows_of_groups(plan, groups, start, end), reason, end), stage)

    def _as_known(self, rows: list[Row], reason: str, end: SourceOffsets) -> list[BadRow]:
        """Rows of the input, as their source knows them."""
        if self._origin is not None:
            return refused(self._origin.item, reason, rows, self._origin.end[self._origin.item.id])
        item = self._inputs.all[self.stream] if self.stream is not None else self._inputs.only
        return refused(item, reason, rows, end[item.id])

    def rows_come_from(self, origin: Origin | None) -> None:
        """Say which step brought the rows at hand, where they are kept beside the job."""
        self._origin = origin

    def _rows_of_groups(
        self,
        plan: GroupsPlan,
        groups: pa.Table,
        start: SourceOffsets | None,
        end: SourceOffsets,
        over: int | None = None,
    ) -> list[Row]:
        """The rows of a range that these groups are made of."""
        spark = self._show_rows(start, end)
        arrow_frame(spark, groups.select(plan.keys)).createOrReplaceTempView("__refused")
        windowing = self._windowing
        on = [f"r.__k{number} <=> g.{quote(name)}" for number, name in enumerate(plan.keys[:-2], start=1)]
        on.append(
            f"((g.{quote(windowing.start)} IS NULL AND r.__time IS NULL) OR "
            f"(r.__time >= g.{quote(windowing.start)} AND r.__time < g.{quote(windowing.end)}))"
        )
        sql = f"SELECT r.* FROM ({plan.detail_sql}) r LEFT SEMI JOIN __refused g ON {' AND '.join(on)}"
        if windowing.advance and over is not None:
            # A row that one of its windows still takes is not late, though others have closed.
            time = "unix_micros(r.__time)"
            into = f"pmod({time} - {windowing.offset}L, {windowing.advance}L)"
            last = f"{time} - {into} + {windowing.size + windowing.grace}L"
            sql += f" WHERE r.__time IS NULL OR {last} <= {over}L"
        with translated():
            found = spark.sql(sql).toArrow()
        return rows_found(found)

    def _rows_without_time(
        self, plan: GroupsPlan, start: SourceOffsets | None, end: SourceOffsets
    ) -> list[Row]:
        spark = self._show_rows(start, end)
        with translated():
            return rows_found(spark.sql(f"SELECT * FROM ({plan.detail_sql}) WHERE __time IS NULL").toArrow())

    def _timeless(self) -> bool:
        """Whether rows without a time were seen in the batch in hand."""
        return False

    def _show_rows(self, start: SourceOffsets | None, end: SourceOffsets) -> SparkSession:
        """Make the rows of a range visible with their positions; the session that sees them."""
        if self._origin is not None:
            kept = self._origin.frame()
            if kept is not None:
                kept.createOrReplaceTempView(quote(self._inputs.only.id))
                return self._origin.pipeline.spark
            self._origin = None
        feed = self.feed if self.stream is not None else self._inputs
        changes = feed.changes(start, end, () if self.stream is not None else (POSITION,), careful=True)
        feed.register({key: halves.plus for key, halves in changes.items()})
        return self._spark


def among(rows: pa.Table, names: tuple[str, ...], keys: pa.Table) -> pa.Array:
    """Whether the key of each row is one of these; null equals null."""
    wanted = set(codes(keys, names))
    return pa.array([code in wanted for code in codes(rows, names)], pa.bool_())
