"""Which statements may use `"latency" = "realtime"`, decided from their text."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from velostream.connectors.realtime import READ_BY_SPARK, WRITTEN_BY_SPARK, RealtimeConnector
from velostream.connectors.registry import connector_for
from velostream.errors import UnsupportedError
from velostream.model import statements as model
from velostream.model.durations import format_duration
from velostream.model.options import common_options
from velostream.plan.realtime import why_not_by_row
from velostream.plan.sinks import outgoing, target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.model.options import CommonOptions

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
    uri, properties = target(statement)
    options = common_options(properties)
    if not isinstance(connector_for(uri).connector, RealtimeConnector):
        return f"Spark does not write to {uri.scheme}:// row by row, only to a topic"
    if options.delivery == "exactly_once":
        return "it writes at least once, and exactly_once writes whole steps"
    return why_not_by_row(statement.query) or _of_source(statement.query) or _of_options(statement, options)


def _of_source(query: model.Query) -> str | None:
    (ref,) = query.sources
    connector = connector_for(ref.uri)
    if not isinstance(connector.connector, RealtimeConnector):
        return f"Spark does not read {ref.uri.scheme}:// row by row, only topics"
    said: Mapping[str, str] = {**connector.parse(ref.uri), **ref.properties}
    if said.get("format", "json").lower() not in READ_BY_SPARK:
        return f'"format" = "{said["format"]}" is decoded in Python; {", ".join(READ_BY_SPARK)} are not'
    if said.get("changelog", "").lower() == "upsert":
        return 'records of "changelog" = "upsert" replace each other, and are more than one row each'
    if "*" in said.get("topic", ""):
        return "a pattern of topics is looked up now and then; name the topics"
    return None


def _of_options(statement: model.CreateStream | model.InsertIntoSink, options: CommonOptions) -> str | None:
    uri, properties = target(statement)
    said = {**connector_for(uri).parse(uri), **properties}
    form = said.get("sink.format", said.get("format", "json")).lower()
    if form not in WRITTEN_BY_SPARK:
        return f'"format" = "{form}" is written by Python; {" and ".join(WRITTEN_BY_SPARK)} are not'
    assert statement.query is not None
    if outgoing(statement.query) is not statement.query:
        return "SET_HEADER and REMOVE_HEADER are carried out in Python"
    for name, default in (
        ("partitions", None),
        ("partition.strategy", "smart"),
        ("max.rows.per.batch", None),
    ):
        if said.get(name, default) != default:
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
