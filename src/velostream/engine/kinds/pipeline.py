"""One step of a job: from the positions its result contains to newer ones, exactly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.capabilities import Ordered
from velostream.engine.bad_rows.search import Search
from velostream.engine.inputs.feed import DerivedFeed
from velostream.engine.inputs.lookups import LookupFeed
from velostream.engine.kinds.finish import Finisher
from velostream.engine.outputs.outputs import JobOutput, TableOutput, table_of, table_output
from velostream.engine.rows.groups import (
    absent,
    any_rows,
    distinct_keys,
    empty_groups,
    group_names,
    in_order,
    key_schema,
    last_of_each,
    lost_group,
    row_count,
)
from velostream.engine.rows.multisets import net
from velostream.errors import InternalError
from velostream.model.columns import NO_ROW, POSITION, POSITION_KEPT
from velostream.plan.groups import merge as merging
from velostream.plan.plans import GroupsPlan, Plan, RecomputePlan, RowsPlan, UpsertPlan
from velostream.spark.dataframes import arrow_frame, brought, checked_cast, observed, rows_of
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.bad_rows.search import Culprit
    from velostream.engine.inputs.inputs import Halves, Inputs
    from velostream.engine.result_schema import ResultShape
    from velostream.model.changes import BadRow, Commit, SourceOffsets


@dataclass(frozen=True)
class Progress:
    """What one step did."""

    rows_in: int
    rows_out: int


class Pipeline:
    """Runs the plan of one job over ranges of its inputs."""

    _observes = True
    """Whether frames may be observed while the result is computed."""

    def __init__(
        self, spark: SparkSession, plan: Plan, shape: ResultShape, inputs: Inputs, output: JobOutput
    ) -> None:
        self._spark = self.spark = spark
        self._plan = self.plan = plan
        self._shape = shape
        self._inputs = self.inputs = inputs
        self._output = output
        self._finisher = Finisher(spark, shape)
        self.feed: Inputs | DerivedFeed = inputs
        """What the plan's SQL reads."""
        if plan.below is not None and plan.stream is not None:
            self.feed = LookupFeed(spark, inputs, plan.below, plan.stream, observes=self._observes)
        elif plan.below is not None:
            self.feed = DerivedFeed(spark, inputs, plan.below)

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Bring the output from `start` to `end` in one commit."""
        plan = self._plan
        if isinstance(plan, RecomputePlan):
            return self._recompute(plan, end, commit)
        derived = self.derived
        if not careful and self._cheaper_whole(start, end):
            return self.rebuild(end, commit)
        extra = plan.asked if isinstance(plan, UpsertPlan) else ()
        # Rows that stay as they are would make a group look as if it had lost rows.
        netted = derived and isinstance(plan, GroupsPlan) and not plan.subtractable(self._shape.inexact)
        changes = self.feed.changes(start, end, extra, careful=careful or netted)
        if isinstance(plan, RowsPlan):
            return self._rows(plan, changes, end, commit)
        if isinstance(plan, UpsertPlan):
            return self._upsert(plan, changes, end, commit, careful)
        if isinstance(plan, GroupsPlan):
            return self._groups(plan, changes, start, end, commit, careful)
        raise InternalError(f"no way to run a {type(plan).__name__}")

    def pass_over(self, commit: Commit) -> Progress:
        """Record positions without taking in what lies between."""
        if isinstance(self._output, TableOutput) and self._shape.key:
            self._output.table.commit_keyed(None, None, commit)
        else:
            self._output.rows(self._shape.physical.empty_table(), None, commit)
        return Progress(0, 0)

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Compute the whole result anew as of `end`, for a job that fell behind what its inputs remember."""
        plan = self._plan
        if isinstance(plan, RecomputePlan):
            return self._recompute(plan, end, commit)
        found = rows_of(self._spark, self._whole(end))
        rows = self._finished(found)
        table_output(self._output).replace_all(rows, commit)
        return Progress(found.num_rows, rows.num_rows)

    def _cheaper_whole(self, start: SourceOffsets | None, end: SourceOffsets) -> bool:
        if not isinstance(self.feed, DerivedFeed) or not isinstance(self._output, TableOutput):
            return False
        if self._plan.forgetful:
            return False
        return self.feed.cheaper_whole(start, end, held=len(self._output.table))

    def _whole(self, end: SourceOffsets) -> str:
        """SQL of the whole result, over everything that the inputs hold at `end`."""
        plan = self._plan
        keyed = isinstance(plan, UpsertPlan)
        self.feed.register(self.feed.snapshot(end, (POSITION,) if keyed else (), careful=True))
        return plan.ordered_sql if isinstance(plan, UpsertPlan) else row_sql(plan)

    def _finished(self, found: pa.Table) -> pa.Table:
        """What `_whole` gave, as it is stored."""
        if isinstance(self._plan, GroupsPlan):
            return self._finisher.finished(self._plan, checked_cast(found, self._shape.state))
        return self._shape.stored(self._in_order(found) if isinstance(self._plan, UpsertPlan) else found)

    # --- sums that outgrow their type -------------------------------------------------------------------

    @property
    def derived(self) -> bool:
        """Whether the plan takes rows of a derived relation, which can be computed anew at any time."""
        return self._plan.below is not None and self._plan.stream is None

    @property
    def anew(self) -> bool:
        """Whether the whole result can be computed from what the inputs hold."""
        return not self._plan.forgetful

    @property
    def stream(self) -> str | None:
        """The input whose rows are joined to tables as they come, if there is one."""
        return self._plan.stream

    @property
    def groups(self) -> bool:
        """Whether the result is made of groups."""
        return isinstance(self._plan, GroupsPlan)

    @property
    def lost(self) -> frozenset[str]:
        """Groups that are not in the table because a sum of theirs does not fit its type."""
        if not self.groups:
            return frozenset()
        last = table_of(self._output).last_commit
        return frozenset(last.extra.get("lost", ())) if last is not None else frozenset()

    def advance_around_overflow(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        keep: Callable[[list[BadRow]], None],
    ) -> Progress:
        """As `advance`, without the groups whose sums do not fit, or whose columns or HAVING cannot be
        computed from their sums; `keep` gets those that are new.

        Every group that the change touches is aggregated again from all rows, so a group is back as soon
        as it can be computed. Which groups are lost is part of the commit.
        """
        plan = self._plan
        if not isinstance(plan, GroupsPlan):
            raise InternalError("only groups have sums")
        schema = self._shape.state
        changes = self.feed.changes(start, end, (), careful=True)
        plus = checked_cast(self._plus(plan.tolerant_sql, changes), schema)
        minus = self._minus(plan.tolerant_sql, changes)
        minus = checked_cast(minus, schema) if minus is not None else None
        plus, minus = self._taken_in(plan, plus, minus, start, end)
        state = plus
        if start is not None or minus is not None:
            state = self._fresh_groups(plan, plus, minus, end, plan.tolerant_sql, careful=True)
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
        upserts, gone = self._finisher.split(plan, small.take(whole))
        deletes = broken if gone is None else pa.concat_tables([broken, gone])
        told = replace(commit, extra={**commit.extra, "lost": sorted(lost)})
        self._commit_groups(plan, upserts, deletes, told)
        return Progress(row_count(plus), state.num_rows)

    def too_late(self, at: SourceOffsets) -> dict[str, str]:
        """Of the records that are tried again, by position: why they come too late to be taken in."""
        return {}

    def culprits(
        self, start: SourceOffsets | None, end: SourceOffsets
    ) -> Iterator[tuple[str, bool, Culprit]]:
        """Rows of the range that the query cannot compute: input, whether it came or went, and the row."""
        sql = row_sql(self._plan)
        changes = self.feed.changes(start, end, (POSITION,), careful=True)
        empty = {key: halves.plus.where("false").drop(POSITION) for key, halves in changes.items()}
        for key, halves in changes.items():
            search = Search(self._spark, sql, key, self.feed.descriptions[key])
            for came, rows in ((True, halves.plus), (False, halves.minus)):
                if rows is not None:
                    self.feed.register(empty)
                    for culprit in search.culprits(rows):
                        yield key, came, culprit

    # --- the two halves of a change -------------------------------------------------------------------

    def _plus(self, sql: str, changes: dict[str, Halves]) -> pa.Table:
        self.feed.register({key: halves.plus for key, halves in changes.items()})
        with translated():
            frame = self._spark.sql(sql)
            rows = brought(frame)
        self._ran(frame)
        return rows

    def _ran(self, frame: DataFrame) -> None:
        """Take what was counted while the frame was computed."""
        if self._inputs.seen.unread:
            self._inputs.seen.read(frame)
        if isinstance(self.feed, LookupFeed) and self.feed.watched:
            self.feed.observed(observed(frame, self.feed.watched))

    def _minus(self, sql: str, changes: dict[str, Halves]) -> pa.Table | None:
        if all(halves.minus is None for halves in changes.values()):
            return None
        self.feed.register(
            {
                key: halves.minus if halves.minus is not None else halves.plus.where("false")
                for key, halves in changes.items()
            }
        )
        return rows_of(self._spark, sql)

    # --- kinds of plan ----------------------------------------------------------------------------------

    def _rows(
        self, plan: RowsPlan, changes: dict[str, Halves], end: SourceOffsets, commit: Commit
    ) -> Progress:
        sql = row_sql(plan)
        if plan.stream is not None:
            return self._joined_rows(plan, self._plus(sql, changes), commit)
        added = self._shape.stored(self._plus(sql, changes))
        minus = self._minus(sql, changes)
        removed = self._shape.stored(minus) if minus is not None else None
        if plan.appends and removed is not None:
            # A step by keys shows rows that stay as they are on both sides.
            added, removed = net(added, removed)
        if plan.key:
            return self._keyed_rows(plan, added, removed, end, commit)
        self._output.rows(added, removed, commit)
        count = added.num_rows + (removed.num_rows if removed is not None else 0)
        return Progress(count, count)

    def _joined_rows(self, plan: RowsPlan, came: pa.Table, commit: Commit) -> Progress:
        """Rows of a stream that were joined to tables; those that go are taken back as they are stored."""
        assert isinstance(self.feed, LookupFeed)
        if plan.key:
            rows = self._shape.stored(in_order(came))
            table_of(self._output).commit_keyed(rows, None, commit)
            return Progress(came.num_rows, rows.num_rows)
        removed = None
        if self.feed.gone is not None:
            removed = table_of(self._output).version_object.physical_where(
                (POSITION_KEPT,), self.feed.gone.rename_columns([POSITION_KEPT])
            )
        self._output.rows(self._shape.stored(came), removed, commit)
        return Progress(came.num_rows, came.num_rows)

    def _keyed_rows(
        self,
        plan: RowsPlan,
        added: pa.Table,
        removed: pa.Table | None,
        end: SourceOffsets,
        commit: Commit,
    ) -> Progress:
        """Rows of a derived relation that has a key; when one goes, another may have the same key."""
        came, went = net(added, removed if removed is not None else added.slice(0, 0))
        lost = absent(distinct_keys(went.select(plan.key)), came)
        if lost.num_rows:
            self.feed.register(self.feed.restricted(end, plan.below_keys, lost, careful=False))
            came = pa.concat_tables([came, self._shape.stored(self._only(lost, row_sql(plan), plan.key))])
        table_of(self._output).commit_keyed(came, absent(lost, came), commit)
        return Progress(added.num_rows, came.num_rows + went.num_rows)

    def _recompute(self, plan: RecomputePlan, end: SourceOffsets, commit: Commit) -> Progress:
        self.feed.register(self.feed.snapshot(end))
        rows = self._shape.stored(rows_of(self._spark, plan.sql))
        table_output(self._output).replace_all(rows, commit)
        return Progress(rows.num_rows, rows.num_rows)

    def _upsert(
        self, plan: UpsertPlan, changes: dict[str, Halves], end: SourceOffsets, commit: Commit, careful: bool
    ) -> Progress:
        table = table_of(self._output)
        plus = self._plus(plan.ordered_sql, changes)
        replaying = self._inputs.again is not None
        if plan.deletes and replaying:
            # What came since of the same keys decides.
            keys = distinct_keys(plus.select(plan.key))
            self.feed.register(self.feed.snapshot(end, plan.asked, careful=True))
            plus = self._only(keys, plan.ordered_sql, plan.key)
        if plan.deletes:
            return self._messages(plan, plus, commit)
        minus = self._minus(plan.ordered_sql, changes)
        if minus is None and replaying:
            minus = plus.slice(0, 0)
        elif minus is None or minus.num_rows == 0:
            upserts = self._shape.stored(self._in_order(plus))
            table.commit_keyed(upserts, None, commit)
            return Progress(plus.num_rows, upserts.num_rows)
        touched = distinct_keys(pa.concat_tables([plus.select(plan.key), minus.select(plan.key)]))
        self.feed.register(self.feed.restricted(end, plan.below_keys, touched, (POSITION,), careful=careful))
        live = self._in_order(self._only(touched, plan.ordered_sql, plan.key))
        upserts = self._shape.stored(live)
        keys = checked_cast(touched, key_schema(table.spec.schema, plan.key))
        table.commit_keyed(upserts, absent(keys, upserts), commit)
        return Progress(plus.num_rows + minus.num_rows, touched.num_rows)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """Rows as they follow each other at their source, without their position."""
        sources = [item.source for item in self._inputs.all.values()]
        if len(sources) == 1:
            place = rows.schema.get_field_index("__position")
            rows = rows.set_column(
                place, "__position", Ordered.of(sources[0]).order(rows.column("__position"))
            )
        return in_order(rows)

    def _messages(self, plan: UpsertPlan, rows: pa.Table, commit: Commit) -> Progress:
        """The last message of each key of the batch decides."""
        last = last_of_each(self._in_order(rows), plan.key)
        gone = last.column(NO_ROW)
        upserts = self._shape.stored(last.filter(pc.invert(gone)).drop_columns([NO_ROW]))
        keys = last.filter(gone).select(plan.key)
        table_of(self._output).commit_keyed(upserts, keys if keys.num_rows else None, commit)
        return Progress(rows.num_rows, last.num_rows)

    def _groups(
        self,
        plan: GroupsPlan,
        changes: dict[str, Halves],
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        careful: bool,
    ) -> Progress:
        plus = self._plus(plan.partial_sql, changes)
        minus = self._minus(plan.partial_sql, changes)
        if minus is not None and not any_rows(minus):
            minus = None
        rows_in = row_count(plus) + (row_count(minus) if minus is not None else 0)
        state_schema = self._shape.state
        plus = checked_cast(plus, state_schema)
        minus = checked_cast(minus, state_schema) if minus is not None else None
        plus, minus = self._taken_in(plan, plus, minus, start, end)
        state = self._state(plan, plus, minus, start, end, careful)
        upserts, deletes = self._finisher.split(plan, state)
        self._commit_groups(plan, upserts, deletes, commit)
        return Progress(rows_in, state.num_rows)

    def _taken_in(
        self,
        plan: GroupsPlan,
        plus: pa.Table,
        minus: pa.Table | None,
        start: SourceOffsets | None,
        end: SourceOffsets,
    ) -> tuple[pa.Table, pa.Table | None]:
        """The groups of rows that came and that went, without those that the result does not take."""
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
        """The groups that a batch touched, as they are now; `__n` 0 where no row is left."""
        mergeable = plan.mergeable and self._shape.merges
        if start is None and minus is None:
            return plus
        if mergeable and (minus is None or plan.subtractable(self._shape.inexact)):
            batch = merging.net(plan, plus, minus)
            return merging.merge(plan, table_of(self._output).fetch(batch.select(plan.keys)), batch)
        return self._fresh_groups(plan, plus, minus, end, plan.partial_sql, careful=careful)

    def _commit_groups(
        self, plan: GroupsPlan, upserts: pa.Table, deletes: pa.Table | None, commit: Commit
    ) -> None:
        table_of(self._output).commit_keyed(upserts, deletes, commit)

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
        """The groups that the change touched, aggregated again from all rows; `__n` 0 where none is left."""
        keys = [plus.select(plan.keys), *([minus.select(plan.keys)] if minus is not None else [])]
        touched = distinct_keys(pa.concat_tables(keys))
        self.feed.register(self.feed.restricted(end, plan.below_keys, touched, careful=careful))
        fresh = checked_cast(self._only(touched, sql, plan.keys), self._shape.state)
        gone = absent(touched, fresh)
        if gone.num_rows == 0:
            return fresh
        return pa.concat_tables([fresh, empty_groups(gone, self._shape.state)])

    def _only(self, touched: pa.Table, sql: str, key: tuple[str, ...]) -> pa.Table:
        """Rows of a query whose key is among `touched`; null equals null."""
        arrow_frame(self._spark, touched).createOrReplaceTempView("__touched")
        on = " AND ".join(f"q.{quote(name)} <=> t.{quote(name)}" for name in key)
        return rows_of(self._spark, f"SELECT q.* FROM ({sql}) q LEFT SEMI JOIN __touched t ON {on}")


def row_sql(plan: Plan) -> str:
    """The part of a plan that computes something of every single row."""
    if isinstance(plan, GroupsPlan):
        return plan.partial_sql
    return plan.below_sql if isinstance(plan, RowsPlan) and plan.below is not None else plan.sql
