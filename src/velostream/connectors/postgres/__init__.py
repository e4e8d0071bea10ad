"""PostgreSQL tables and queries."""

from __future__ import annotations

from velostream.connectors.base import Connector
from velostream.connectors.postgres.options import PostgresOptions, parse_postgres


class PostgresConnector(Connector):
    """postgres://host/database?table=name."""

    name = "postgres"
    schemes = ("postgres", "postgresql")
    Options = PostgresOptions
    available = False
    parse = staticmethod(parse_postgres)
