"""MySQL and MariaDB tables and queries."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.mysql.options import MySqlOptions, parse_mysql


class MySqlConnector(Connector):
    """mysql://host/database?table=name."""

    name = "mysql"
    schemes = ("mysql", "mariadb")
    Options = MySqlOptions
    available = False
    parse = staticmethod(parse_mysql)
