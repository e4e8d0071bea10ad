"""Statements that write to a sink: what they need beside their query."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.base import SinkContext
from velostream.connectors.journal import Journal
from velostream.errors import UnsupportedError
from velostream.model.changes import HEADERS
from velostream.model.statements import CreateStream, InsertIntoSink
from velostream.model.uri import Uri
from velostream.plan.outgoing import with_outgoing_headers
from velostream.plan.plans import GroupsPlan, OverPlan, RowsPlan
from velostream.runtime.dead_letters import Refused
from velostream.runtime.opening import common_options, connector_for, key_of, open_sink
from velostream.runtime.outputs import SinkOutput

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.config import Settings
    from velostream.model.statements import Properties, Query
    from velostream.runtime.dead_letters import DeadLetters
    from velostream.runtime.opened import Opened

Writing = CreateStream | InsertIntoSink


def target(statement: Writing) -> tuple[Uri, Properties]:
    """Where a statement writes to."""
    if isinstance(statement, InsertIntoSink):
        return statement.uri, statement.properties
    return Uri(statement.properties.get("sink", "console://")), statement.properties


def outgoing(query: Query) -> Query:
    """The query with the headers of the records that it writes as a hidden column."""
    only = query.sources[0] if len(query.sources) == 1 else None
    incoming = only is not None and connector_for(only.uri).connector.headers
    return with_outgoing_headers(query, incoming=incoming)


def shown(schema: pa.Schema) -> pa.Schema:
    """The columns of a result without the hidden one."""
    return pa.schema([f for f in schema if f.name != HEADERS])


def by_rows(opened: Opened) -> bool:
    """Whether each row that comes gives its own rows, so that nothing has to be kept."""
    plan = opened.plan
    return isinstance(plan, RowsPlan) and (plan.below is None or plan.stream is not None or plan.appends)


def only_added(opened: Opened) -> bool:
    """Whether rows of the result come once, when their window has closed, and then stay as they are."""
    plan = opened.plan
    if not isinstance(plan, GroupsPlan | OverPlan) or plan.windowing is None:
        return False
    shrinks = isinstance(plan, OverPlan) and plan.shrinks
    return plan.windowing.final and plan.windowing.late != "update" and not shrinks


def keeps_result(statement: Writing, opened: Opened) -> bool:
    """Whether the result has to be kept beside the job, to tell what a change makes of it.

    Raises where the sink could not take such changes.
    """
    if by_rows(opened):
        return False
    uri, _ = target(statement)
    if not connector_for(uri).connector.upserts and not only_added(opened):
        raise UnsupportedError(
            f"rows of this query change after they came, and a stream into {uri.scheme}:// keeps none",
            hint="make a table of the query: CREATE TABLE name AS SELECT …"
            + ("; EMIT FINAL writes each row once" if isinstance(opened.plan, OverPlan) else ""),
            location=statement.location,
        )
    return not isinstance(opened.plan, OverPlan)


def sink_output(
    statement: Writing,
    name: str,
    job: str,
    folder: Path,
    opened: Opened,
    settings: Settings,
    letters: DeadLetters | None,
    *,
    resumed: bool,
) -> SinkOutput:
    """Open what a statement writes to, and settle what an earlier start left."""
    uri, properties = target(statement)
    key = key_of(properties, ()) or opened.row_key
    changing = opened if isinstance(opened.plan, OverPlan) else opened.below
    if changing is not None and not key and not only_added(changing):
        raise UnsupportedError(
            f"rows of this query change after they came, and have no key by which {uri.scheme}:// knows them",
            hint='name the columns that tell rows apart: WITH ("key" = "column")',
            location=statement.location,
        )
    refused = Refused(name, common_options(properties), letters)
    context = SinkContext(
        state=folder,
        schema=shown(opened.shape.visible),
        key=key,
        unique=bool(opened.row_key) and _folded(opened.row_key) <= _folded(key),
        job=job,
        refuse=refused,
        resumed=resumed,
    )
    sink = open_sink(uri, properties, settings, context)
    try:
        journal = Journal(folder / "journal", f"{job} sink", required=resumed)
        refused.output = output = SinkOutput(sink, journal, refused)
    except BaseException:
        with suppress(Exception):
            sink.close()
        raise
    return output


def _folded(names: tuple[str, ...]) -> set[str]:
    return {name.casefold() for name in names}
