"""From a statement to work that a job can do: sources opened, plan chosen, result shaped."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.errors import SqlError
from velostream.model.secrets import redact_uri
from velostream.plan.ageing import ageing
from velostream.plan.exactness import refuse_cut_digits
from velostream.plan.planner import POSITION, NeedsColumns, plan_query, recompute_plan
from velostream.plan.resolve import NoKeysError
from velostream.plan.shape import one_row_each
from velostream.plan.spark import private_session
from velostream.runtime.ageing import LiveInput, LiveSource, open_live
from velostream.runtime.inputs import Input, Inputs
from velostream.runtime.opening import connector_for, open_source, wait_for, wait_for_tables
from velostream.runtime.shapes import ResultShape, shape_of
from velostream.runtime.table_source import TableSource
from velostream.serving.store import TableStore
from velostream.sql.types import spark_ddl
from velostream.sql.usage import column_usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from threading import Event

    from pyspark.sql import SparkSession

    from velostream.config import Settings
    from velostream.connectors.base import Source
    from velostream.model.options import CommonOptions
    from velostream.model.statements import Query
    from velostream.plan.ageing import Ageing
    from velostream.plan.plans import Plan
    from velostream.runtime.select import LiveSelect


@dataclass(frozen=True)
class Site:
    """What every job of a database shares."""

    settings: Settings
    store: TableStore
    spark: Callable[[], SparkSession]
    once: bool = False
    tmp: Path | None = None
    """Where a SELECT keeps what it read while it runs; None: the system's own folder for such things."""
    selects: set[LiveSelect] = field(default_factory=set, compare=False)
    """The SELECTs that run now."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    """What time it is, for rows that come and go by it."""


@dataclass(frozen=True)
class Opened:
    """A statement's query, ready to run."""

    spark: SparkSession
    plan: Plan
    shape: ResultShape
    inputs: Inputs
    live: tuple[LiveInput, ...] = ()
    """Rows that come and go by the clock, which the query reads like tables."""
    store: TableStore | None = None
    """Where those rows are kept."""

    @property
    def read(self) -> Mapping[str, Input]:
        """What is read of what the statement names."""
        own = {key: item for key, item in self.inputs.all.items() if not isinstance(item.source, LiveSource)}
        return own | {key: item for each in self.live for key, item in each.inputs.all.items()}

    @property
    def columns(self) -> Mapping[str, pa.Schema]:
        """What each source turned out to have."""
        return {key: item.schema for key, item in self.read.items()}

    def close(self) -> None:
        """Let go of everything that was opened."""
        for inputs in (self.inputs, *(each.inputs for each in self.live)):
            for item in inputs.all.values():
                item.source.close()
        if self.store is not None:
            self.store.close()


def open_query(
    site: Site,
    query: Query,
    key: tuple[str, ...],
    folder: Path,
    *,
    known: Mapping[str, pa.Schema],
    table: bool,
    reader: str,
    stop: Event,
    tell: Callable[[str], None],
    options: CommonOptions,
    declared: tuple[tuple[str, pa.DataType], ...] = (),
) -> Opened:
    """Open every input and plan the query; raises what is wrong with it, placed in the user's SQL."""
    sources: dict[str, Source] = {}
    try:
        for ref in query.sources:
            source = open_source(
                ref,
                site.settings,
                folder / "sources" / ref.id,
                known=known.get(ref.id),
                once=site.once,
                table=table,
            )
            sources[ref.id] = source
            wait_for(source, stop, tell)
        for name in query.tables:
            sources[name] = TableSource(site.store.open(name), reader)
        if query.sources and query.tables:
            wait_for_tables([site.store.open(name) for name in query.tables], options, stop, tell)
        if table:
            schemas = _schemas(sources, known)
            aged = ageing(query, {name: schema.names for name, schema in schemas.items()})
            if aged is not None:
                return _over_live(site, query, aged, key, sources, known, declared, folder, reader)
        return _plan(site, query, key, sources, known, declared, table=table)
    except BaseException:
        for source in sources.values():
            source.close()
        raise


def _plan(
    site: Site,
    query: Query,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    *,
    table: bool,
) -> Opened:
    schemas = _schemas(sources, known)
    if declared:
        query = replace(query, tree=_declared_types(query.tree, declared))
    own_key = key or (_own_key(query, sources) if table else ())
    streams = [sources[ref.id] for ref in query.sources] or sources.values()
    only_grows = all(source.only_grows for source in streams)
    names = _input_names(query.tree, schemas)
    usage = column_usage(query, {name: schema.names for name, schema in schemas.items()})
    inputs = {
        name: Input(name, source, schemas[name], usage.get(name), *_described(query, name))
        for name, source in sources.items()
    }
    used = {name: item.wanted() or item.schema.names for name, item in inputs.items()}
    try:
        plan = plan_query(query, own_key, only_grows=only_grows, inputs=names, columns=used)
    except NeedsColumns:
        query = replace(query, tree=_expand_stars(query.tree, schemas))
        plan = plan_query(query, own_key, only_grows=only_grows, inputs=names, columns=used)
    spark = private_session(site.spark())
    views = {name: _with_system_columns(schema) for name, schema in schemas.items()}
    refuse_cut_digits(spark, query.tree, views)
    wide, views = views, schemas | _system_views(query, views)
    try:
        plan, shape = shape_of(spark, plan, views, own_key, wide)
    except (NoKeysError, SqlError) as exc:
        if plan.below is None or plan.stream is not None:
            raise
        # Spark knows the types, and may see what the names alone do not tell.
        plan = recompute_plan(query, own_key, names, str(exc))
        plan, shape = shape_of(spark, plan, views, own_key)
    return Opened(spark, plan, shape, Inputs(spark, inputs))


def _schemas(sources: Mapping[str, Source], known: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """The columns of each input. A table knows its own better than what was remembered: they may be wider."""
    return {
        name: source.discover() if isinstance(source, TableSource) else known.get(name) or source.discover()
        for name, source in sources.items()
    }


def _over_live(
    site: Site,
    query: Query,
    aged: Ageing,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    folder: Path,
    reader: str,
) -> Opened:
    """The plan of what is left of a query, over tables of the rows that pass its filters on the clock."""
    schemas = _schemas(sources, known)
    names = {each.id: schemas[each.relation].names for each in aged.live}
    usage = column_usage(aged.query, {**{n: s.names for n, s in schemas.items()}, **names})
    store = TableStore(folder / "live")
    store.budget = site.store.budget
    try:
        live: list[LiveInput] = []
        rest: dict[str, Source] = {name: sources[name] for name in aged.query.tables if name in sources}
        for number, each in enumerate(aged.live, start=1):
            source = sources[each.relation]
            if isinstance(source, TableSource):
                source = TableSource(site.store.open(each.relation), f"{reader}#{number}")
            schema = schemas[each.relation]
            columns = _stored_columns(usage.get(each.id), schema, position=bool(key) and source.positioned)
            item = Input(
                each.relation, source, schema, each.used | set(columns), *_described(query, each.relation)
            )
            views = {each.relation: _with_named(schema, item.columns or frozenset())}
            live.append(open_live(site.spark(), each, item, views, columns, store, reader))
            rest[each.id] = LiveSource(live[-1].output.table, reader, source.key)
        opened = _plan(site, aged.query, key, rest, {}, declared, table=True)
        for each in aged.live:
            opened.inputs.all[each.id].description = _described(query, each.relation)[0]
        return replace(opened, live=tuple(live), store=store)
    except BaseException:
        store.close()
        raise


def _stored_columns(used: frozenset[str] | None, schema: pa.Schema, *, position: bool) -> list[str]:
    """The columns that live rows keep: what the query uses of them, at least one."""
    folded = {name.casefold() for name in (schema.names if used is None else used)}
    plain = [name for name in schema.names if name.casefold() in folded]
    system = [name for name in sorted(used or ()) if name in SYSTEM_TYPES and name not in plain]
    return [*(plain or schema.names[:1]), *system, *([POSITION] if position else [])]


def _with_named(schema: pa.Schema, named: frozenset[str]) -> pa.Schema:
    """A source's columns, with the system columns that are named."""
    return pa.schema([f for f in _with_system_columns(schema) if f.name in schema.names or f.name in named])


def _input_names(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> frozenset[str]:
    """Columns of the one relation that the query reads directly, casefolded; none if it reads a subquery."""
    source = tree.args.get("from_")
    name = source.this.name if source is not None and isinstance(source.this, exp.Table) else ""
    return frozenset(column.casefold() for column in schemas[name].names) if name in schemas else frozenset()


def _described(query: Query, name: str) -> tuple[str, str]:
    """What an input is called in messages, and which kind of source it is."""
    for ref in query.sources:
        if ref.id == name:
            return redact_uri(str(ref.uri)), connector_for(ref.uri).name
    return name, "table"


def _own_key(query: Query, sources: Mapping[str, Source]) -> tuple[str, ...]:
    """The source's own key, where the query hands all of its columns through unchanged."""
    if len(sources) != 1 or not isinstance(query.tree, exp.Select):
        return ()
    ((name, source),) = sources.items()
    items = query.tree.selects
    if not source.key or not one_row_each(query.tree, name):
        return ()
    passed = {i.name for i in items if isinstance(i, exp.Column)} | {
        i.alias for i in items if isinstance(i, exp.Alias) and i.this.name == i.alias
    }
    whole = any(isinstance(i, exp.Star) or (isinstance(i, exp.Column) and i.is_star) for i in items)
    return source.key if whole or set(source.key) <= passed else ()


SYSTEM_TYPES = {
    "_timestamp": pa.timestamp("us", tz="UTC"),
    "_event_time": pa.timestamp("us", tz="UTC"),
    "_partition": pa.string(),
    "_offset": pa.string(),
    "_position": pa.string(),
}


def _with_system_columns(schema: pa.Schema) -> pa.Schema:
    missing = [(name, kind) for name, kind in SYSTEM_TYPES.items() if name not in schema.names]
    return pa.schema([*schema, *(pa.field(name, kind) for name, kind in missing)])


def _system_views(query: Query, views: Mapping[str, pa.Schema]) -> dict[str, pa.Schema]:
    """Views for analysis: with system columns only where the query names one, since `*` leaves them out."""
    used = {column.name for column in query.tree.find_all(exp.Column)} & SYSTEM_TYPES.keys()
    if not used:
        return {}
    return {
        name: pa.schema([f for f in schema if f.name not in SYSTEM_TYPES or f.name in used])
        for name, schema in views.items()
    }


def _declared_types(tree: exp.Query, declared: tuple[tuple[str, pa.DataType], ...]) -> exp.Query:
    """The query with its columns cast and named as CREATE TABLE declares them."""
    casts = [
        exp.alias_(
            exp.cast(exp.column(name, table="q", quoted=True), spark_ddl(kind), dialect="spark"),
            name,
            quoted=True,
        )
        for name, kind in declared
    ]
    if isinstance(tree, exp.Select) and len(tree.selects) == len(declared) and not tree.find(exp.Star):
        renamed = tree.copy()
        renamed.set(
            "expressions",
            [
                exp.alias_(exp.cast(item.unalias(), spark_ddl(kind), dialect="spark"), name, quoted=True)
                for item, (name, kind) in zip(renamed.selects, declared, strict=True)
            ],
        )
        return renamed
    return exp.Select(expressions=casts).from_(exp.Subquery(this=tree.copy(), alias=exp.TableAlias(this="q")))


def _expand_stars(tree: exp.Query, schemas: Mapping[str, pa.Schema]) -> exp.Query:
    """`*` replaced by the columns of the one relation it stands for."""
    expanded = tree.copy()
    if isinstance(expanded, exp.Select):
        relation = expanded.args["from_"].this
        names = schemas[relation.name].names if relation.name in schemas else []
        items: list[exp.Expr] = []
        for item in expanded.selects:
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and item.is_star):
                items += [exp.column(name, table=relation.alias_or_name, quoted=True) for name in names]
            else:
                items.append(item)
        expanded.set("expressions", items)
    return expanded
