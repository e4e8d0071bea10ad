"""The strategy of a statement: how it is run, decided from its text, its sources' traits and known columns.

Nothing is opened and Spark is not asked. EXPLAIN prints a strategy; warnings and `velo check` read it; jobs
are opened by it (`engine.opening`), once the columns of their sources are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.connectors.registry import connector_for, traits_of
from velostream.errors import UnsupportedError, VelostreamError
from velostream.model import statements as model
from velostream.model.columns import CLOSED, MESSAGE_KEY, SYSTEM_TYPES
from velostream.model.options import common_options, key_of
from velostream.model.table_storage import MEMORY, STORAGES
from velostream.plan.over.clauses import outer_tree, tree_around
from velostream.plan.planner import LAST_PER_KEY, NeedsColumns, plan_query
from velostream.plan.plans import GroupsPlan, OverPlan, Plan, RecomputePlan, RowsPlan, UpsertPlan
from velostream.plan.query.declared_columns import declared_columns
from velostream.plan.query.headers import with_headers
from velostream.plan.query.limited import limited
from velostream.plan.query.own_key import own_key
from velostream.plan.query.stars import expand_stars
from velostream.plan.realtime_rules import refusal
from velostream.plan.sinks import Writing, keeps_result, only_added, outgoing
from velostream.plan.state import Keeping, of_plan, of_rows
from velostream.plan.steps import Step, StepKind
from velostream.plan.time.asof import asof_tables
from velostream.plan.time.clock_filters import RESULT, ageing, kept
from velostream.plan.time.messages import last_messages, message_key
from velostream.plan.time.stream_joins import joins_streams, stream_join
from velostream.plan.time.timing import timed
from velostream.plan.time.windows import closing, inner_select
from velostream.sql.names.usage import column_usage, resolved, spelled_key
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from velostream.config import Settings
    from velostream.model.changes import Messages
    from velostream.model.options import CommonOptions
    from velostream.model.table_storage import StorageTraits
    from velostream.model.traits import SourceTraits
    from velostream.plan.state import Remembered
    from velostream.plan.time.clock_filters import Ageing
    from velostream.plan.time.timing import Timing


@dataclass(frozen=True)
class Known:
    """What is known apart from the statement itself."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column names: of tables by name, of opened sources by id."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of tables by name, and of opened sources that have a key, by id."""
    storages: Mapping[str, StorageTraits] = field(default_factory=dict)
    """Of tables; one that is not named is in memory."""
    settings: Settings | None = None
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """DDL types of the columns, where they are known."""
    once: bool = False
    """Whether sources are read to their end, and then no more."""
    merges: bool = True
    """Whether accumulators of groups can be merged; only types tell, so it is assumed until Spark says no."""

    def storage(self, table: str) -> StorageTraits:
        """Where a table lives."""
        return self.storages.get(table, MEMORY)


@dataclass(frozen=True)
class Outline:
    """The parts that a job is made of, for comparison with the job that was opened."""

    plan: type[Plan]
    kept: tuple[str, ...] = ()
    """Inputs whose rows are kept as state for the plan."""
    inner: type[Plan] | None = None
    """The type of the plan whose result `plan` reads, if there is one."""
    beside: bool = False
    """Whether the result is kept as state beside the job."""


@dataclass(frozen=True)
class Strategy:
    """How a continuous statement is run."""

    query: model.Query
    """The query that is executed: names resolved, windows turned into group keys."""
    key: tuple[str, ...]
    traits: Mapping[str, SourceTraits]
    """The traits of each source, as the statement opens it."""
    timing: Timing
    plan: Plan
    """The plan that makes the result."""
    aged: Ageing | None = None
    """The rows kept as state, which the plan reads in place of its inputs."""
    over: Plan | None = None
    """The plan of OVER or windows whose result `plan` reads; `plan` itself where the result is OVER."""
    beside: bool = False
    """Whether the result is kept beside the job, because what is written elsewhere follows from it."""
    elsewhere: StorageTraits | None = None
    """Where a table that is read or made lives, if that is not in memory."""
    makes_table: bool = False
    """Whether the statement is CREATE TABLE, in which rows of a topic replace each other by message key."""
    retracts: bool = False
    """Whether sources are opened so that they retract the old rows of edited and deleted files."""
    keeping: Keeping = field(default_factory=Keeping)

    @property
    def replaces(self) -> bool:
        """Whether later rows of a source replace or delete earlier ones, in whatever statement reads it."""
        return any(each.upserts for each in self.traits.values())

    @property
    def messages(self) -> Mapping[str, Messages | None]:
        """How later rows of each source replace earlier ones; None where all of them count."""
        return {
            name: each.messages if self.makes_table or each.upserts else None
            for name, each in self.traits.items()
        }

    def outline(self) -> Outline:
        """The parts of the job that this strategy describes."""
        inner = self.over if self.over is not None and self.over is not self.plan else None
        kept = tuple(sorted(each.relation for each in self.aged.live)) if self.aged is not None else ()
        return Outline(type(self.plan), kept, type(inner) if inner is not None else None, self.beside)

    def steps(self) -> Iterator[tuple[Step, Remembered | None]]:
        """Each step of EXPLAIN with the state it keeps; None for steps without state of their own."""
        for live in self.aged.live if self.aged is not None else ():
            held = of_rows(live, self.plan, self.keeping)
            yield live.step or _kept_step(held), held
        result = of_plan(self.plan, self.keeping)
        for step in self.plan.steps:
            merged = step.state != "none" and step.kind is not StepKind.WATERMARK
            beneath = self.over is not None and step in self.over.steps
            mine = of_plan(self.over, self.keeping) if self.over is not None and beneath else result
            yield step, mine if merged else None


def decide(statement: model.Statement, known: Known | None = None) -> Strategy:
    """The strategy of a statement.

    Raises UnsupportedError for a valid statement that is not executed, and NeedsColumns where the choice
    depends on columns that are not known yet.
    """
    if isinstance(statement, model.SelectStatement) and statement.query.limited:
        statement = replace(statement, query=limited(statement.query).rows)
    deciding = _Deciding(statement, known or Known())
    if not isinstance(statement, model.CreateStream | model.InsertIntoSink):
        return deciding.over_rows(table=True)
    found = deciding.over_rows(table=False)
    if found.replaces:
        # A later row of a key retracts the earlier one from whatever was computed of it.
        found = deciding.over_rows(table=True)
    if not keeps_result(statement, found.plan, replaces=found.replaces):
        return found
    # Rows that are written once, when they are final, cannot be retracted.
    return deciding.over_rows(table=found.replaces or not only_added(found.plan), beside=True)


def obstacle(statement: model.Statement, known: Known | None = None) -> VelostreamError | None:
    """Why a valid statement cannot be executed; None when it can, as far as its text shows."""
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return None
    try:
        _refuse_unavailable(query)
        if not answered(statement) and not isinstance(statement, model.CreateView):
            decide(statement, known)
    except NeedsColumns:
        pass
    except UnsupportedError as error:
        return error.at(statement.location)
    return refusal(statement)


def answered(statement: model.Statement) -> bool:
    """Whether the statement is a query over tables that is answered once."""
    if isinstance(statement, model.SelectStatement):
        return not statement.follows and not statement.query.continuous
    if isinstance(statement, model.InsertIntoSink):
        return statement.once
    return (
        isinstance(statement, model.InsertInto)
        and statement.query is not None
        and not statement.query.continuous
    )


def _refuse_unavailable(query: model.Query) -> None:
    for ref in query.sources:
        if not connector_for(ref.uri).available:
            raise UnsupportedError(
                f"reading {ref.uri.scheme}:// is not in this version yet", location=ref.location
            )


def _kept_step(held: Remembered) -> Step:
    return Step(
        StepKind.SOURCE, "keep rows", "the source may not have them when they are needed", state=held.what
    )


class _Deciding:
    """Decides the strategy of one statement."""

    def __init__(self, statement: model.Statement, known: Known) -> None:
        query = getattr(statement, "query", None)
        assert isinstance(query, model.Query)
        self._statement = statement
        self._known = known
        self._options: CommonOptions = common_options(getattr(statement, "properties", {}))
        self._makes_table = isinstance(statement, model.CreateTable)
        query = outgoing(query) if isinstance(statement, Writing) else query
        self._key: tuple[str, ...] = ()
        if isinstance(statement, model.CreateTable):
            self._key = key_of(statement.properties, statement.key)
            if not statement.columns:
                self._key = spelled_key(query, known.columns, self._key)
        self._query = resolved(query, known.columns)

    def over_rows(self, *, table: bool, beside: bool = False) -> Strategy:
        """The strategy with sources that retract (`table`), or the result kept beside the job (`beside`)."""
        settings = self._known.settings
        once = self._known.once
        traits = {ref.id: traits_of(ref, settings, table=table, once=once) for ref in self._query.sources}
        upserting = [name for name, each in traits.items() if each.upserts]
        query, timing = timed(with_headers(self._query), self._options, upserting)
        if not joins_streams(query):
            query = asof_tables(query, lambda: self._types(self._known.columns))
        found = self._planned_whole(query, timing, traits, table=table, beside=beside)
        by_row = _by_row(found)
        retained = self._options.retention is not None and self._makes_table and not by_row
        keeping = Keeping(
            self._options.state_ttl,
            beside=beside or retained,
            only_grows=bool(query.sources) and all(each.only_grows for each in traits.values()),
            streams=bool(query.sources),
            names={ref.id: str(ref.uri) for ref in query.sources},
        )
        return replace(found, beside=keeping.beside, retracts=table, keeping=keeping)

    def _planned_whole(
        self,
        query: model.Query,
        timing: Timing,
        traits: Mapping[str, SourceTraits],
        *,
        table: bool,
        beside: bool,
    ) -> Strategy:
        elsewhere = self._elsewhere(query)
        made = Strategy(
            query, self._key, traits, timing, Plan(""), elsewhere=elsewhere, makes_table=self._makes_table
        )
        if timing.over is not None:
            if elsewhere is not None:
                raise UnsupportedError(
                    f"rows that OVER looks back to are kept in memory, and the table is in {elsewhere.title}",
                    hint=f'leave out "table.storage", and make a table of this one in {elsewhere.title}',
                )
            return self._over(made)
        if timing.inner is not None:
            return self._around_windows(made, table=table)
        aged = self._over_kept(made, table=table) if table or joins_streams(query) else None
        if aged is not None and elsewhere is not None:
            raise UnsupportedError(
                "rows of a source are kept in memory for a join of streams, for a filter on the clock, or as "
                f"the last of each message key, and a table of this statement is in {elsewhere.title}",
                hint='leave out "table.storage" here and in the tables that are read',
            )
        if aged is not None:
            return self._over_live(made, aged)
        plan = self._plan(query, made, made.messages, table=table)
        if (table or beside) and elsewhere is None and self._needs_rows(plan, made):
            return self._over_live(made, self._every_row(query, timing))
        return replace(made, plan=plan)

    # --- the parts ----------------------------------------------------------------------------------------

    def _every_row(self, query: model.Query, timing: Timing) -> Ageing:
        """The query over all rows of its sources, kept until what is computed of them is settled."""
        every, windowing = kept(query, {}), timing.windowing
        span, ttl = None, None
        if windowing is not None and windowing.bounded:
            closes = windowing.late != "update" or windowing.ttl is not None
            span = windowing.span if closes else None
        elif self._options.state_ttl is not None:
            ttl = self._options.state_ttl // timedelta(microseconds=1)
        if span is None and ttl is None:
            return every
        live = tuple(replace(each, span=span, ttl=ttl) for each in every.live)
        return replace(every, live=live, forgets=True)

    def _over_live(self, made: Strategy, aged: Ageing, *, keyed: bool = True) -> Strategy:
        """The plan over rows that are kept for it."""
        named = {column.name for column in aged.query.tree.find_all(exp.Column)}
        system = sorted(named & {*SYSTEM_TYPES, CLOSED})
        known = self._all_columns(made.query)
        live: dict[str, Sequence[str]] = {}
        for each in aged.live:
            columns = known.get(each.relation)
            if columns is not None:
                live[each.id] = [*columns, *(name for name in system if name not in columns)]
        plan = self._plan(aged.query, made, {}, live=live, table=True, keyed=keyed)
        if aged.forgets:
            plan = forgetful(plan, aged, made.query, made.traits.values())
        return replace(made, plan=plan, aged=aged)

    def _over_kept(self, made: Strategy, *, table: bool) -> Ageing | None:
        """The query over kept rows: of joined streams, of clock filters, or the last row per message key."""
        query = made.query
        if joins_streams(query):
            # A stream into a sink cannot retract a row with nulls
            # once its match arrives, so it waits (`final`).
            final = query.emit.mode is model.EmitMode.FINAL or not table
            grace = self._options.grace // timedelta(microseconds=1)
            types = self._types(self._all_columns(query))
            return stream_join(query, made.timing.times, types, grace=grace, final=final)
        aged = ageing(query, self._all_columns(query))
        if aged is None:
            return last_messages(query, self._key, made.messages, self._own_key(query))
        if made.replaces:
            raise UnsupportedError(
                "a filter on the clock over a source whose rows replace each other is not executed",
                hint="make a table of the source first, and filter by the clock over that table",
                location=query.location,
            )
        return aged

    def _over(self, made: Strategy) -> Strategy:
        """OVER over a source, and the plan of the query around it."""
        over = made.timing.over
        assert over is not None
        inner = over.inner or _named(self._statement, made.query)
        grows = all(each.only_grows for each in made.traits.values())
        below = self._chosen(inner, (), {}, only_grows=grows)
        below = closing(below, made.timing.windowing, inner)
        if over.inner is None and not self._key:
            return replace(made, plan=below, over=below)
        assert isinstance(inner.tree, exp.Select)
        names = [item.alias_or_name for item in inner.tree.selects]
        rest = model.Query(exp.select("*").from_(RESULT), tables=(RESULT,))
        if over.inner is not None:
            rest = _named(self._statement, replace(rest, tree=outer_tree(made.query, RESULT)))
        return replace(made, plan=self._following(rest, below, names), over=below)

    def _around_windows(self, made: Strategy, *, table: bool) -> Strategy:
        """Windows over a source in a subquery, and the plan of the query around them."""
        inner, core = made.timing.inner, inner_select(made.query)
        assert inner is not None
        assert core is not None
        written = not table or isinstance(self._statement, model.CreateStream | model.InsertIntoSink)
        if written or made.elsewhere is not None or self._options.retention is not None:
            raise UnsupportedError(
                "windows in a subquery over a source are executed for a table in memory without retention",
                hint="make a table of the inner query first, and the rest over that table",
                location=made.query.location,
            )
        below = self._plan(inner, made, {}, table=True, keyed=False)
        if self._needs_rows(below, made):
            every = self._every_row(inner, made.timing)
            under = self._over_live(replace(made, query=inner), every, keyed=False)
            below, made = under.plan, replace(made, aged=every)
        names = [item.alias_or_name for item in core.selects]
        rest = model.Query(tree_around(made.query.tree, core, RESULT), tables=(RESULT,))
        plan = self._following(_named(self._statement, rest), below, names)
        return replace(made, plan=plan, over=below)

    def _following(self, query: model.Query, below: Plan, names: Sequence[str]) -> Plan:
        """The plan of what is made of a result that is kept."""
        rest = plan_query(query, self._key, columns={RESULT: names})
        return replace(rest, steps=(*below.steps, *rest.steps))

    def _plan(
        self,
        query: model.Query,
        made: Strategy,
        messages: Mapping[str, Messages | None],
        *,
        table: bool,
        keyed: bool = True,
        live: Mapping[str, Sequence[str]] | None = None,
    ) -> Plan:
        """The plan of a query.

        A table without a declared key, or not `keyed`, takes the key of the table below.
        """
        windowing = made.timing.windowing
        key = self._key if keyed else ()
        query = _named(self._statement, query) if keyed else query
        by_message = message_key(query, messages)
        own = self._own_key(query) if table else ()
        try:
            plan = self._chosen(
                query,
                key or own,
                live or {},
                only_grows=all(each.only_grows for each in made.traits.values()),
                message_key=by_message,
                closes=windowing is not None and windowing.bounded,
            )
        except NeedsColumns:
            if by_message is None or key:
                raise
            # The columns do not matter here: whatever they are, the plan is an upsert by message key.
            sql = query.tree.sql(dialect=SPARK)
            plan = UpsertPlan(sql, (MESSAGE_KEY,), sql, asked=(), deletes=True, steps=(LAST_PER_KEY,))
        return closing(plan, windowing, query)

    def _own_key(self, query: model.Query) -> tuple[str, ...]:
        """The key of the one relation that the query reads, where the result has all of it."""
        read = [*query.tables, *(ref.id for ref in query.sources)]
        return own_key(query, read[0], self._known.keys.get(read[0], ())) if len(read) == 1 else ()

    def _chosen(
        self,
        query: model.Query,
        key: tuple[str, ...],
        live: Mapping[str, Sequence[str]],
        *,
        only_grows: bool,
        message_key: str | None = None,
        closes: bool = False,
    ) -> Plan:
        """The cheapest exact plan, with `*` expanded where the choice depends on its columns."""
        known = {n: names for n, names in {**self._all_columns(query), **live}.items() if names is not None}

        def chosen(query: model.Query) -> Plan:
            used = self._used(query, known)
            return plan_query(
                query, key, only_grows=only_grows, columns=used, message_key=message_key, closes=closes
            )

        try:
            return chosen(query)
        except NeedsColumns:
            return chosen(replace(query, tree=expand_stars(query.tree, known)))

    def _needs_rows(self, plan: Plan, made: Strategy) -> bool:
        """Whether groups are recomputed from rows that the source cannot repeat, or `state.ttl` forgets."""
        if not isinstance(plan, GroupsPlan) or not made.traits:
            return False
        if not all(each.only_grows for each in made.traits.values()):
            return False
        windowing = plan.windowing
        forgets = self._options.state_ttl is not None and (windowing is None or not windowing.bounded)
        if not forgets and all(each.rereadable for each in made.traits.values()):
            return False
        return plan.stream is None and not (plan.mergeable and self._known.merges)

    def _elsewhere(self, query: model.Query) -> StorageTraits | None:
        """Where one of the tables that are read, or the one that is made, lives, if that is not in memory."""
        used = [STORAGES[self._options.table_storage], *(self._known.storage(name) for name in query.tables)]
        return next((each for each in used if not each.in_memory), None)

    # --- columns ------------------------------------------------------------------------------------------

    def _types(self, columns: Mapping[str, Sequence[str] | None]) -> dict[str, Mapping[str, str] | None]:
        """The types of columns; where nobody knows them any will do: they do not decide which plan it is."""
        return {
            name: self._known.types.get(name)
            or (dict.fromkeys(names, "STRING") if names is not None else None)
            for name, names in columns.items()
        }

    def _all_columns(self, query: model.Query) -> dict[str, Sequence[str] | None]:
        """All columns of each input; None where they are not known."""
        found: dict[str, Sequence[str] | None] = {
            name: self._known.columns.get(name) for name in query.tables
        }
        for ref in query.sources:
            declared = tuple(column.name for column in ref.columns)
            found[ref.id] = self._known.columns.get(ref.id) or declared or None
        return found

    def _used(
        self, query: model.Query, known: Mapping[str, Sequence[str]]
    ) -> dict[str, Sequence[str] | None]:
        """The columns of each input that the query uses, as far as its text and the known columns show."""
        usage = column_usage(query, known)
        return {
            name: _of_input(usage.get(name), known.get(name))
            for name in (*query.tables, *(ref.id for ref in query.sources))
        }


def _of_input(used: frozenset[str] | None, known: Sequence[str] | None) -> Sequence[str] | None:
    """The columns to read from an input, system columns last; None where its columns are not known."""
    if known is None or used is None:
        return known if used is None else sorted(used) or None
    folded = {name.casefold() for name in used}
    plain = [name for name in known if name.casefold() in folded]
    system = [name for name in sorted(used) if name not in plain and name.startswith("_")]
    return [*plain, *system] or known[:1]


def forgetful(
    plan: Plan,
    aged: Ageing,
    query: model.Query,
    traits: Iterable[SourceTraits],
    *,
    merges: bool = True,
    inexact: Sequence[str] = (),
) -> Plan:
    """The plan over rows that are forgotten in time; raises UnsupportedError for what would need them again.

    `merges` and `inexact` are what Spark's types say of the accumulators of groups.
    """
    grows = aged.appends and all(each.only_grows for each in traits)
    reason = None
    if not joins_streams(query):
        pass  # Groups are computed again from rows that are kept for just as long.
    elif isinstance(plan, RecomputePlan):
        reason = plan.steps[0].why.split(";")[0]
    elif isinstance(plan, GroupsPlan):
        if not (plan.mergeable and merges) or not (grows or plan.subtractable(inexact)):
            reason = "its groups have to be computed again from all rows"
    elif not isinstance(plan, RowsPlan):
        reason = "a later row of a key replaces the earlier"
    if reason is not None:
        raise UnsupportedError(
            f"this query over joined streams is not executed: {reason}",
            hint="make a table of the join first, with an equality in ON, and the rest over that table",
            location=query.location,
        )
    return replace(plan, forgetful=True, appends=grows)


def _named(statement: model.Statement, query: model.Query) -> model.Query:
    """The query with its columns named as CREATE TABLE declares them; their types are not known here."""
    names = [column.name for column in statement.columns] if isinstance(statement, model.CreateTable) else []
    if not names:
        return query
    return replace(query, tree=declared_columns(query.tree, names, [None] * len(names)))


def _by_row(found: Strategy) -> bool:
    """Whether result rows are added to the table singly, so that `retention` can delete them singly."""
    plan = found.plan
    if isinstance(plan, OverPlan):
        return True
    return isinstance(plan, RowsPlan) and not plan.key and plan.below is None
