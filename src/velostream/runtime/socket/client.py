"""Client of the socket: sends statements to the process that holds a data directory."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from velostream.errors import ConnectionFailedError, InternalError, VelostreamError
from velostream.location import SourceText
from velostream.runtime.answers.events import Answer, AnswerEvent, Awaiting, Changes, Following
from velostream.runtime.answers.result import Result
from velostream.runtime.datadir import DataDirectory
from velostream.runtime.socket.protocol import PROTOCOL, Frame, job_info, receive, row_of, send
from velostream.runtime.socket.server import socket_path
from velostream.serving.durable.verification import TableReport
from velostream.sql.text.script import split

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.model.jobs import JobInfo
    from velostream.runtime.statements.dml import Params

_OF_A_FOLDER = re.compile(r"(file|delta|iceberg)://[^/~]", re.IGNORECASE)
START_SECONDS = 10.0
"""Seconds that the holder may take between locking the directory and listening."""


class Client:
    """Talks to the process that holds a data directory; one connection per request, so none goes stale."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self._directory = DataDirectory(root)
        self._read_only = read_only

    @property
    def holder(self) -> int | None:
        """Process id of the process that holds the directory."""
        return self._directory.holder()

    def elsewhere(self, text: str) -> Path | None:
        """The folder at which relative paths of a text start there; None where it has none, or it is ours."""
        uris = [uri for piece in split(SourceText(text)).pieces for uri in piece.uris]
        if not any(_OF_A_FOLDER.match(uri) for uri in uris):
            return None
        try:
            there = Path(f"/proc/{self.holder}/cwd").readlink()
        except OSError:
            return None
        return there if there != Path.cwd() else None

    def answers(
        self,
        text: str,
        params: Params = None,
        *,
        follow: bool = False,
        stop: threading.Event | None = None,
        once: bool = False,
    ) -> Generator[AnswerEvent]:
        """Run statements there; see `events.answers`. Closing the iterator ends a followed SELECT."""
        return self._events("sql", text, params, stop, follow=follow, once=once)

    def stream(
        self, text: str, params: Params = None, *, once: bool = False, stop: threading.Event | None = None
    ) -> Generator[AnswerEvent]:
        """Follow a SELECT there, until the iterator is closed or `stop` is set."""
        return self._events("stream", text, params, stop, once=once)

    def _events(
        self, operation: str, text: str, params: Params, stop: threading.Event | None, **header: object
    ) -> Generator[AnswerEvent]:
        tables = []
        if params is not None:
            named = isinstance(params, Mapping)
            values = (
                dict(params) if isinstance(params, Mapping) else {str(i): v for i, v in enumerate(params)}
            )
            header["params"] = "named" if named else "positional"
            tables = [row_of(values)]
        for reply, parts in self.frames(operation, {"text": text, **header}, *tables, stop=stop):
            event = _event(reply, parts)
            if event is not None:
                yield event

    def sql(self, text: str, params: Params = None) -> Result:
        """Run statements there; returns the result of the last one."""
        result, warnings = Result(), tuple[str, ...]()
        for event in self.answers(text, params):
            if isinstance(event, Answer):
                result = event.result
                warnings += result.warnings
        return replace(result, warnings=warnings)

    def relations(self) -> dict[str, list[str]]:
        """Every name that can be used in FROM, with its known columns."""
        found: dict[str, list[str]] = self.ask("relations", {})[0]["relations"]
        return found

    def verify(self) -> list[TableReport]:
        """Check the durable files of every table there."""
        return [TableReport.from_dict(report) for report in self.ask("verify", {})[0]["reports"]]

    def jobs(self) -> list[JobInfo]:
        """Every job with its state and statistics."""
        return [job_info(job) for job in self.ask("jobs", {})[0]["jobs"]]

    def wait_idle(self, timeout: float) -> bool:
        """Wait until every running job has processed all that its sources have now; False on timeout."""
        return bool(self.ask("wait_idle", {"timeout": timeout})[0]["idle"])

    def ask(
        self, operation: str, header: Mapping[str, Any], *tables: pa.Table
    ) -> tuple[Mapping[str, Any], Sequence[pa.Table]]:
        """The first frame of an answer that has one."""
        first, *_ = self.frames(operation, header, *tables)
        return first

    def frames(
        self,
        operation: str,
        header: Mapping[str, Any],
        *tables: pa.Table,
        stop: threading.Event | None = None,
    ) -> Generator[Frame]:
        """Send a request; the frames of its answer, up to its end. Raises the error of the answer."""
        sent = {**header, "op": operation, "protocol": PROTOCOL, "read_only": self._read_only}
        with self._connect() as connection, _closed_by(stop, connection):
            send(connection, sent, *tables)
            for reply, parts in _replies(connection, stop):
                _raise(reply, str(header.get("text", "")))
                if not reply.get("end"):
                    yield reply, parts

    def _connect(self) -> socket.socket:
        """Open a connection; waits a little for a holder that is still starting."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            path = socket_path(self._directory.root)
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                if path is None:
                    raise FileNotFoundError
                connection.connect(str(path))
            except OSError as exc:
                connection.close()
                holder = self._directory.holder()
                if holder is None or time.monotonic() > deadline:
                    raise self._silent(holder) from exc
                time.sleep(0.05)
            else:
                return connection

    def _silent(self, holder: int | None) -> ConnectionFailedError:
        root = self._directory.root
        if holder is None:
            return ConnectionFailedError(
                f"the process that held data directory {root} has ended",
                hint="try again; in Python, velostream.connect(…) opens it",
            )
        return ConnectionFailedError(
            f"process {holder} holds data directory {root} but does not answer",
            hint=f"wait until it has started, or stop it: kill {holder}",
        )


@contextlib.contextmanager
def _closed_by(stop: threading.Event | None, connection: socket.socket) -> Iterator[None]:
    """Let `stop` end a blocking read: when it is set, the socket is shut down."""
    if stop is None:
        yield
        return
    finished = threading.Event()

    def watch() -> None:
        while not finished.is_set():
            if stop.wait(0.1):
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                return

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        finished.set()


def _replies(
    connection: socket.socket, stop: threading.Event | None
) -> Iterator[tuple[dict[str, Any], list[pa.Table]]]:
    while True:
        try:
            received = receive(connection)
        except OSError:
            received = None
        if received is None:
            if stop is not None and stop.is_set():
                return
            raise ConnectionFailedError("the process that holds the data directory ended meanwhile")
        yield received
        if received[0].get("end"):
            return


def _event(reply: Mapping[str, Any], tables: Sequence[pa.Table]) -> AnswerEvent | None:
    kind = reply.get("event")
    if kind == "answer":
        warnings, notes = (tuple(map(str, reply.get(part, ()))) for part in ("warnings", "notes"))
        result = Result(tables[0], reply.get("message"), reply.get("engine") or "", warnings, notes)
        return Answer(result)
    if kind == "awaiting":
        return Awaiting(str(reply["reason"]))
    if kind == "following":
        order = tuple((str(name), bool(desc)) for name, desc in reply["order"])
        return Following(tables[0].schema, tuple(reply["key"]), bool(reply["retracts"]), order)
    if kind == "changes":
        return Changes(tables[0], tables[1] if len(tables) > 1 else None)
    return None


def _raise(reply: Mapping[str, Any], text: str) -> None:
    """Raise the error of a reply, as the class that it had in the other process."""
    described = reply.get("error")
    if described is None:
        return
    error = _class_of(str(described["code"]))(
        str(described["message"]), detail=described.get("detail"), hint=described.get("hint")
    )
    if described.get("start") is not None:
        source = SourceText(str(described.get("text", text)), str(described.get("name", "<sql>")))
        error.location = source.location(int(described["start"]), int(described["end"]))
    raise error


def _class_of(code: str) -> type[VelostreamError]:
    waiting: list[type[VelostreamError]] = [VelostreamError]
    while waiting:
        kind = waiting.pop()
        if kind.__dict__.get("code") == code and kind is not VelostreamError:
            return kind
        waiting += kind.__subclasses__()
    return InternalError


def held(root: Path) -> bool:
    """Whether another process holds the data directory."""
    directory = DataDirectory(root)
    return directory.holder() not in {None, os.getpid()}
