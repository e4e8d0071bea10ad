"""How a statement is run: decided once, from its text, the traits of its sources and known columns.

Nothing is opened and Spark is not asked. EXPLAIN prints a strategy; warnings and `velo check` read it.
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
from velostream.plan.over.clauses import outer_tree, tree_around
from velostream.plan.planner import LAST_PER_KEY, NeedsColumns, plan_query
from velostream.plan.plans import GroupsPlan, OverPlan, Plan, RowsPlan, UpsertPlan
from velostream.plan.query.declared_columns import declared_columns
from velostream.plan.query.headers import with_headers
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
from velostream.sql.names.usage import column_usage, resolved
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from velostream.config import Settings
    from velostream.model.changes import Messages
    from velostream.model.options import CommonOptions
    from velostream.model.traits import SourceTraits
    from velostream.plan.state import Remembered
    from velostream.plan.time.clock_filters import Ageing
    from velostream.plan.time.timing import Timing


@dataclass(frozen=True)
class Known:
    """What is known beside the statement."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of tables, by name, and of sources that were opened, by their ids."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of tables."""
    in_delta: Collection[str] = ()
    """Tables that are not in memory."""
    settings: Settings | None = None


@dataclass(frozen=True)
class Outline:
    """The parts that a job is made of."""

    plan: type[Plan]
    kept: tuple[str, ...] = ()
    """Inputs whose rows are kept for the plan."""
    inner: type[Plan] | None = None
    """What makes the result that the plan reads."""
    beside: bool = False
    """Whether the result is kept beside the job."""


@dataclass(frozen=True)
class Strategy:
    """How a continuous statement is run."""

    query: model.Query
    """What is computed: names resolved, windows among the groups."""
    key: tuple[str, ...]
    traits: Mapping[str, SourceTraits]
    """Of each source, as the statement opens it."""
    timing: Timing
    plan: Plan
    """What makes the result."""
    aged: Ageing | None = None
    """The rows that are kept for the plan, which reads them instead of its inputs."""
    over: Plan | None = None
    """OVER, or windows, whose result the plan reads; or the plan itself, where that is OVER."""
    beside: bool = False
    """Whether the result is kept beside the job, because what is written elsewhere follows from it."""
    retracts: bool = False
    """Whether sources are opened so that they retract rows that are edited or deleted."""
    keeping: Keeping = field(default_factory=Keeping)

    def outline(self) -> Outline:
        """What is comparable with what a job has opened."""
        inner = self.over if self.over is not None and self.over is not self.plan else None
        kept = tuple(sorted(each.relation for each in self.aged.live)) if self.aged is not None else ()
        return Outline(type(self.plan), kept, type(inner) if inner is not None else None, self.beside)

    def steps(self) -> Iterator[tuple[Step, Remembered | None]]:
        """What is done, and what each part of it has to remember."""
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
    """The strategy of a statement; NeedsColumns where columns that nobody knows yet decide.

    Raises UnsupportedError for a statement that is valid, and not executed.
    """
    deciding = _Deciding(statement, known or Known())
    if not isinstance(statement, model.CreateStream | model.InsertIntoSink):
        return deciding.over_rows(table=True)
    found = deciding.over_rows(table=False)
    if not keeps_result(statement, found.plan):
        return found
    # Rows that are written once, when they are final, cannot be retracted.
    return deciding.over_rows(table=not only_added(found.plan), beside=True)


def obstacle(statement: model.Statement, known: Known | None = None) -> VelostreamError | None:
    """Why a valid statement cannot be executed in this version; None when it can, as far as can be told."""
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return None
    try:
        _refuse_unavailable(query)
        if not _answered(statement, query):
            decide(statement, known)
    except NeedsColumns:
        pass
    except UnsupportedError as error:
        return error.at(statement.location)
    return refusal(statement)


def _answered(statement: model.Statement, query: model.Query) -> bool:
    """Whether nothing goes on: a view is a name, and over tables there is an answer now."""
    now = isinstance(statement, model.SelectStatement | model.InsertInto) and not query.continuous
    return now or isinstance(statement, model.CreateView)


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
    """What one statement says, while its strategy is being decided."""

    def __init__(self, statement: model.Statement, known: Known) -> None:
        query = getattr(statement, "query", None)
        assert isinstance(query, model.Query)
        self._statement = statement
        self._known = known
        self._options: CommonOptions = common_options(getattr(statement, "properties", {}))
        self._makes_table = isinstance(statement, model.CreateTable)
        self._key: tuple[str, ...] = ()
        if isinstance(statement, model.CreateTable):
            self._key = key_of(statement.properties, statement.key)
        query = outgoing(query) if isinstance(statement, Writing) else query
        self._query = _named(statement, resolved(query, known.columns))

    def over_rows(self, *, table: bool, beside: bool = False) -> Strategy:
        """The strategy where rows may be retracted (`table`), or the result is kept beside the job."""
        settings = self._known.settings
        traits = {ref.id: traits_of(ref, settings, table=table) for ref in self._query.sources}
        upserting = [name for name, each in traits.items() if each.upserts]
        query, timing = timed(with_headers(self._query), self._options, upserting)
        if not joins_streams(query):
            query = asof_tables(query, lambda: _untyped(self._known.columns))
        found = self._planned_whole(query, timing, traits, table=table, beside=beside)
        by_row = _by_row(found)
        retained = self._options.retention is not None and self._makes_table and not by_row
        keeping = Keeping(
            self._options.state_ttl,
            beside=(beside or retained) and found.over is None,
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
        made = Strategy(query, self._key, traits, timing, Plan(""))
        in_delta = self._in_delta(query)
        if timing.over is not None:
            return self._over(made)
        if timing.inner is not None:
            return self._around_windows(made, table=table)
        aged = self._over_kept(made, table=table) if table or joins_streams(query) else None
        messages = _messages(made) if self._makes_table else {}
        if aged is not None:
            return self._over_live(made, aged)
        plan = self._plan(query, made, messages, table=table)
        if (table or beside) and not in_delta and self._needs_rows(plan, made):
            every = kept(query, {})
            return self._over_live(made, every)
        return replace(made, plan=plan)

    # --- the parts ----------------------------------------------------------------------------------------

    def _over_live(self, made: Strategy, aged: Ageing) -> Strategy:
        """The plan over rows that are kept for it."""
        named = {column.name for column in aged.query.tree.find_all(exp.Column)}
        system = sorted(named & {*SYSTEM_TYPES, CLOSED})
        known = self._all_columns(made.query)
        live: dict[str, Sequence[str]] = {}
        for each in aged.live:
            columns = known.get(each.relation)
            if columns is not None:
                live[each.id] = [*columns, *(name for name in system if name not in columns)]
        plan = self._plan(aged.query, made, {}, live=live, table=True)
        if aged.forgets:
            grows = aged.appends and all(each.only_grows for each in made.traits.values())
            plan = replace(plan, forgetful=True, appends=grows)
        return replace(made, plan=plan, aged=aged)

    def _over_kept(self, made: Strategy, *, table: bool) -> Ageing | None:
        """The query over rows that are kept for it: of streams, by the clock, or the last per message key."""
        query = made.query
        if joins_streams(query):
            # A stream into a sink cannot retract a row with nulls when somebody comes.
            final = query.emit.mode is model.EmitMode.FINAL or not table
            grace = self._options.grace // timedelta(microseconds=1)
            types = _untyped(self._all_columns(query))
            return stream_join(query, made.timing.times, types, grace=grace, final=final)
        messages = _messages(made) if self._makes_table else {}
        return ageing(query, self._all_columns(query)) or last_messages(query, self._key, messages)

    def _over(self, made: Strategy) -> Strategy:
        """OVER over a source, and what is made of its rows."""
        over = made.timing.over
        assert over is not None
        inner = over.inner or made.query
        grows = all(each.only_grows for each in made.traits.values())
        below = self._chosen(inner, (), {}, only_grows=grows)
        below = closing(below, made.timing.windowing, inner)
        if over.inner is None and not self._key:
            return replace(made, plan=below, over=below)
        assert isinstance(inner.tree, exp.Select)
        names = [item.alias_or_name for item in inner.tree.selects]
        tree = exp.select("*").from_(RESULT) if over.inner is None else outer_tree(made.query, RESULT)
        return replace(made, plan=self._following(tree, below, names), over=below)

    def _around_windows(self, made: Strategy, *, table: bool) -> Strategy:
        """Windows of a source, and what is made of them."""
        inner, core = made.timing.inner, inner_select(made.query)
        assert inner is not None
        assert core is not None
        if not table or isinstance(self._statement, model.CreateStream | model.InsertIntoSink):
            raise UnsupportedError(
                "windows in a subquery over a source are executed for a table",
                hint="make a table of the inner query first, and the rest over that table",
                location=made.query.location,
            )
        below = self._plan(inner, made, {}, table=True, keyed=False)
        names = [item.alias_or_name for item in core.selects]
        plan = self._following(tree_around(made.query.tree, core, RESULT), below, names)
        return replace(made, plan=plan, over=below)

    def _following(self, tree: exp.Query, below: Plan, names: Sequence[str]) -> Plan:
        """The plan of what is made of a result that is kept."""
        rest = plan_query(model.Query(tree, tables=(RESULT,)), self._key, columns={RESULT: names})
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
        """The plan of a query; a table takes the key of the table below, unless it is `keyed` itself."""
        windowing = made.timing.windowing
        key = self._key if keyed else ()
        by_message = message_key(query, messages)
        only = query.tables[0] if len(query.tables) == 1 and not query.sources else ""
        own = own_key(query, only, self._known.keys.get(only, ())) if table else ()
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
            # Whatever its columns are.
            sql = query.tree.sql(dialect=SPARK)
            plan = UpsertPlan(sql, (MESSAGE_KEY,), sql, asked=(), deletes=True, steps=(LAST_PER_KEY,))
        return closing(plan, windowing, query)

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
        """The cheapest exact plan; with `*` written out where only that tells which it is."""
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
        """Whether groups are computed again from rows that the source may not have, or that are forgotten."""
        if not isinstance(plan, GroupsPlan) or not made.traits:
            return False
        if not all(each.only_grows for each in made.traits.values()):
            return False
        windowing = plan.windowing
        forgets = self._options.state_ttl is not None and (windowing is None or not windowing.bounded)
        if not forgets and all(each.rereadable for each in made.traits.values()):
            return False
        return plan.stream is None and not plan.mergeable

    def _in_delta(self, query: model.Query) -> bool:
        read = any(name in self._known.in_delta for name in query.tables)
        return self._options.table_storage == "delta" or read

    # --- columns ------------------------------------------------------------------------------------------

    def _all_columns(self, query: model.Query) -> dict[str, Sequence[str] | None]:
        """All columns of each input, where they are known."""
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
        """The columns of each input that the query uses, as far as its text and what is known tell."""
        usage = column_usage(query, known)
        return {
            name: _of_input(usage.get(name), known.get(name))
            for name in (*query.tables, *(ref.id for ref in query.sources))
        }


def _of_input(used: frozenset[str] | None, known: Sequence[str] | None) -> Sequence[str] | None:
    """The columns that are asked of an input, system columns last; None where they are not known."""
    if known is None or used is None:
        return known if used is None else sorted(used) or None
    folded = {name.casefold() for name in used}
    plain = [name for name in known if name.casefold() in folded]
    system = [name for name in sorted(used) if name not in plain and name.startswith("_")]
    return [*plain, *system] or known[:1]


def _named(statement: model.Statement, query: model.Query) -> model.Query:
    """The query with its columns named as CREATE TABLE declares them; which types they have is not known."""
    names = [column.name for column in statement.columns] if isinstance(statement, model.CreateTable) else []
    if not names:
        return query
    return replace(query, tree=declared_columns(query.tree, names, [None] * len(names)))


def _messages(made: Strategy) -> dict[str, Messages | None]:
    return {name: traits.messages for name, traits in made.traits.items()}


def _by_row(found: Strategy) -> bool:
    """Whether rows of the result go into a table one by one, so that they can leave it one by one."""
    plan = found.plan
    if isinstance(plan, OverPlan):
        return True
    return isinstance(plan, RowsPlan) and not plan.key and plan.below is None


def _untyped(columns: Mapping[str, Sequence[str] | None]) -> dict[str, dict[str, str] | None]:
    """Columns whose types do not matter for which plan it is."""
    return {
        name: dict.fromkeys(names, "STRING") if names is not None else None for name, names in columns.items()
    }
