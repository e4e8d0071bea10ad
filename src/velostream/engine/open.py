"""From a statement to work that a job can do: sources opened, plan chosen, result shaped."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.connectors.capabilities import Ordered
from velostream.engine.connect import open_source, wait_for, wait_for_tables
from velostream.engine.delta.source import DeltaTableSource
from velostream.engine.delta.table import DeltaTable
from velostream.engine.exactness import refuse_cut_digits
from velostream.engine.inputs.inputs import Input, tell_times
from velostream.engine.inputs.tables import LookedUpSource, TableSource
from velostream.engine.kept.properties import stored
from velostream.engine.opened import Opened, described, planned, schemas_of, with_system_columns
from velostream.engine.over.open import open_over
from velostream.engine.stages import LiveInput, LiveSource, open_live, open_or_make
from velostream.errors import SqlError, UnsupportedError
from velostream.model.columns import OUTGOING_HEADERS, POSITION, SYSTEM_TYPES, reserved
from velostream.model.moments import micros
from velostream.model.options import common_options
from velostream.model.statements import EmitMode, Query
from velostream.plan.over.clauses import tree_around
from velostream.plan.plans import GroupsPlan, OverPlan, RecomputePlan, RowsPlan, UpsertPlan
from velostream.plan.query.headers import with_headers
from velostream.plan.spreading import check_strategy, spread_of
from velostream.plan.time.asof import asof_tables
from velostream.plan.time.clock_filters import RESULT, ageing, kept
from velostream.plan.time.messages import last_messages
from velostream.plan.time.stream_joins import joins_streams, stream_join
from velostream.plan.time.timing import Timing, timed
from velostream.plan.time.windows import inner_select
from velostream.serving.table.store import TableStore
from velostream.spark.dataframes import private_session
from velostream.sql.names.usage import column_usage, resolved, spelled_key
from velostream.sql.types import ddl_types

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path
    from threading import Event

    from velostream.connectors.base import Source
    from velostream.engine.site import Site
    from velostream.model.changes import Messages
    from velostream.model.options import CommonOptions
    from velostream.model.tables import Retention
    from velostream.plan.time.clock_filters import Ageing


def open_query(
    site: Site,
    query: Query,
    key: tuple[str, ...],
    folder: Path,
    *,
    known: Mapping[str, pa.Schema],
    table: bool,
    materialized: bool,
    reader: str,
    stop: Event,
    tell: Callable[[str], None],
    options: CommonOptions,
    declared: tuple[tuple[str, pa.DataType], ...] = (),
    beside: bool = False,
    resumed: bool = False,
) -> Opened:
    """Open every input and plan the query; raises what is wrong with it, placed in the user's SQL.

    `table`: rows may be taken back. `materialized`: the result is a table that stays. `beside`: it is kept
    beside the job, for a sink. `resumed`: the job was made before, and what it keeps in `folder` is there.
    """
    for ref in query.sources:
        check_strategy(common_options(ref.properties).partition_strategy, site.strategies.names())
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
                whole=materialized or site.once,
                owner=reader,
                resumed=resumed,
            )
            sources[ref.id] = source
            wait_for(source, stop, tell)
        sources |= {name: _table_source(site, name, reader) for name in query.tables}
        if query.sources and query.tables:
            wait_for_tables([site.store.open(name) for name in query.tables], options, stop, tell)
        columns = {name: schema.names for name, schema in schemas_of(sources, known).items()}
        key = spelled_key(query, columns, key) if not declared else key
        query = resolved(query, columns)
        _refuse_ours(query, columns)
        upserting = [name for name, source in sources.items() if source.traits.upserts]
        query, timing = timed(with_headers(query), options, upserting)
        if not joins_streams(query):
            query = asof_tables(query, lambda: ddl_types(schemas_of(sources, known)))
        in_delta = options.table_storage == "delta" or _reads_delta(sources)
        messages = {name: source.traits.messages for name, source in sources.items()} if materialized else {}
        if timing.over is not None or timing.inner is not None:
            _refuse_inner(query, timing, options, table=table, in_delta=in_delta)
            opening = _open_over if timing.over is not None else _over_windows
            store = _beside(site, folder, resumed=resumed)
            opened = opening(site, query, timing, key, sources, known, declared, store, reader, options)
            return _spread(site, query, (), opened)
        aged = None
        if table or joins_streams(query):
            schemas = schemas_of(sources, known)
            aged = _over_kept(query, key, schemas, messages, timing, options, table=table)
        if aged is not None and in_delta:
            raise UnsupportedError(
                "rows of a source are kept in memory for a join of streams, for a filter on the clock, or as "
                "the last of each message key, and a table of this statement is in Delta Lake",
                hint='leave out "table.storage" = "delta" here and in the tables that are read',
            )
        if aged is not None:
            store = _beside(site, folder, resumed=resumed)
            opened = _over_live(site, query, aged, key, sources, known, declared, store, reader, timing)
            return _spread(site, query, key, _forgetful(opened, aged, query) if aged.forgets else opened)
        session = site.delta.session() if in_delta else site.spark()
        opened = planned(
            session, query, key, sources, known, declared, table=table, messages=messages, timing=timing
        )
        if (table or beside) and not in_delta and _needs_rows(opened, sources, options):
            every = _every_row(query, sources, timing, options)
            store = _beside(site, folder, resumed=resumed)
            opened = _over_live(site, query, every, key, sources, known, declared, store, reader, timing)
            opened = replace(opened, plan=replace(opened.plan, forgetful=every.forgets))
        return _spread(site, query, key, opened)
    except BaseException:
        for source in sources.values():
            source.close()
        raise


def _refuse_ours(query: Query, columns: Mapping[str, Sequence[str]]) -> None:
    """Raise SqlError where the user's SELECT shows a column whose name would be taken for one of ours.

    Known columns were looked at when the statement was bound; those of a source are known from here on.
    """
    # Headers that go out with a record are a column of ours by now.
    shown = [name for name in query.tree.named_selects if name != OUTGOING_HEADERS]
    if "*" in shown:
        shown += [name for names in columns.values() for name in names]
    for name in filter(reserved, shown):
        raise SqlError(
            f'the result has a column "{name}", which would be taken for one of ours',
            hint="name the columns, and give this one another name with AS",
            location=query.location,
        )


def _beside(site: Site, folder: Path, *, resumed: bool) -> TableStore:
    """The tables that a job keeps for itself; those of a job that was made before are all there."""
    store = TableStore(folder / "live", clock=site.clock, complete=resumed)
    store.budget = site.store.budget
    return store


def _table_source(site: Site, name: str, reader: str) -> Source:
    read = site.store.open(name)
    return DeltaTableSource(read, reader) if isinstance(read, DeltaTable) else TableSource(read, reader)


def _reads_delta(sources: Mapping[str, Source]) -> bool:
    return any(isinstance(source, DeltaTableSource) for source in sources.values())


def _refuse_inner(
    query: Query, timing: Timing, options: CommonOptions, *, table: bool, in_delta: bool
) -> None:
    """Raise UnsupportedError where what a part of the query gives cannot be kept beside the job."""
    if timing.over is not None and in_delta:
        raise UnsupportedError(
            "rows that OVER looks back to are kept in memory, and the table is in Delta Lake",
            hint='leave out "table.storage" = "delta", and make a table of this one in Delta Lake',
        )
    if timing.inner is not None and (not table or in_delta or options.retention is not None):
        raise UnsupportedError(
            "windows in a subquery over a source are executed for a table in memory without retention",
            hint="make a table of the inner query first, and the rest over that table",
            location=query.location,
        )


def _open_over(
    site: Site,
    query: Query,
    timing: Timing,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    store: TableStore,
    reader: str,
    options: CommonOptions,
) -> Opened:
    """OVER over a source, which keeps its rows."""
    return open_over(site.spark(), query, timing, key, sources, known, declared, store, reader)


def _over_windows(
    site: Site,
    query: Query,
    timing: Timing,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    store: TableStore,
    reader: str,
    options: CommonOptions,
) -> Opened:
    """The windows of a source kept beside the job, and what the query makes of them."""
    inner, core = timing.inner, inner_select(query)
    assert inner is not None
    assert core is not None
    try:
        opened = planned(site.spark(), inner, (), sources, known, (), table=True, timing=timing)
        if _needs_rows(opened, sources, options):
            every = _every_row(inner, sources, timing, options)
            opened = _over_live(site, inner, every, (), sources, known, (), store, reader, timing)
            opened = replace(opened, plan=replace(opened.plan, forgetful=every.forgets))
        outer = Query(tree_around(query.tree, core, RESULT), tables=(RESULT,))
        return _followed(site, opened, store, reader, None, table=True, outer=(outer, key, declared))
    except BaseException:
        store.close()
        raise


def _over_kept(
    query: Query,
    key: tuple[str, ...],
    schemas: Mapping[str, pa.Schema],
    messages: Mapping[str, Messages | None],
    timing: Timing,
    options: CommonOptions,
    *,
    table: bool,
) -> Ageing | None:
    """The query over rows that are kept for it; None where none are. `table`: rows may be taken back."""
    if joins_streams(query):
        # A stream into a sink cannot take a row with nulls back when somebody comes.
        final = query.emit.mode is EmitMode.FINAL or not table
        grace = options.grace // timedelta(microseconds=1)
        return stream_join(query, timing.times, ddl_types(schemas), grace=grace, final=final)
    columns = {name: schema.names for name, schema in schemas.items()}
    return ageing(query, columns) or last_messages(query, key, messages)


def _forgetful(opened: Opened, aged: Ageing, query: Query) -> Opened:
    """The plan over rows that are forgotten in time; raises what would need them again."""
    plan = opened.plan
    inputs = [item for each in opened.live for item in each.inputs.all.values()]
    grows = aged.appends and all(item.source.traits.only_grows for item in inputs)
    reason = None
    if isinstance(plan, RecomputePlan):
        reason = plan.steps[0].why.split(";")[0]
    elif isinstance(plan, GroupsPlan):
        merged = plan.mergeable and opened.shape.merges
        if not merged or not (grows or plan.subtractable(opened.shape.inexact)):
            reason = "its groups have to be computed again from all rows"
    elif not isinstance(plan, RowsPlan):
        reason = "a later row of a key replaces the earlier"
    if reason is not None:
        opened.close()
        raise UnsupportedError(
            f"this query over joined streams is not executed: {reason}",
            hint="make a table of the join first, with an equality in ON, and the rest over that table",
            location=query.location,
        )
    return replace(opened, plan=replace(plan, forgetful=True, appends=grows))


def _spread(site: Site, query: Query, key: tuple[str, ...], opened: Opened) -> Opened:
    """Let the rows of sources be spread over tasks as the statement says."""
    for ref in query.sources:
        item = opened.read[ref.id]
        options = common_options(ref.properties)
        messages = item.source.traits.messages if _by_message(opened) else None
        spread = spread_of(
            query,
            key,
            options.partition_strategy,
            options.partitions,
            message_key=messages.key if messages is not None else None,
        )
        item.spread = site.strategies.spreading(spread, item.source)
    return opened


def _by_message(opened: Opened) -> bool:
    """Whether the last row of each message key is kept, so that every frame has the key."""
    return isinstance(opened.plan, UpsertPlan) and opened.plan.deletes


def _needs_rows(opened: Opened, sources: Mapping[str, Source], options: CommonOptions) -> bool:
    """Whether groups are computed again from rows that the source may not have, or that are forgotten."""
    plan = opened.plan
    if not isinstance(plan, GroupsPlan) or not opened.only_grows:
        return False
    forgets = options.state_ttl is not None and (plan.windowing is None or not plan.windowing.bounded)
    if not forgets and all(source.traits.rereadable for source in sources.values()):
        return False
    return plan.stream is None and not (plan.mergeable and opened.shape.merges)


def _every_row(query: Query, sources: Mapping[str, Source], timing: Timing, options: CommonOptions) -> Ageing:
    """The query over all rows of its sources, kept as tables until what is computed of them is settled."""
    every, windowing = kept(query, {}), timing.windowing
    span, ttl = None, None
    if windowing is not None and windowing.bounded:
        closes = windowing.late != "update" or windowing.ttl is not None
        span = windowing.span if closes else None
    elif options.state_ttl is not None:
        ttl = options.state_ttl // timedelta(microseconds=1)
    if span is None and ttl is None:
        return every
    live = tuple(replace(each, span=span, ttl=ttl) for each in every.live)
    return replace(every, live=live, forgets=True)


def _over_live(
    site: Site,
    query: Query,
    aged: Ageing,
    key: tuple[str, ...],
    sources: Mapping[str, Source],
    known: Mapping[str, pa.Schema],
    declared: tuple[tuple[str, pa.DataType], ...],
    store: TableStore,
    reader: str,
    timing: Timing,
) -> Opened:
    """The plan of what is left of a query, over tables of the rows that pass its filters on the clock."""
    schemas = schemas_of(sources, known)
    system = sorted({column.name for column in aged.query.tree.find_all(exp.Column)} & SYSTEM_TYPES.keys())
    names = {each.id: [*schemas[each.relation].names, *system] for each in aged.live}
    usage = column_usage(aged.query, {**{n: s.names for n, s in schemas.items()}, **names})
    try:
        session = private_session(site.spark())
        refuse_cut_digits(session, query.tree, {n: with_system_columns(s) for n, s in schemas.items()})
        live: list[LiveInput] = []
        now = micros(site.clock())
        rest: dict[str, Source] = {name: sources[name] for name in aged.query.tables if name in sources}
        if aged.forgets:
            rest = {name: LookedUpSource(site.store.open(name), reader) for name in rest}
        for number, each in enumerate(aged.live, start=1):
            source = sources[each.relation]
            if isinstance(source, TableSource):
                source = TableSource(site.store.open(each.relation), f"{reader}#{number}")
            schema = schemas[each.relation]
            columns = _stored_columns(
                usage.get(each.id), schema, position=bool(key) and source.traits.positioned
            )
            named = frozenset({*each.used, *columns})
            # With `*`, a column that appears later is wanted too; system columns have to be named.
            everything = usage.get(each.id) is None and not named & SYSTEM_TYPES.keys()
            used = None if everything else named
            item = Input(each.relation, source, schema, used, *described(query, each.relation))
            tell_times(timing, {each.relation: item})
            item.watched = item.watched or each.timed
            views = {each.relation: _with_named(schema, named)}
            live.append(open_live(site.spark(), each, item, views, columns, store, reader, now))
            table = live[-1].output.table
            rest[each.id] = LiveSource(
                table, reader, source.key, Ordered.of(source).order, forgotten=not aged.forgets
            )
        opened = planned(site.spark(), aged.query, key, rest, {}, declared, table=True, timing=timing)
        for each in aged.live:
            opened.inputs.all[each.id].description = described(query, each.relation)[0]
        return replace(opened, live=tuple(live), store=store)
    except BaseException:
        store.close()
        raise


def open_retained(
    site: Site, opened: Opened, folder: Path, owner: str, forgets: Retention | None, *, resumed: bool
) -> Opened:
    """What the query gives, kept as a whole beside the job, and the table of it whose rows age.

    Groups and keys follow from all rows: a row that has left the table would be missed when it changes again.
    """
    if isinstance(opened.plan, OverPlan):
        return opened
    if isinstance(opened.plan, RowsPlan) and not opened.plan.key and opened.plan.below is None:
        return opened
    return open_kept(site, opened, folder, owner, forgets, table=True, resumed=resumed)


def open_kept(
    site: Site,
    opened: Opened,
    folder: Path,
    owner: str,
    forgets: Retention | None,
    *,
    table: bool,
    resumed: bool,
) -> Opened:
    """A query's result kept as a whole beside the job, and what follows its changes: a table, or rows.

    `forgets`: how rows leave what is kept; what follows does not hear of it.
    """
    store = opened.store
    if store is None:
        store = _beside(site, folder, resumed=resumed)
    try:
        return _followed(site, opened, store, owner, forgets, table=table)
    except BaseException:
        if opened.store is None:
            store.close()
        raise


def _followed(
    site: Site,
    opened: Opened,
    store: TableStore,
    owner: str,
    forgets: Retention | None,
    *,
    table: bool,
    outer: tuple[Query, tuple[str, ...], tuple[tuple[str, pa.DataType], ...]] | None = None,
) -> Opened:
    """What follows a result that is kept: the same rows, or `outer`, with its key and declared columns."""
    spec = opened.shape.spec(RESULT, forgets.options() if forgets is not None else {}, "table", owner)
    kept = open_or_make(store, replace(spec, schema=stored(spec.schema, forgets)))
    key = opened.shape.key if set(opened.shape.key) <= set(kept.spec.visible) else ()
    same = Query(exp.select("*").from_(exp.to_table(RESULT)), tables=(RESULT,))
    query, own, declared = outer or (same, key if table else (), ())
    sources: dict[str, Source] = {RESULT: LiveSource(kept, owner, key, forgotten=False)}
    made = planned(site.spark(), query, own, sources, {}, declared, table=table)
    return replace(made, below=opened, table=kept, live=opened.live, store=store, follows=outer is None)


def _stored_columns(used: frozenset[str] | None, schema: pa.Schema, *, position: bool) -> list[str]:
    """The columns that live rows keep: what the query uses of them, at least one."""
    folded = {name.casefold() for name in (schema.names if used is None else used)}
    plain = [name for name in schema.names if name.casefold() in folded]
    system = [name for name in sorted(used or ()) if name in SYSTEM_TYPES and name not in plain]
    return [*(plain or schema.names[:1]), *system, *([POSITION] if position else [])]


def _with_named(schema: pa.Schema, named: frozenset[str]) -> pa.Schema:
    """A source's columns, with the system columns that are named."""
    return pa.schema([f for f in with_system_columns(schema) if f.name in schema.names or f.name in named])
