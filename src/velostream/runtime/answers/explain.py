"""EXPLAIN: how a statement is maintained incrementally, without starting anything."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from velostream.connectors.registry import asked_of, connector_for
from velostream.engine.opening.retention import told
from velostream.errors import UnsupportedError
from velostream.model import statements as model
from velostream.model.durations import format_duration
from velostream.model.options import common_options
from velostream.model.table_storage import STORAGES
from velostream.plan.planner import NeedsColumns
from velostream.plan.plans import RecomputePlan
from velostream.plan.query.limit import few_at_a_time, limited
from velostream.plan.query.narrowing import narrowing
from velostream.plan.realtime import told as realtime
from velostream.plan.sinks import Writing, target
from velostream.plan.state_bounds import warnings
from velostream.plan.strategy import Known, answered, decide
from velostream.plan.time.stream_joins import joins_streams
from velostream.secrets import redact_statement, redact_uri
from velostream.sql.names.usage import column_usage

if TYPE_CHECKING:
    from velostream.plan.state_bounds import Remembered
    from velostream.plan.steps import Step
    from velostream.plan.strategy import Strategy


def explain(statement: model.Statement, known: Known | None = None) -> list[str]:
    """The lines of EXPLAIN: inputs, steps with kind, reason and state, emission, output; without secrets."""
    known = known or Known()
    query = getattr(statement, "query", None)
    if not isinstance(query, model.Query):
        return [f"{type(statement).__name__}: carried out at once, nothing is kept running"]
    strategy: Strategy | None = None
    why: list[str] = []
    if not answered(statement):
        try:
            strategy = decide(statement, known)
        except NeedsColumns:
            why = ["step: chosen once the columns of every input are known"]
        except UnsupportedError as exc:
            why = [f"not executed in this version: {exc.message}", *([f"  {exc.hint}"] if exc.hint else [])]
    return [*described(statement, strategy, known), *map(redact_statement, why)]


def described(statement: model.Statement, strategy: Strategy | None, known: Known) -> list[str]:
    """The lines about a statement with a query; those about its steps only where there is a strategy."""
    return [redact_statement(line) for line in _described(statement, strategy, known)]


def _described(statement: model.Statement, strategy: Strategy | None, known: Known) -> list[str]:
    query: model.Query = statement.query  # type: ignore[attr-defined]
    asked = few_at_a_time(limited(query)) if query.limited else query
    lines = [*_inputs(asked, strategy, known)]
    if answered(statement):
        lines.append("answer: now, over the newest version of each table")
        elsewhere = not all(known.storage(name).in_memory for name in query.tables)
        duckdb = "duckdb where it is proven to agree with Spark, else spark"
        lines.append(f"  engine: {'spark' if elsewhere else duckdb}")
        if isinstance(statement, model.InsertIntoSink):
            lines.append(f"output: {statement.uri}, once")
        return lines
    if strategy is None:
        return lines
    if isinstance(statement, model.SelectStatement) and query.limited:
        return [*lines, "answer: once, over the rows that are there now"]
    lines += _times(strategy)
    lines += _spreading(strategy)
    for number, (step, held) in enumerate(strategy.steps(), start=1):
        lines += _step(number, step, held)
    return [*lines, *_output(statement, strategy)]


def warned(strategy: Strategy | None) -> tuple[str, ...]:
    """What has to be said when a statement is made: changes that are not seen, and rows that are kept, and
    only become more.
    """
    if strategy is None:
        return ()
    unseen = dict.fromkeys(traits.unseen for traits in strategy.traits.values() if traits.unseen is not None)
    return (*unseen, *warnings([held for _, held in strategy.steps()]))


def _spreading(strategy: Strategy) -> list[str]:
    """The lines about the partitioning of sources."""
    return list(dict.fromkeys(f"partitions: {strategy.spread(ref).told()}" for ref in strategy.query.sources))


def _times(strategy: Strategy) -> list[str]:
    """The lines about event times, where something waits for them."""
    query, timing = strategy.query, strategy.timing
    waits = timing.windowing is not None and timing.windowing.bounded
    if not waits and not joins_streams(query):
        return []
    names = {ref.id: ref.alias or redact_uri(str(ref.uri)) for ref in query.sources}
    lines = []
    for name, time in timing.times.items():
        column = time.column or "_timestamp, when a row entered its source"
        lines.append(f"event time of {names.get(name, name)}: {column}")
        delay = f" minus {format_duration(timedelta(microseconds=time.delay))}" if time.delay else ""
        idle = format_duration(timedelta(seconds=time.idle))
        lines.append(
            f"  watermark: the latest time of each partition{delay}; the earliest of these, "
            f"without partitions idle for {idle}"
        )
    return lines


def _inputs(query: model.Query, strategy: Strategy | None, known: Known) -> list[str]:
    lines = []
    for ref in query.sources:
        connector = connector_for(ref.uri)
        lines.append(f"source{f' {ref.alias}' if ref.alias else ''}: {ref.uri} ({connector.name})")
        shrinks = ""
        if strategy is not None:
            shrinks = "; rows only grow" if strategy.traits[ref.id].only_grows else "; rows can be retracted"
        once = strategy is not None and strategy.traits[ref.id].once
        then = " and nothing afterwards" if once else f" then what is new{shrinks}"
        lines.append(f"  changes: everything that is there,{then}")
        used = column_usage(query, known.columns).get(ref.id)
        sent = asked_of(ref, narrowing(query, ref.id, used), known.settings)
        if sent is not None:
            lines.append(f"  asks: {sent}")
    how = (
        "looked up as it is when a batch is processed"
        if query.sources
        else "its rows, then its changes; rows can be retracted"
    )
    for name in query.tables:
        lines.append(f"table {name}: {how}")
        storage = known.storage(name)
        if storage.lookups is not None:
            lines.append(f"  storage: {storage.name}; {storage.lookups}")
    return lines


def _step(number: int, step: Step, held: Remembered | None) -> list[str]:
    return [
        f"step {number}: {step.what}",
        f"  kind: {step.kind}",
        f"  why: {step.why}",
        f"  state: {step.state}",
        *([f"  bounded: {held.told}"] if held is not None else []),
    ]


def _output(statement: model.Statement, strategy: Strategy) -> list[str]:
    plan, query = strategy.plan, strategy.query
    every = f" at most every {query.emit.every}" if query.emit.every else ", at most once per micro-batch"
    lines = [f"emission: {query.emit.mode}{every}"]
    if isinstance(statement, model.CreateTable):
        options = common_options(statement.properties)
        storage = STORAGES[options.table_storage]
        lines.append(f"output: table {statement.name}, {storage.name}, durable by {storage.durable}")
        lines += [f"  lookups: {storage.lookups}"] if storage.lookups else []
        lines += [f"  commits: {storage.commits}"] if storage.commits else []
        lines.append("  guarantee: exactly once")
        leaving = told(options)
        lines += [f"  retention: {leaving}"] if leaving else []
    elif isinstance(statement, Writing):
        uri, _ = target(statement)
        lines.append(f"output: {uri}")
    elif not query.continuous:
        lines.append("output: the rows of now, then every change; the result is kept while somebody reads")
    lines += realtime(statement)
    grows = [held.grows for _, held in strategy.steps() if held is not None and held.bound is None]
    lines.append(f"state grows: with {', with '.join(dict.fromkeys(grows))}" if grows else "state grows: no")
    if isinstance(plan, RecomputePlan):
        lines.append("cost: the whole query runs again for every change of an input")
    return lines
