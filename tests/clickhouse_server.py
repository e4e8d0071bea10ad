"""ClickHouse for the tests: its real engine (chdb), behind the HTTP interface that clients of a server use.

Run as a program it serves one folder. The engine runs one query at a time, and a result is sent when it is
complete; users, sessions and progress are not there, but for the one user that it is given.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import ssl
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from velostream.devtools.broker.process import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator

USER, PASSWORD = "default", "secret"
_FORMAT = re.compile(r"\s+FORMAT\s+(\w+)\s*;?\s*$", re.IGNORECASE)
_INSERT = re.compile(r"\s*INSERT\s", re.IGNORECASE)
_WITH_DATA = re.compile(rb"(\s*INSERT\s[^\n]*?\sFORMAT\s+\w+)\s*\n", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")
_NO_SETTINGS = {
    "query",
    "database",
    "user",
    "password",
    "session_id",
    "session_timeout",
    "session_check",
    "query_id",
    "default_format",
    "client_protocol_version",
    "enable_http_compression",
    "wait_end_of_query",
    "send_progress_in_http_headers",
    "http_headers_progress_interval_ms",
    "cancel_http_readonly_queries_on_client_close",
}
_CLUSTER = """<clickhouse><tcp_port>9000</tcp_port>
<remote_servers><all><shard><replica><host>127.0.0.1</host><port>9000</port>
</replica></shard></all></remote_servers></clickhouse>"""


@contextmanager
def running(*, tls: Path | None = None) -> Iterator[ClickHouse]:
    """A server of its own, which is removed in the end; skips the test where the engine is not installed."""
    pytest.importorskip("chdb", reason="ClickHouse's engine is missing: it is in the group dev")
    with tempfile.TemporaryDirectory(prefix="velostream-clickhouse-") as folder:
        server = ClickHouse(Path(folder), tls=tls)
        server.start()
        try:
            yield server
        finally:
            server.stop()


class ClickHouse:
    """A process that serves a folder; it can be stopped, killed and started again."""

    def __init__(self, folder: Path, *, tls: Path | None = None) -> None:
        self.folder, self.port, self._tls = folder, free_port(), tls
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Any = None

    def start(self) -> None:
        command = [sys.executable, __file__, str(self.folder / "data"), str(self.port)]
        command += [str(self._tls)] if self._tls is not None else []
        # Its modules are those beside it, and no others of the tests.
        with (self.folder / "log").open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, cwd=Path(__file__).parent)
        deadline = time.monotonic() + 60
        while "ready" not in (log := (self.folder / "log").read_text(errors="replace")).splitlines()[-1:]:
            assert self._process.poll() is None, log[-2000:]
            assert time.monotonic() < deadline, log[-2000:]
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it as a crash does: the engine keeps what it has answered."""
        if self._client is not None:
            self._client.close()
            self._client = None
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None
            with (self.folder / "log").open("ab") as out:
                out.write(b"\nstopped\n")

    @property
    def client(self) -> Any:
        """The driver's client, for the test's own statements."""
        if self._client is None:
            import clickhouse_connect

            self._client = clickhouse_connect.get_client(
                host="127.0.0.1",
                port=self.port,
                username=USER,
                password=PASSWORD,
                autogenerate_session_id=False,
            )
        return self._client

    def run(self, statement: str) -> None:
        self.client.command(statement)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.client.query(query).result_rows]

    def uri(self, database: str, table: str) -> str:
        return f"clickhouse://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}?table={table}"


# --- the process ------------------------------------------------------------------------------------------


class Engine:
    """One session of the engine."""

    def __init__(self, folder: str) -> None:
        from chdb.session import Session

        config = Path(folder).with_name("config.xml")
        config.write_text(_CLUSTER)
        self._session = Session(f"{folder}?config-file={config}")
        self._lock = Lock()

    def run(self, text: str, data: bytes, said: dict[str, str]) -> tuple[bytes, str]:
        """The answer, and its format."""
        found = _FORMAT.search(text)
        shape = found[1] if found else said.get("default_format", "TabSeparated")
        settings = {n: v for n, v in said.items() if n not in _NO_SETTINGS and not n.startswith("param_")}
        params = {n.removeprefix("param_"): v for n, v in said.items() if n.startswith("param_")}
        with self._lock:
            self._session.query(f"USE {_quoted(said.get('database') or 'default')}")
            try:
                for name, value in settings.items():
                    self._session.query(f"SET {name} = {_literal(value)}")
                if _INSERT.match(text) and data:
                    # Not as a stream: an error of the last block, such as a constraint, would not be told.
                    with tempfile.NamedTemporaryFile() as file:
                        file.write(data)
                        file.flush()
                        into = text[: found.start()] if found else text
                        self._session.query(f"{into} FROM INFILE '{file.name}' FORMAT {shape}")
                    return b"", shape
                return self._session.query(_FORMAT.sub("", text), shape, params=params).bytes() or b"", shape
            finally:
                for name in settings:
                    self._session.query(f"SET {name} = DEFAULT")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        if self.path.startswith("/ping"):
            self._answer(200, b"Ok.\n", {})
        else:
            self.do_POST()

    def do_POST(self) -> None:
        said = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        body = _unpacked(self._body(), self.headers.get("Content-Encoding", ""))
        given = self.headers.get("Authorization", "Basic ").removeprefix("Basic ")
        user, _, password = base64.b64decode(given).decode().partition(":")
        user = self.headers.get("X-ClickHouse-User", user)
        password = self.headers.get("X-ClickHouse-Key", password)
        if (user, password) != (USER, PASSWORD):
            why = f"{user}: Authentication failed: password is incorrect, or there is no user with such name"
            self._fail(403, f"Code: 516. DB::Exception: {why}. (AUTHENTICATION_FAILED)")
            return
        try:
            text, data = (said["query"], body) if "query" in said else _statement(body)
            result, shape = self.engine.run(text, data, said)
        except Exception as exc:
            self._fail(404 if "UNKNOWN_TABLE" in str(exc) else 500, str(exc))
            return
        headers = {"X-ClickHouse-Format": shape, "X-ClickHouse-Summary": json.dumps({"read_rows": "0"})}
        if "gzip" in self.headers.get("Accept-Encoding", "") and said.get("enable_http_compression") == "1":
            result = gzip.compress(result, 1)
            headers["Content-Encoding"] = "gzip"
        self._answer(200, result, headers)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _fail(self, status: int, text: str) -> None:
        code = _CODE.search(text)
        headers = {"X-ClickHouse-Exception-Code": code[1]} if code else {}
        self._answer(status, f"{text} (version 26.9.2.1)\n".encode(), headers)

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def _statement(body: bytes) -> tuple[str, bytes]:
    """A statement, and the data that may follow it on the next line."""
    found = _WITH_DATA.match(body)
    return (found[1].decode(), body[found.end() :]) if found else (body.decode(), b"")


def _unpacked(body: bytes, encoding: str) -> bytes:
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "lz4":
        import lz4.frame

        return bytes(lz4.frame.decompress(body))
    if encoding == "zstd":
        import zstandard

        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


def serve(folder: str, port: int, certificate: str | None) -> None:
    Handler.engine = Engine(folder)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    print("\nready", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
