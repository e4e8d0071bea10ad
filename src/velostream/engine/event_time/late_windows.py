"""Late rows of windows: groups of a batch whose window has closed are left out and reported row by row.

A late row is recognised by the window bounds of its group, after aggregation, so that a batch without late
rows pays nothing. Only when a group is late is the batch read again, for the rows of that group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.bad_rows.places import refused, rows_found
from velostream.engine.event_time.clock import TIMELESS
from velostream.engine.event_time.session_windows import continued
from velostream.engine.rows.group_keys import row_count
from velostream.engine.rows.multisets import codes
from velostream.engine.runner import Halves
from velostream.model.columns import POSITION
from velostream.plan.derived.nodes import Both, Each, Keyed, Scan, walk
from velostream.spark.dataframes import arrow_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from velostream.engine.bad_rows.places import Row
    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.event_time.closing import Closing
    from velostream.engine.event_time.origin import Origin
    from velostream.engine.inputs.feed import DerivedFeed
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.kinds.aggregation import Aggregation
    from velostream.engine.runner import Runner
    from velostream.model.changes import BadRow, SourceOffsets
    from velostream.serving.contract.table import Table


class LateWindows:
    """Finds the groups and rows of a batch that no window of one statement accepts any more."""

    def __init__(
        self,
        aggregation: Aggregation,
        clock: EventClock,
        closing: Closing,
        table: Table,
        runner: Runner,
        inputs: Inputs,
        feed: Inputs | DerivedFeed,
    ) -> None:
        """`table` holds the windows, which `aggregation` makes of rows."""
        self._aggregation = aggregation
        self._plan = aggregation.plan
        self._clock = clock
        self._closing = closing
        self._windowing = closing.windowing
        self._table = table
        self._runner = runner
        self._inputs = inputs
        self._feed = feed
        self.origin: Origin | None = None
        """Where rows are kept beside the job: the step that added the current ones, if it is known."""

    # --- a step -------------------------------------------------------------------------------------------

    def left_out(
        self, plus: pa.Table, minus: pa.Table | None, start: SourceOffsets | None, end: SourceOffsets
    ) -> pa.Table:
        """The groups of a batch without late ones and ones without a time, which are counted and reported."""
        windowing = self._windowing
        if windowing.gap and self._clock.saw_timeless and self._plan.detail_sql:
            # Spark puts rows without a time into no session, so that no group tells of them.
            self._clock.refuse(self._as_known(self._rows_without_time(start, end), TIMELESS, end), "timing")
        timeless, late = self._refused(plus, minus)
        refused = pc.or_(timeless, late)
        if not pc.any(refused).as_py():
            return plus
        if self._plan.detail_sql and pc.any(timeless).as_py():
            rows = self._rows_of_groups(plus.filter(timeless), start, end)
            self._clock.refuse(self._as_known(rows, TIMELESS, end), "timing")
        too_late = plus.filter(late)
        count = row_count(too_late)
        if count and (self._clock.tells_late or windowing.advance) and self._plan.detail_sql:
            # A row is in several sliding windows, of which some may be open: the groups' counts add up to
            # more than the late rows, so the rows themselves are counted.
            rows = self._rows_of_groups(too_late, start, end, self._closing.over_at)
            count = len(rows)
            if self._clock.tells_late:
                self._clock.refuse(self._as_known(rows, self._reason, end), "late")
        self._clock.count_late(count)
        return plus.filter(pc.invert(refused))

    def _refused(self, plus: pa.Table, minus: pa.Table | None) -> tuple[pa.Array, pa.Array]:
        """Which groups of a batch have no event time, and which are late."""
        windowing, over = self._windowing, self._closing.over_at
        none = pa.array([False] * plus.num_rows, pa.bool_())
        if not windowing.bounded:
            return none, none
        timeless = pc.is_null(plus.column(windowing.end))
        if over is None:
            return timeless, none
        late = self._closing.closed(plus, over)
        if windowing.gap:
            # Rows of long ago are not late when they extend a session that is still open.
            late = pc.and_(late, pc.invert(continued(self._plan, windowing, self._table, plus, over)))
        if minus is not None:
            # A group that also retracts rows in this batch is corrected: the source replaced rows of it.
            late = pc.and_(late, pc.invert(among(plus, self._plan.keys, minus.select(self._plan.keys))))
        return timeless, pc.and_(late, pc.invert(timeless))

    @property
    def _reason(self) -> str:
        return f"late: its window had closed, the watermark was {self._clock.shown}"

    # --- replayed dead letters ----------------------------------------------------------------------------

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """From the position of each replayed record that no window accepts to the reason."""
        found = self._not_taken(self._feed.changes(at, at, (), careful=True), at)
        # This was a trial: the records must not move the watermark yet.
        self._inputs.seen.forget()
        return found

    def too_late_from(self, origin: Origin) -> dict[str, str]:
        """As `too_late`, where the job keeps the records as rows first and aggregates those."""
        kept = origin.frame()
        if kept is None:
            return {}
        self.origin = origin
        try:
            # The stages have a Spark session each. The rows cross by the driver: dead letters are few.
            rows = arrow_frame(self._runner.spark, self._runner.rows(kept.drop(POSITION)))
            return self._not_taken(self._through_steps(rows), {})
        finally:
            self.origin = None

    def _through_steps(self, rows: DataFrame) -> dict[str, Halves]:
        """Rows of the only input as the aggregation reads them: after the plan's steps below it, if any."""
        below = self._plan.below
        if below is None:
            return {self._inputs.only.id: Halves(rows, None)}
        for step in walk(below):
            if isinstance(step, Scan):
                frame = rows.select(*step.columns)
            else:
                assert isinstance(step, Each | Both | Keyed)
                frame = self._runner.frame(step.sql)
            self._runner.show({step.view: frame})
        return {below.view: Halves(frame, None)}

    def _not_taken(self, changes: dict[str, Halves], at: SourceOffsets) -> dict[str, str]:
        """From the position of each added row that no window accepts to the reason."""
        if not self._plan.detail_sql:
            return {}
        added = {key: halves.plus for key, halves in changes.items()}
        plus = self._aggregation.groups(self._runner.run(self._aggregation.sql, added))
        timeless, late = self._refused(plus, None)
        found: dict[str, str] = {}
        if self._windowing.gap:
            found |= {position: TIMELESS for position, _ in self._rows_without_time(at, at)}
        for groups, why in ((plus.filter(timeless), TIMELESS), (plus.filter(late), self._reason)):
            if groups.num_rows:
                over = self._closing.over_at if why != TIMELESS else None
                found |= {position: why for position, _ in self._rows_of_groups(groups, at, at, over)}
        return found

    # --- rows of a range, read again ----------------------------------------------------------------------

    def _as_known(self, rows: list[Row], reason: str, end: SourceOffsets) -> list[BadRow]:
        """Rejected rows with their position at the source, as dead letters."""
        if self.origin is not None:
            return refused(self.origin.item, reason, rows, self.origin.end[self.origin.item.id])
        stream = self._plan.stream
        item = self._inputs.all[stream] if stream is not None else self._inputs.only
        return refused(item, reason, rows, end[item.id])

    def _rows_of_groups(
        self, groups: pa.Table, start: SourceOffsets | None, end: SourceOffsets, over: int | None = None
    ) -> list[Row]:
        """The rows of a range that belong to these groups.

        With `over`, only rows whose last window had closed at that watermark.
        """
        plan, windowing = self._plan, self._windowing
        runner = self._show_rows(start, end)
        # By time and not by window bounds: a row's session is not known before sessions are merged, and
        # sliding windows would make several rows of each.
        on = [f"r.__k{number} <=> g.{quote(name)}" for number, name in enumerate(plan.keys[:-2], start=1)]
        on.append(
            f"((g.{quote(windowing.start)} IS NULL AND r.__time IS NULL) OR "
            f"(r.__time >= g.{quote(windowing.start)} AND r.__time < g.{quote(windowing.end)}))"
        )
        sql = f"SELECT r.* FROM ({plan.detail_sql}) r LEFT SEMI JOIN __refused g ON {' AND '.join(on)}"
        if windowing.advance and over is not None:
            # A row of sliding windows is late only when all its windows have closed. The last of them starts
            # at the row's time, rounded down to a whole advance.
            time = "unix_micros(r.__time)"
            into = f"pmod({time} - {windowing.offset}L, {windowing.advance}L)"
            last = f"{time} - {into} + {windowing.size + windowing.grace}L"
            sql += f" WHERE r.__time IS NULL OR {last} <= {over}L"
        return rows_found(runner.run(sql, {"__refused": arrow_frame(runner.spark, groups.select(plan.keys))}))

    def _rows_without_time(self, start: SourceOffsets | None, end: SourceOffsets) -> list[Row]:
        runner = self._show_rows(start, end)
        return rows_found(runner.run(f"SELECT * FROM ({self._plan.detail_sql}) WHERE __time IS NULL"))

    def _show_rows(self, start: SourceOffsets | None, end: SourceOffsets) -> Runner:
        """Register the rows of a range, with positions, as views; returns the runner that has them."""
        if self.origin is not None:
            kept = self.origin.frame()
            if kept is not None:
                self.origin.pipeline.runner.show({self._inputs.only.id: kept})
                return self.origin.pipeline.runner
            self.origin = None
        joined = self._plan.stream is not None
        feed = self._feed if joined else self._inputs
        changes = feed.changes(start, end, () if joined else (POSITION,), careful=True)
        self._runner.show({key: halves.plus for key, halves in changes.items()})
        return self._runner


def among(rows: pa.Table, names: tuple[str, ...], keys: pa.Table) -> pa.Array:
    """For each row, whether its key is one of these; null equals null."""
    wanted = set(codes(keys, names))
    return pa.array([code in wanted for code in codes(rows, names)], pa.bool_())
