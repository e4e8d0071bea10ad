"""An opened query: its inputs, its plan typed by Spark, and the schemas of its result."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.connectors.registry import connector_for
from velostream.engine.inputs.inputs import Input, Inputs, tell_times
from velostream.engine.inputs.tables import TableSource
from velostream.engine.kept.source import KeptSource
from velostream.engine.opening.connect import load_needed
from velostream.engine.opening.exactness import refuse_cut_digits
from velostream.engine.opening.result_schema import shape_of
from velostream.errors import SqlError, UnsupportedError
from velostream.model.columns import SYSTEM_TYPES, arrow_types
from velostream.plan.planner import NeedsColumns, plan_query, recompute, recompute_plan
from velostream.plan.plans import Kind
from velostream.plan.query.declared_columns import declared_columns, in_place
from velostream.plan.query.own_key import own_key
from velostream.plan.query.select_names import NoKeysError
from velostream.plan.query.stars import expand_stars
from velostream.plan.strategy import Outline
from velostream.plan.time.messages import message_key
from velostream.plan.time.timing import Timing
from velostream.plan.time.windows import closing
from velostream.spark.dataframes import kept_types, private_session, show_empty
from velostream.sql.names.usage import column_usage
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import spark_ddl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from velostream.connectors.base import Source
    from velostream.engine.opening.kept import KeptInput
    from velostream.engine.rows.shape import ResultShape
    from velostream.model.changes import Messages
    from velostream.model.statements import Query
    from velostream.plan.plans import Plan
    from velostream.plan.strategy import Strategy
    from velostream.serving.table.store import TableStore
    from velostream.serving.table.table import Table


@dataclass(frozen=True)
class Opened:
    """A statement's query, ready to run."""

    spark: SparkSession
    plan: Plan
    shape: ResultShape
    inputs: Inputs
    live: tuple[KeptInput, ...] = ()
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
    """The strategy of the statement; None for a part of it."""
    row_key: tuple[str, ...] = ()
    """The key of the only input, where each row of the result is one row of it and contains the key."""

    @property
    def kind(self) -> Kind:
        """The kind of step that maintains the result."""
        return Kind.FOLLOW if self.follows else self.plan.kind

    @property
    def read(self) -> Mapping[str, Input]:
        """The inputs that the statement names, without the job's own tables."""
        own = {key: item for key, item in self.inputs.all.items() if not isinstance(item.source, KeptSource)}
        below = self.below.read if self.below is not None else {}
        return {**own, **below, **{key: item for each in self.live for key, item in each.inputs.all.items()}}

    @property
    def every_input(self) -> Sequence[Input]:
        """Every input of the statement and of its parts; a source that is used twice is in two of them."""
        below = self.below.every_input if self.below is not None else ()
        live = [item for each in self.live for item in each.inputs.all.values()]
        return [*self.inputs.all.values(), *live, *below]

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
            each.retracts for each in self.live
        )

    def close(self) -> None:
        """Close everything that was opened."""
        for inputs in (self.inputs, *(each.inputs for each in self.live)):
            for item in inputs.all.values():
                item.source.close()
        if self.below is not None:
            self.below.close()
        if self.store is not None:
            self.store.close()


def outline_of(opened: Opened) -> Outline:
    """The opened parts in the terms of a strategy, by which tests compare the two."""
    kept = tuple(sorted(name for each in opened.live for name in each.inputs.all))
    part = opened.below if opened.follows and opened.below is not None else opened
    inner = type(part.below.plan) if part.below is not None else None
    return Outline(type(part.plan), kept, inner, beside=opened.follows)


def planned(
    session: SparkSession,
    query: Query,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    *,
    table: bool,
    messages: Mapping[str, Messages | None] | None = None,
    timing: Timing | None = None,
) -> Opened:
    """Plan a query over these inputs; raises for queries that cannot be maintained.

    `messages` describes sources whose rows upsert by message key, where the result is a table that does so
    too.
    """
    timing = timing or Timing()
    schemas = schemas_of(sources, known)
    load_needed(session, sources.values())
    spark = private_session(session)
    wide = {name: with_system_columns(schema) for name, schema in schemas.items()}
    if declared:
        query = _with_declared(spark, query, schemas | _system_views(query, wide), declared)
    if query.sources and _system_names(query):
        # Stars are expanded first: once a view has system columns, `*` would contain them.
        query = replace(query, tree=expand_stars(query.tree, names_of(schemas)))
    row_key = _row_key(query, sources)
    own_key = key or (row_key if table else ())
    streams = [sources[ref.id] for ref in query.sources] or sources.values()
    only_grows = all(source.traits.only_grows for source in streams)
    usage = column_usage(query, names_of(schemas))
    inputs = {
        name: Input(name, source, schemas[name], usage.get(name), *described(query, name))
        for name, source in sources.items()
    }
    tell_times(timing, inputs)
    used = {name: item.wanted() or item.schema.names for name, item in inputs.items()}
    by_message = message_key(query, messages or {})
    choose = partial(
        plan_query,
        key=own_key,
        only_grows=only_grows,
        columns=used,
        message_key=by_message,
        closes=timing.windowing is not None and timing.windowing.bounded,
    )
    try:
        plan = choose(query)
    except NeedsColumns:
        query = replace(query, tree=expand_stars(query.tree, names_of(schemas)))
        plan = choose(query)
    plan = closing(plan, timing.windowing, query)
    refuse_cut_digits(spark, query.tree, wide)
    views = schemas | _system_views(query, wide)
    try:
        plan, shape = shape_of(spark, plan, views, own_key, wide)
    except (NoKeysError, SqlError) as exc:
        if query.sources:
            raise _of_source(exc, query) from exc
        # With Spark's types, a plan may turn out impossible that was possible by names.
        others = []
        if plan.below is not None:
            others.append(closing(recompute_plan(query, own_key, str(exc)), timing.windowing, query))
        if timing.windowing is None:
            others.append(recompute(query.tree, str(exc)))
        plan, shape = _first_shaped(spark, others, views, own_key, exc)
    return Opened(spark, plan, shape, Inputs(spark, inputs), row_key=row_key)


def _first_shaped(
    spark: SparkSession,
    plans: Sequence[Plan],
    views: Mapping[str, pa.Schema],
    key: tuple[str, ...],
    failure: Exception,
) -> tuple[Plan, ResultShape]:
    """The first of the plans whose result can be maintained with Spark's types."""
    for plan in plans:
        try:
            return shape_of(spark, plan, views, key)
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


def names_of(schemas: Mapping[str, pa.Schema]) -> dict[str, list[str]]:
    """The names of the columns of each input."""
    return {name: schema.names for name, schema in schemas.items()}


def described(query: Query, name: str) -> tuple[str, str]:
    """The name of an input in messages, and its kind of source."""
    for ref in query.sources:
        if ref.id == name:
            return str(ref.uri), connector_for(ref.uri).name
    return name, "table"


def _row_key(query: Query, sources: Mapping[str, Source]) -> tuple[str, ...]:
    """The key of the only input, where the result contains all of it."""
    if len(sources) != 1:
        return ()
    ((name, source),) = sources.items()
    return own_key(query, name, source.key)


def with_system_columns(schema: pa.Schema) -> pa.Schema:
    """A source's columns and the system columns."""
    missing = [(name, kind) for name, kind in arrow_types().items() if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in missing)])


def _system_names(query: Query) -> set[str]:
    """System columns that the query names."""
    return {column.name for column in query.tree.find_all(exp.Column)} & SYSTEM_TYPES.keys()


def _system_views(query: Query, views: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Views for analysis: with system columns only where the query names one, since `*` leaves them out."""
    used = _system_names(query)
    if not used:
        return {}
    return {
        name: pa.schema([f for f in schema if f.name not in SYSTEM_TYPES or f.name in used])
        for name, schema in views.items()
    }


def _with_declared(
    spark: SparkSession,
    query: Query,
    views: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
) -> Query:
    """The query with its columns as CREATE TABLE declares them, cast where they have another type."""
    show_empty(spark, views)
    found = kept_types(spark, query.tree.sql(dialect=SPARK))
    names = [name for name, _ in declared]
    given = dict(zip(names, (kind for _, kind in found), strict=False))
    if not in_place(query.tree, len(names)):
        given = {name: kind for name in names for shown, kind in found if shown.lower() == name.lower()}
    casts = [None if given.get(name) == kind else spark_ddl(kind) for name, kind in declared]
    return replace(query, tree=declared_columns(query.tree, names, casts))
