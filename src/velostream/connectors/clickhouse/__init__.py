"""ClickHouse tables and queries."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from velostream.connectors.base import Connector, Delivery, Sink, SinkContext, Source, SourceContext
from velostream.connectors.clickhouse.options import ClickHouseOptions, parse_clickhouse
from velostream.connectors.databases.options import database_traits
from velostream.errors import ConfigError

if TYPE_CHECKING:
    from velostream.connectors.waiting import Waiting
    from velostream.model.options import Options as AnyOptions
    from velostream.model.traits import SourceTraits
    from velostream.model.uri import Uri


class ClickHouseConnector(Connector):
    """clickhouse://host/database?table=name."""

    name = "clickhouse"
    schemes = ("clickhouse",)
    Options = ClickHouseOptions
    follows = "polling"
    delivery = (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE)
    driver = "clickhouse_connect"
    upserts = True
    parse = staticmethod(parse_clickhouse)

    def traits(self, options: AnyOptions, *, table: bool, once: bool) -> SourceTraits:
        """See `Connector`."""
        assert isinstance(options, ClickHouseOptions)
        return database_traits(options)

    def source(self, uri: Uri, options: AnyOptions, context: SourceContext) -> Source:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.clickhouse.read.source import open_clickhouse

        assert isinstance(options, ClickHouseOptions)
        return open_clickhouse(options, context)

    def await_sink(self, uri: Uri, options: AnyOptions, waiting: Waiting) -> None:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.clickhouse.write.sink import await_table

        assert isinstance(options, ClickHouseOptions)
        await_table(options)

    def sink(self, uri: Uri, options: AnyOptions, context: SinkContext) -> Sink:
        """See `Connector`."""
        _need_driver()
        from velostream.connectors.clickhouse.write.sink import ClickHouseSink

        assert isinstance(options, ClickHouseOptions)
        return ClickHouseSink(options, context)


def _need_driver() -> None:
    if find_spec("clickhouse_connect") is None:
        raise ConfigError(
            "clickhouse:// needs the package clickhouse-connect", hint="pip install 'velostream[clickhouse]'"
        )
