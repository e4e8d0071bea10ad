"""Opens the sources and sinks that a statement names."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import structlog

from velostream.connectors.base import Delivery, Sink, SinkContext, Source, SourceContext
from velostream.connectors.capabilities import Awaited, Provisioned
from velostream.connectors.properties import build_options, check_reach
from velostream.connectors.realtime import RealtimeConnector
from velostream.connectors.registry import connector_for, said_of
from velostream.connectors.tasks import TaskReader
from velostream.disk.full_disk import storing
from velostream.disk.private import make_folder
from velostream.engine.inputs.tables import loaded
from velostream.errors import (
    JobError,
    SourceConfigError,
    SourceEmptyError,
    SourceMissingError,
    SourceNetworkError,
    UnsupportedError,
    VelostreamError,
)
from velostream.model.options import SourceOptions, common_options
from velostream.plan.sinks import of_sink
from velostream.spark.jars.class_path import load_jars

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

    from velostream.config import Settings
    from velostream.connectors.base import Connector
    from velostream.connectors.realtime import RealtimeTarget
    from velostream.connectors.registry import Registered
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import CommonOptions, Options
    from velostream.model.statements import Properties, SourceRef
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri
    from velostream.serving.contract.table import Table

log = structlog.get_logger("velostream.job")


def _options(connector: Registered, uri: Uri, properties: Properties, settings: Settings) -> Options:
    said = said_of(connector, uri, properties, settings)
    written = {**connector.parse(uri), **properties}
    # Places named in the configuration are the operator's choice, and so allowed.
    check_reach(connector.options, {key: said[key] for key in written if key in said}, settings.reach)
    options = build_options(connector.options, said, connector.name)
    for address in connector.connector.leads_to(options):
        settings.reach.check_addresses(address)
    return options


def columns_of(ref: SourceRef, settings: Settings) -> tuple[str, ...]:
    """The names of the columns that a source has now; nothing is made or kept by asking."""
    with tempfile.TemporaryDirectory(prefix="velostream-check-") as folder:
        source = open_source(ref, settings, Path(folder), known=None, once=True, table=True, makes=False)
        try:
            source.check()
            return tuple(source.discover().names)
        finally:
            source.close()


def open_source(
    ref: SourceRef,
    settings: Settings,
    spool: Path,
    *,
    known: pa.Schema | None,
    once: bool,
    table: bool,
    whole: bool = True,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    owner: str = "",
    resumed: bool = False,
    passing: bool = False,
    makes: bool = True,
) -> Source:
    """Open one source of a statement. `known` are columns that an earlier start discovered."""
    connector = connector_for(ref.uri)
    declared = declared_columns(ref)
    options = _options(connector, ref.uri, ref.properties, settings)
    traits = connector.connector.traits(options, table=table, once=once)
    with storing(spool):
        make_folder(spool)
    context = SourceContext(
        spool=spool,
        schema=declared if declared is not None else known,
        declared=declared is not None,
        once=once,
        table=table,
        whole=whole,
        clock=clock,
        most_rows=common_options(ref.properties).max_rows_per_batch,
        owner=f"{owner} {ref.id}",
        resumed=resumed,
        passing=passing,
        makes=makes,
        reach=settings.reach,
    )
    given = partial(_given, connector.connector, ref.uri, options, context, traits)
    source = given()
    if isinstance(source, TaskReader):
        source.opened = given
    return source


def _given(
    connector: Connector, uri: Uri, options: Options, context: SourceContext, traits: SourceTraits
) -> Source:
    """The source as its connector opens it, with what every source is given."""
    source = connector.source(uri, options, context)
    source.traits = traits
    source.most_rows = context.most_rows
    source.declared = context.schema if context.declared else None
    if isinstance(options, SourceOptions):
        source.batch_rows = options.batch_size
        source.beginning = options.beginning()
    return source


def release_sources(refs: Iterable[SourceRef], settings: Settings, folder: Path, owner: str) -> bool:
    """Remove what the sources of a dropped statement made outside; what cannot be removed is logged.

    Returns whether all of it is removed.
    """
    whole = True
    for ref in refs:
        spool = folder / "sources" / ref.id
        if not connector_for(ref.uri).connector.provisions or not spool.exists():
            continue
        try:
            source = open_source(
                ref, settings, spool, known=None, once=False, table=True, owner=owner, resumed=True
            )
            try:
                Provisioned.of(source).release()
            finally:
                source.close()
        except VelostreamError as exc:
            log.warning("left behind", source=str(ref.uri), reason=exc.message)
            whole = False
    return whole


def load_needed(spark: SparkSession, sources: Iterable[Source]) -> None:
    """Put the jars that sources need on the class path of a running Spark."""
    for name in dict.fromkeys(name for source in sources for name in source.traits.needs):
        load_jars(spark, name)


def declared_columns(ref: SourceRef) -> pa.Schema | None:
    """Columns that the user wrote for the source, in CREATE SOURCE or as property `schema`."""
    from velostream.sql.types import parse_columns

    columns = ref.columns
    # To a database, "schema" is a namespace of tables: then it is a property of the connector's own.
    own = connector_for(ref.uri).options.property_names()
    if not columns and "schema" in ref.properties and "schema" not in own:
        columns = parse_columns(ref.properties["schema"])
    if not columns:
        return None
    return pa.schema([pa.field(column.name, column.type) for column in columns])


def open_sink(uri: Uri, properties: Properties, settings: Settings, context: SinkContext) -> Sink:
    """Open the sink of a statement; its properties are added to the context."""
    connector = connector_for(uri)
    with storing(context.state):
        make_folder(context.state)
    common = common_options(properties)
    wanted = Delivery(common.delivery) if common.delivery is not None else None
    sink = connector.connector.sink(
        uri,
        _sink_options(connector, uri, properties, settings),
        replace(context, decimal_format=common.decimal_format, delivery=wanted, reach=settings.reach),
    )
    if wanted is Delivery.EXACTLY_ONCE and sink.delivery is not wanted:
        sink.close()
        raise UnsupportedError(f'"delivery" = "exactly_once" is more than {uri.scheme}:// can give')
    return sink


def realtime_target(
    uri: Uri, properties: Properties, settings: Settings, context: SinkContext
) -> RealtimeTarget:
    """How Spark itself writes to the sink of a statement in real-time mode."""
    connector = connector_for(uri)
    if not isinstance(connector.connector, RealtimeConnector):
        raise UnsupportedError(f"Spark does not write to {uri.scheme}:// row by row")
    context = replace(context, decimal_format=common_options(properties).decimal_format)
    options = _sink_options(connector, uri, properties, settings)
    return connector.connector.realtime_target(uri, options, context)


def await_sink(uri: Uri, properties: Properties, settings: Settings, waiting: Waiting) -> None:
    """Wait until the sink of a statement exists, or its timeout has passed."""
    connector = connector_for(uri)
    options = _sink_options(connector, uri, properties, settings)
    connector.connector.await_sink(uri, options, replace(waiting, reach=settings.reach))


def _sink_options(connector: Registered, uri: Uri, properties: Properties, settings: Settings) -> Options:
    return _options(connector, uri, of_sink(properties), settings)


def sole_place(uri: Uri, properties: Properties, settings: Settings) -> str | None:
    """The place that only one statement may write to; None where several may."""
    connector = connector_for(uri)
    place = connector.connector.sole_place(uri, _sink_options(connector, uri, properties, settings))
    return None if place is None else f"{connector.name}:{place}"


def wait_for_tables(tables: Sequence[Table], options: CommonOptions, waiting: Waiting) -> None:
    """Wait until the tables that a stream is joined to are loaded, or `join.wait` has passed."""
    import time

    limit = options.join_wait.total_seconds()
    deadline = time.monotonic() + limit
    while (missing := [table.name for table in tables if not loaded(table)]) and not waiting.stop.is_set():
        if time.monotonic() >= deadline and options.join_on_timeout == "fail":
            raise JobError(
                f'table "{missing[0]}" was not loaded within {limit:g}s, and the stream is joined to it',
                hint="see why in SHOW JOBS; "
                '"join.wait" sets how long to wait, "join.on.timeout" what happens then',
            )
        if time.monotonic() >= deadline and options.join_on_timeout != "wait":
            return
        waiting.tell(f"waiting for table {', '.join(missing)} to load")
        waiting.stop.wait(0.1)


def wait_for(source: Source, waiting: Waiting) -> None:
    """Wait until the source can be reached, exists and has columns, at most for its `wait_timeout`."""

    def look() -> None:
        source.check()
        _keep_declared(source.discover(), source.declared)

    absent = (SourceMissingError, SourceNetworkError)
    waiting.until(look, absent, source.traits.wait_timeout, Awaited.of(source).retry_delay)


def _keep_declared(found: pa.Schema, declared: pa.Schema | None) -> None:
    """Raise where a source has its own columns, whatever the user declares."""
    if declared is None:
        return
    from velostream.sql.types import schema_text

    if schema_text(found) != schema_text(declared):
        raise SourceConfigError(
            "the columns of this source cannot be declared",
            detail=f"it has {schema_text(found)}",
            hint="leave them out, and CAST in the SELECT what needs another type",
        )


def wait_for_columns(opened: Callable[[str], Table], names: Iterable[str], waiting: Waiting) -> None:
    """Wait until each table has columns: one that waits for its first record has none yet."""

    def look() -> None:
        for name in names:
            opened(name)

    # What is counted and logged is waited for outside; the job of the table itself tells why it waits.
    if waiting.first_record:
        alone = replace(waiting, count=lambda _: None)
        alone.until(look, (SourceEmptyError,), timedelta(0), lambda _: timedelta(0))
    else:
        look()
