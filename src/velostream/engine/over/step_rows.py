"""The rows that one step of OVER computes with: which were kept, which are new, which become visible.

Terms: the *reach* of a plan is how far its frames look from a row, in rows and in time. The *horizon* is the
watermark less the grace period: rows before it are late. A key is *cut* once rows of it were forgotten.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.over.kept_rows import in_order, micros
from velostream.model.columns import SEQUENCE

if TYPE_CHECKING:
    from velostream.engine.over.kept_rows import Flags, Kept, Numbers
    from velostream.plan.plans import OverPlan, Reach


@dataclass(frozen=True)
class Correction:
    """Results that a step may have changed: they are computed before and after, and differences corrected."""

    groups: Flags
    """For each key, whether it has such results, so that its state before the step is computed too."""
    rows: Flags
    """For each row of the step, whether its result before and after the step is compared."""


class StepRows:
    """The kept rows of a step followed by its new rows, with flags for each; all arrays have this order."""

    def __init__(self, plan: OverPlan, step: int, kept: Kept, new: pa.Table, groups: Numbers) -> None:
        self._plan = plan
        self.rows = pa.concat_tables([kept.rows, new])
        self.groups = groups
        """For each row, the number of its PARTITION BY key."""
        self.count = int(self.groups.max()) + 1 if len(self.groups) else 0
        self.times = micros(self.rows)
        self.numbers: Numbers = np.asarray(self.rows.column(SEQUENCE).to_numpy(), dtype=np.int64)
        self.new = np.arange(len(self.groups)) >= kept.rows.num_rows
        came = np.zeros(new.num_rows, dtype=bool)
        self.before = np.concatenate([kept.there(step), came])
        """Rows that existed before the step."""
        self.gone = np.concatenate([kept.gone_with(step), came])
        """Rows that the source retracts in the step."""
        self.after = self.new | (self.before & ~self.gone)
        """Rows that exist after the step."""
        # Chunks are marked, but a cut concerns the whole key: its oldest rows are missing, whatever chunk a
        # row is in.
        self._cut = np.zeros(self.count, dtype=bool)
        self._cut[self.groups[: kept.rows.num_rows][kept.cut]] = True

    @cached_property
    def order(self) -> Numbers:
        """The places of the rows sorted by key, event time and sequence number."""
        return in_order(self.groups, self.times, self.numbers)

    # --- EMIT CHANGES: results are visible at once and corrected later --------------------------------------

    def disturbed(self) -> Correction:
        """The visible results that the step may change.

        A row's result changes only when its frame contains a new or retracted row. Frames that only look back
        contain rows up to their own, so that only results after the earliest change of the key can differ.
        """
        plan, reach = self._plan, self._plan.reach
        changed = np.bincount(self.groups[self.new | self.gone], minlength=self.count) > 0
        rows = self.before & changed[self.groups]
        looks_back = plan.timed and reach.after == 0 and not reach.ahead
        if looks_back:
            earliest = self._extreme(np.minimum, self.new | self.gone, FOREVER)[self.groups]
            # Without peers, a kept row of the same time precedes the new one: its sequence number is lower. A
            # retracted row is compared in any case, since its own result has to go.
            rows &= (self.times >= earliest) if plan.peers else (self.times > earliest) | self.gone
        rows &= self._whole()
        return Correction(np.bincount(self.groups[rows], minlength=self.count) > 0, rows)

    def _extreme(self, function: np.ufunc, rows: Flags, start: int) -> Numbers:
        found = np.full(self.count, start, dtype=np.int64)
        function.at(found, self.groups[rows], self.times[rows])
        return found

    def _whole(self) -> Flags:
        """The rows whose whole frame is kept.

        In a key that was cut, the frames of the oldest kept rows lack rows that were forgotten: their visible
        results cannot be computed again, and no row that is in time can change them.
        """
        plan = self._plan
        if not plan.bounded or not self._cut.any():
            return np.ones(len(self.groups), dtype=bool)
        order = self.order[self.before[self.order]]
        starts = np.searchsorted(self.groups[order], np.arange(self.count))
        ranks = np.zeros(len(self.groups), dtype=np.int64)
        ranks[order] = np.arange(len(order)) - starts[self.groups[order]]
        reach = plan.reach
        # A ROWS frame is whole when that many rows of the key precede it, a RANGE frame when it begins after
        # the oldest kept row; at the time of that row, others may have been forgotten.
        first = self._extreme(np.minimum, self.before, FOREVER)[self.groups]
        inside = (ranks >= (reach.before or 0)) & (self.times - reach.back > first if reach.back else True)
        return np.asarray(inside | ~self._cut[self.groups], dtype=bool)

    # --- EMIT FINAL: results become visible once nothing can change them ------------------------------------

    def ready(self, rows: Flags, horizon: int | None) -> Flags:
        """Which of these rows have a final result, given that no row before `horizon` arrives any more.

        A frame that looks ahead is complete when the horizon has passed its end in time, and when as many
        rows as it looks ahead follow before the horizon, where no other row can come in between.
        """
        if horizon is None:
            return np.zeros(len(self.groups), dtype=bool)
        if horizon >= FOREVER:
            return rows.copy()
        reach = self._plan.reach
        if reach.after is None:
            # UNBOUNDED FOLLOWING: final only when the source has ended.
            return np.zeros(len(self.groups), dtype=bool)
        passed = rows & (self.times < horizon)
        found = passed & (self.times < horizon - reach.ahead)
        return found & (self._followed(passed) >= reach.after) if reach.after else found

    def _followed(self, rows: Flags) -> Numbers:
        """For each of these rows, how many of them have the same key and a later time.

        Rows of equal time are not counted: which of them follows is known only when all of them have arrived.
        """
        places = np.flatnonzero(rows)
        order = places[np.lexsort((self.times[places], self.groups[places]))]
        groups, times = self.groups[order], self.times[order]
        ends = np.searchsorted(groups, groups, side="right")
        # The place of the last row with the same key and time: the rows of the key after it are later.
        same = np.flatnonzero(np.append((np.diff(groups) != 0) | (np.diff(times) != 0), True))
        last = same[np.searchsorted(same, np.arange(len(order)))]
        counts = np.zeros(len(self.groups), dtype=np.int64)
        counts[order] = ends - 1 - last
        return counts


def needed(rows: pa.Table, groups: Numbers, reach: Reach, horizon: int | None) -> Flags:
    """Which kept rows are still needed as state, given that new rows have a time of `horizon` or later.

    A new row looks back over `before` rows, and changes the results of the `after` rows before it whose
    frames look ahead to it; those frames look back again. So of each key the last `before + after` rows
    before the horizon stay (`Reach.rows`), and for RANGE frames the last `back + ahead` of time.
    """
    if horizon is None or not rows.num_rows:
        return np.ones(rows.num_rows, dtype=bool)
    times = micros(rows)
    order = np.lexsort((times, groups))
    count = int(groups.max()) + 1
    starts = np.searchsorted(groups[order], np.arange(count))
    passed = np.bincount(groups[times < horizon], minlength=count)
    least = np.full(count, horizon, dtype=np.int64)
    if reach.rows:
        # Rows are kept by time, so rows of the same time as the first needed one stay with it.
        first = np.maximum(starts + passed - reach.rows, starts)
        least[passed > 0] = times[order][first[passed > 0]]
    return np.asarray((times >= least[groups]) | (times >= horizon - reach.span), dtype=bool)
