"""EXPLAIN: how a statement is kept right, told without starting anything."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.connectors.registry import connector_for, traits_of
from velostream.engine.kept.properties import told
from velostream.errors import UnsupportedError, VelostreamError
from velostream.model import statements as model
from velostream.model.durations import format_duration
from velostream.model.options import common_options, key_of
from velostream.plan.over.clauses import outer_tree, tree_around
from velostream.plan.planner import LAST_PER_KEY, NeedsColumns, plan_query
from velostream.plan.plans import GroupsPlan, Plan, RecomputePlan, RowsPlan
from velostream.plan.query.declared_columns import declared_columns
from velostream.plan.query.headers import with_headers
from velostream.plan.realtime_rules import refusal
from velostream.plan.realtime_rules import told as realtime
from velostream.plan.spreading import spread_of
from velostream.plan.state import Keeping, of_plan, of_rows, warnings
from velostream.plan.steps import Step, StepKind
from velostream.plan.time.asof import asof_tables
from velostream.plan.time.clock_filters import RESULT, ageing, kept
from velostream.plan.time.messages import last_messages, message_key
from velostream.plan.time.stream_joins import joins_streams, stream_join
from velostream.plan.time.timing import timed
from velostream.plan.time.windows import closing, inner_select
from velostream.secrets import redact_statement, redact_uri
from velostream.sql.names.usage import column_usage, resolved
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from velostream.model.changes import Messages
    from velostream.model.traits import SourceTraits
    from velostream.plan.state import Remembered
    from velostream.plan.time.clock_filters import Ageing
    from velostream.plan.time.timing import Timing


def explain(
    statement: model.Statement,
    columns: Mapping[str, Sequence[str]] | None = None,
    in_delta: Collection[str] = (),
) -> list[str]:
    """Lines of text: inputs, steps with kind, reason and state, emission, output; without secrets.

    `columns` are those of tables, where they are known; `in_delta` are tables that are not in memory.
    """
    return [redact_statement(line) for line in _explained(statement, columns, in_delta)]


def _explained(
    statement: model.Statement, columns: Mapping[str, Sequence[str]] | None, in_delta: Collection[str]
) -> list[str]:
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return [f"{type(statement).__name__}: carried out at once, nothing is kept running"]
    lines = [*_inputs(query, in_delta)]
    if isinstance(statement, (model.SelectStatement, model.InsertInto)) and not query.continuous:
        lines.append("answer: now, over the newest version of each table")
        elsewhere = any(name in in_delta for name in query.tables)
        duckdb = "duckdb where it is proven to agree with Spark, else spark"
        lines.append(f"  engine: {'spark' if elsewhere else duckdb}")
        return lines
    try:
        chosen = _chosen(statement, query, columns or {})
    except NeedsColumns:
        return [*lines, "step: the kind is chosen once every input has told its columns"]
    except UnsupportedError as exc:
        return [
            *lines,
            f"not executed in this version: {exc.message}",
            *([f"  {exc.hint}"] if exc.hint else []),
        ]
    lines += _times(chosen.query, chosen.timing)
    lines += _spreading(chosen.query, chosen.key, by_message=LAST_PER_KEY in chosen.plan.steps)
    for number, (step, held) in enumerate(chosen.steps(), start=1):
        lines += _step(number, step, held)
    return [*lines, *_output(statement, chosen)]


def warned(statement: model.Statement, columns: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """What has to be said when the statement is made: rows that are kept, and only become more."""
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return ()
    try:
        return warnings([held for _, held in _chosen(statement, query, columns).steps()])
    except (NeedsColumns, UnsupportedError):
        return ()


@dataclass(frozen=True)
class _Chosen:
    """How a continuous statement would be carried out, as far as its text and known columns tell."""

    query: model.Query
    key: tuple[str, ...]
    timing: Timing
    aged: Ageing | None
    plan: Plan
    over: Plan | None
    """What OVER over a source keeps, beneath the plan or itself."""
    keeping: Keeping

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


def _kept_step(held: Remembered) -> Step:
    return Step(
        StepKind.SOURCE, "keep rows", "the source may not have them when they are needed", state=held.what
    )


def _chosen(statement: model.Statement, query: model.Query, columns: Mapping[str, Sequence[str]]) -> _Chosen:
    """The plan; raises NeedsColumns, and UnsupportedError where there is none."""
    key = key_of(statement.properties, statement.key) if isinstance(statement, model.CreateTable) else ()
    options = common_options(getattr(statement, "properties", {}))
    query, timing = timed(
        with_headers(_named(statement, resolved(query, columns))), options, _upserting(query)
    )
    plan, aged = _whole_plan(statement, query, key, columns, timing)
    over = _inner_over(statement, query, columns, timing) if timing.over is not None else None
    if timing.inner is not None:
        over = _inner_windows(statement, columns, timing)
    if aged is None and over is None and _computed_again(statement, query, plan):
        aged = kept(query, {})
        known = {**columns, **_live_columns(aged, columns)}
        plan = closing(_planned(statement, aged.query, key, known, timing), timing.windowing, aged.query)
    joined = aged is not None and aged.appends
    by_row = isinstance(plan, RowsPlan) and (plan.below is None or plan.stream is not None or joined)
    sink = isinstance(statement, model.CreateStream | model.InsertIntoSink)
    keeping = Keeping(
        options.state_ttl,
        beside=not by_row and over is None and (sink or options.retention is not None),
        only_grows=_comes_only(statement, query, plan),
        streams=bool(query.sources),
        names={ref.id: str(ref.uri) for ref in query.sources},
    )
    return _Chosen(query, key, timing, aged, plan, over, keeping)


def _named(statement: model.Statement, query: model.Query) -> model.Query:
    """The query with its columns named as CREATE TABLE declares them; which types they have is not known."""
    names = [column.name for column in statement.columns] if isinstance(statement, model.CreateTable) else []
    if not names:
        return query
    return replace(query, tree=declared_columns(query.tree, names, [None] * len(names)))


def _computed_again(statement: model.Statement, query: model.Query, plan: Plan) -> bool:
    """Whether groups are computed again from rows that a source may not have any more."""
    if isinstance(statement, model.SelectStatement) or not isinstance(plan, GroupsPlan):
        return False
    gone = not all(traits.rereadable for traits in _traits(query).values())
    return gone and not plan.mergeable and plan.stream is None


def _comes_only(statement: model.Statement, query: model.Query, plan: Plan) -> bool:
    """Whether no row of what is read can be taken back."""
    windowing = plan.windowing if isinstance(plan, GroupsPlan) else None
    once = windowing is not None and windowing.final and windowing.late != "update"
    table = isinstance(statement, model.CreateTable) or not once
    return bool(query.sources) and not (_shrinks(query) and table)


def _spreading(query: model.Query, key: tuple[str, ...], *, by_message: bool) -> list[str]:
    """How the rows of sources are spread over tasks."""
    messages = _messages(query) if by_message else {}
    found: dict[str, None] = {}
    for ref in query.sources:
        options = common_options(ref.properties)
        told = messages.get(ref.id)
        by = told.key if told is not None else None
        spread = spread_of(query, key, options.partition_strategy, options.partitions, message_key=by)
        found[f"partitions: {spread.told()}"] = None
    return list(found)


def _times(query: model.Query, timing: Timing) -> list[str]:
    """Where rows have their event time, where something waits for it."""
    waits = timing.windowing is not None and timing.windowing.bounded
    if not waits and not joins_streams(query):
        return []
    names = {ref.id: ref.alias or redact_uri(str(ref.uri)) for ref in query.sources}
    lines = []
    for name, time in timing.times.items():
        column = time.column or "_timestamp, when a row entered its source"
        lines.append(f"event time of {names.get(name, name)}: {column}")
        delay = format_duration(timedelta(microseconds=time.delay)) if time.delay else "nothing"
        idle = format_duration(timedelta(seconds=time.idle))
        lines.append(
            f"  watermark: the latest of each partition less {delay}; the slowest decides, "
            f"but those silent for {idle}"
        )
    return lines


def obstacle(statement: model.Statement) -> VelostreamError | None:
    """Why a valid statement cannot be executed in this version; None when it can, as far as can be told."""
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return None
    try:
        _executable(statement, query)
    except UnsupportedError as error:
        return error.at(statement.location)
    return refusal(statement)


def _executable(statement: model.Statement, query: model.Query) -> None:
    for ref in query.sources:
        connector = connector_for(ref.uri)
        if not connector.available:
            raise UnsupportedError(
                f"reading {ref.uri.scheme}:// is not in this version yet", location=ref.location
            )
    if isinstance(statement, model.SelectStatement | model.InsertInto) and not query.continuous:
        return
    if isinstance(statement, model.CreateView):
        return
    key = key_of(statement.properties, statement.key) if isinstance(statement, model.CreateTable) else ()
    query, timing = timed(
        with_headers(_named(statement, resolved(query))),
        common_options(getattr(statement, "properties", {})),
        _upserting(query),
    )
    with suppress(NeedsColumns):
        _whole_plan(statement, query, key, {}, timing)


def _whole_plan(
    statement: model.Statement,
    query: model.Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str]],
    timing: Timing,
) -> tuple[Plan, Ageing | None]:
    """The plan of a statement, and the rows that are kept for it."""
    if timing.over is not None:
        return _over_plan(statement, query, key, columns, timing), None
    if timing.inner is not None:
        return _around_windows(statement, query, key, columns, timing), None
    aged = _over_kept(statement, query, key, columns, timing)
    left = aged.query if aged is not None else asof_tables(query, lambda: _untyped(columns))
    known = {**columns, **_live_columns(aged, columns)}
    return closing(_planned(statement, left, key, known, timing), timing.windowing, left), aged


def _inner_over(
    statement: model.Statement, query: model.Query, columns: Mapping[str, Sequence[str]], timing: Timing
) -> Plan:
    """OVER over a source by itself."""
    assert timing.over is not None
    inner = timing.over.inner or query
    grows = not (_shrinks(query) and isinstance(statement, model.CreateTable))
    plan = plan_query(inner, (), only_grows=grows, columns=_used(inner, columns))
    return closing(plan, timing.windowing, inner)


def _over_plan(
    statement: model.Statement,
    query: model.Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str]],
    timing: Timing,
) -> Plan:
    """OVER over a source, and what is made of its rows."""
    assert timing.over is not None
    inner = timing.over.inner or query
    plan = _inner_over(statement, query, columns, timing)
    if timing.over.inner is None and not key:
        return plan
    assert isinstance(inner.tree, exp.Select)
    names = [item.alias_or_name for item in inner.tree.selects]
    tree = exp.select("*").from_(RESULT) if timing.over.inner is None else outer_tree(query, RESULT)
    rest = plan_query(model.Query(tree, tables=(RESULT,)), key, columns={RESULT: names})
    return replace(rest, steps=(*plan.steps, *rest.steps))


def _inner_windows(statement: model.Statement, columns: Mapping[str, Sequence[str]], timing: Timing) -> Plan:
    """Windows of a source that are a part of the query."""
    assert timing.inner is not None
    plan = _planned(statement, timing.inner, (), columns, timing)
    return closing(plan, timing.windowing, timing.inner)


def _around_windows(
    statement: model.Statement,
    query: model.Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str]],
    timing: Timing,
) -> Plan:
    """Windows of a source, and what is made of them."""
    inner, core = timing.inner, inner_select(query)
    assert inner is not None
    assert core is not None
    if isinstance(statement, model.CreateStream | model.InsertIntoSink):
        raise UnsupportedError(
            "windows in a subquery over a source are executed for a table",
            hint="make a table of the inner query first, and the rest over that table",
            location=query.location,
        )
    plan = _inner_windows(statement, columns, timing)
    names = [item.alias_or_name for item in core.selects]
    rest = plan_query(
        model.Query(tree_around(query.tree, core, RESULT), tables=(RESULT,)), key, columns={RESULT: names}
    )
    return replace(rest, steps=(*plan.steps, *rest.steps))


def _over_kept(
    statement: model.Statement,
    query: model.Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str]],
    timing: Timing,
) -> Ageing | None:
    """The query over rows that are kept for it: of streams, by the clock, or the last per message key."""
    if joins_streams(query):
        grace = common_options(getattr(statement, "properties", {})).grace // timedelta(microseconds=1)
        streams = isinstance(statement, model.CreateStream | model.InsertIntoSink)
        final = streams or query.emit.mode is model.EmitMode.FINAL
        return stream_join(query, timing.times, _untyped(_known(query, columns)), grace=grace, final=final)
    if not isinstance(statement, model.CreateTable):
        return None
    return ageing(query, _known(query, columns)) or last_messages(query, key, _messages(query))


def _planned(
    statement: model.Statement,
    query: model.Query,
    key: tuple[str, ...],
    columns: Mapping[str, Sequence[str]],
    timing: Timing,
) -> Plan:
    by_message = message_key(query, _messages(query)) if isinstance(statement, model.CreateTable) else None
    if by_message is not None and not key:
        # Whatever its columns are.
        return Plan(query.tree.sql(dialect=SPARK), steps=(LAST_PER_KEY,))
    closes = timing.windowing is not None and timing.windowing.bounded
    grows = _only_grows(statement, query)
    return plan_query(query, key, only_grows=grows, columns=_used(query, columns), closes=closes)


def _messages(query: model.Query) -> dict[str, Messages | None]:
    return {name: traits.messages for name, traits in _traits(query).items()}


def _traits(query: model.Query) -> dict[str, SourceTraits]:
    return {ref.id: traits_of(ref, table=True) for ref in query.sources}


def _upserting(query: model.Query) -> list[str]:
    return [name for name, traits in _traits(query).items() if traits.upserts]


def _shrinks(query: model.Query) -> bool:
    """Whether rows of a source can be retracted, where a table follows it."""
    return not all(traits.only_grows for traits in _traits(query).values())


def _only_grows(statement: model.Statement, query: model.Query) -> bool:
    """Whether no row of a stream that is joined to tables can be retracted."""
    return not (query.tables and _shrinks(query) and isinstance(statement, model.CreateTable))


def _known(query: model.Query, columns: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str] | None]:
    """All columns of each input, where they are known."""
    declared = {ref.id: tuple(column.name for column in ref.columns) or None for ref in query.sources}
    return {**declared, **{name: columns.get(name) for name in query.tables}}


def _untyped(columns: Mapping[str, Sequence[str] | None]) -> dict[str, dict[str, str] | None]:
    """Columns whose types do not matter for which plan it is."""
    return {
        name: dict.fromkeys(names, "STRING") if names is not None else None for name, names in columns.items()
    }


def _live_columns(aged: Ageing | None, columns: Mapping[str, Sequence[str]]) -> dict[str, Sequence[str]]:
    live = aged.live if aged is not None else ()
    return {each.id: columns[each.relation] for each in live if each.relation in columns}


def _used(query: model.Query, columns: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str] | None]:
    """The columns of each table that the query uses, as far as its text and what is known tell."""
    usage = column_usage(query, columns)
    return {
        name: columns.get(name) or (sorted(usage[name] or ()) if usage.get(name) else None)
        for name in (*query.tables, *(ref.id for ref in query.sources))
    }


def _inputs(query: model.Query, in_delta: Collection[str]) -> list[str]:
    lines = []
    for ref in query.sources:
        connector = connector_for(ref.uri)
        lines.append(f"source{f' {ref.alias}' if ref.alias else ''}: {ref.uri} ({connector.name})")
        shrinks = "rows only grow" if traits_of(ref, table=True).only_grows else "rows can be taken back"
        lines.append(f"  changes: everything that is there, then what is new; {shrinks}")
    how = (
        "looked up as it is when a batch is processed"
        if query.sources
        else "its rows, then its changes; rows can be taken back"
    )
    for name in query.tables:
        lines.append(f"table {name}: {how}")
        if name in in_delta:
            lines.append(f"  storage: delta; {_LOOKUPS}")
    return lines


_LOOKUPS = "a lookup is a Spark job of up to a second, and more as the table grows"


def _step(number: int, step: Step, held: Remembered | None) -> list[str]:
    return [
        f"step {number}: {step.what}",
        f"  kind: {step.kind}",
        f"  why: {step.why}",
        f"  state: {step.state}",
        *([f"  bounded: {held.told}"] if held is not None else []),
    ]


def _output(statement: model.Statement, chosen: _Chosen) -> list[str]:
    plan, query = chosen.plan, chosen.query
    every = f" at most every {query.emit.every}" if query.emit.every else ", at most once per micro-batch"
    lines = [f"emission: {query.emit.mode}{every}"]
    if isinstance(statement, model.CreateTable):
        options = common_options(statement.properties)
        if options.table_storage == "delta":
            lines.append(f"output: table {statement.name}, delta, durable by Delta Lake's own log")
            lines.append(f"  lookups: {_LOOKUPS}")
            lines.append("  commits: one append or MERGE for each micro-batch, some seconds")
        else:
            lines.append(f"output: table {statement.name}, memory, durable by snapshot and log")
        lines.append("  guarantee: exactly once")
        leaving = told(options)
        lines += [f"  retention: {leaving}"] if leaving else []
    elif isinstance(statement, model.InsertIntoSink):
        lines.append(f"output: {statement.uri}")
    elif isinstance(statement, model.CreateStream):
        lines.append(f"output: {statement.properties.get('sink', 'console://')}")
    lines += realtime(statement)
    grows = [held.grows for _, held in chosen.steps() if held is not None and held.bound is None]
    lines.append(f"state grows: with {', with '.join(dict.fromkeys(grows))}" if grows else "state grows: no")
    if isinstance(plan, RecomputePlan):
        lines.append("cost: the whole query runs again for every change of an input")
    return lines
