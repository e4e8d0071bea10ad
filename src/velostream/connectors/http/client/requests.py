"""Requests to the server of one statement: paced, authenticated, redirected only within bounds."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
import time
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse, RemoteDisconnected
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from velostream.connectors.http.client.addresses import header_text, leads_to, origin, requested
from velostream.connectors.http.client.answers import FAILURES, Answer, DamagedError, Deadline, pieces
from velostream.connectors.http.client.connections import PlainSocket, SecureSocket, connect
from velostream.connectors.http.client.failures import unreachable, unusable
from velostream.errors import SourceConfigError, UnsafeError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from velostream.connectors.http.options import HttpOptions
    from velostream.model.reach import Reach

_REDIRECTS = {301, 302, 303, 307, 308}
_AGENT = "velostream"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Requests:
    """Sends one request at a time. `close`, called by another thread, aborts a request that waits."""

    def __init__(self, options: HttpOptions, reach: Reach) -> None:
        self._options = options
        self._reach = reach
        self._headers = {**_given_headers(options.headers), **_authorization(options)}
        self._closed = threading.Event()
        self._connection: HTTPConnection | None = None
        self._connected_to: tuple[str, str, int] | None = None
        self._socket: PlainSocket | SecureSocket | None = None
        """Of the connection, which lets go of it when an answer is the last one, before that is read."""
        self._next_at = 0.0

    def send(
        self,
        url: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The whole answer, whatever its status; raises a SourceError where there is none."""
        with self.open(url, method=method, body=body, headers=headers) as (response, answer):
            content = self._content(response, answer)
        return Answer(answer.url, answer.status, answer.headers, content)

    @contextmanager
    def open(
        self,
        url: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        endless: bool = False,
    ) -> Iterator[tuple[HTTPResponse, Answer]]:
        """An answer whose content is still to be read; after redirects.

        `request.timeout` is for all of it, or, where it is `endless`, for each part that comes.
        """
        first = url
        for _ in range(self._options.redirects + 1):
            response = self._sent(url, method, body, headers or {}, own=origin(url) == origin(first))
            target = response.headers.get("Location")
            if response.status not in _REDIRECTS or target is None:
                break
            with self._translated(url):
                self._pass_over(response)
            leads = self._leads_to(url, header_text(target))
            if method != "GET":
                raise SourceConfigError(
                    f"{url} redirects elsewhere, and a {method} request is not repeated automatically",
                    hint=f"write that address: {leads}",
                )
            url = self._followed(url, leads)
        else:
            raise SourceConfigError(f"{first} redirects more than {self._options.redirects} times")
        if endless and self._socket is not None:
            self._socket.deadline = None
            self._socket.settimeout(self._options.request_timeout.total_seconds())
        whole = False
        try:
            yield response, Answer(url, response.status, response.headers)
            whole = response.isclosed()
        finally:
            if not whole:
                # The last answer of a connection holds its socket, and no longer the connection does.
                response.close()
                self._disconnect()

    def wait(self, seconds: float) -> bool:
        """Wait; True when closed meanwhile."""
        return self._closed.wait(max(seconds, 0.0))

    def close(self) -> None:
        """Disconnect for good, also from a request that another thread waits for."""
        self._closed.set()
        self._disconnect()

    # --- one request --------------------------------------------------------------------------------------

    def _sent(
        self, url: str, method: str, body: bytes | None, headers: Mapping[str, str], *, own: bool
    ) -> HTTPResponse:
        place, path = origin(url), requested(urlsplit(url))
        # Headers may hold secrets, whatever they are called: another server gets none.
        sent = {
            "User-Agent": _AGENT,
            "Accept-Encoding": "gzip",
            **(self._headers if own else {}),
            **headers,
        }
        with self._translated(url):
            self._pace()
            reused = self._connection is not None and self._connected_to == place
            try:
                return self._asked(place, path, method, body, sent)
            except (RemoteDisconnected, ConnectionResetError, BrokenPipeError):
                # The server may have ended a connection that was idle; it has not seen this request.
                if not reused or self._closed.is_set():
                    raise
                self._disconnect()
                return self._asked(place, path, method, body, sent)

    def _asked(
        self,
        place: tuple[str, str, int],
        path: str,
        method: str,
        body: bytes | None,
        headers: Mapping[str, str],
    ) -> HTTPResponse:
        if self._connection is None or self._connected_to != place:
            self._disconnect()
            self._connection, self._connected_to = connect(*place, self._options, self._reach), place
        connection = self._connection
        if connection.sock is None:
            connection.connect()
        if self._closed.is_set():
            raise ConnectionAbortedError("it was given up")
        used = connection.sock
        assert isinstance(used, PlainSocket | SecureSocket)
        patience = self._options.request_timeout.total_seconds()
        used.settimeout(patience)
        used.deadline = Deadline(patience)
        self._socket = used
        connection.request(method, path, body, dict(headers))
        return connection.getresponse()

    def _content(self, response: HTTPResponse, answer: Answer) -> bytes:
        with self._translated(answer.url):
            found = b"".join(pieces(response, response.headers, self._options.response_limit))
            response.close()
        return found

    @contextmanager
    def _translated(self, url: str) -> Iterator[None]:
        try:
            yield
        except DamagedError as exc:
            self._disconnect()
            raise unusable(url, str(exc)) from exc
        except UnsafeError:
            self._disconnect()
            raise
        except FAILURES as exc:
            self._disconnect()
            raise unreachable(url, exc) from exc

    def _pace(self) -> None:
        rate = self._options.rate_limit
        if rate is not None:
            if self.wait(self._next_at - time.monotonic()):
                raise ConnectionAbortedError("it was given up")
            self._next_at = time.monotonic() + 1 / rate

    def _leads_to(self, url: str, target: str) -> str:
        try:
            return leads_to(url, target)
        except ValueError as exc:
            raise unusable(url, f'it leads to "{target}", which is no address: {exc}') from exc

    def _followed(self, before: str, url: str) -> str:
        """Where a redirect leads; raises unless it may be followed."""
        parts, old = urlsplit(url), urlsplit(before)
        if parts.scheme != old.scheme:
            raise UnsafeError(
                f"{before} leads to {url}, by another scheme",
                hint="if that is right, write the address that it leads to",
            )
        self._reach.check_addresses(url)
        return url

    def _pass_over(self, response: HTTPResponse) -> None:
        """Read the rest of a short answer, so that its connection can be used again."""
        response.read(64 * 1024)
        whole = response.isclosed()
        response.close()
        if not whole:
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        used, self._socket = self._socket, None
        if used is not None and self._closed.is_set():
            # A thread that reads from it wakes up.
            with suppress(OSError):
                used.shutdown(socket.SHUT_RDWR)
        if connection is not None:
            connection.close()


def _given_headers(text: str | None) -> dict[str, str]:
    """The property `headers`."""
    if text is None:
        return {}
    try:
        found = json.loads(text)
    except ValueError as exc:
        raise SourceConfigError(f'"headers" is no JSON object: {exc}') from exc
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise SourceConfigError(
            '"headers" is no JSON object of texts', hint='write \'{"X-Api-Key": "${env:API_KEY}"}\''
        )
    for name, value in found.items():
        if _NAME.fullmatch(name) is None:
            raise SourceConfigError(f'"{name}" is no name of a header')
        if not _sendable(value):
            raise SourceConfigError(f'the header "{name}" has a character that no header may have')
    return found


def _sendable(text: str) -> bool:
    """Whether a header can have this value."""
    return not re.search(r"[\r\n\0]", text) and all(ord(mark) < 256 for mark in text)


def _authorization(options: HttpOptions) -> dict[str, str]:
    """The property `auth`, or the user and password in the address."""
    text = options.auth
    parts = urlsplit(options.url or "")
    if text is None and parts.username is not None:
        text = f"basic {unquote(parts.username)}:{unquote(parts.password or '')}"
    if text is None:
        return {}
    kind, _, value = text.partition(" ")
    value = value.strip()
    if kind.lower() == "bearer" and value and value.isprintable() and _sendable(value):
        return {"Authorization": f"Bearer {value}"}
    if kind.lower() == "basic" and ":" in value:
        return {"Authorization": f"Basic {base64.b64encode(value.encode()).decode()}"}
    raise SourceConfigError(
        '"auth" is none that is known', hint="write `bearer TOKEN` or `basic USER:PASSWORD`"
    )
