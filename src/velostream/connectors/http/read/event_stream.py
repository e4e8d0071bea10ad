"""Streams of server-sent events: one record for each event, from the last one that was received."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from velostream.connectors.databases.source import Described, Reader
from velostream.connectors.http.client.answers import FAILURES
from velostream.connectors.http.client.failures import refused, unreachable, unusable
from velostream.connectors.http.read.bodies import Path
from velostream.connectors.http.read.bodies import field as value_of
from velostream.connectors.http.read.received import SCHEMA, Received
from velostream.errors import SourceMissingError, SourceNetworkError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator
    from http.client import HTTPResponse

    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.http.client.requests import Requests
    from velostream.connectors.http.options import HttpOptions

_KIND = "text/event-stream"
_LONGEST_LINE = 16 << 20
_AT_ONCE = 1000
"""Events that are made durable together, at most."""
_NO_CONTENT = 204
_RECONNECT = 3.0


@dataclass
class Parser:
    """Takes the lines of a stream, and gives the data of an event at each blank one."""

    last_id: str | None = None
    retry: float = _RECONNECT
    _data: list[bytes] = field(default_factory=list)
    _id: str | None = None

    def take(self, line: bytes) -> bytes | None:
        """The data of the event that ends with this line; None where none does."""
        line = line.rstrip(b"\r\n")
        if not line:
            data, self._data = self._data, []
            if self._id is not None:
                self.last_id, self._id = self._id, None
            return b"\n".join(data) if data else None
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit():
            self.retry = int(value) / 1000
        return None


class Events(Reader):
    """See `Reader`. The position in the log has the id of the last event.

    A server that knows ids goes on after it. Where the connection is lost the stream is asked for again,
    after the time that the server said.
    """

    def __init__(self, options: HttpOptions, requests: Requests) -> None:
        self.name = options.url or ""
        self._options = options
        self._requests = requests
        self._id = Path.of(options.dedupe_id)
        self._connected = False

    def describe(self) -> Described:
        """See `Reader`: records, undecoded."""
        return Described(SCHEMA, ())

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`: a stream has no past."""
        Received.begin(changes, after, {})

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`."""
        received = Received(changes)
        parser = Parser(last_id=(changes.position or {}).get("id"))
        while not stop.is_set():
            self._read(received, parser, stop)
            if stop.wait(parser.retry):
                return

    def caught_up(self, changes: ChangeLog) -> bool:
        """See `Reader`: once the stream is open, since this start."""
        return self._connected

    def interrupt(self) -> None:
        """See `Reader`."""
        self._requests.close()

    def close(self) -> None:
        """See `Reader`."""
        self._requests.close()

    def _read(self, received: Received, parser: Parser, stop: threading.Event) -> None:
        """Read until the server ends the stream; raises where it is not there, or refuses."""
        headers = {"Accept": _KIND, "Cache-Control": "no-cache", "Accept-Encoding": "identity"}
        if parser.last_id:
            headers["Last-Event-ID"] = parser.last_id
        body = self._options.body.encode() if self._options.body is not None else None
        with self._requests.open(
            self.name, method=self._options.method, body=body, headers=headers, endless=True
        ) as opened:
            response, answer = opened
            if answer.status == _NO_CONTENT:
                raise SourceMissingError(f"{self.name} has ended its stream of events")
            if not answer.ok:
                raise refused(self.name, answer)
            if answer.kind != _KIND:
                raise unusable(self.name, f'it is "{answer.kind}", not {_KIND}')
            self._connected = True
            self._gather(_lines(response, self.name), received, parser, stop)

    def _gather(
        self, lines: Iterator[bytes | None], received: Received, parser: Parser, stop: threading.Event
    ) -> None:
        waiting: list[bytes] = []
        for line in lines:
            if stop.is_set():
                break
            data = parser.take(line) if line is not None else None
            if data is not None:
                waiting.append(data)
            if waiting and (line is None or len(waiting) >= _AT_ONCE):
                self._store(received, waiting, parser)
                waiting = []

    def _store(self, received: Received, records: list[bytes], parser: Parser) -> None:
        ids = [_text(value_of(record, self._id)) if self._id.names else None for record in records]
        received.take(records, ids, {"id": parser.last_id})


def _lines(response: HTTPResponse, name: str) -> Iterator[bytes | None]:
    """The lines of a stream as they come; None where the next one is not here yet."""
    left = b""
    try:
        while part := response.read1(64 * 1024):
            *lines, left = (left + part).replace(b"\r\n", b"\n").split(b"\n")
            yield from lines
            yield None
            if len(left) > _LONGEST_LINE:
                raise unusable(name, f"an event has more than {_LONGEST_LINE:,} bytes")
    except TimeoutError:
        # Silence: the stream is asked for again, from its last event on.
        return
    except FAILURES as exc:
        error = unreachable(name, exc)
        if not isinstance(error, SourceNetworkError):
            raise error from exc
        return


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
