"""Connections to PostgreSQL."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo
from psycopg.errors import error_from_result

from velostream.connectors.postgres.client.failures import translated
from velostream.errors import SourceNetworkError

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

_KEEP_ALIVE_SECONDS = 20
"""A peer that does not even answer TCP is given up after four times this; systems wait for hours."""


class Client:
    """Connections to one database. Those that are not used are kept for the next use, as the options say."""

    def __init__(self, options: PostgresOptions) -> None:
        self._options = options
        size = options.connection_pool_size or options.pool_size
        self._most_idle = size if options.pool_max_idle is None else options.pool_max_idle
        self._idle: deque[psycopg.Connection] = deque()
        self._used: set[psycopg.Connection] = set()
        self._interrupted = False

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
        self._used.add(connection)
        try:
            if self._interrupted:
                raise SourceNetworkError("reading was stopped")
            with translated(f"{self.name} refuses"):
                yield connection
        finally:
            self._used.discard(connection)
            self._give_back(connection)

    def interrupt(self) -> None:
        """End what other threads wait for, now and later."""
        self._interrupted = True
        for connection in list(self._used):
            with suppress(psycopg.Error):
                connection.cancel()

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
                _validate(connection, self._options.pool_validation_query or "SELECT 1")
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
            "keepalives_idle": _KEEP_ALIVE_SECONDS,
            "keepalives_interval": _KEEP_ALIVE_SECONDS,
            "keepalives_count": 3,
            "tcp_user_timeout": _millis(options.socket_timeout)
            if options.socket_timeout is not None
            else None,
            "options": " ".join(f"-c {name}={value}" for name, value in settings.items()),
            "replication": "database" if replication else None,
        }
        return make_conninfo("", **{name: value for name, value in parts.items() if value is not None})


def _validate(connection: psycopg.Connection, query: str) -> None:
    """Run a query of the user's: one statement, by the protocol that takes no more."""
    result = connection.pgconn.exec_params(query.encode(), None)
    if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
        raise error_from_result(result)


def _millis(duration: timedelta) -> int:
    return round(duration.total_seconds() * 1000)
