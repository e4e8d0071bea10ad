"""The columns of a job's result, asked of Spark once, when the job starts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.errors import DuplicateNameError
from velostream.model.tables import SHOWN, TableSpec
from velostream.plan.aggregates import Merge
from velostream.plan.plans import GroupsPlan, Output, Plan, UpsertPlan
from velostream.plan.spark import checked_cast, query_schema, show_empty

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

EMPTY = pa.schema([])


@dataclass(frozen=True)
class ResultShape:
    """Schemas of a result: what readers see, what is stored, and for groups what is in between."""

    visible: pa.Schema
    physical: pa.Schema
    key: tuple[str, ...] = ()
    state: pa.Schema = EMPTY
    """Groups: key columns and accumulators."""
    values: pa.Schema = EMPTY
    """Groups: key columns and aggregate values."""
    inexact: tuple[str, ...] = field(default=())
    """Groups: accumulators of floating point, which cannot be subtracted exactly."""
    ordered: bool = True
    """Groups: whether Arrow can compare the values of every MIN and MAX; nested ones it cannot."""

    def stored(self, rows: pa.Table) -> pa.Table:
        """Rows with exactly the stored columns and types."""
        return checked_cast(rows, self.physical)

    def spec(self, name: str, options: Mapping[str, str], datasource_type: str, owner: str) -> TableSpec:
        """The table that holds this result."""
        return TableSpec(name, self.physical, self.key, dict(options), datasource_type, owner=owner)


def shape_of(
    spark: SparkSession, plan: Plan, views: Mapping[str, pa.Schema], key: tuple[str, ...] = ()
) -> tuple[Plan, ResultShape]:
    """Spark's types for the plan, and the plan with Spark's names for its columns."""
    show_empty(spark, views)
    visible = query_schema(spark, plan.sql)
    _refuse_duplicates(visible)
    if isinstance(plan, GroupsPlan):
        named = tuple(Output(f.name, o.column) for f, o in zip(visible, plan.outputs, strict=True))
        plan = replace(plan, outputs=named)
        return plan, _groups_shape(spark, plan, visible)
    declared = plan.key if isinstance(plan, UpsertPlan) else key
    return plan, ResultShape(visible, visible, declared)


def _refuse_duplicates(schema: pa.Schema) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name.casefold() in seen:
            raise DuplicateNameError(
                f'the result has two columns named "{name}"', hint="name one of them with AS"
            )
        seen.add(name.casefold())


def _groups_shape(spark: SparkSession, plan: GroupsPlan, visible: pa.Schema) -> ResultShape:
    state = query_schema(spark, plan.partial_sql)
    values = query_schema(spark, plan.values_sql)
    fields = {f.name: f for f in state} | {f.name: f for f in visible}
    if plan.having:
        fields[SHOWN] = pa.field(SHOWN, pa.bool_())
    ordered = [fields.pop(name) for name in visible.names]
    sums = {a.name for g in plan.aggregates for a in g.accumulators if a.merge is Merge.ADD}
    inexact = tuple(f.name for f in state if f.name in sums and pa.types.is_floating(f.type))
    extremes = {a.name for g in plan.aggregates for a in g.accumulators if a.merge in {Merge.MIN, Merge.MAX}}
    comparable = not any(pa.types.is_nested(state.field(name).type) for name in extremes)
    physical = pa.schema([*ordered, *fields.values()])
    return ResultShape(visible, physical, plan.keys, state, values, inexact, comparable)
