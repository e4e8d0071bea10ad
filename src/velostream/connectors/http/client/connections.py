"""Connections to one server, which reach only what the configuration allows."""

from __future__ import annotations

import http.client
import socket
import ssl
from typing import TYPE_CHECKING, Any

from velostream.connectors.http.client.answers import DamagedError

if TYPE_CHECKING:
    from velostream.connectors.http.client.answers import Deadline
    from velostream.connectors.http.options import HttpOptions
    from velostream.model.reach import Reach


def connect(
    scheme: str, host: str, port: int, options: HttpOptions, reach: Reach
) -> http.client.HTTPConnection:
    """A connection that is opened by its first request."""
    timeout = options.connect_timeout.total_seconds()
    if scheme == "https":
        return _Secure(host, port, timeout, tls(options), reach)
    return _Plain(host, port, timeout, reach)


class PlainSocket(socket.socket):
    """A socket whose reads end at a deadline, however little comes at a time."""

    deadline: Deadline | None = None

    def recv_into(self, *args: Any) -> int:
        """See `socket`; TimeoutError at the deadline."""
        if self.deadline is not None:
            self.settimeout(self.deadline.left())
        return super().recv_into(*args)


class SecureSocket(ssl.SSLSocket):
    """See `PlainSocket`."""

    deadline: Deadline | None = None

    def recv_into(self, *args: Any) -> int:
        """See `socket`; TimeoutError at the deadline."""
        if self.deadline is not None:
            self.settimeout(self.deadline.left())
        return super().recv_into(*args)


class _Lines:
    """What an answer is read from, which notices where it ended."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.ended = False

    def readline(self, limit: int = -1, /) -> bytes:
        line: bytes = self._stream.readline(limit)
        self.ended = not line
        return line

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Response(http.client.HTTPResponse):
    """Takes no header that is cut off for a whole one: the length of the content may be in the rest."""

    def begin(self) -> None:
        stream = self.fp
        lines = self.fp = _Lines(stream)  # type: ignore[assignment]
        super().begin()
        if self.fp is not None:
            self.fp = stream
        if lines.ended:
            raise DamagedError("its header ended too soon")


class _Plain(http.client.HTTPConnection):
    response_class = _Response

    def __init__(self, host: str, port: int, timeout: float, reach: Reach) -> None:
        super().__init__(host, port, timeout=timeout)
        self._patience, self._reach = timeout, reach

    def connect(self) -> None:
        self.sock = _dial(self.host, self.port, self._patience, self._reach)


class _Secure(http.client.HTTPSConnection):
    response_class = _Response

    def __init__(self, host: str, port: int, timeout: float, context: ssl.SSLContext, reach: Reach) -> None:
        super().__init__(host, port, timeout=timeout, context=context)
        self._patience, self._reach, self._trust = timeout, reach, context

    def connect(self) -> None:
        plain = _dial(self.host, self.port, self._patience, self._reach)
        try:
            self.sock = self._trust.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def tls(options: HttpOptions) -> ssl.SSLContext:
    """Verifies servers, by the system's authorities or those of `ssl.root.cert`."""
    made = ssl.create_default_context(cafile=options.ssl_root_cert)
    if options.ssl_cert is not None:
        made.load_cert_chain(options.ssl_cert, options.ssl_key)
    made.sslsocket_class = SecureSocket
    return made


def _dial(host: str, port: int, timeout: float, reach: Reach) -> socket.socket:
    # The address that is checked is the one that is connected to: a name may lead elsewhere a moment later.
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for *_, address in found:
        reach.check_resolved(host, port, str(address[0]))
    failure: OSError | None = None
    for family, kind, protocol, _, address in found:
        made = PlainSocket(family, kind, protocol)
        try:
            made.settimeout(timeout)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            made.connect(address)
        except OSError as exc:
            made.close()
            failure = exc
        else:
            return made
    raise failure or OSError(f'"{host}" has no address')
