"""Opening a statement: its sources are opened, its strategy decided, its plan typed by Spark.

`plan.strategy` decides how the statement is run; this module carries it out. Two facts are known only on the
way: the columns of a source, once it is open, and Spark's types. Either may change the decision, which is
then made again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from velostream.connectors.capabilities import Narrowed, Ordered
from velostream.engine.inputs.inputs import Input, tell_times
from velostream.engine.inputs.tables import LookedUpSource, TableSource
from velostream.engine.kept.source import KeptSource
from velostream.engine.on_spark import SparkTable
from velostream.engine.opening.connect import open_source, wait_for, wait_for_columns, wait_for_tables
from velostream.engine.opening.exactness import refuse_cut_digits
from velostream.engine.opening.kept import KeptInput, open_kept_input, open_or_make
from velostream.engine.opening.opened import Opened, described, planned, schemas_of, with_system_columns
from velostream.engine.opening.over import open_over
from velostream.engine.opening.retention import retention_of, stored, untouched
from velostream.errors import SqlError, UnsupportedError
from velostream.model.columns import OUTGOING_HEADERS, POSITION, SYSTEM_TYPES, reserved
from velostream.model.moments import micros
from velostream.model.options import common_options
from velostream.model.statements import CreateTable, Query, SelectStatement
from velostream.plan.over.clauses import tree_around
from velostream.plan.planner import NeedsColumns
from velostream.plan.plans import GroupsPlan, Kind
from velostream.plan.query.narrowing import narrowing
from velostream.plan.spreading import check_strategy, spread_of
from velostream.plan.strategy import decide, forgetful
from velostream.plan.time.clock_filters import RESULT
from velostream.plan.time.windows import inner_select
from velostream.serving.table.store import TableStore
from velostream.spark.dataframes import private_session
from velostream.sql.names.usage import column_usage
from velostream.sql.types import ddl_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from velostream.connectors.base import Source
    from velostream.connectors.waiting import Waiting
    from velostream.engine.site import Site
    from velostream.model.options import CommonOptions
    from velostream.model.statements import Statement
    from velostream.model.tables import Retention
    from velostream.plan.strategy import Known, Strategy


def open_statement(
    site: Site,
    statement: Statement,
    folder: Path,
    *,
    known: Mapping[str, pa.Schema],
    reader: str,
    waiting: Waiting,
    resumed: bool = False,
    narrowed: Mapping[str, pa.Schema] | None = None,
) -> Opened:
    """Open every input of a continuous statement and plan its query.

    Errors point into the user's SQL. `known` are the columns of sources that an earlier start discovered,
    `narrowed` those that the statement sees of tables that have more.
    `resumed`: the job was created before, and its state in `folder` must exist.
    """
    query = statement.query  # type: ignore[attr-defined]
    for ref in query.sources:
        check_strategy(common_options(ref.properties).partition_strategy, site.strategies.names())
    opening = _Opening(site, statement, query, folder, known, reader, waiting, resumed, narrowed or {})
    try:
        return opening.run()
    except BaseException:
        opening.close()
        raise


@dataclass
class _Opening:
    """One statement while it is opened."""

    site: Site
    statement: Statement
    query: Query
    folder: Path
    known: Mapping[str, pa.Schema]
    reader: str
    waiting: Waiting
    resumed: bool
    narrowed: Mapping[str, pa.Schema]
    sources: dict[str, Source] = field(default_factory=dict)
    store: TableStore | None = None
    """The store of the job's own tables, where it has state."""

    @property
    def options(self) -> CommonOptions:
        return common_options(getattr(self.statement, "properties", {}))

    @property
    def declared(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The columns that CREATE TABLE names."""
        if not isinstance(self.statement, CreateTable):
            return ()
        return tuple((column.name, column.type) for column in self.statement.columns)

    def run(self) -> Opened:
        wait_for_columns(self.site.table, self.query.tables, self.waiting)
        retracts = self._expected_retracts()
        self._open_sources(retracts=retracts)
        strategy = self._decide()
        if strategy.retracts != retracts:
            self._open_sources(retracts=strategy.retracts)
            strategy = self._decide()
        opened = self._by(strategy)
        reads = opened.below or opened
        if isinstance(reads.plan, GroupsPlan) and not reads.shape.merges:
            again = self._decide(merges=False)
            if again.outline() != strategy.outline():
                strategy = again
                opened = self._by(strategy)
        self._spread(strategy, opened)
        self._narrow(strategy, opened)
        return replace(self._with_result_beside(strategy, opened), strategy=strategy)

    def close(self) -> None:
        """Close everything that was opened."""
        for source in self.sources.values():
            source.close()
        if self.store is not None:
            self.store.close()

    # --- sources ------------------------------------------------------------------------------------------

    def _expected_retracts(self) -> bool:
        """Whether sources should retract rows, as far as the strategy can tell before they are open."""
        if isinstance(self.statement, CreateTable | SelectStatement):
            return True
        try:
            return decide(self.statement, self._facts(self.known)).retracts
        except (NeedsColumns, UnsupportedError):
            # Errors are reported by the decision that knows all columns.
            return False

    def _open_sources(self, *, retracts: bool) -> None:
        self.close()
        self.sources = {}
        for ref in self.query.sources:
            source = open_source(
                ref,
                self.site.settings,
                self.folder / "sources" / ref.id,
                known=self.known.get(ref.id),
                once=self.site.once,
                table=retracts,
                whole=isinstance(self.statement, CreateTable) or self.site.once,
                owner=self.reader,
                resumed=self.resumed,
                passing=isinstance(self.statement, SelectStatement),
            )
            self.sources[ref.id] = source
            wait_for(source, self.waiting)
        self.sources |= {name: self._table_source(name) for name in self.query.tables}
        if self.query.sources and self.query.tables:
            tables = [self.site.table(name) for name in self.query.tables]
            wait_for_tables(tables, self.options, self.waiting)

    def _table_source(self, name: str) -> Source:
        read = self.site.table(name)
        if isinstance(read, SparkTable):
            return read.source(self.reader)
        return TableSource(read, self.reader, columns=self.narrowed.get(name))

    # --- the decision -------------------------------------------------------------------------------------

    def _decide(self, *, merges: bool = True) -> Strategy:
        """How the statement is run, now that the columns of its sources are known."""
        schemas = self._schemas()
        try:
            strategy = decide(self.statement, replace(self._facts(schemas), merges=merges))
        except NeedsColumns as exc:
            raise UnsupportedError(
                "the columns of * over a subquery are not known here",
                hint="name them",
                location=self.query.location,
            ) from exc
        _refuse_ours(strategy.query, {name: schema.names for name, schema in schemas.items()})
        return strategy

    def _facts(self, schemas: Mapping[str, pa.Schema]) -> Known:
        found = self.site.known(self.query.tables, schemas)
        own = {ref.id: self.sources[ref.id].key for ref in self.query.sources if ref.id in self.sources}
        return replace(found, types=ddl_types(schemas), once=self.site.once, keys={**found.keys, **own})

    def _schemas(self) -> dict[str, pa.Schema]:
        return schemas_of(self.sources, self.known)

    # --- carrying out the decision ------------------------------------------------------------------------

    def _by(self, strategy: Strategy) -> Opened:
        """Open the parts of the strategy, with Spark's types."""
        timing = strategy.timing
        if timing.over is not None:
            return open_over(
                self.site.spark(),
                strategy.query,
                timing,
                strategy.key,
                self.sources,
                self.known,
                self.declared,
                self._beside(),
                self.reader,
            )
        if timing.inner is not None:
            return self._around_windows(strategy)
        if strategy.aged is not None:
            return self._over_kept_rows(strategy, strategy.query, strategy.key, self.declared)
        where = strategy.elsewhere
        session = self.site.spark() if where is None else self.site.storages[where.name].session()
        return planned(
            session,
            strategy.query,
            strategy.key,
            self.sources,
            self.known,
            self.declared,
            table=strategy.retracts,
            messages=strategy.messages,
            timing=timing,
        )

    def _beside(self) -> TableStore:
        """The store of the job's own tables; a resumed job has all of them already."""
        if self.store is None:
            self.store = TableStore(self.folder / "live", clock=self.site.clock, complete=self.resumed)
            self.store.budget = self.site.store.budget
        return self.store

    def _around_windows(self, strategy: Strategy) -> Opened:
        """Windows over a source, kept beside the job, and the rest of the query over them."""
        inner, core = strategy.timing.inner, inner_select(strategy.query)
        assert inner is not None
        assert core is not None
        if strategy.aged is not None:
            below = self._over_kept_rows(strategy, inner, (), ())
        else:
            below = planned(
                self.site.spark(), inner, (), self.sources, self.known, (), table=True, timing=strategy.timing
            )
        outer = Query(tree_around(strategy.query.tree, core, RESULT), tables=(RESULT,))
        return self._followed(below, None, table=True, outer=(outer, strategy.key, self.declared))

    def _over_kept_rows(
        self,
        strategy: Strategy,
        query: Query,
        key: tuple[str, ...],
        declared: tuple[tuple[str, pa.DataType], ...],
    ) -> Opened:
        """The rest of the query, planned over the tables of its kept rows."""
        aged, site = strategy.aged, self.site
        assert aged is not None
        schemas, store = self._schemas(), self._beside()
        named = {column.name for column in aged.query.tree.find_all(exp.Column)}
        system = sorted(named & SYSTEM_TYPES.keys())
        names = {each.id: [*schemas[each.relation].names, *system] for each in aged.live}
        usage = column_usage(aged.query, {**{n: s.names for n, s in schemas.items()}, **names})
        session = private_session(site.spark())
        refuse_cut_digits(session, query.tree, {n: with_system_columns(s) for n, s in schemas.items()})
        live: list[KeptInput] = []
        now = micros(site.clock())
        rest = {name: self.sources[name] for name in aged.query.tables if name in self.sources}
        if aged.forgets:
            rest = {
                name: LookedUpSource(site.table(name), self.reader, columns=self.narrowed.get(name))
                for name in rest
            }
        for number, each in enumerate(aged.live, start=1):
            source, schema = self.sources[each.relation], schemas[each.relation]
            if isinstance(source, TableSource):
                reader, columns = f"{self.reader}#{number}", self.narrowed.get(each.relation)
                source = TableSource(site.table(each.relation), reader, columns=columns)
            position = bool(key) and source.traits.positioned
            columns = _stored_columns(usage.get(each.id), schema, position=position)
            asked = frozenset({*each.used, *columns})
            # With `*`, a column that appears later is wanted too; system columns have to be named.
            everything = usage.get(each.id) is None and not asked & SYSTEM_TYPES.keys()
            used = None if everything else asked
            item = Input(each.relation, source, schema, used, *described(query, each.relation))
            tell_times(strategy.timing, {each.relation: item})
            item.watched = item.watched or each.timed
            views = {each.relation: _with_named(schema, asked)}
            kept = open_kept_input(site.spark(), each, item, views, columns, store, self.reader, now)
            live.append(kept)
            rest[each.id] = KeptSource(
                kept.output.table,
                self.reader,
                source.key,
                Ordered.of(source).order,
                forgotten=not aged.forgets,
            )
        opened = planned(
            site.spark(), aged.query, key, rest, {}, declared, table=True, timing=strategy.timing
        )
        for each in aged.live:
            opened.inputs.all[each.id].description = described(query, each.relation)[0]
        plan, shape = opened.plan, opened.shape
        if aged.forgets:
            traits = [item.source.traits for kept in live for item in kept.inputs.all.values()]
            plan = forgetful(plan, aged, query, traits, merges=shape.merges, inexact=shape.inexact)
        return replace(opened, plan=plan, live=tuple(live), store=store)

    # --- results that are kept beside the job -------------------------------------------------------------

    def _with_result_beside(self, strategy: Strategy, opened: Opened) -> Opened:
        """With the whole result kept beside the job, where the strategy says so, and followed."""
        if isinstance(self.statement, SelectStatement):
            return opened
        forgets = untouched(self.options, opened)
        table = isinstance(self.statement, CreateTable)
        if table and self.options.retention is not None:
            retention_of(self.options, opened.shape.visible)
        return self._followed(opened, forgets, table=table) if strategy.beside else opened

    def _followed(
        self,
        below: Opened,
        forgets: Retention | None,
        *,
        table: bool,
        outer: tuple[Query, tuple[str, ...], tuple[tuple[str, pa.DataType], ...]] | None = None,
    ) -> Opened:
        """The part that follows a kept result: the same rows, or `outer`, with its key and declared columns.

        `forgets`: how the kept result forgets rows; followers skip those commits.
        """
        name = RESULT if below.below is None else f"{RESULT}_2"
        store = self._beside()
        spec = below.shape.spec(name, forgets.options() if forgets is not None else {}, "table", self.reader)
        kept = open_or_make(store, replace(spec, schema=stored(spec.schema, forgets)))
        key = below.shape.key if set(below.shape.key) <= set(kept.spec.visible) else ()
        same = Query(exp.select("*").from_(exp.to_table(name)), tables=(name,))
        query, own, declared = outer or (same, key if table else (), ())
        sources: dict[str, Source] = {name: KeptSource(kept, self.reader, key, forgotten=False)}
        made = planned(self.site.spark(), query, own, sources, {}, declared, table=table)
        return replace(made, below=below, table=kept, live=below.live, store=store, follows=outer is None)

    # --- what is asked of sources -------------------------------------------------------------------------

    def _narrow(self, strategy: Strategy, opened: Opened) -> None:
        """Tell sources which rows and columns are needed of them."""
        for ref in strategy.query.sources:
            source = self.sources[ref.id]
            asked = [item.beneath(item.wanted()) for item in opened.every_input if item.source is source]
            names = [name for each in asked for name in each or ()]
            columns = None if None in asked or not asked else frozenset(names)
            Narrowed.of(source).narrow(narrowing(strategy.query, ref.id, columns))

    # --- spreading ----------------------------------------------------------------------------------------

    def _spread(self, strategy: Strategy, opened: Opened) -> None:
        """Partition the rows of sources over tasks as the statement says."""
        key = () if strategy.timing.over is not None or strategy.timing.inner is not None else strategy.key
        for ref in strategy.query.sources:
            item = opened.read[ref.id]
            options = common_options(ref.properties)
            messages = item.source.traits.messages if opened.plan.kind is Kind.MESSAGES else None
            spread = spread_of(
                strategy.query,
                key,
                options.partition_strategy,
                options.partitions,
                message_key=messages.key if messages is not None else None,
            )
            item.spread = self.site.strategies.spreading(spread, item.source)


def _refuse_ours(query: Query, columns: Mapping[str, Sequence[str]]) -> None:
    """Raise SqlError where a column of the user's SELECT has the name of a system column.

    Columns known when the statement was bound were checked then; those of a source are known only now.
    """
    # The headers of outgoing records have been turned into a system column already.
    shown = [name for name in query.tree.named_selects if name != OUTGOING_HEADERS]
    if "*" in shown:
        shown += [name for names in columns.values() for name in names]
    for name in filter(reserved, shown):
        raise SqlError(
            f'the result has a column "{name}", which would be taken for one of ours',
            hint="name the columns, and give this one another name with AS",
            location=query.location,
        )


def _stored_columns(used: frozenset[str] | None, schema: pa.Schema, *, position: bool) -> list[str]:
    """The columns of kept rows: those that the query uses, at least one."""
    folded = {name.casefold() for name in (schema.names if used is None else used)}
    plain = [name for name in schema.names if name.casefold() in folded]
    system = [name for name in sorted(used or ()) if name in SYSTEM_TYPES and name not in plain]
    return [*(plain or schema.names[:1]), *system, *([POSITION] if position else [])]


def _with_named(schema: pa.Schema, named: frozenset[str]) -> pa.Schema:
    """A source's columns, with the system columns that are named."""
    return pa.schema([f for f in with_system_columns(schema) if f.name in schema.names or f.name in named])
