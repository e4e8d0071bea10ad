"""An opened query: its inputs, its plan typed by Spark, and the schemas of its result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.registry import connector_for
from velostream.engine.inputs.inputs import Input, Inputs, tell_times
from velostream.engine.inputs.tables import TableSource
from velostream.engine.kept.source import KeptSource
from velostream.engine.opening.connect import load_needed
from velostream.engine.opening.exactness import refuse_cut_digits
from velostream.engine.opening.result_schema import shape_of
from velostream.errors import SqlError, UnsupportedError
from velostream.model.columns import SYSTEM_TYPES, arrow_types
from velostream.plan.part import system_names
from velostream.plan.plans import Kind
from velostream.plan.query.declared_columns import in_place
from velostream.plan.query.select_names import NoKeysError
from velostream.plan.time.event_times import Timing
from velostream.spark.dataframes import kept_types, private_session, show_empty
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from velostream.connectors.base import Source
    from velostream.engine.opening.kept_inputs import KeptInput
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.statements import Query
    from velostream.plan.part import Part
    from velostream.plan.plans import Plan
    from velostream.plan.strategy import Strategy
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore


@dataclass(frozen=True)
class Opened:
    """A statement's query, ready to run."""

    spark: SparkSession
    part: Part
    """The part of the strategy that this is, with the plan that Spark's types allow."""
    shape: ResultShape
    inputs: Inputs
    kept: tuple[KeptInput, ...] = ()
    """Inputs whose rows the job keeps, which the query reads like tables."""
    store: TableStore | None = None
    """The store of the job's own tables: kept rows and kept results."""
    below: Opened | None = None
    """The part whose whole result is kept beside the job and read by this part; None without one."""
    table: Table | None = None
    """The table that holds the result of `below`."""
    state: Table | None = None
    """The table of the rows that are kept for OVER."""
    follows: bool = False
    """Whether the result equals that of `below`, so that its changes are forwarded without a query."""
    strategy: Strategy | None = None
    """The strategy of the statement, with the plans that are executed; None for a part of it."""

    @property
    def plan(self) -> Plan:
        """How the result is maintained."""
        return self.part.plan

    @property
    def row_key(self) -> tuple[str, ...]:
        """The key of the only input, where each row of the result is one row of it and contains the key."""
        return self.part.row_key

    @property
    def kind(self) -> Kind:
        """The kind of step that maintains the result."""
        return Kind.FOLLOW if self.follows else self.plan.kind

    @property
    def read(self) -> Mapping[str, Input]:
        """The inputs that the statement names, without the job's own tables."""
        own = {key: item for key, item in self.inputs.all.items() if not isinstance(item.source, KeptSource)}
        below = self.below.read if self.below is not None else {}
        return {**own, **below, **{key: item for each in self.kept for key, item in each.inputs.all.items()}}

    @property
    def every_input(self) -> Sequence[Input]:
        """Every input of the statement and of its parts; a source that is used twice is in two of them."""
        below = self.below.every_input if self.below is not None else ()
        kept = [item for each in self.kept for item in each.inputs.all.values()]
        return [*self.inputs.all.values(), *kept, *below]

    @property
    def columns(self) -> Mapping[str, pa.Schema]:
        """The discovered columns of each source."""
        return {key: item.schema for key, item in self.read.items()}

    @property
    def only_grows(self) -> bool:
        """Whether no input retracts rows; looked-up tables do not count."""
        stream = self.plan.stream
        read = [item for key, item in self.read.items() if stream is None or key == stream]
        return all(item.source.traits.only_grows for item in read) and not any(
            each.retracts for each in self.kept
        )

    def close(self) -> None:
        """Close everything that was opened."""
        for inputs in (self.inputs, *(each.inputs for each in self.kept)):
            for item in inputs.all.values():
                item.source.close()
        if self.below is not None:
            self.below.close()
        if self.store is not None:
            self.store.close()


def opened_part(
    session: SparkSession,
    part: Part,
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    *,
    declared: tuple[pa.DataType, ...] = (),
    timing: Timing | None = None,
) -> Opened:
    """A part of a strategy over these inputs, with Spark's types.

    `declared` are the types of its declared columns. Raises for queries that Spark's types show cannot be
    maintained.
    """
    schemas = schemas_of(sources, known)
    load_needed(session, sources.values())
    spark = private_session(session)
    wide = {name: with_system_columns(schema) for name, schema in schemas.items()}
    views = schemas | _system_views(part.query, wide)
    casts = _casts(spark, part, views, declared) if part.asked.declared else []
    if any(casts):
        part = part.cast(casts)
    inputs = {
        name: Input(name, source, schemas[name], part.used.get(name), *described(part.query, name))
        for name, source in sources.items()
    }
    tell_times(timing or Timing(), inputs)
    refuse_cut_digits(spark, part.query.tree, wide)
    try:
        plan, shape = shape_of(spark, part.plan, views, part.key, wide)
    except (NoKeysError, SqlError) as exc:
        if part.query.sources:
            raise _of_source(exc, part.query) from exc
        plan, shape = _first_shaped(spark, part, views, exc)
    return Opened(spark, replace(part, plan=plan), shape, Inputs(spark, inputs))


def _first_shaped(
    spark: SparkSession, part: Part, views: Mapping[str, pa.Schema], failure: Exception
) -> tuple[Plan, ResultShape]:
    """The first of the other plans whose result can be maintained with Spark's types."""
    for other in part.otherwise(str(failure)):
        try:
            return shape_of(spark, other.plan, views, other.key)
        except (NoKeysError, SqlError) as exc:
            failure = exc
    raise failure


def _of_source(error: Exception, query: Query) -> Exception:
    if not isinstance(error, NoKeysError):
        return error
    return UnsupportedError(
        f"this query cannot be kept up to date over a source: {error}",
        hint="make a table of the source first, then a table or a SELECT over that table",
        location=query.location,
    )


def schemas_of(sources: Mapping[str, Source], known: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The columns of each input; those of a table are read from the table, since they may have widened."""
    return {
        name: source.discover() if isinstance(source, TableSource) else known.get(name) or source.discover()
        for name, source in sources.items()
    }


def described(query: Query, name: str) -> tuple[str, str]:
    """The name of an input in messages, and its kind of source."""
    for ref in query.sources:
        if ref.id == name:
            return str(ref.uri), connector_for(ref.uri).name
    return name, "table"


def with_system_columns(schema: pa.Schema) -> pa.Schema:
    """A source's columns and the system columns."""
    missing = [(name, kind) for name, kind in arrow_types().items() if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in missing)])


def _system_views(query: Query, views: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Views for analysis: with system columns only where the query names one, since `*` leaves them out."""
    used = system_names(query)
    if not used:
        return {}
    return {
        name: pa.schema([f for f in schema if f.name not in SYSTEM_TYPES or f.name in used])
        for name, schema in views.items()
    }


def _casts(
    spark: SparkSession, part: Part, views: Mapping[str, pa.Schema], declared: tuple[pa.DataType, ...]
) -> list[str | None]:
    """The types to which the declared columns are cast; None for those that have the declared type."""
    names, tree = part.asked.declared, part.asked.query.tree
    show_empty(spark, views)
    found = kept_types(spark, tree.sql(dialect=SPARK))
    given = dict(zip(names, (kind for _, kind in found), strict=False))
    if not in_place(tree, len(names)):
        given = {name: kind for name in names for shown, kind in found if shown.lower() == name.lower()}
    return [
        None if given.get(name) == kind else spark_ddl(kind)
        for name, kind in zip(names, declared, strict=True)
    ]
