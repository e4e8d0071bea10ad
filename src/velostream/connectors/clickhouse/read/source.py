"""Opens a table or query of ClickHouse as a source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.clickhouse.client.connections import Client
from velostream.connectors.clickhouse.read.rows import ClickHouseRows
from velostream.connectors.databases.polling import Polling
from velostream.connectors.databases.source import DatabaseSource

if TYPE_CHECKING:
    from velostream.connectors.base import Source, SourceContext
    from velostream.connectors.clickhouse.options import ClickHouseOptions


def open_clickhouse(options: ClickHouseOptions, context: SourceContext) -> Source:
    """The source that these properties describe: polled, or loaded once."""
    asked = ClickHouseRows(Client(options), options, context.schema if context.declared else None)
    reader = Polling(asked, context.spool, options.poll_interval, options.incremental_column)
    follows = options.poll_interval is not None
    return DatabaseSource(reader, context, reload=options.on_gap == "reload", follows=follows)
