"""One step of a job: from the positions its result contains to newer ones, exactly."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from velostream.errors import InternalError
from velostream.model.changes import BadRow
from velostream.model.tables import SHOWN
from velostream.plan import merge as merging
from velostream.plan.planner import POSITION
from velostream.plan.plans import ROWS, GroupsPlan, Plan, RecomputePlan, RowsPlan, UpsertPlan
from velostream.plan.spark import arrow_frame, checked_cast, rows_of
from velostream.runtime.isolation import Search
from velostream.runtime.outputs import JobOutput, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from velostream.model.changes import Commit, SourceOffsets
    from velostream.runtime.inputs import Halves, Inputs
    from velostream.runtime.isolation import Culprit
    from velostream.runtime.shapes import ResultShape


@dataclass(frozen=True)
class Progress:
    """What one step did."""

    rows_in: int
    rows_out: int


class Pipeline:
    """Runs the plan of one job over ranges of its inputs."""

    def __init__(
        self, spark: SparkSession, plan: Plan, shape: ResultShape, inputs: Inputs, output: JobOutput
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._shape = shape
        self._inputs = inputs
        self._output = output

    def advance(
        self, start: SourceOffsets | None, end: SourceOffsets, commit: Commit, *, careful: bool
    ) -> Progress:
        """Bring the output from `start` to `end` in one commit."""
        plan = self._plan
        if isinstance(plan, RecomputePlan):
            return self._recompute(plan, end, commit)
        extra = (POSITION,) if isinstance(plan, UpsertPlan) else ()
        changes = self._inputs.changes(start, end, extra, careful=careful)
        if isinstance(plan, RowsPlan):
            return self._rows(plan, changes, commit)
        if isinstance(plan, UpsertPlan):
            return self._upsert(plan, changes, end, commit, careful)
        if isinstance(plan, GroupsPlan):
            return self._groups(plan, changes, start, end, commit, careful)
        raise InternalError(f"no way to run a {type(plan).__name__}")

    def rebuild(self, end: SourceOffsets, commit: Commit) -> Progress:
        """Compute the whole result anew as of `end`, for a job that fell behind what its inputs remember."""
        plan = self._plan
        if isinstance(plan, RecomputePlan):
            return self._recompute(plan, end, commit)
        extra = (POSITION,) if isinstance(plan, UpsertPlan) else ()
        sql = plan.ordered_sql if isinstance(plan, UpsertPlan) else row_sql(plan)
        self._inputs.register(self._inputs.snapshot(end, extra, careful=True))
        found = rows_of(self._spark, sql)
        if isinstance(plan, GroupsPlan):
            rows = self._finished(plan, checked_cast(found, self._shape.state))
        else:
            rows = self._shape.stored(_in_order(found) if isinstance(plan, UpsertPlan) else found)
        table_of(self._output).replace_all(rows, commit)
        return Progress(found.num_rows, rows.num_rows)

    # --- sums that outgrow their type -------------------------------------------------------------------

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
        """As `advance`, without the groups whose sums do not fit; `keep` gets those that are new.

        Every group that the change touches is aggregated again from all rows, so a group is back as soon
        as its sums fit. Which groups are lost is part of the commit.
        """
        plan = self._plan
        if not isinstance(plan, GroupsPlan):
            raise InternalError("only groups have sums")
        table, schema = table_of(self._output), self._shape.state
        changes = self._inputs.changes(start, end, (), careful=True)
        plus = checked_cast(self._plus(plan.tolerant_sql, changes), schema)
        minus = self._minus(plan.tolerant_sql, changes)
        minus = checked_cast(minus, schema) if minus is not None else None
        state = plus
        if start is not None or minus is not None:
            state = self._fresh_groups(plan, plus, minus, end, plan.tolerant_sql, careful=True)
        too_large = merging.overflowed(plan, state)
        broken = state.filter(too_large).select(plan.keys)
        names = _group_names(broken)
        keep([_lost_group(name) for name in names if name not in self.lost])
        lost = (self.lost - set(_group_names(state.select(plan.keys)))) | set(names)
        upserts, gone = self._split(plan, state.filter(pc.invert(too_large)))
        deletes = broken if gone is None else pa.concat_tables([broken, gone])
        table.commit_keyed(upserts, deletes, replace(commit, extra={**commit.extra, "lost": sorted(lost)}))
        return Progress(_row_count(plus), state.num_rows)

    def culprits(
        self,
        start: SourceOffsets | None,
        end: SourceOffsets,
        is_data_error: Callable[[BaseException], bool],
    ) -> Iterator[tuple[str, bool, Culprit]]:
        """Rows of the range that the query cannot compute: input, whether it came or went, and the row."""
        sql = row_sql(self._plan)
        changes = self._inputs.changes(start, end, (POSITION,), careful=True)
        empty = {key: halves.plus.where("false").drop(POSITION) for key, halves in changes.items()}
        for key, halves in changes.items():
            search = Search(self._spark, sql, key, self._inputs.all[key].description)
            for came, rows in ((True, halves.plus), (False, halves.minus)):
                if rows is not None:
                    self._inputs.register(empty)
                    for culprit in search.culprits(rows, is_data_error):
                        yield key, came, culprit

    # --- the two halves of a change -------------------------------------------------------------------

    def _plus(self, sql: str, changes: dict[str, Halves]) -> pa.Table:
        self._inputs.register({key: halves.plus for key, halves in changes.items()})
        return rows_of(self._spark, sql)

    def _minus(self, sql: str, changes: dict[str, Halves]) -> pa.Table | None:
        if all(halves.minus is None for halves in changes.values()):
            return None
        self._inputs.register(
            {
                key: halves.minus if halves.minus is not None else halves.plus.where("false")
                for key, halves in changes.items()
            }
        )
        return rows_of(self._spark, sql)

    # --- kinds of plan ----------------------------------------------------------------------------------

    def _rows(self, plan: RowsPlan, changes: dict[str, Halves], commit: Commit) -> Progress:
        added = self._shape.stored(self._plus(plan.sql, changes))
        minus = self._minus(plan.sql, changes)
        removed = self._shape.stored(minus) if minus is not None else None
        self._output.rows(added, removed, commit)
        count = added.num_rows + (removed.num_rows if removed is not None else 0)
        return Progress(count, count)

    def _recompute(self, plan: RecomputePlan, end: SourceOffsets, commit: Commit) -> Progress:
        self._inputs.register(self._inputs.snapshot(end))
        rows = self._shape.stored(rows_of(self._spark, plan.sql))
        table_of(self._output).replace_all(rows, commit)
        return Progress(rows.num_rows, rows.num_rows)

    def _upsert(
        self, plan: UpsertPlan, changes: dict[str, Halves], end: SourceOffsets, commit: Commit, careful: bool
    ) -> Progress:
        table = table_of(self._output)
        plus = self._plus(plan.ordered_sql, changes)
        minus = self._minus(plan.ordered_sql, changes)
        if minus is None or minus.num_rows == 0:
            upserts = self._shape.stored(_in_order(plus))
            table.commit_keyed(upserts, None, commit)
            return Progress(plus.num_rows, upserts.num_rows)
        touched = _distinct(pa.concat_tables([plus.select(plan.key), minus.select(plan.key)]))
        self._inputs.register(self._inputs.snapshot(end, (POSITION,), careful=careful))
        live = _in_order(self._only(touched, plan.ordered_sql, plan.key))
        upserts = self._shape.stored(live)
        keys = checked_cast(touched, _key_schema(table.spec.schema, plan.key))
        table.commit_keyed(upserts, _absent(keys, upserts), commit)
        return Progress(plus.num_rows + minus.num_rows, touched.num_rows)

    def _groups(
        self,
        plan: GroupsPlan,
        changes: dict[str, Halves],
        start: SourceOffsets | None,
        end: SourceOffsets,
        commit: Commit,
        careful: bool,
    ) -> Progress:
        table = table_of(self._output)
        plus = self._plus(plan.partial_sql, changes)
        minus = self._minus(plan.partial_sql, changes)
        if minus is not None and not _any_rows(minus):
            minus = None
        rows_in = _row_count(plus) + (_row_count(minus) if minus is not None else 0)
        state_schema = self._shape.state
        plus = checked_cast(plus, state_schema)
        minus = checked_cast(minus, state_schema) if minus is not None else None
        first = start is None and minus is None
        mergeable = plan.mergeable and self._shape.ordered
        exact_by_merge = mergeable and (minus is None or plan.subtractable(self._shape.inexact))
        if first:
            state = plus
        elif exact_by_merge:
            batch = merging.net(plan, plus, minus)
            state = merging.merge(plan, table.fetch(batch.select(plan.keys)), batch)
        else:
            state = self._fresh_groups(plan, plus, minus, end, plan.partial_sql, careful=careful)
        upserts, deletes = self._split(plan, state)
        table.commit_keyed(upserts, deletes, commit)
        return Progress(rows_in, state.num_rows)

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
        touched = _distinct(pa.concat_tables(keys))
        self._inputs.register(self._inputs.snapshot(end, careful=careful))
        fresh = checked_cast(self._only(touched, sql, plan.keys), self._shape.state)
        gone = _absent(touched, fresh)
        if gone.num_rows == 0:
            return fresh
        return pa.concat_tables([fresh, _empty_groups(gone, self._shape.state)])

    def _only(self, touched: pa.Table, sql: str, key: tuple[str, ...]) -> pa.Table:
        """Rows of a query whose key is among `touched`; null equals null."""
        arrow_frame(self._spark, touched).createOrReplaceTempView("__touched")
        on = " AND ".join(f"q.`{name}` <=> t.`{name}`" for name in key)
        return rows_of(self._spark, f"SELECT q.* FROM ({sql}) q LEFT SEMI JOIN __touched t ON {on}")

    def _split(self, plan: GroupsPlan, state: pa.Table) -> tuple[pa.Table, pa.Table | None]:
        """Groups to store, finished for readers, and keys of groups that no row belongs to any more."""
        counts = state.column(ROWS)
        if pc.any(pc.less(counts, 0)).as_py():
            raise InternalError("a group lost more rows than it had")
        if not plan.grouped:
            return self._finished(plan, state), None
        alive = pc.greater(counts, 0)
        gone = state.filter(pc.invert(alive)).select(plan.keys)
        return self._finished(plan, state.filter(alive)), gone if gone.num_rows else None

    def _finished(self, plan: GroupsPlan, state: pa.Table) -> pa.Table:
        values = merging.values(plan, state, self._shape.values)
        if plan.finish_sql is None:
            visible = {o.name: values.column(o.column or "") for o in plan.outputs}
        elif values.num_rows == 0:
            visible = {f.name: pa.array([], f.type) for f in self._shape.visible}
            visible[SHOWN] = pa.array([], pa.bool_())
        else:
            visible = self._finish_in_spark(plan, values)
        columns = dict(zip(state.schema.names, state.columns, strict=True)) | visible
        return checked_cast(pa.table(columns), self._shape.physical)

    def _finish_in_spark(self, plan: GroupsPlan, values: pa.Table) -> dict[str, pa.ChunkedArray]:
        # One partition keeps the rows in the order of `values`, so that columns line up again.
        arrow_frame(self._spark, values).coalesce(1).createOrReplaceTempView("__groups")
        rows = rows_of(self._spark, plan.finish_sql or "")
        if rows.num_rows != values.num_rows:
            raise InternalError("finishing the groups changed their number")
        names = [output.name for output in plan.outputs] + ([SHOWN] if plan.having else [])
        return dict(zip(names, rows.columns, strict=True))


def row_sql(plan: Plan) -> str:
    """The part of a plan that computes something of every single row."""
    if isinstance(plan, GroupsPlan):
        return plan.partial_sql
    return plan.sql


def _group_names(keys: pa.Table) -> list[str]:
    """A readable and unambiguous name for each group: its key as JSON."""
    return [json.dumps(row, default=str, sort_keys=True) for row in keys.to_pylist()]


def _lost_group(name: str) -> BadRow:
    return BadRow(
        "a sum of this group does not fit its type", "the table itself", "group", name, name.encode()
    )


def _in_order(rows: pa.Table) -> pa.Table:
    ordered = rows.sort_by("__position")
    return ordered.drop_columns(["__position"])


def _distinct(keys: pa.Table) -> pa.Table:
    return keys.group_by(keys.schema.names, use_threads=False).aggregate([])


def _any_rows(groups: pa.Table) -> bool:
    return groups.num_rows > 0 and _row_count(groups) > 0


def _row_count(groups: pa.Table) -> int:
    return int(pc.sum(groups.column(ROWS)).as_py() or 0)


def _key_schema(schema: pa.Schema, key: tuple[str, ...]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in key])


def _absent(keys: pa.Table, rows: pa.Table) -> pa.Table:
    """The keys that no row has; null equals null."""
    names = keys.schema.names
    marked = rows.select(names).append_column("__here", pa.array([1] * rows.num_rows, pa.int64()))
    asked = keys.append_column("__here", pa.array([0] * keys.num_rows, pa.int64()))
    found = (
        pa.concat_tables([asked, marked]).group_by(names, use_threads=False).aggregate([("__here", "max")])
    )
    return found.filter(pc.equal(found.column("__here_max"), 0)).select(names)


def _empty_groups(keys: pa.Table, schema: pa.Schema) -> pa.Table:
    arrays = []
    for field in schema:
        if field.name in keys.schema.names:
            arrays.append(keys.column(field.name).cast(field.type))
        elif field.name == ROWS:
            arrays.append(pa.chunked_array([pa.array([0] * keys.num_rows, field.type)]))
        else:
            arrays.append(pa.chunked_array([pa.nulls(keys.num_rows, field.type)]))
    return pa.table(arrays, schema=schema)
