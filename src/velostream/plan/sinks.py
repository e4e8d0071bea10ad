"""Statements that write to a sink: the target of their rows, and whether the result is kept as state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.registry import connector_for
from velostream.errors import UnsupportedError
from velostream.model.columns import HEADERS
from velostream.model.statements import CreateStream, InsertIntoSink
from velostream.model.uri import Uri
from velostream.plan.plans import OverPlan
from velostream.plan.query.outgoing_headers import with_outgoing_headers

if TYPE_CHECKING:
    from velostream.model.statements import Properties, Query
    from velostream.plan.plans import Plan

Writing = CreateStream | InsertIntoSink


def target(statement: Writing) -> tuple[Uri, Properties]:
    """The sink's address and properties."""
    if isinstance(statement, InsertIntoSink):
        return statement.uri, statement.properties
    return Uri(statement.properties.get("sink", "console://")), statement.properties


def of_sink(properties: Properties) -> Properties:
    """The properties of the sink: `sink.x` is its `x`, where the source has a property `x` too."""
    own = {name: value for name, value in properties.items() if name.startswith("sink.")}
    return {**properties, **{name.removeprefix("sink."): value for name, value in own.items()}}


def outgoing(query: Query) -> Query:
    """The query with the headers of the records it writes as a hidden column."""
    only = query.sources[0] if len(query.sources) == 1 else None
    incoming = only is not None and HEADERS in only.system_columns
    return with_outgoing_headers(query, incoming=incoming)


def keeps_result(statement: Writing, plan: Plan, *, replaces: bool = False) -> bool:
    """Whether the result is kept as state beside the job, so that its changes can be written.

    `replaces`: rows of a source replace and delete earlier ones. Raises UnsupportedError where the sink
    cannot take updates and deletions.
    """
    if plan.by_rows and not replaces:
        return False
    uri, _ = target(statement)
    if not connector_for(uri).connector.upserts and not plan.only_added:
        raise UnsupportedError(
            f"rows of this query are updated later, and {uri.scheme}:// takes no updates",
            hint="make a table of the query: CREATE TABLE name AS SELECT …"
            + ("; EMIT FINAL writes each row once" if isinstance(plan, OverPlan) else ""),
            location=statement.location,
        )
    return not isinstance(plan, OverPlan)
