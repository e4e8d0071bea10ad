"""PostgreSQL tables and queries."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Sink, SinkContext, Source, SourceContext
from velostream.connectors.databases.options import database_traits
from velostream.connectors.databases.query_text import asked_text
from velostream.connectors.postgres.options import PostgresOptions, parse_postgres
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from velostream.connectors.narrowing import Narrowing
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri


class PostgresConnector(Connector):
    """postgres://host/database?table=name."""

    name = "postgres"
    schemes = ("postgres", "postgresql")
    Options = PostgresOptions
    follows = "every change, by logical replication; or polling"
    driver = "psycopg"
    upserts = True
    provisions = True
    parse = staticmethod(parse_postgres)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`."""
        assert isinstance(options, PostgresOptions)
        return database_traits(options)

    def asked(self, options: AnyOptions, narrowing: Narrowing) -> str:
        """See `Connector`."""
        assert isinstance(options, PostgresOptions)
        return asked_text(options, narrowing)

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.postgres.read.source import open_postgres

        assert isinstance(options, PostgresOptions)
        return open_postgres(options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.postgres.write.sink import await_table

        assert isinstance(options, PostgresOptions)
        await_table(options, waiting)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        from velostream.connectors.postgres.write.sink import PostgresSink

        assert isinstance(options, PostgresOptions)
        return PostgresSink(options, context)


def _need_driver() -> None:
    if find_spec("psycopg") is None:
        raise ConfigError("postgres:// needs the package psycopg", hint="pip install 'velostream[postgres]'")
