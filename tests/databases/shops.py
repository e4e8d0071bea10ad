"""A database with orders, our tables over it, and how the two are compared."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from workloads import SCHEMA

if TYPE_CHECKING:
    import psycopg

    from database_servers import Postgres
    from velostream import Database

Rows = Counter[tuple[Any, ...]]


class Shop:
    """Orders and customers in a database."""

    def __init__(self, postgres: Postgres, name: str, connection: psycopg.Connection) -> None:
        self.postgres, self.name, self.sql = postgres, name, connection
        for statement in SCHEMA[:2]:
            connection.execute(statement)

    def uri(self, table: str) -> str:
        return self.postgres.uri(self.name, table)

    def follow(self, db: Database, table: str = "orders", properties: str = '"cdc" = "true"') -> None:
        """Make a table of the same name here."""
        db.sql(f"CREATE TABLE {table} AS SELECT * FROM {self.uri(table)} WITH ({properties})")

    def rows(self, query: str) -> Rows:
        return Counter(self.sql.execute(query).fetchall())


def ours(db: Database, query: str) -> Rows:
    return Counter(tuple(row) for row in db.sql(query).rows())
