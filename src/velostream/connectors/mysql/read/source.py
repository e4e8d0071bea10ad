"""Opens a table or query of MySQL or MariaDB as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.databases.polling import Polling
from velostream.connectors.databases.source import DatabaseSource
from velostream.connectors.mysql.client.connections import Client
from velostream.connectors.mysql.read.changes import TableChanges
from velostream.connectors.mysql.read.rows import MySqlRows

if TYPE_CHECKING:
    from velostream.connectors.base import Source, SourceContext
    from velostream.connectors.databases.source import Reader
    from velostream.connectors.mysql.options import MySqlOptions


def open_mysql(options: MySqlOptions, context: SourceContext) -> Source:
    """The source that these properties describe: followed by its changes, polled, or loaded once."""
    client = Client(options)
    follows = options.cdc or options.poll_interval is not None
    reader: Reader
    if options.cdc and not context.once:
        reader = TableChanges(client, options)
    else:
        reader = Polling(
            MySqlRows(client, options), context.spool, options.poll_interval, options.incremental_column
        )
    return DatabaseSource(reader, context, reload=options.on_gap == "reload", follows=follows)
