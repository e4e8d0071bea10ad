"""Spark's real-time mode: which statements may ask for it, and their query as one expression.

The mode runs one stateless SELECT over one source, row by row. What a statement may be is decided from its
text.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from sqlglot import exp

from velostream.connectors.properties import known_options
from velostream.connectors.realtime import RealtimeConnector
from velostream.connectors.registry import connector_for, said_of
from velostream.errors import UnsupportedError
from velostream.model import statements as model
from velostream.model.durations import format_duration
from velostream.model.options import common_options
from velostream.plan.query.functions import volatile_calls
from velostream.plan.query.stateless import one_row_each, why_not_stateless
from velostream.plan.sinks import of_sink, outgoing, target
from velostream.plan.spreading import SMART
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.model.options import CommonOptions
    from velostream.model.statements import Query
    from velostream.plan.sinks import Writing

ROW = "row"
CADENCE = timedelta(minutes=5)
"""How often progress is recorded. Recording holds up rows for about a second, so it is done rarely."""
SHORTEST_CADENCE = timedelta(seconds=5)
_LEAVE_OUT = 'leave out "latency": rows then take some tenths of a second'


def wants_realtime(statement: model.Statement) -> bool:
    """Whether the statement sets `"latency" = "realtime"`."""
    return common_options(getattr(statement, "properties", {})).latency == "realtime"


def cadence(options: CommonOptions) -> timedelta:
    """How often progress is recorded: `trigger.interval`, or five minutes."""
    return options.trigger_interval or CADENCE


def refusal(statement: model.Statement, *, once: bool = False) -> UnsupportedError | None:
    """The error of a statement that asks for real-time mode and cannot have it; None otherwise."""
    if not wants_realtime(statement):
        return None
    reason = (
        "--once ends after the rows that are there, and real-time mode never ends"
        if once
        else why_not_realtime(statement)
    )
    if reason is None:
        return None
    return UnsupportedError(
        f'"latency" = "realtime" is not possible here: {reason}',
        hint=_LEAVE_OUT,
        location=statement.location,
    )


def why_not_realtime(statement: model.Statement) -> str | None:
    """Why Spark's real-time mode cannot run the statement; None if it can, as far as its text shows."""
    if not isinstance(statement, model.CreateStream | model.InsertIntoSink) or statement.query is None:
        return "it goes from topic to topic only, with INSERT INTO kafka://… or CREATE STREAM"
    options = common_options(statement.properties)
    if not isinstance(connector_for(target(statement)[0]).connector, RealtimeConnector):
        return _of_sink(statement)
    if options.delivery == "exactly_once":
        return "it writes at least once, and exactly_once writes whole steps"
    reason = why_not_by_row(statement.query) or _of_source(statement.query) or _of_sink(statement)
    if reason is None and outgoing(statement.query) is not statement.query:
        reason = "SET_HEADER and REMOVE_HEADER are carried out in Python"
    return reason or _of_options(options)


def _of_source(query: model.Query) -> str | None:
    (ref,) = query.sources
    connector = connector_for(ref.uri)
    if not isinstance(connector.connector, RealtimeConnector):
        return f"Spark does not read {ref.uri.scheme}:// row by row, only topics"
    said = said_of(connector, ref.uri, ref.properties, None)
    return connector.connector.why_not_read(known_options(connector.options, said))


def _of_sink(statement: Writing) -> str | None:
    uri, properties = target(statement)
    connector = connector_for(uri)
    if not isinstance(connector.connector, RealtimeConnector):
        return f"Spark does not write to {uri.scheme}:// row by row, only to a topic"
    said = said_of(connector, uri, of_sink(properties), None)
    return connector.connector.why_not_written(known_options(connector.options, said))


def _of_options(options: CommonOptions) -> str | None:
    for name, given in (
        ("partitions", options.partitions is not None),
        ("partition.strategy", options.partition_strategy != SMART),
        ("max.rows.per.batch", options.max_rows_per_batch is not None),
    ):
        if given:
            return f'"{name}" is about batches, and there are none'
    if timedelta(0) < options.trigger_interval < SHORTEST_CADENCE:
        seconds = SHORTEST_CADENCE.total_seconds()
        return f'"trigger.interval", after which progress is recorded, is at least {seconds:g}s'
    return None


def told(statement: model.Statement) -> list[str]:
    """The lines EXPLAIN prints about real-time mode; empty where it is neither asked for nor possible."""
    asked, reason = wants_realtime(statement), why_not_realtime(statement)
    if asked and reason is None:
        every = format_duration(cadence(common_options(getattr(statement, "properties", {}))))
        return [
            "realtime: yes, each record by itself, in milliseconds",
            f"  guarantee: at least once; a start may write again what came in the {every} before it",
        ]
    if asked:
        return [f"realtime: no, {reason}"]
    return ['realtime: possible, with "latency" = "realtime"'] if reason is None else []


# --- the query ----------------------------------------------------------------------------------------------


class RowExpression(NamedTuple):
    """A stateless query as one SQL expression over a row of its input."""

    sql: str
    """A struct whose field `row` holds the result's columns, or null where the filter drops the row."""
    name: str
    """The alias of the input in the query."""


def why_not_by_row(query: Query) -> str | None:
    """Why a query cannot run row by row; None if each row of its one source gives at most one row."""
    if query.tables or query.streams:
        return f"it reads {(*query.tables, *query.streams)[0]}, which is no topic"
    if len(query.sources) != 1:
        return "it reads several sources"
    if query.window is not None:
        return "a window looks at other rows"
    if query.emit.every:
        return "EMIT with an interval makes rows wait"
    if query.udfs:
        return f"{query.udfs[0]} is a Python function"
    reason = why_not_stateless(query.tree)
    if reason is not None:
        return reason
    if not isinstance(query.tree, exp.Select) or not one_row_each(query.tree, query.sources[0].id):
        return "it is more than one SELECT with a filter, or makes several rows of one"
    volatile = next(volatile_calls(query.tree), None)
    return f"{volatile}() would be asked once in some minutes, not for each row" if volatile else None


def row_expression(select: exp.Select, names: Sequence[str]) -> RowExpression:
    """The query as an expression. No `*` may be left in it; `names` are the names of the result's columns."""
    values = (item.unalias().sql(dialect=SPARK) for item in select.selects)
    fields = ", ".join(f"{literal(name)}, {value}" for name, value in zip(names, values, strict=True))
    where = select.args.get("where")
    condition = where.this.sql(dialect=SPARK) if where is not None else "true"
    sql = f"named_struct('{ROW}', CASE WHEN {condition} THEN named_struct({fields}) END)"
    return RowExpression(sql, select.args["from_"].this.alias_or_name)
