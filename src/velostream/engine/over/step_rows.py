"""The rows that one step of OVER looks at: which were there before, which come, which are to be shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.engine.event_time.watermark import FOREVER
from velostream.engine.over.state import in_order, micros
from velostream.model.columns import SEQUENCE

if TYPE_CHECKING:
    from velostream.engine.over.state import Flags, Kept, Numbers
    from velostream.plan.plans import OverPlan, Reach


@dataclass(frozen=True)
class Correction:
    """Rows whose values may have changed."""

    groups: Flags
    """Which keys have to be computed as they were, too."""
    rows: Flags
    """Which rows are compared."""


class StepRows:
    """Kept rows and new ones, with what is true of each."""

    def __init__(self, plan: OverPlan, step: int, kept: Kept, new: pa.Table, groups: Numbers) -> None:
        self._plan = plan
        self.rows = pa.concat_tables([kept.rows, new])
        self.groups = groups
        """A number for the key of each row."""
        self.count = int(self.groups.max()) + 1 if len(self.groups) else 0
        self.times = micros(self.rows)
        self.numbers: Numbers = np.asarray(self.rows.column(SEQUENCE).to_numpy(), dtype=np.int64)
        self.new = np.arange(len(self.groups)) >= kept.rows.num_rows
        came = np.zeros(new.num_rows, dtype=bool)
        self.before = np.concatenate([kept.there(step), came])
        """There before the step."""
        self.gone = np.concatenate([kept.gone_with(step), came])
        """Taken back with it."""
        self.after = self.new | (self.before & ~self.gone)
        """There after it."""
        self._cut = np.zeros(self.count, dtype=bool)
        self._cut[self.groups[: kept.rows.num_rows][kept.cut]] = True

    @cached_property
    def order(self) -> Numbers:
        """The rows by key, time and number."""
        return in_order(self.groups, self.times, self.numbers)

    # --- shown at once --------------------------------------------------------------------------------------

    def disturbed(self) -> Correction:
        """What the new rows may change: rows after them in time, before them where frames look ahead."""
        plan, reach = self._plan, self._plan.reach
        changed = np.bincount(self.groups[self.new | self.gone], minlength=self.count) > 0
        rows = self.before & changed[self.groups]
        looks_back = plan.timed and reach.after == 0 and not reach.ahead
        if looks_back:
            earliest = self._extreme(np.minimum, self.new | self.gone, FOREVER)[self.groups]
            rows &= (self.times >= earliest) if plan.peers else (self.times > earliest) | self.gone
        rows &= self._whole()
        return Correction(np.bincount(self.groups[rows], minlength=self.count) > 0, rows)

    def _extreme(self, function: np.ufunc, rows: Flags, start: int) -> Numbers:
        found = np.full(self.count, start, dtype=np.int64)
        function.at(found, self.groups[rows], self.times[rows])
        return found

    def _whole(self) -> Flags:
        """The rows whose frames are kept as a whole: of others it is not known what was computed."""
        plan = self._plan
        if not plan.bounded or not self._cut.any():
            return np.ones(len(self.groups), dtype=bool)
        order = self.order[self.before[self.order]]
        starts = np.searchsorted(self.groups[order], np.arange(self.count))
        ranks = np.zeros(len(self.groups), dtype=np.int64)
        ranks[order] = np.arange(len(order)) - starts[self.groups[order]]
        reach = plan.reach
        first = self._extreme(np.minimum, self.before, FOREVER)[self.groups]
        inside = (ranks >= (reach.before or 0)) & (self.times - reach.back > first if reach.back else True)
        return np.asarray(inside | ~self._cut[self.groups], dtype=bool)

    # --- shown when they are final --------------------------------------------------------------------------

    def ready(self, rows: Flags, horizon: int | None) -> Flags:
        """Which of these rows nothing can change any more, when all before `horizon` have come."""
        if horizon is None:
            return np.zeros(len(self.groups), dtype=bool)
        if horizon >= FOREVER:
            return rows.copy()
        reach = self._plan.reach
        if reach.after is None:
            return np.zeros(len(self.groups), dtype=bool)
        passed = rows & (self.times < horizon)
        found = passed & (self.times < horizon - reach.ahead)
        return found & (self._followed(passed) >= reach.after) if reach.after else found

    def _followed(self, rows: Flags) -> Numbers:
        """By how many of these rows, of a later time and the same key, each is followed."""
        places = np.flatnonzero(rows)
        order = places[np.lexsort((self.times[places], self.groups[places]))]
        groups, times = self.groups[order], self.times[order]
        ends = np.searchsorted(groups, groups, side="right")
        # The last row of the same key and time: those after it are later.
        same = np.flatnonzero(np.append((np.diff(groups) != 0) | (np.diff(times) != 0), True))
        last = same[np.searchsorted(same, np.arange(len(order)))]
        counts = np.zeros(len(self.groups), dtype=np.int64)
        counts[order] = ends - 1 - last
        return counts


def needed(rows: pa.Table, groups: Numbers, reach: Reach, horizon: int | None) -> Flags:
    """Which kept rows, of these groups, a row that comes at `horizon` or later can still reach."""
    if horizon is None or not rows.num_rows:
        return np.ones(rows.num_rows, dtype=bool)
    times = micros(rows)
    order = np.lexsort((times, groups))
    count = int(groups.max()) + 1
    starts = np.searchsorted(groups[order], np.arange(count))
    passed = np.bincount(groups[times < horizon], minlength=count)
    least = np.full(count, horizon, dtype=np.int64)
    if reach.rows:
        # Among equal times any may be the one: all of that time stay.
        first = np.maximum(starts + passed - reach.rows, starts)
        least[passed > 0] = times[order][first[passed > 0]]
    return np.asarray((times >= least[groups]) | (times >= horizon - reach.span), dtype=bool)
