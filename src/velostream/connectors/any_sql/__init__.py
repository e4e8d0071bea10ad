"""Any SQL database, by a registered driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.connectors.any_sql.options import SqlOptions, parse_sql
from velostream.connectors.base import Connector, Sink, SinkContext, Source, SourceContext
from velostream.connectors.databases.options import database_traits
from velostream.errors import UnsupportedError

if TYPE_CHECKING:
    from velostream.model.options import Options as AnyOptions
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri


class SqlConnector(Connector):
    """sql://driver:connection?query=…."""

    name = "sql"
    schemes = ("sql", "jdbc")
    Options = SqlOptions
    follows = "polling"
    parse = staticmethod(parse_sql)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`."""
        assert isinstance(options, SqlOptions)
        return database_traits(options)

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        from velostream.connectors.any_sql.read.source import open_sql

        assert isinstance(options, SqlOptions)
        return open_sql(options, context)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        raise UnsupportedError("sql:// only reads", hint="postgres://, mysql:// and clickhouse:// write")
