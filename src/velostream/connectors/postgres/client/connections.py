"""Connections to PostgreSQL."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import make_conninfo

from velostream.connectors.postgres.client.failures import translated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from velostream.connectors.postgres.options import PostgresOptions

_TEXT = {
    # Values come as text, so what text they are must not depend on the server.
    "datestyle": "ISO",
    "intervalstyle": "iso_8601",
    "timezone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "client_encoding": "UTF8",
    "lc_monetary": "C",
}


class Client:
    """Connections to one database. Those that are not used are kept for the next use, as the options say."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        size = options.connection_pool_size or options.pool_size
        self._most_idle = size if options.pool_max_idle is None else options.pool_max_idle
        self._idle: deque[psycopg.Connection] = deque()

    @property
    def name(self) -> str:
        """The database, as messages name it."""
        options = self._options
        where = ":".join(str(part) for part in (options.host, options.port) if part is not None)
        return f'database "{options.where_it_is}"' + (f" at {where}" if where else "")

    def connect(self, *, replication: bool = False) -> psycopg.Connection:
        """A new connection, which commits each statement by itself; `replication`.

        One that follows changes.
        """
        with translated(f"cannot connect to {self.name}"):
            return psycopg.connect(self._address(replication=replication), autocommit=True)

    @contextmanager
    def session(self) -> Iterator[psycopg.Connection]:
        """A connection for a few statements; what was not committed is undone."""
        connection = self._taken() or self.connect()
        try:
            with translated(f"{self.name} refuses"):
                yield connection
        finally:
            self._give_back(connection)

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            self._idle.pop().close()

    def _taken(self) -> psycopg.Connection | None:
        """A connection that was used before and still answers, if there is one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            try:
                connection.execute(self._options.pool_validation_query or "SELECT 1")
            except psycopg.Error:
                connection.close()
            else:
                return connection

    def _give_back(self, connection: psycopg.Connection) -> None:
        try:
            connection.rollback()
        except psycopg.Error:
            connection.close()
        if connection.closed or len(self._idle) >= self._most_idle:
            connection.close()
        else:
            self._idle.append(connection)

    def _address(self, *, replication: bool) -> str:
        options = self._options
        settings = dict(_TEXT)
        if options.query_timeout is not None and not replication:
            settings["statement_timeout"] = str(_millis(options.query_timeout))
        parts = {
            "host": options.host,
            "port": options.port,
            "dbname": options.where_it_is,
            "user": options.username,
            "password": options.password,
            "sslmode": options.ssl_mode,
            "sslrootcert": options.ssl_root_cert,
            "sslcert": options.ssl_cert,
            "sslkey": options.ssl_key,
            "connect_timeout": max(2, round(options.connect_timeout.total_seconds())),
            "application_name": "velostream",
            "tcp_user_timeout": _millis(options.socket_timeout)
            if options.socket_timeout is not None
            else None,
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
            "replication": "database" if replication else None,
        }
        return make_conninfo("", **{name: value for name, value in parts.items() if value is not None})


def _millis(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
