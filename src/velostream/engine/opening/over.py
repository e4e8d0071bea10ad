"""Opens a statement with OVER over a source: the table of its kept rows, and the rest of the query."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.engine.kept.source import KeptSource
from velostream.engine.opening.kept import open_or_make
from velostream.engine.opening.opened import planned, with_system_columns
from velostream.engine.over.state import state_schema
from velostream.errors import InternalError
from velostream.model.columns import CHUNK, POSITION
from velostream.model.statements import Query
from velostream.model.tables import TableSpec
from velostream.plan.over.clauses import outer_tree
from velostream.plan.over.running_sums import summed, with_running_sums
from velostream.plan.plans import OverPlan
from velostream.plan.time.clock_filters import RESULT
from velostream.spark.dataframes import query_schema, show_empty
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from velostream.connectors.base import Source
    from velostream.engine.opening.opened import Opened
    from velostream.plan.time.timing import Timing
    from velostream.serving.table.store import TableStore
    from velostream.serving.table.table import Table

KEPT = "__kept"
"""Name of the table of rows that are kept for OVER."""


def open_over(
    spark: SparkSession,
    query: Query,
    timing: Timing,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    store: TableStore,
    owner: str,
) -> Opened:
    """Plan the OVER and open the table of its rows; the rest of the query, if any, reads its result."""
    assert timing.over is not None
    inner = timing.over.inner
    given, left = (declared, ()) if inner is None else ((), declared)
    opened = planned(spark, inner or query, (), sources, known, given, table=False, timing=timing)
    opened = _summing(replace(opened, state=_kept_rows(opened, store, owner)))
    if inner is None and not key:
        return replace(opened, store=store)
    if key:
        opened = _positioned(opened)
    result = open_or_make(store, opened.shape.spec(RESULT, {}, "table", owner))
    tree = outer_tree(query, RESULT) if inner is not None else exp.select("*").from_(exp.to_table(RESULT))
    outer = Query(tree, tables=(RESULT,))
    made = planned(spark, outer, key, {RESULT: KeptSource(result, owner, ())}, {}, left, table=True)
    return replace(made, below=opened, table=result, store=store)


def _positioned(opened: Opened) -> Opened:
    """With positions in the result, by which an upsert finds the later of two rows of a key."""
    assert isinstance(opened.plan, OverPlan)
    place = pa.field(POSITION, pa.string())
    shape = opened.shape
    shape = replace(shape, visible=shape.visible.append(place), physical=shape.physical.append(place))
    return replace(opened, plan=replace(opened.plan, positioned=True), shape=shape)


def _summing(opened: Opened) -> Opened:
    """With sums as differences of running sums, where types allow; needs the views of the analysis."""
    plan = opened.plan
    assert isinstance(plan, OverPlan)
    arguments = list(dict.fromkeys(summed(plan.over_sql)))
    if not arguments:
        return opened
    (name,) = opened.inputs.all
    alias = plan.alias
    items = ", ".join(f"{text} AS a{number}" for number, text in enumerate(arguments))
    found = query_schema(opened.spark, f"SELECT {items} FROM {quote(name)} AS {quote(alias)}")
    types = dict(zip(arguments, found.types, strict=True))
    return replace(opened, plan=replace(plan, over_sql=with_running_sums(plan.over_sql, types)))


def _kept_rows(opened: Opened, store: TableStore, owner: str) -> Table:
    plan = opened.plan
    if not isinstance(plan, OverPlan):
        raise InternalError(f"OVER was planned as {type(plan).__name__}")
    views = {name: with_system_columns(item.schema) for name, item in opened.inputs.all.items()}
    show_empty(opened.spark, views)
    schema = state_schema(query_schema(opened.spark, plan.rows_sql), plan.keys, shrinks=plan.shrinks)
    return open_or_make(store, TableSpec(KEPT, schema, (*plan.keys, CHUNK), owner=owner))
