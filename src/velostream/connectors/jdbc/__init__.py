"""Any SQL database, by a registered driver."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.jdbc.options import SqlOptions, parse_sql


class SqlConnector(Connector):
    """sql://driver:connection?query=…."""

    name = "jdbc"
    schemes = ("sql", "jdbc")
    Options = SqlOptions
    available = False
    parse = staticmethod(parse_sql)
