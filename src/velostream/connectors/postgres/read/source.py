"""Opens a table or query of PostgreSQL as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.databases.polling import Polling
from velostream.connectors.databases.source import DatabaseSource
from velostream.connectors.postgres.client.connections import Client
from velostream.connectors.postgres.read.changes import TableChanges
from velostream.connectors.postgres.read.rows import PostgresRows

if TYPE_CHECKING:
    from velostream.connectors.base import Source, SourceContext
    from velostream.connectors.databases.source import Reader
    from velostream.connectors.postgres.options import PostgresOptions


def open_postgres(options: PostgresOptions, context: SourceContext) -> Source:
    """The source that these properties describe: followed by its changes, polled, or loaded once."""
    client = Client(options)
    follows = options.cdc or options.poll_interval is not None
    reader: Reader
    if options.cdc and not context.once:
        reader = TableChanges(client, options, context)
    else:
        reader = Polling(
            PostgresRows(client, options), context.spool, options.poll_interval, options.incremental_column
        )
    return DatabaseSource(reader, context, reload=options.on_gap == "reload", follows=follows)
