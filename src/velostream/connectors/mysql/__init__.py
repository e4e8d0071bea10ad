"""MySQL and MariaDB tables and queries."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Sink, SinkContext, Source, SourceContext
from velostream.connectors.databases.options import database_traits
from velostream.connectors.databases.query_text import asked_text
from velostream.connectors.mysql.options import MySqlOptions, parse_mysql
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from velostream.connectors.narrowing import Narrowing
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri


class MySqlConnector(Connector):
    """mysql://host/database?table=name."""

    name = "mysql"
    schemes = ("mysql", "mariadb")
    Options = MySqlOptions
    follows = "every change, by the binlog; or polling"
    driver = "pymysql"
    upserts = True
    parse = staticmethod(parse_mysql)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`."""
        assert isinstance(options, MySqlOptions)
        return database_traits(options)

    def asked(self, options: AnyOptions, narrowing: Narrowing) -> str:
        """See `Connector`."""
        assert isinstance(options, MySqlOptions)
        return asked_text(options, narrowing)

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.mysql.read.source import open_mysql

        assert isinstance(options, MySqlOptions)
        return open_mysql(options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.mysql.write.sink import await_table

        assert isinstance(options, MySqlOptions)
        await_table(options, waiting)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        from velostream.connectors.mysql.write.sink import MySqlSink

        assert isinstance(options, MySqlOptions)
        return MySqlSink(options, context)


def _need_driver() -> None:
    if find_spec("pymysql") is None:
        raise ConfigError("mysql:// needs the package pymysql", hint="pip install 'velostream[mysql]'")
