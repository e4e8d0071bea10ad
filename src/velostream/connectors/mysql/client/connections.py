"""Connections to MySQL and MariaDB."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import deque
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import pymysql

from velostream.connectors.mysql.client.failures import translated
from velostream.errors import SourceConfigError, SourceNetworkError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pymysql.connections import Connection

    from velostream.connectors.mysql.options import MySqlOptions

_PORT = 3306
_KEEP_ALIVE_SECONDS = 20
"""A peer that does not even answer TCP is given up after four times this; systems wait for hours."""
_SECONDS_TO_KILL = 2


class Client:
    """Connections to one server. Those that are not used are kept for the next use, as the options say."""

    def __init__(self, options: MySqlOptions) -> None:
        self._options = options
        size = options.connection_pool_size or options.pool_size
        self._most_idle = size if options.pool_max_idle is None else options.pool_max_idle
        self._idle: deque[Connection] = deque()
        self._lock = threading.Lock()
        self._made: WeakSet[Connection] = WeakSet()
        self._interrupted = False

    @property
    def name(self) -> str:
        """The database, as messages name it."""
        options = self._options
        return f'database "{options.database}" at {options.host or "localhost"}:{options.port or _PORT}'

    def connect(self, *, for_good: bool = False) -> Connection:
        """A new connection, which commits each statement by itself.

        Times are in UTC. `for_good`: statements on it may take as long as they want.
        """
        options = self._options
        with translated(f"cannot connect to {self.name}"):
            connection = self._opened(max(2, round(options.connect_timeout.total_seconds())))
            with self._lock:
                stopped = self._interrupted
                self._made.add(connection)
            try:
                if stopped:
                    raise SourceNetworkError("reading was stopped")
                self._prepare(connection, for_good=for_good)
            except BaseException:
                connection.close() if connection.open else None
                raise
            return connection

    def _opened(self, seconds: int) -> Connection:
        """A connection to a server that has answered within some seconds."""
        options = self._options
        connection = pymysql.connect(
            host=options.host or "localhost",
            port=options.port or _PORT,
            user=options.username,
            password=options.password or "",
            database=options.database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=seconds,
            read_timeout=seconds,
            program_name="velostream",
            **self._tls(),
        )
        silence = options.socket_timeout.total_seconds() if options.socket_timeout else None
        connection._read_timeout = connection._write_timeout = silence
        for name, value in (
            (socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS),
            (socket.TCP_KEEPINTVL, _KEEP_ALIVE_SECONDS),
            (socket.TCP_KEEPCNT, 3),
        ):
            connection._sock.setsockopt(socket.IPPROTO_TCP, name, value)
        return connection

    def _prepare(self, connection: Connection, *, for_good: bool) -> None:
        """What values look like as text must not depend on the server."""
        run(
            connection,
            "SET SESSION time_zone = '+00:00', character_set_results = 'utf8mb4', "
            "sql_mode = REPLACE(@@SESSION.sql_mode, 'PAD_CHAR_TO_FULL_LENGTH', '')",
        )
        limit = self._options.query_timeout
        if limit is not None and not for_good:
            if mariadb(connection):
                run(connection, "SET SESSION max_statement_time = %s", (limit.total_seconds(),))
            else:
                millis = round(limit.total_seconds() * 1000)
                run(connection, "SET SESSION max_execution_time = %s", (millis,))

    @contextmanager
    def session(self) -> Iterator[Connection]:
        """A connection for a few statements; what was not committed is undone."""
        connection = self._taken() or self.connect()
        try:
            if self._interrupted:
                raise SourceNetworkError("reading was stopped")
            with translated(f"{self.name} refuses"):
                yield connection
        except BaseException:
            connection.close() if connection.open else None
            raise
        else:
            self._give_back(connection)

    def interrupt(self) -> None:
        """End what other threads wait for, now and later."""
        with self._lock:
            self._interrupted = True
            found = [each for each in self._made if each.open and each not in self._idle]
        numbers = [each.thread_id() for each in found]
        for each in found:
            _silenced(each)
        # A query that waits for a lock does not notice that nobody waits for its answer.
        if numbers:
            with suppress(pymysql.Error, OSError), closing(self._opened(_SECONDS_TO_KILL)) as other:
                for number in numbers:
                    with suppress(pymysql.Error):
                        run(other, f"KILL {int(number)}")

    def close(self) -> None:
        """Close the connections that are kept."""
        while self._idle:
            _closed(self._idle.pop())

    def _taken(self) -> Connection | None:
        """A connection that was used before and still answers, if there is one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            try:
                run(connection, self._options.pool_validation_query or "SELECT 1")
            except (pymysql.Error, OSError):
                _closed(connection)
            else:
                return connection

    def _give_back(self, connection: Connection) -> None:
        try:
            connection.rollback()
        except (pymysql.Error, OSError):
            _closed(connection)
        if not connection.open or len(self._idle) >= self._most_idle:
            _closed(connection)
        else:
            self._idle.append(connection)

    def _tls(self) -> dict[str, Any]:
        """How the connection is encrypted; without any of these the driver prefers TLS."""
        options, mode = self._options, self._options.ssl_mode
        if mode == "disable":
            return {"ssl_disabled": True}
        files = (options.ssl_root_cert, options.ssl_cert, options.ssl_key)
        if mode in ("allow", "prefer") and not any(files):
            return {}
        try:
            context = ssl.create_default_context(cafile=options.ssl_root_cert)
            if options.ssl_cert is not None:
                context.load_cert_chain(options.ssl_cert, options.ssl_key)
        except (OSError, ssl.SSLError) as exc:
            raise SourceConfigError(
                f"the certificates of {self.name} cannot be used: {exc.strerror or exc}",
                hint='"ssl.root.cert", "ssl.cert" and "ssl.key" are PEM files',
            ) from exc
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.check_hostname = mode == "verify-full"
        context.verify_mode = ssl.CERT_REQUIRED if mode.startswith("verify") else ssl.CERT_NONE
        return {"ssl": context}


def run(connection: Connection, text: str, values: Sequence[Any] | None = None) -> list[tuple[Any, ...]]:
    """The rows of a statement. `%s` are values; without any, `%` is itself."""
    with connection.cursor() as cursor:
        cursor.execute(text, values)
        return list(cursor.fetchall())


def mariadb(connection: Connection) -> bool:
    """Whether the server is a MariaDB, and not a MySQL."""
    return "mariadb" in str(connection.server_version).lower()


def quoted(*names: str) -> str:
    """An identifier, qualified where several names are given."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def dropped(connection: Connection) -> None:
    """End a connection without a word: nobody reads an answer."""
    connection._force_close()


def _silenced(connection: Connection) -> None:
    """Let a thread that reads from a connection find its end."""
    found = connection._sock
    if found is not None:
        with suppress(OSError):
            # TLS has a way of its own, which would take its state from the thread that reads.
            socket.socket.shutdown(found, socket.SHUT_RDWR)


def _closed(connection: Connection) -> None:
    if connection.open:
        try:
            connection.close()
        except (pymysql.Error, OSError):
            connection._force_close()
