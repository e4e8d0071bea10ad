"""Steps of groups: Spark aggregates the batch, and its accumulators are merged into those of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.kinds.aggregation import Aggregation
from velostream.engine.kinds.finish import Finisher
from velostream.engine.kinds.pipeline import Pipeline
from velostream.engine.rows.group_keys import (
    absent,
    any_rows,
    distinct_keys,
    empty_groups,
    group_names,
    lost_group,
    row_count,
)
from velostream.engine.runner import Progress, Runner
from velostream.plan.groups import merge as merging
from velostream.spark.dataframes import checked_cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.engine.event_time.clock import EventClock
    from velostream.engine.inputs.inputs import Inputs
    from velostream.engine.outputs.outputs import JobOutput
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.changes import BadRow, Commit, SourceOffsets
    from velostream.plan.plans import GroupsPlan

LOST = "lost"
"""Key in a commit: the groups that cannot be computed and so are missing from the table."""


class GroupsPipeline(Pipeline):
    """Incremental aggregation: accumulators are merged where possible, else changed groups are recomputed."""

    groups = True
    plan: GroupsPlan

    def __init__(
        self,
        plan: GroupsPlan,
        shape: ResultShape,
        inputs: Inputs,
        output: JobOutput,
        runner: Runner,
        clock: EventClock | None = None,
    ) -> None:
        super().__init__(plan, shape, inputs, output, runner, clock)
        self._finisher = Finisher(runner, shape)
        self._aggregation = Aggregation(plan, shape)

    @property
    def row_sql(self) -> str:
        """See `Pipeline`."""
        return self.plan.partial_sql

    def _advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        if not careful and self._cheaper_whole(start, end):
            return self.rebuild(end, commit)
        plus, minus = self._batch_groups(start, end, careful=careful)
        rows_in = row_count(plus) + (row_count(minus) if minus is not None else 0)
        state = self._state(plus, minus, start, end, careful=careful)
        upserts, deletes = self._finisher.split(self.plan, state)
        self._table.commit_keyed(upserts, deletes, commit)
        return Progress(rows_in, state.num_rows)

    def _batch_groups(
        self, start: SourceOffsets | None, end: SourceOffsets, *, careful: bool
    ) -> tuple[pa.Table, pa.Table | None]:
        """The groups of added and of retracted rows, as accumulators; None where no row was retracted."""
        # A derived relation may retract and add the same row. Where that cannot be subtracted, it would be
        # taken for a retraction and the group recomputed.
        netted = self.derived and not self.plan.subtractable(self._shape.inexact)
        changes = self.feed.changes(start, end, (), careful=careful or netted)
        plus, minus = self._of_changes(self._aggregation.sql, changes)
        groups = self._aggregation.groups
        return groups(plus), groups(minus) if minus is not None and any_rows(minus) else None

    def _as_state(self, groups: pa.Table) -> pa.Table:
        return checked_cast(groups, self._shape.state)

    def _state(
        self,
        plus: pa.Table,
        minus: pa.Table | None,
        start: SourceOffsets | None,
        end: SourceOffsets,
        *,
        careful: bool,
    ) -> pa.Table:
        """The new state of the groups that a batch changed; `__n` is 0 where no row is left."""
        plan = self.plan
        if start is None and minus is None:
            return plus
        if self._merges and (minus is None or plan.subtractable(self._shape.inexact)):
            batch = merging.net(plan, plus, minus)
            return merging.merge(plan, self._table.fetch(batch.select(plan.keys)), batch)
        return self._fresh_groups(plus, minus, end, plan.partial_sql, careful=careful)

    @property
    def _watermark(self) -> int | None:
        """The watermark as of the end of the step; None without event time."""
        return self.clock.ahead.at if self.clock is not None else None

    @property
    def _merges(self) -> bool:
        return self.plan.mergeable and self._shape.merges

    def _fresh_groups(
        self, plus: pa.Table, minus: pa.Table | None, end: SourceOffsets, sql: str, *, careful: bool
    ) -> pa.Table:
        """The changed groups, recomputed from all rows of their keys; `__n` is 0 where none is left."""
        plan = self.plan
        keys = [plus.select(plan.keys), *([minus.select(plan.keys)] if minus is not None else [])]
        touched = distinct_keys(pa.concat_tables(keys))
        self._runner.show(self.feed.restricted(end, plan.below_keys, touched, careful=careful))
        fresh = self._as_state(self._only(touched, sql, plan.keys))
        gone = absent(touched, fresh)
        if gone.num_rows == 0:
            return fresh
        return pa.concat_tables([fresh, empty_groups(gone, self._shape.state)])

    def _finished(self, found: pa.Table) -> pa.Table:
        return self._finisher.finished(self.plan, self._as_state(found))

    # --- groups that cannot be computed -------------------------------------------------------------------

    @property
    def lost(self) -> frozenset[str]:
        """Groups that the table lacks: a sum overflowed its type, or an expression over the sums fails."""
        last = self._table.last_commit
        return frozenset(last.extra.get(LOST, ())) if last is not None else frozenset()

    def advance_around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        """As `advance`, without groups that cannot be computed; `keep` is called with newly lost ones.

        Every changed group is recomputed from all rows, so that a group returns as soon as it can be
        computed. Which groups are lost is part of the commit.
        """
        done = Progress(0, 0)
        with self._runner.parts() as parts:
            for _ in parts:
                done += self._around_overflow(start, end, commit, keep)
        return done

    def _around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        plus, minus = self._tolerant_groups(start, end)
        state = plus
        if start is not None or minus is not None:
            state = self._fresh_groups(plus, minus, end, self.plan.tolerant_sql, careful=True)
        upserts, deletes, told = self._computable(state, commit, keep)
        self._table.commit_keyed(upserts, deletes, told)
        return Progress(row_count(plus), state.num_rows)

    def _tolerant_groups(
        self, start: SourceOffsets | None, end: SourceOffsets
    ) -> tuple[pa.Table, pa.Table | None]:
        """As `_batch_groups`, but a sum that overflows its type is null instead of an error."""
        changes = self.feed.changes(start, end, (), careful=True)
        plus, minus = self._of_changes(self.plan.tolerant_sql, changes)
        return self._as_state(plus), None if minus is None else self._as_state(minus)

    def _computable(
        self, state: pa.Table, commit: Commit, keep: Callable[[list[BadRow]], None]
    ) -> tuple[pa.Table, pa.Table, Commit]:
        """The groups to upsert, the keys to delete, and the commit, which names the lost groups."""
        plan = self.plan
        too_large = merging.overflowed(plan, state)
        small = state.filter(pc.invert(too_large))
        failing = self._finisher.failing(plan, small)
        places = np.array([*failing], dtype=np.int64)
        broken = pa.concat_tables([state.filter(too_large), small.take(places)]).select(plan.keys)
        names = group_names(broken)
        reasons = [None] * (len(names) - len(failing)) + [*failing.values()]
        new = [(name, why) for name, why in zip(names, reasons, strict=True) if name not in self.lost]
        keep([lost_group(name, why) for name, why in new])
        lost = (self.lost - set(group_names(state.select(plan.keys)))) | set(names)
        whole = np.setdiff1d(np.arange(small.num_rows), places)
        upserts, gone = self._finisher.split(plan, small.take(whole), self._watermark)
        deletes = broken if gone is None else pa.concat_tables([broken, gone])
        return upserts, deletes, replace(commit, extra={**commit.extra, LOST: sorted(lost)})
