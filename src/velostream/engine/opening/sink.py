"""Opens the output of statements that write to a sink."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.connectors.base import SinkContext
from velostream.disk.journal import Journal
from velostream.engine.bad_rows.dead_letters import Refused
from velostream.engine.opening.connect import open_sink
from velostream.engine.outputs.outputs import SinkOutput
from velostream.errors import UnsupportedError
from velostream.model.columns import OUTGOING_HEADERS
from velostream.model.options import common_options, key_of
from velostream.plan.plans import OverPlan
from velostream.plan.sinks import target

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.config import Settings
    from velostream.engine.bad_rows.dead_letters import DeadLetters
    from velostream.engine.opening.opened_query import Opened
    from velostream.plan.sinks import Writing


def shown(schema: pa.Schema) -> pa.Schema:
    """The columns of a result that readers see: without the headers of outgoing records."""
    return pa.schema([f for f in schema if f.name != OUTGOING_HEADERS])


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
    """Open the sink of a statement, and settle a write that a crash interrupted."""
    uri, properties = target(statement)
    key = key_of(properties, ()) or opened.row_key
    changing = opened if isinstance(opened.plan, OverPlan) else opened.below
    if changing is not None and not key and not changing.plan.only_added:
        raise UnsupportedError(
            f"rows of this query are updated later, and have no key by which {uri.scheme}:// knows them",
            hint='name the columns that tell rows apart: WITH ("key" = "column")',
            location=statement.location,
        )
    refused = Refused(name, common_options(properties), letters)
    context = SinkContext(
        state=folder,
        schema=shown(opened.shape.visible),
        key=key,
        unique=bool(opened.row_key) and folded(opened.row_key) <= folded(key),
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


def folded(names: tuple[str, ...]) -> set[str]:
    """Names for comparison: case does not count."""
    return {name.casefold() for name in names}
