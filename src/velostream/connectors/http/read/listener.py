"""Listens for what is posted to us. Statements that name one address share a server, each with a path."""

from __future__ import annotations

import socket
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, ClassVar, Protocol
from urllib.parse import urlsplit

import orjson
import structlog

from velostream.connectors.http.client.answers import FAILURES, DamagedError, pieces
from velostream.errors import SourceConfigError, SourceNetworkError

if TYPE_CHECKING:
    from email.message import Message

    from velostream.connectors.http.client.answers import Readable
    from velostream.connectors.http.options import HttpOptions

log = structlog.get_logger("velostream.connectors")

_PATIENCE = 30.0
"""Seconds that a sender may stay silent in the middle of a delivery."""
_AT_ONCE = 64
"""Deliveries that are handled at the same time; others wait."""


_LONGEST_LINE = 8192
"""Bytes of a line that tells how long a piece is."""


class RefusedError(Exception):
    """A delivery that is not taken, with the status that tells its sender why."""

    def __init__(self, status: int, why: str, pause: int | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.pause = pause


class Hook(Protocol):
    """Takes what is posted to one path."""

    limit: int
    """Most bytes of a delivery."""

    def admit(self, headers: Message) -> None:
        """Raise RefusedError for a sender who is none of ours, as far as the headers tell."""

    def deliver(self, headers: Message, content: bytes) -> dict[str, int]:
        """Make a delivery durable, and tell what became of it; raises RefusedError."""


class Listener:
    """One server of this process."""

    _open: ClassVar[dict[tuple[str, int], Listener]] = {}
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(self, host: str, port: int, options: HttpOptions) -> None:
        self._secure = options.url is not None and options.url.startswith("https:")
        self.hooks: dict[str, Hook] = {}
        self.room = threading.BoundedSemaphore(_AT_ONCE)
        handler = type("Handler", (_Handler,), {"listener": self})
        self._server = (_Server6 if ":" in host else _Server)((host, port), handler)
        if self._secure:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            assert options.ssl_cert is not None
            context.load_cert_chain(options.ssl_cert, options.ssl_key)
            # The handshake is the business of the thread that handles the delivery.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name=f"listens at {host}:{port}", daemon=True
        )
        self._thread.start()

    @classmethod
    def add(cls, options: HttpOptions, hook: Hook) -> tuple[Listener, str]:
        """Listen for what is posted to the address of a statement."""
        parts = urlsplit(options.url or "")
        host, port, path = parts.hostname or "", parts.port or 0, parts.path or "/"
        with cls._lock:
            found = cls._open.get((host, port))
            if found is None:
                try:
                    found = cls(host, port, options)
                except ssl.SSLError as exc:
                    raise SourceConfigError(
                        f"the certificate of {options.url} cannot be used: {exc}"
                    ) from exc
                except OSError as exc:
                    why = (exc.strerror or str(exc)).lower()
                    raise SourceNetworkError(
                        f"{host}:{port} cannot be listened at: {why}",
                        hint="another program may listen there: choose another port",
                    ) from exc
                cls._open[host, port] = found
            if path in found.hooks:
                raise SourceConfigError(
                    f"another statement receives what is posted to {options.url}",
                    hint="give each a path of its own, or read the table that the other one fills",
                )
            if found._secure != options.url.startswith("https:"):  # type: ignore[union-attr]
                raise SourceConfigError(f"another statement listens at {host}:{port} by another scheme")
            found.hooks[path] = hook
            return found, path

    def remove(self, path: str) -> None:
        """Take no more deliveries for a path; the last one ends the server."""
        with self._lock:
            self.hooks.pop(path, None)
            if self.hooks:
                return
            for place in [place for place, one in self._open.items() if one is self]:
                del self._open[place]
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that hangs up, or does not speak the protocol, is no concern of ours."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(BaseHTTPRequestHandler):
    listener: Listener
    protocol_version = "HTTP/1.1"
    server_version = "velostream"
    sys_version = ""
    timeout = _PATIENCE

    def do_POST(self) -> None:
        with self.listener.room:
            try:
                hook = self.listener.hooks.get(urlsplit(self.path).path)
                if hook is None:
                    raise RefusedError(404, "nothing is received at this path")
                hook.admit(self.headers)
                told = hook.deliver(self.headers, self._content(hook.limit))
            except RefusedError as exc:
                self._answer(exc.status, {"error": str(exc)}, exc.pause)
            except Exception:
                log.exception("delivery", path=self.path)
                self._answer(500, {"error": "it could not be taken"})
            else:
                self._answer(200, told)

    do_PUT = do_POST  # noqa: N815 - names of the base

    def do_GET(self) -> None:
        self._answer(405, {"error": "post to this address"})

    do_HEAD = do_DELETE = do_PATCH = do_OPTIONS = do_GET  # noqa: N815 - as above

    def _content(self, limit: int) -> bytes:
        text = self.headers.get("Content-Length", "")
        chunked = self.headers.get("Transfer-Encoding", "").strip().lower() == "chunked"
        if not chunked and not text.isdigit():
            raise RefusedError(411, "say how long the content is (Content-Length)")
        if not chunked and int(text) > limit:
            raise RefusedError(413, f"more than {limit:,} bytes are not taken")
        body: Readable = _Chunks(self.rfile) if chunked else _Body(self.rfile, int(text))
        try:
            return b"".join(pieces(body, self.headers, limit))
        except DamagedError as exc:
            raise RefusedError(400, str(exc)) from exc
        except FAILURES as exc:
            raise RefusedError(400, f"the content did not arrive: {exc}") from exc

    def _answer(self, status: int, told: dict[str, Any], pause: int | None = None) -> None:
        content = orjson.dumps(told)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if pause is not None:
            self.send_header("Retry-After", str(pause))
        if status == 405:
            self.send_header("Allow", "POST, PUT")
        if status >= 400:
            # What is left of a delivery that was not read would be taken for the next one.
            self.close_connection = True
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is that of the base
        """Nothing: deliveries are counted by the job."""


class _Body:
    """The content of a delivery, as what it is read from."""

    def __init__(self, stream: Any, length: int) -> None:
        self._stream = stream
        self.length: int | None = length

    def read1(self, n: int = -1, /) -> bytes:
        left = self.length or 0
        part: bytes = self._stream.read1(min(n, left)) if left else b""
        self.length = left - len(part)
        return part


class _Chunks:
    """The content of a delivery that tells the length of each piece, and not of the whole."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._left = 0
        self.length: int | None = 1
        """More is to come until the last piece, which is empty."""

    def read1(self, n: int = -1, /) -> bytes:
        if not self.length:
            return b""
        if not self._left:
            self._left = self._size()
            if not self._left:
                while self._line():
                    """Trailers, which nothing uses."""
                self.length = 0
                return b""
        part: bytes = self._stream.read1(min(n, self._left))
        self._left -= len(part)
        if part and not self._left and self._line():
            raise DamagedError("its pieces are not as long as they say")
        return part

    def _size(self) -> int:
        text = self._line().partition(b";")[0].strip()
        if not text or text.strip(b"0123456789abcdefABCDEF"):
            raise DamagedError("its pieces do not say how long they are")
        return int(text, 16)

    def _line(self) -> bytes:
        line: bytes = self._stream.readline(_LONGEST_LINE)
        if not line.endswith(b"\n"):
            raise DamagedError("it ended too soon")
        return line.strip()
