"""A web server for the tests: routes that a test scripts, and a record of what was asked."""

from __future__ import annotations

import json
import queue
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Reply:
    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: Callable[[socket.socket], None] | None = None
    """Writes the answer itself, bytes and all."""


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Reply(json.dumps(value).encode(), status, {"Content-Type": "application/json", **named})


class Events:
    """A stream of events to everybody who asks; who names the last one it had gets those after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sent: list[bytes] = []
        self._listening: list[queue.Queue[bytes | None]] = []

    def send(self, data: str, *, of: str | None = None) -> None:
        with self._lock:
            lines = "".join(f"data: {line}\n" for line in data.split("\n"))
            event = f"id: {len(self._sent) + 1}\n{lines}\n" if of is None else f"id: {of}\n{lines}\n"
            self._sent.append(event.encode())
            for each in self._listening:
                each.put(event.encode())

    def hang_up(self) -> None:
        with self._lock:
            for each in self._listening:
                each.put(None)

    @property
    def listeners(self) -> int:
        return len(self._listening)

    def reply(self, request: Request) -> Reply:
        def write(connection: socket.socket) -> None:
            mine: queue.Queue[bytes | None] = queue.Queue()
            with self._lock:
                last = int(request.headers.get("last-event-id") or 0)
                past = self._sent[last:]
                self._listening.append(mine)
            try:
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n")
                connection.sendall(b"Connection: close\r\n\r\nretry: 20\n\n: hello\n\n" + b"".join(past))
                while (event := mine.get()) is not None:
                    connection.sendall(event)
            except OSError:
                pass
            finally:
                with self._lock:
                    self._listening.remove(mine)

        return Reply(raw=write)


class Web:
    """The server, as tests see it."""

    def __init__(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.routes: dict[str, Callable[[Request], Reply]] = {}
        self.requests: list[Request] = []
        handler = type("Handler", (_Handler,), {"web": self})
        self._server = _Server(("127.0.0.1", port), handler)
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def uri(self, path: str) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}{path}"

    def serve(self, path: str, reply: Reply | Callable[[Request], Reply]) -> str:
        self.routes[path] = reply if callable(reply) else lambda _: reply
        return self.uri(path)

    def asked(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join()


@contextmanager
def running(port: int = 0, tls: ssl.SSLContext | None = None) -> Iterator[Web]:
    web = Web(port, tls)
    try:
        yield web
    finally:
        web.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._connected: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connected.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connected.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """End the connections that clients keep open, whose threads would answer them further on."""
        for each in list(self._connected):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up as they please, those that are killed above all."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    web: Web
    protocol_version = "HTTP/1.1"
    timeout = 30

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        request = Request(self.command, parts.path, query, headers, body)
        self.web.requests.append(request)
        route = self.web.routes.get(parts.path)
        reply = route(request) if route is not None else Reply(b"nothing here", 404)
        if reply.raw is not None:
            reply.raw(self.connection)
            self.close_connection = True
            return
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if "Content-Length" not in reply.headers and reply.status != 304:
            self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_GET = do_POST = do_PUT = do_PATCH = _handle

    def log_message(self, *args: Any) -> None:
        pass
