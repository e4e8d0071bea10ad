"""Opens the state beside a job: the table of kept rows, and the source by which the statement reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp, parse_one

from velostream.engine.inputs.inputs import Input, Inputs
from velostream.engine.kept.clock_rows import ClockRows, kept_schema
from velostream.engine.kept.stream_rows import StreamRows
from velostream.engine.opening.connect import load_needed
from velostream.engine.opening.result_schema import shape_of
from velostream.errors import TypeMismatchError, UnknownNameError
from velostream.model.tables import TableSpec
from velostream.plan.planner import last_per_message_key
from velostream.plan.plans import Kind, RowsPlan, UpsertPlan
from velostream.serving.durable.damage import corrupt
from velostream.spark.dataframes import private_session, query_schema
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from velostream.engine.kept.table import KeptTable
    from velostream.engine.rows.shape import ResultShape
    from velostream.plan.time.kept_rows import KeptRows
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore


@dataclass(frozen=True)
class KeptInput:
    """One input whose rows the job keeps: its source, and the table that holds the rows."""

    spark: SparkSession
    plan: RowsPlan | UpsertPlan
    shape: ResultShape
    inputs: Inputs
    output: KeptTable

    @property
    def kind(self) -> Kind:
        """The kind of step that keeps the rows."""
        return Kind.STREAM if isinstance(self.output, StreamRows) else self.plan.kind

    @property
    def retracts(self) -> bool:
        """Whether kept rows are retracted, by time or by a later message of the same key."""
        by_clock = isinstance(self.output, ClockRows) and self.output.retracts
        return by_clock or isinstance(self.plan, UpsertPlan)


def open_kept_input(
    spark: SparkSession,
    rows: KeptRows,
    item: Input,
    views: Mapping[str, pa.Schema],
    store: TableStore,
    owner: str,
    now: int,
) -> KeptInput:
    """Plan how the rows are kept, and open or create their table; `views` are for Spark's analysis.

    Rows that have aged out by `now` are not read: of a long file, these are most.
    """
    load_needed(spark, [item.source])
    session = private_session(spark)
    plan: RowsPlan | UpsertPlan
    if rows.message_key is not None:
        tree = parse_one(rows.sql(), dialect=SPARK)
        assert isinstance(tree, exp.Select)
        plan = last_per_message_key(tree, rows.message_key)
    else:
        plan = RowsPlan(rows.sql(now), steps=(rows.step,) if rows.step is not None else ())
    _, shape = shape_of(session, plan, views)
    _check_types(session, rows)
    leaves = rows.span is not None or rows.ttl is not None
    schema = kept_schema(shape.physical, leaves=leaves)
    table = open_or_make(store, TableSpec(rows.id, schema, shape.key, owner=owner))
    inputs = Inputs(session, {item.id: item})
    output = StreamRows(table, rows.last) if rows.timed else ClockRows(table, now, rows.ttl)
    return KeptInput(session, plan, shape, inputs, output)


def open_or_make(store: TableStore, spec: TableSpec) -> Table:
    """A table of the job, created if it does not exist; its columns widen where those of the spec did."""
    try:
        table = store.open(spec.name)
    except UnknownNameError:
        return store.create(spec)
    if table.spec.owner != spec.owner:
        raise corrupt(f'table "{spec.name}" of job "{spec.owner}" is that of "{table.spec.owner}"')
    if table.spec.schema != spec.schema:
        table.evolve(spec.schema)
    return table


def _check_types(spark: SparkSession, rows: KeptRows) -> None:
    """Raise where an expression that is compared with the clock is not a date or timestamp to Spark."""
    for bound in rows.bounds:
        text = bound.value.sql(dialect=SPARK)
        relation = f"{quote(rows.relation)} AS {quote(rows.alias)}"
        kind = query_schema(spark, f"SELECT {text} AS value FROM {relation}").field(0).type
        if bound.kind == "seconds":
            fits, wanted = pa.types.is_integer(kind), "BIGINT"
        else:
            fits, wanted = pa.types.is_timestamp(kind) or pa.types.is_date(kind), "TIMESTAMP"
        if not fits:
            raise TypeMismatchError(
                f"{text} is compared with the clock and is {kind}",
                hint=f"make it a {wanted}: CAST({text} AS {wanted})",
            )
