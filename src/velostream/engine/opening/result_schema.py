"""The schemas of a job's result, from Spark's analysis when the job starts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.engine.rows.shape import ResultShape
from velostream.errors import DuplicateNameError
from velostream.model.columns import HAVING, SHOWN
from velostream.plan.derived.nodes import Both, Each, Keyed, Node, Scan, walk
from velostream.plan.groups.aggregates import Merge
from velostream.plan.groups.sums import with_integer_sums
from velostream.plan.plans import GroupsPlan, Output, Plan
from velostream.plan.query.select_names import NoKeysError
from velostream.spark.dataframes import collation, query_schema, show_empty
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def shape_of(
    spark: SparkSession,
    plan: Plan,
    views: Mapping[str, pa.Schema],
    key: tuple[str, ...] = (),
    wide: Mapping[str, pa.Schema] | None = None,
) -> tuple[Plan, ResultShape]:
    """Spark's types for the plan, and the plan with Spark's names for its columns.

    `wide` are the views with all system columns, from which a derived relation selects what it needs.
    """
    show_empty(spark, views)
    visible = query_schema(spark, plan.sql)
    _refuse_duplicates(visible)
    if plan.below is not None:
        show_nodes(spark, plan.below, wide or views, keyed=plan.stream is None)
    if isinstance(plan, GroupsPlan):
        named = tuple(Output(f.name, o.column) for f, o in zip(visible, plan.outputs, strict=True))
        plan = replace(plan, outputs=named)
        shape = _groups_shape(spark, plan, visible)
        types = {f.name: f.type for f in shape.state}
        return replace(plan, partial_sql=with_integer_sums(plan.partial_sql, types)), shape
    physical = pa.schema([*visible, *((name, pa.string()) for name in plan.hidden)])
    return plan, ResultShape(visible, physical, plan.result_key or key)


def show_nodes(
    spark: SparkSession, node: Node, views: Mapping[str, pa.Schema], *, keyed: bool = True
) -> None:
    """Register empty views for every derived relation; raises NoKeysError when join keys differ in type."""
    schemas: dict[str, pa.Schema] = {}
    for each in walk(node):
        if isinstance(each, Scan):
            schema = views[each.relation]
            schemas[each.view] = pa.schema([schema.field(name) for name in each.columns])
            show_empty(spark, {each.view: schemas[each.view]})
            continue
        assert isinstance(each, Each | Both | Keyed)
        schemas[each.view] = _followed_schema(spark, each.sql)
        spark.sql(each.sql).createOrReplaceTempView(quote(each.view))
        if not keyed:
            continue
        if isinstance(each, Keyed):
            _refuse_other_types(each, schemas)
            if each is not node:
                _refuse_doubles(each, schemas[each.view])
        if isinstance(each, Both) and any(
            schemas[child.view].types != schemas[each.view].types for child in each.children
        ):
            raise NoKeysError("the sides of UNION have different types")


def _refuse_other_types(node: Keyed, schemas: Mapping[str, pa.Schema]) -> None:
    first = node.sides[0]
    for side in node.sides[1:]:
        for one, other in zip(first.keys, side.keys, strict=True):
            left, right = schemas[first.node.view].field(one).type, schemas[side.node.view].field(other).type
            both_whole = pa.types.is_integer(left) and pa.types.is_integer(right)
            if left != right and not both_whole:
                raise NoKeysError(f"the key {one} is {left} on one side and {right} on the other")


def _refuse_maps(name: str, kind: pa.DataType) -> None:
    """Raise for maps as keys: Spark groups by maps but does not compare them."""
    parts = [kind]
    while parts:
        part = parts.pop()
        if pa.types.is_map(part):
            raise NoKeysError(f"the key {name} is a map, and maps are not compared")
        parts += [part.field(number).type for number in range(part.num_fields)]


def _refuse_doubles(node: Keyed, schema: pa.Schema) -> None:
    """Raise for sums of doubles below a step: in another order they differ, and no retraction matches."""
    if any(pa.types.is_floating(f.type) and f.name not in node.origin for f in schema):
        raise NoKeysError(f"sums of doubles in {node.step.what} depend on the order of adding")


def _refuse_duplicates(schema: pa.Schema) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name.casefold() in seen:
            raise DuplicateNameError(
                f'the result has two columns named "{name}"', hint="name one of them with AS"
            )
        seen.add(name.casefold())


def _groups_shape(spark: SparkSession, plan: GroupsPlan, visible: pa.Schema) -> ResultShape:
    state = _followed_schema(spark, plan.partial_sql)
    for name in plan.keys:
        _refuse_maps(name, state.field(name).type)
    values = query_schema(spark, plan.values_sql)
    fields = {f.name: f for f in state} | {f.name: f for f in visible}
    final = plan.windowing is not None and plan.windowing.final
    if plan.having or final:
        fields[SHOWN] = pa.field(SHOWN, pa.bool_())
    if plan.having and final:
        fields[HAVING] = pa.field(HAVING, pa.bool_())
    ordered = [fields.pop(name) for name in visible.names]
    sums = {a.name for g in plan.aggregates for a in g.accumulators if a.merge is Merge.ADD}
    inexact = tuple(f.name for f in state if f.name in sums and pa.types.is_floating(f.type))
    extremes = {a.name for g in plan.aggregates for a in g.accumulators if a.merge in {Merge.MIN, Merge.MAX}}
    merges = not any(pa.types.is_nested(state.field(name).type) for name in extremes) and not any(
        pa.types.is_duration(state.field(name).type) for name in sums
    )
    physical = pa.schema([*ordered, *fields.values()])
    return ResultShape(visible, physical, plan.keys, state, values, inexact, merges)


def _followed_schema(spark: SparkSession, sql: str) -> pa.Schema:
    """The columns of rows that are compared outside Spark; raises NoKeysError where Spark differs."""
    found = collation(spark, sql)
    if found is not None:
        raise NoKeysError(f"{found[0]} is compared by the collation {found[1]}")
    return query_schema(spark, sql)
