"""ClickHouse tables and queries."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.clickhouse.options import ClickHouseOptions, parse_clickhouse


class ClickHouseConnector(Connector):
    """clickhouse://host/database?table=name."""

    name = "clickhouse"
    schemes = ("clickhouse",)
    Options = ClickHouseOptions
    available = False
    parse = staticmethod(parse_clickhouse)
