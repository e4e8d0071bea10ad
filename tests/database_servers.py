"""Real database servers for the tests: on private ports and folders, as users of their own."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from velostream.devtools.postgres import PostgresServer, programs

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def running() -> Iterator[Postgres]:
    """A server of its own, which is removed in the end; skips the test where none is installed."""
    if programs() is None:
        pytest.skip("PostgreSQL is missing: scripts/databases installs it")
    server = Postgres()
    server.make()
    server.start()
    try:
        yield server
    finally:
        server.stop()
        server.remove()


class Postgres(PostgresServer):
    """One PostgreSQL server, and what tests do with it."""

    def __init__(self, **settings: str) -> None:
        super().__init__("secret", **settings)

    def connect(self, database: str = "postgres", **parts: Any) -> psycopg.Connection:
        given = {"host": "127.0.0.1", "port": self.port, "user": "postgres", "password": "secret", **parts}
        return psycopg.connect(dbname=database, autocommit=True, connect_timeout=5, **given)

    def uri(self, database: str, table: str) -> str:
        return f"postgresql://postgres:secret@127.0.0.1:{self.port}/{database}?table={table}"

    def drop_slots(self, database: str) -> bool:
        """Remove the slots of a database, whoever reads them; raises while one is still read."""
        mine = "FROM pg_replication_slots WHERE database = %s"
        ended = f"SELECT pg_terminate_backend(active_pid) {mine} AND active_pid IS NOT NULL"
        with self.connect() as admin:
            admin.execute(ended, (database,))
            admin.execute(f"SELECT pg_drop_replication_slot(slot_name) {mine}", (database,))
        return True
