"""Opening a statement: its sources are opened, its strategy decided, its parts typed by Spark.

`plan.strategy` decides how the statement is run; this module carries it out. Two facts are known only on the
way: the columns of a source, once it is open, and Spark's types. Either may change the decision, which is
then made again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.capabilities import Narrowed, Ordered
from velostream.engine.inputs.inputs import Input, tell_times
from velostream.engine.inputs.tables import LookedUpSource, TableSource
from velostream.engine.kept.source import KeptSource
from velostream.engine.on_spark import SparkTable
from velostream.engine.opening.connect import open_source, wait_for, wait_for_columns, wait_for_tables
from velostream.engine.opening.exactness import refuse_cut_digits
from velostream.engine.opening.kept_inputs import KeptInput, open_kept_input, open_or_make
from velostream.engine.opening.opened_query import (
    Opened,
    described,
    opened_part,
    schemas_of,
    with_system_columns,
)
from velostream.engine.opening.over import with_kept_rows
from velostream.engine.opening.retention import retention_of, stored, untouched
from velostream.errors import SqlError, UnsupportedError
from velostream.model.columns import OUTGOING_HEADERS, reserved
from velostream.model.moments import micros
from velostream.model.options import common_options
from velostream.model.statements import CreateTable, Query, SelectStatement
from velostream.plan.planner import NeedsColumns
from velostream.plan.plans import GroupsPlan, OverPlan
from velostream.plan.query.narrowing import narrowing
from velostream.plan.spreading import check_strategy
from velostream.plan.strategy import decide
from velostream.serving.table.store import TableStore
from velostream.spark.dataframes import private_session
from velostream.sql.types import ddl_types

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from velostream.connectors.base import Source
    from velostream.connectors.waiting import Waiting
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.site import Site
    from velostream.model.options import CommonOptions
    from velostream.model.statements import Statement
    from velostream.model.tables import Retention
    from velostream.plan.part import Part
    from velostream.plan.strategy import Known, Strategy
    from velostream.plan.time.event_times import Timing
    from velostream.plan.time.kept_rows import Kept


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
    decision: tuple[Known, Strategy] | None = None
    """The newest decision, and what it was made from."""

    @property
    def options(self) -> CommonOptions:
        return common_options(getattr(self.statement, "properties", {}))

    def run(self) -> Opened:
        wait_for_columns(self.site.table, self.query.tables, self.waiting)
        retracts = self._expected_retracts()
        self._open_sources(retracts=retracts)
        strategy = self._decide()
        if strategy.retracts != retracts:
            self._open_sources(retracts=strategy.retracts)
            strategy = self._decide()
        opened = self._by(strategy)
        told = _told_by(opened)
        if told is not None:
            again = self._decide(merges=told.merges, inexact=told.inexact)
            if (again.kept is None) != (strategy.kept is None):
                opened = self._by(again)
            strategy = again
        self._spread(strategy, opened)
        self._narrow(strategy, opened)
        return replace(self._with_result_beside(strategy, opened), strategy=_executed(strategy, opened))

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
            return self._decided(self._facts(self.known)).retracts
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

    def _decide(self, *, merges: bool = True, inexact: tuple[str, ...] = ()) -> Strategy:
        """How the statement is run, now that the columns of its sources are known."""
        schemas = self._schemas()
        try:
            strategy = self._decided(replace(self._facts(schemas), merges=merges, inexact=inexact))
        except NeedsColumns as exc:
            raise UnsupportedError(
                "the columns of * over a subquery are not known here",
                hint="name them",
                location=self.query.location,
            ) from exc
        _refuse_ours(strategy.query, {name: schema.names for name, schema in schemas.items()})
        return strategy

    def _decided(self, known: Known) -> Strategy:
        """The strategy; it is decided again only when more is known."""
        if self.decision is None or self.decision[0] != known:
            self.decision = (known, decide(self.statement, known))
        return self.decision[1]

    def _facts(self, schemas: Mapping[str, pa.Schema]) -> Known:
        found = self.site.known(self.query.tables, schemas)
        own = {ref.id: key for ref in self.query.sources if (key := self._own_key(ref.id))}
        return replace(found, types=ddl_types(schemas), keys={**found.keys, **own})

    def _own_key(self, source: str) -> tuple[str, ...]:
        return self.sources[source].key if source in self.sources else ()

    def _schemas(self) -> dict[str, pa.Schema]:
        return schemas_of(self.sources, self.known)

    # --- carrying out the decision ------------------------------------------------------------------------

    def _by(self, strategy: Strategy) -> Opened:
        """Open the parts of the strategy, with Spark's types."""
        first, *later = strategy.parts
        if strategy.kept is not None:
            opened = self._over_kept_rows(strategy, strategy.kept, first)
        else:
            where = strategy.elsewhere
            session = self.site.spark() if where is None else self.site.storages[where.name].session()
            opened = self._part(session, first, self.sources, strategy.timing)
        if isinstance(first.plan, OverPlan):
            opened = with_kept_rows(opened, self._beside(), self.reader)
        for part in later:
            opened = self._after(opened, part)
        return opened

    def _part(
        self, session: SparkSession, part: Part, sources: Mapping[str, Source], timing: Timing | None = None
    ) -> Opened:
        declared = self.statement.columns if isinstance(self.statement, CreateTable) else ()
        types = tuple(column.type for column in declared)
        return opened_part(session, part, sources, self.known, declared=types, timing=timing)

    def _beside(self) -> TableStore:
        """The store of the job's own tables; a resumed job has all of them already."""
        if self.store is None:
            self.store = TableStore(self.folder / "live", clock=self.site.clock, complete=self.resumed)
            self.store.budget = self.site.store.budget
        return self.store

    def _over_kept_rows(self, strategy: Strategy, over: Kept, part: Part) -> Opened:
        """The first part, over the tables of the rows that are kept for it."""
        site, query = self.site, strategy.query
        schemas, store = self._schemas(), self._beside()
        session = private_session(site.spark())
        refuse_cut_digits(session, query.tree, {n: with_system_columns(s) for n, s in schemas.items()})
        kept: list[KeptInput] = []
        now = micros(site.clock())
        rest = {name: self.sources[name] for name in over.query.tables if name in self.sources}
        if over.forgets:
            rest = {
                name: LookedUpSource(site.table(name), self.reader, columns=self.narrowed.get(name))
                for name in rest
            }
        for number, each in enumerate(over.rows, start=1):
            source, schema = self.sources[each.relation], schemas[each.relation]
            if isinstance(source, TableSource):
                reader, columns = f"{self.reader}#{number}", self.narrowed.get(each.relation)
                source = TableSource(site.table(each.relation), reader, columns=columns)
            asked = frozenset({*each.used, *each.columns})
            used = None if each.whole else asked
            item = Input(each.relation, source, schema, used, *described(query, each.relation))
            tell_times(strategy.timing, {each.relation: item})
            item.watched = item.watched or each.timed
            views = {each.relation: _with_named(schema, asked)}
            kept.append(open_kept_input(site.spark(), each, item, views, store, self.reader, now))
            rest[each.id] = KeptSource(
                kept[-1].output.table,
                self.reader,
                source.key,
                Ordered.of(source).order,
                forgotten=not over.forgets,
            )
        opened = self._part(site.spark(), part, rest, strategy.timing)
        for each in over.rows:
            opened.inputs.all[each.id].description = described(query, each.relation)[0]
        return replace(opened, kept=tuple(kept), store=store)

    # --- results that are kept beside the job -------------------------------------------------------------

    def _with_result_beside(self, strategy: Strategy, opened: Opened) -> Opened:
        """With the whole result kept beside the job, where the strategy says so, and followed."""
        if isinstance(self.statement, SelectStatement):
            return opened
        forgets = untouched(self.options, opened)
        table = isinstance(self.statement, CreateTable)
        if table and self.options.retention is not None:
            retention_of(self.options, opened.shape.visible)
        if strategy.follower is None:
            return opened
        return replace(self._after(opened, strategy.follower, forgets), follows=True)

    def _after(self, below: Opened, part: Part, forgets: Retention | None = None) -> Opened:
        """A part that reads the result of another, which is kept.

        `forgets`: how the kept result forgets rows; the part skips those commits.
        """
        (name,) = part.query.tables
        store = self._beside()
        spec = below.shape.spec(name, forgets.options() if forgets is not None else {}, "table", self.reader)
        table = open_or_make(store, replace(spec, schema=stored(spec.schema, forgets)))
        source = KeptSource(table, self.reader, below.part.result_key, forgotten=False)
        made = self._part(self.site.spark(), part, {name: source})
        return replace(made, below=below, table=table, kept=below.kept, store=store)

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
        for ref in strategy.query.sources:
            item = opened.read[ref.id]
            item.spread = self.site.strategies.spreading(strategy.spread(ref), item.source)


def _told_by(opened: Opened) -> ResultShape | None:
    """What Spark's types tell of accumulators, where that may change the decision."""
    first = opened
    while first.below is not None:
        first = first.below
    shape = first.shape
    if isinstance(first.plan, GroupsPlan) and (not shape.merges or (first.plan.forgetful and shape.inexact)):
        return shape
    return None


def _executed(strategy: Strategy, opened: Opened) -> Strategy:
    """The strategy with the plans that Spark's types allow."""
    parts, each = [opened.part], opened
    while each.below is not None:
        each = each.below
        parts = [each.part, *parts]
    return replace(strategy, parts=tuple(parts))


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


def _with_named(schema: pa.Schema, named: frozenset[str]) -> pa.Schema:
    """A source's columns, with the system columns that are named."""
    return pa.schema([f for f in with_system_columns(schema) if f.name in schema.names or f.name in named])
