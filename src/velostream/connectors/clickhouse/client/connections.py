"""The HTTP interface of one ClickHouse server."""

from __future__ import annotations

import io
import threading
from typing import TYPE_CHECKING, Any, TypeVar, cast

import clickhouse_connect
import pyarrow as pa
from clickhouse_connect.driver.exceptions import ClickHouseError

from velostream.connectors.clickhouse.client.failures import FAILURES, error_of, translated
from velostream.connectors.clickhouse.client.stoppable import Sockets
from velostream.errors import SourceNetworkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from clickhouse_connect.driver.client import Client as Driver
    from clickhouse_connect.driver.httpclient import HttpClient

    from velostream.connectors.clickhouse.options import ClickHouseOptions

T = TypeVar("T")
_SILENT_SECONDS = 300
"""How long the server may stay silent, where "socket.timeout" does not say."""
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""How a complete stream of Arrow ends."""
_LAST = 4000
"""Bytes of the end of an answer that are remembered: the server writes there what went wrong."""


class Client:
    """Queries and inserts, each a request of its own, by any thread. Connects with the first."""

    def __init__(self, options: ClickHouseOptions) -> None:
        self._options = options
        self._driver: Driver | None = None
        self._sockets = Sockets()
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The database, as messages name it."""
        options = self._options
        return f'database "{self.database}" at {options.host or "localhost"}:{options.http_port}'

    @property
    def database(self) -> str:
        """The database that names without one are in."""
        return self._options.where_it_is or "default"

    def rows(
        self, query: str, values: Mapping[str, Any] | None = None, what: str | None = None
    ) -> list[tuple[Any, ...]]:
        """The rows of a small result."""
        with translated(what or f"{self.name} refuses"):
            found = self._open().query(query, parameters=dict(values or {}))
            return [tuple(row) for row in found.result_rows]

    def run(self, statement: str) -> None:
        """Execute a statement without a result."""
        with translated(f"{self.name} refuses"):
            self._open().command(statement)

    def stream(self, query: str, values: Mapping[str, Any], settings: Mapping[str, Any], what: str) -> Answer:
        """A result as it comes, a block at a time; compressed on the way.

        The server has answered, and with it fixed what it reads, when this returns.
        """
        with translated(what):
            answer = self._open().raw_stream(
                query,
                parameters=dict(values),
                settings=self._settable(
                    {
                        "output_format_arrow_string_as_string": 0,
                        # Nobody waits for it any more.
                        "cancel_http_readonly_queries_on_client_close": 1,
                        **settings,
                        **self._limits(),
                    }
                ),
                fmt="ArrowStream",
            )
            return Answer(answer, what)

    def insert(self, table: str, rows: pa.Table, settings: Mapping[str, Any]) -> None:
        """Insert rows as one block; raises the driver's errors."""
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema) as writer:
            writer.write_table(rows.combine_chunks(), max_chunksize=max(rows.num_rows, 1))
        self._open().raw_insert(
            table,
            rows.column_names,
            out.getvalue().to_pybytes(),
            settings=self._settable({**settings, **self._limits()}),
            fmt="ArrowStream",
        )

    def interrupt(self) -> None:
        """End what other threads wait for, now and later."""
        self._sockets.end()

    def close(self) -> None:
        """Close its connections; it connects again when it is used."""
        with self._lock:
            driver, self._driver = self._driver, None
        if driver is not None:
            driver.close()

    def _limits(self) -> dict[str, Any]:
        timeout = self._options.query_timeout
        return {} if timeout is None else {"max_execution_time": timeout.total_seconds()}

    def _settable(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that this user may set; users that only read may be allowed none."""
        known = self._open().server_settings
        return {
            name: value for name, value in settings.items() if name not in known or not known[name].readonly
        }

    def _open(self) -> Driver:
        with self._lock:
            if self._driver is None:
                with translated(f"cannot connect to {self.name}"):
                    self._driver = clickhouse_connect.get_client(**self._address(), dedicated_pool=True)
                self._sockets.watch(cast("HttpClient", self._driver).http)
            return self._driver

    def _address(self) -> dict[str, Any]:
        options = self._options
        silent = options.socket_timeout
        tls = {
            "verify": options.ssl_mode.startswith("verify") or options.ssl_root_cert is not None,
            "ca_cert": options.ssl_root_cert,
            "client_cert": options.ssl_cert,
            "client_cert_key": options.ssl_key,
        }
        return {
            "interface": "https" if options.encrypted else "http",
            "host": options.host or "localhost",
            "port": options.http_port,
            "username": options.username or "default",
            "password": options.password or "",
            "database": self.database,
            "compress": True,
            "connect_timeout": max(1, round(options.connect_timeout.total_seconds())),
            "send_receive_timeout": _SILENT_SECONDS if silent is None else silent.total_seconds(),
            "client_name": "velostream",
            # Requests of several threads, which a session would refuse.
            "autogenerate_session_id": False,
            **(
                {name: value for name, value in tls.items() if value is not None} if options.encrypted else {}
            ),
        }


class Answer:
    """The blocks of a result. It must have ended as Arrow ends: otherwise the server could not go on."""

    def __init__(self, body: Any, what: str) -> None:
        self._body, self._what = _Body(body), what
        self._reader = self._told(lambda: pa.ipc.open_stream(self._body))

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._told(self._next)) is not None:
                yield batch
            if not self._body.last.endswith(_END):
                raise SourceNetworkError(f"{self._what}: the answer breaks off")
        finally:
            self.close()

    def close(self) -> None:
        """Read no more of it."""
        self._body.close()

    def _next(self) -> pa.RecordBatch | None:
        try:
            return self._reader.read_next_batch()
        except StopIteration:
            return None

    def _told(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except FAILURES as exc:
            at = self._body.last.find(b"Code: ")
            self.close()
            said = ClickHouseError(self._body.last[at:].decode(errors="replace")) if at >= 0 else exc
            raise error_of(said, self._what) from exc


class _Body(io.RawIOBase):
    """The bytes of an answer, which remember how they ended."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._answer = answer
        self.last = b""

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        found = self._answer.read(len(into))
        into[: len(found)] = found
        self.last = (self.last + found[-_LAST:])[-_LAST:]
        return len(found)

    def close(self) -> None:
        if not self.closed:
            self._answer.close()
        super().close()
