"""Opens a table or query of any SQL database as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.any_sql.drivers.base import Address
from velostream.connectors.any_sql.drivers.registry import driver_named
from velostream.connectors.any_sql.read.rows import SqlRows
from velostream.connectors.databases.polling import Polling
from velostream.connectors.databases.source import DatabaseSource

if TYPE_CHECKING:
    from velostream.connectors.any_sql.options import SqlOptions
    from velostream.connectors.base import Source, SourceContext


def open_sql(options: SqlOptions, context: SourceContext) -> Source:
    """The source that these properties describe: polled, or loaded once."""
    address = Address(options.connection or "", options, context.reach)
    asked = SqlRows(driver_named(options.driver), address, context.schema if context.declared else None)
    reader = Polling(asked, context.spool, options.poll_interval, options.incremental_column)
    follows = options.poll_interval is not None
    return DatabaseSource(reader, context, reload=options.on_gap == "reload", follows=follows)
