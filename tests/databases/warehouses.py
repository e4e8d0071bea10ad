"""A database of ClickHouse, and how its rows are compared with ours."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clickhouse_server import ClickHouse
    from velostream import Database

Rows = Counter[tuple[Any, ...]]


class Warehouse:
    """A database of the test's own."""

    def __init__(self, server: ClickHouse, name: str) -> None:
        self.server, self.name = server, name
        server.run(f"CREATE DATABASE {name}")

    def run(self, *statements: str) -> None:
        """Execute statements, in which `@` is the database."""
        for statement in statements:
            self.server.run(statement.replace("@", f"{self.name}."))

    def rows(self, query: str) -> Rows:
        return Counter(self.server.rows(query.replace("@", f"{self.name}.")))

    def uri(self, table: str) -> str:
        return self.server.uri(self.name, table)

    def query(self, text: str) -> str:
        """The address of a query, in which `@` is the database."""
        base = self.uri("x").removesuffix("?table=x")
        return f'{base}?query="{text.replace("@", f"{self.name}.")}"'

    def follow(self, db: Database, table: str, properties: str = "") -> None:
        """Make a table of the same name here."""
        told = f" WITH ({properties})" if properties else ""
        db.sql(f"CREATE TABLE {table} AS SELECT * FROM {self.uri(table)}{told}")
