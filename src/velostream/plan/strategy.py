"""The strategy of a statement: how it is run, decided from its text, its sources' traits and known columns.

Nothing is opened and Spark is not asked. `obstacle` decides by the text alone, before anything is started;
EXPLAIN prints a strategy; a job is opened by one (`engine.opening`), which is decided when the columns of its
sources are known. Opening gives the parts of the strategy Spark's types. Where these change the decision, it
is made again with what they tell: `Known.merges` and `Known.inexact`, `Part.cast`, `Part.otherwise`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.connectors.registry import connector_for, traits_of
from velostream.errors import UnsupportedError, VelostreamError
from velostream.model import statements as model
from velostream.model.columns import CLOSED, POSITION, SYSTEM_TYPES
from velostream.model.options import common_options, key_of
from velostream.model.table_storage import MEMORY, STORAGES
from velostream.plan.over.clauses import outer_tree, tree_around
from velostream.plan.part import Asked
from velostream.plan.planner import NeedsColumns
from velostream.plan.plans import GroupsPlan, Kind, OverPlan, RecomputePlan, RowsPlan
from velostream.plan.query.headers import with_headers
from velostream.plan.query.limit import limited
from velostream.plan.query.own_key import row_key
from velostream.plan.realtime import refusal
from velostream.plan.sinks import Writing, keeps_result, outgoing, target
from velostream.plan.spreading import spread_of
from velostream.plan.state_bounds import Keeping, of_plan, of_rows
from velostream.plan.steps import Step, StepKind
from velostream.plan.time.asof import asof_tables
from velostream.plan.time.clock_filters import ageing
from velostream.plan.time.event_times import timed
from velostream.plan.time.kept_rows import RESULT, kept
from velostream.plan.time.stream_joins import joins_streams, stream_join
from velostream.plan.time.upserts import last_messages
from velostream.plan.time.windows import inner_select
from velostream.sql.names.usage import column_usage, resolved, spelled_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from velostream.config import Settings
    from velostream.model.changes import Messages
    from velostream.model.options import CommonOptions
    from velostream.model.table_storage import StorageTraits
    from velostream.model.traits import SourceTraits
    from velostream.plan.part import Part
    from velostream.plan.plans import Plan
    from velostream.plan.spreading import Spread
    from velostream.plan.state_bounds import Remembered
    from velostream.plan.time.event_times import Timing
    from velostream.plan.time.kept_rows import Kept, KeptRows


@dataclass(frozen=True)
class Known:
    """What is known apart from the statement itself."""

    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Column names: of tables by name, of opened sources by id."""
    keys: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of tables by name, and of opened sources by id; empty for those that have no key."""
    storages: Mapping[str, StorageTraits] = field(default_factory=dict)
    """Of tables; one that is not named is in memory."""
    settings: Settings | None = None
    types: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """DDL types of the columns, where they are known."""
    once: bool = False
    """Whether sources are read to their end, and then no more."""
    merges: bool = True
    """Whether accumulators of groups can be merged; only types tell, so it is assumed until Spark says no."""
    inexact: tuple[str, ...] = ()
    """Floating-point accumulators, from which nothing is subtracted exactly; known from Spark likewise."""

    def storage(self, table: str) -> StorageTraits:
        """Where a table lives."""
        return self.storages.get(table, MEMORY)


@dataclass(frozen=True)
class Strategy:
    """How a continuous statement is run."""

    query: model.Query
    """The query of the statement: names resolved, windows turned into group keys."""
    key: tuple[str, ...]
    traits: Mapping[str, SourceTraits]
    """The traits of each source, as the statement opens it."""
    timing: Timing
    parts: tuple[Part, ...] = ()
    """What is executed: each reads the result of the one before, which is kept beside the job; the last makes
    the result of the statement."""
    kept: Kept | None = None
    """The rows kept as state, which the first part reads in place of its inputs."""
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
    def plan(self) -> Plan:
        """The plan that makes the result."""
        return self.parts[-1].plan

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

    @property
    def only_grows(self) -> bool:
        """Whether no source retracts rows."""
        return all(each.only_grows for each in self.traits.values())

    @cached_property
    def follower(self) -> Part | None:
        """The part that writes the changes of a result that is kept beside the job; None without one."""
        if not self.beside:
            return None
        below = self.parts[-1]
        name, key = result_table(len(self.parts)), below.result_key
        query = model.Query(exp.select("*").from_(exp.to_table(name)), tables=(name,))
        keyed = self.makes_table
        return Asked(query, columns={name: below.result_names}, keys={name: key}, keyed=keyed).planned()

    def spread(self, ref: model.SourceRef) -> Spread:
        """How the rows of a source are partitioned over tasks."""
        options = common_options(ref.properties)
        messages = self.traits[ref.id].messages if self.plan.kind is Kind.MESSAGES else None
        alone = len(self.parts) == 1 and self.plan.kind is not Kind.OVER
        return spread_of(
            self.query,
            self.key if alone else (),
            options.partition_strategy,
            options.partitions,
            message_key=messages.key if messages is not None else None,
        )

    def steps(self) -> Iterator[tuple[Step, Remembered | None]]:
        """Each step of EXPLAIN with the state it keeps; None for steps without state of their own."""
        for rows in self.kept.rows if self.kept is not None else ():
            held = of_rows(rows, self.parts[0].plan, self.keeping)
            yield rows.step or _kept_step(held), held
        for part in self.parts:
            held_by = of_plan(part.plan, self.keeping)
            for step in part.plan.steps:
                merged = step.state != "none" and step.kind is not StepKind.WATERMARK
                yield step, held_by if merged else None


def result_table(parts: int) -> str:
    """The name of the table that holds the result of the last of so many parts."""
    return RESULT if parts == 1 else f"{RESULT}_{parts}"


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
    return deciding.over_rows(table=found.replaces or not found.plan.only_added, beside=True)


def obstacle(statement: model.Statement, known: Known | None = None) -> VelostreamError | None:
    """Why a valid statement cannot be executed; None when it can, as far as its text shows."""
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return None
    try:
        _refuse_direction(statement, query)
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


def _refuse_direction(statement: model.Statement, query: model.Query) -> None:
    """Raise UnsupportedError for a sink that is read, or a source that is written to."""
    for ref in query.sources:
        if not connector_for(ref.uri).reads:
            raise UnsupportedError(
                f"{ref.uri.scheme}:// is a sink: it is written, and not read",
                hint="read what is written to it",
                location=ref.location,
            )
    if isinstance(statement, Writing):
        uri, _ = target(statement)
        if not connector_for(uri).writes:
            raise UnsupportedError(
                f"{uri.scheme}:// is a source: it is read, and not written", location=statement.location
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
        made = Strategy(
            query, self._key, traits, timing, elsewhere=self._elsewhere(query), makes_table=self._makes_table
        )
        found = self._planned_whole(made, table=table, beside=beside)
        retained = self._options.retention is not None and self._makes_table and not found.plan.single
        keeping = Keeping(
            self._options.state_ttl,
            beside=beside or retained,
            only_grows=bool(query.sources) and found.only_grows,
            streams=bool(query.sources),
            names={ref.id: str(ref.uri) for ref in query.sources},
        )
        return replace(found, beside=keeping.beside, retracts=table, keeping=keeping)

    def _planned_whole(self, made: Strategy, *, table: bool, beside: bool) -> Strategy:
        query, elsewhere = made.query, made.elsewhere
        if made.timing.over is not None:
            if elsewhere is not None:
                raise UnsupportedError(
                    f"rows that OVER looks back to are kept in memory, and the table is in {elsewhere.title}",
                    hint=f'leave out "table.storage", and make a table of this one in {elsewhere.title}',
                )
            return self._over(made)
        if made.timing.inner is not None:
            return self._around_windows(made, table=table)
        over = self._over_kept(made, table=table) if table or joins_streams(query) else None
        if over is not None and elsewhere is not None:
            raise UnsupportedError(
                "rows of a source are kept in memory for a join of streams, for a filter on the clock, or as "
                f"the last of each message key, and a table of this statement is in {elsewhere.title}",
                hint='leave out "table.storage" here and in the tables that are read',
            )
        asked = self._asked(made, query, keyed=table)
        if over is not None:
            return self._over_rows(made, over, asked)
        part = replace(asked, messages=made.messages).planned()
        if (table or beside) and elsewhere is None and self._needs_rows(part.plan, made):
            return self._over_rows(made, self._every_row(query, made.timing), replace(asked, keyed=True))
        return replace(made, parts=(part,))

    # --- the parts ----------------------------------------------------------------------------------------

    def _asked(self, made: Strategy, query: model.Query, *, keyed: bool) -> Asked:
        """What the part that makes the result is planned from."""
        statement = self._statement
        declared = statement.columns if isinstance(statement, model.CreateTable) else ()
        return Asked(
            query,
            self._key,
            tuple(column.name for column in declared),
            self._all_columns(query),
            self._known.keys,
            keyed=keyed,
            only_grows=made.only_grows,
            windowing=made.timing.windowing,
        )

    def _every_row(self, query: model.Query, timing: Timing) -> Kept:
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
        rows = tuple(replace(each, span=span, ttl=ttl) for each in every.rows)
        return replace(every, rows=rows, forgets=True)

    def _over_rows(self, made: Strategy, over: Kept, asked: Asked) -> Strategy:
        """The part that `asked` is about, over rows that are kept for it."""
        over = self._stored(made, over, asked.key)
        columns, keys = dict(asked.columns), dict(self._known.keys)
        for each in over.rows:
            key = keys.get(each.relation, ())
            keys[each.id] = key if set(key) <= set(each.columns) else ()
            shown = [name for name in each.columns if name != POSITION]
            closed = [CLOSED] if each.closes is not None else []
            columns[each.id] = [*shown, *closed] if each.columns else None
        part = replace(asked, query=over.query, columns=columns, keys=keys).planned()
        if over.forgets:
            part = replace(part, plan=self._forgetful(part.plan, over, made))
        return replace(made, parts=(part,), kept=over)

    def _stored(self, made: Strategy, over: Kept, key: tuple[str, ...]) -> Kept:
        """With the columns that are stored of each row, as far as those of its relation are known."""
        columns = {name: each for name, each in self._all_columns(made.query).items() if each is not None}
        named = {column.name for column in over.query.tree.find_all(exp.Column)}
        system = sorted(named & SYSTEM_TYPES.keys())
        views = {r.id: [*columns[r.relation], *system] for r in over.rows if r.relation in columns}
        usage = column_usage(over.query, {**columns, **views})

        def stored(rows: KeptRows) -> KeptRows:
            known, used = columns.get(rows.relation), usage.get(rows.id)
            if known is None:
                return rows
            traits = made.traits.get(rows.relation)
            position = bool(key) and traits is not None and traits.positioned
            found = _stored_columns(used, known, position=position)
            # Where `*` is wanted, system columns have to be named.
            whole = used is None and not {*rows.used, *found} & SYSTEM_TYPES.keys()
            return replace(rows, columns=found, whole=whole)

        return replace(over, rows=tuple(map(stored, over.rows)))

    def _over_kept(self, made: Strategy, *, table: bool) -> Kept | None:
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
            return last_messages(query, self._key, made.messages, row_key(query, self._known.keys))
        if made.replaces:
            raise UnsupportedError(
                "a filter on the clock over a source whose rows replace each other is not executed",
                hint="make a table of the source first, and filter by the clock over that table",
                location=query.location,
            )
        return aged

    def _over(self, made: Strategy) -> Strategy:
        """OVER over a source, and the query around it."""
        over = made.timing.over
        assert over is not None
        asked = self._asked(made, made.query, keyed=False)
        if over.inner is None:
            below = replace(asked, key=()).planned()
            if not self._key:
                return replace(made, parts=(below,))
            rest = model.Query(exp.select("*").from_(RESULT), tables=(RESULT,))
            asked = replace(asked, declared=())
        else:
            below = replace(asked, query=over.inner, key=(), declared=()).planned()
            rest = model.Query(outer_tree(made.query, RESULT), tables=(RESULT,))
        if self._key:
            # By its position, an upsert finds the later of two rows of a key.
            assert isinstance(below.plan, OverPlan)
            below = replace(below, plan=replace(below.plan, positioned=True))
        return replace(made, parts=(below, _after(below, asked, rest)))

    def _around_windows(self, made: Strategy, *, table: bool) -> Strategy:
        """Windows over a source in a subquery, and the query around them."""
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
        whole = self._asked(made, made.query, keyed=True)
        asked = replace(whole, query=inner, key=(), declared=())
        found = replace(made, parts=(asked.planned(),))
        if self._needs_rows(found.plan, made):
            found = self._over_rows(made, self._every_row(inner, made.timing), asked)
        rest = model.Query(tree_around(made.query.tree, core, RESULT), tables=(RESULT,))
        return replace(found, parts=(*found.parts, _after(found.parts[-1], whole, rest)))

    def _forgetful(self, plan: Plan, over: Kept, made: Strategy) -> Plan:
        """The plan over rows that are forgotten in time.

        Raises UnsupportedError for what would need them again.
        """
        grows = over.appends and made.only_grows
        reason = None
        if not joins_streams(made.query):
            pass  # Groups are computed again from rows that are kept for just as long.
        elif isinstance(plan, RecomputePlan):
            reason = plan.steps[0].why.split(";")[0]
        elif isinstance(plan, GroupsPlan):
            merges = plan.mergeable and self._known.merges
            if not merges or not (grows or plan.subtractable(self._known.inexact)):
                reason = "its groups have to be computed again from all rows"
        elif not isinstance(plan, RowsPlan):
            reason = "a later row of a key replaces the earlier"
        if reason is not None:
            raise UnsupportedError(
                f"this query over joined streams is not executed: {reason}",
                hint="make a table of the join first, with an equality in ON, and the rest over that table",
                location=made.query.location,
            )
        return replace(plan, forgetful=True, appends=grows)

    def _needs_rows(self, plan: Plan, made: Strategy) -> bool:
        """Whether groups are recomputed from rows that the source cannot repeat, or `state.ttl` forgets."""
        if not isinstance(plan, GroupsPlan) or not made.traits or not made.only_grows:
            return False
        forgets = self._options.state_ttl is not None and not plan.closes
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


def _after(below: Part, asked: Asked, query: model.Query) -> Part:
    """The part that reads the result of the one below."""
    columns, keys = {RESULT: below.result_names}, {RESULT: below.result_key}
    return replace(
        asked, query=query, columns=columns, keys=keys, keyed=True, messages={}, windowing=None
    ).planned()


def _stored_columns(used: frozenset[str] | None, known: Sequence[str], *, position: bool) -> tuple[str, ...]:
    """The columns of kept rows: those that the query uses, at least one."""
    folded = {name.casefold() for name in (known if used is None else used)}
    plain = [name for name in known if name.casefold() in folded]
    system = [name for name in sorted(used or ()) if name in SYSTEM_TYPES and name not in plain]
    return (*(plain or known[:1]), *system, *([POSITION] if position else []))
