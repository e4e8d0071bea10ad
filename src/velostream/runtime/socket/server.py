"""Server of the socket in the data directory, through which other processes use the one that holds it.

One request per connection: a frame, and frames back until one says `end`. A frame is the length of a JSON
header (4 bytes, big endian), the header, and the Arrow IPC streams whose sizes the header's `tables` lists.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from velostream.disk.private import open_file
from velostream.errors import ConnectionFailedError, InternalError, VelostreamError
from velostream.runtime.statements.events import Answer, AnswerEvent, Changes, Following, answers
from velostream.serving.columns.values import to_python
from velostream.spark.failures import translate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from velostream.runtime.database import Database
    from velostream.runtime.statements.dml import Params

log = structlog.get_logger("velostream.control")

PROTOCOL = 2
LONGEST_PATH = 100
"""Unix sockets take 107 bytes of path on Linux and 103 on macOS."""

_LENGTH = struct.Struct(">I")
_MOST_HEADER = 64 << 20


def socket_path(root: Path) -> Path | None:
    """The path of the socket of a data directory's holder; None when it is not listening yet."""
    pointer = root / "socket.path"
    try:
        return Path(pointer.read_text(encoding="utf-8").strip())
    except OSError:
        path = root / "socket"
        return path if path.exists() else None


# --- frames -----------------------------------------------------------------------------------------


def send(connection: socket.socket, header: Mapping[str, Any], *tables: pa.Table) -> None:
    """Write one frame."""
    parts = [_ipc(table) for table in tables]
    body = json.dumps({**header, "tables": [len(part) for part in parts]}).encode()
    connection.sendall(b"".join([_LENGTH.pack(len(body)), body, *parts]))


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[pa.Table]] | None:
    """Read one frame; None when the other side has closed."""
    start = _exactly(connection, _LENGTH.size)
    if start is None:
        return None
    (length,) = _LENGTH.unpack(start)
    if length > _MOST_HEADER:
        raise ConnectionFailedError("what answers on the socket does not speak our protocol")
    body = _exactly(connection, length)
    if body is None:
        return None
    header: dict[str, Any] = json.loads(body)
    tables = []
    for size in header.get("tables", ()):
        content = _exactly(connection, size)
        if content is None:
            return None
        tables.append(pa.ipc.open_stream(content).read_all())
    return header, tables


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


# --- the server -------------------------------------------------------------------------------------


class ControlServer:
    """Listens while the database is open; one thread per connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._root = database.directory.root
        self._private: Path | None = None
        self._listener = self._listen()
        self._closing = threading.Event()
        self._stops: set[threading.Event] = set()
        threading.Thread(target=self._accept, name="control", daemon=True).start()

    def _listen(self) -> socket.socket:
        """Bind the socket. We hold the lock, so an existing socket file belongs to a dead process."""
        pointer = self._root / "socket.path"
        pointer.unlink(missing_ok=True)
        path = self._root / "socket"
        if len(os.fsencode(path)) > LONGEST_PATH:
            self._private = Path(tempfile.mkdtemp(prefix="velostream-", dir=_runtime_folder()))
            path = self._private / "socket"
        path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        # The folder is private already, so there is no moment in which another user could connect.
        path.chmod(0o600)
        listener.listen(32)
        self._path = path
        if self._private is not None:
            with open_file(pointer, "w", encoding="utf-8") as file:
                file.write(str(path))
        return listener

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), name="control", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            try:
                received = receive(connection)
                if received is not None:
                    self._answer(connection, *received)
            except (OSError, ValueError, VelostreamError, pa.ArrowInvalid):
                # The client has left or sent garbage; there is nobody to report it to.
                log.debug("connection lost")

    def _answer(self, connection: socket.socket, request: dict[str, Any], tables: list[pa.Table]) -> None:
        text = str(request.get("text", ""))
        try:
            if request.get("protocol") != PROTOCOL:
                raise ConnectionFailedError(
                    "the process that holds the data directory speaks another protocol",
                    hint="use the same version of velostream on both sides",
                )
            if request.get("op") == "relations":
                send(connection, {"end": True, "relations": relations(self._database)})
                return
            if request.get("op") == "verify":
                reports = [report.as_dict() for report in self._database.verify()]
                send(connection, {"end": True, "reports": reports})
                return
            self._execute(connection, request, text, tables)
        except OSError:
            raise
        except Exception as exc:
            error = translate(exc)
            if isinstance(error, InternalError):
                log.exception("request failed", reason=error.message)
            send(connection, {"end": True, "error": described(error, text)})
        else:
            send(connection, {"end": True})

    def _execute(
        self, connection: socket.socket, request: dict[str, Any], text: str, tables: list[pa.Table]
    ) -> None:
        stop = threading.Event()
        self._stops.add(stop)
        done, left = socket.socketpair()
        watcher = threading.Thread(target=_until_left, args=(connection, done, stop), daemon=True)
        watcher.start()
        try:
            params = _params(request, tables)
            follow = bool(request.get("follow"))
            events = answers(self._database, text, params, follow=follow, stop=stop)
            with contextlib.closing(events):
                for event in events:
                    _send_event(connection, event)
                    if stop.is_set():
                        break
        finally:
            self._stops.discard(stop)
            left.close()
            watcher.join()
            done.close()

    def close(self) -> None:
        """Stop listening, end followed SELECTs, remove the socket."""
        self._closing.set()
        for stop in list(self._stops):
            stop.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        (self._root / "socket.path").unlink(missing_ok=True)
        if self._private is not None:
            with contextlib.suppress(OSError):
                self._private.rmdir()


def listen(database: Database) -> ControlServer | None:
    """Serve the database to other processes; logs and returns None where sockets cannot be created."""
    try:
        return ControlServer(database)
    except OSError as exc:
        log.warning("no socket: other processes cannot ask this one", reason=str(exc))
        return None


def _until_left(connection: socket.socket, done: socket.socket, stop: threading.Event) -> None:
    """Set `stop` when the client closes its end, unless the request is answered first."""
    with contextlib.suppress(OSError, ValueError):
        readable, _, _ = select.select([connection, done], [], [])
        if connection in readable:
            stop.set()


def _runtime_folder() -> str | None:
    given = os.environ.get("XDG_RUNTIME_DIR")
    return given if given and len(given) < LONGEST_PATH // 2 and Path(given).is_dir() else None


def _params(request: Mapping[str, Any], tables: list[pa.Table]) -> Params:
    """The bound parameters: they travel as the one row of a table, so that each keeps its type."""
    kind = request.get("params")
    if kind is None:
        return None
    values = [to_python(column)[0] for column in tables[0].columns]
    return dict(zip(tables[0].schema.names, values, strict=True)) if kind == "named" else tuple(values)


def _send_event(connection: socket.socket, event: AnswerEvent) -> None:
    if isinstance(event, Answer):
        result = event.result
        said = {"message": result.message, "engine": result.engine, "warnings": result.warnings}
        send(connection, {"event": "answer", **said}, result.table)
    elif isinstance(event, Following):
        told = {"key": event.key, "retracts": event.retracts, "order": event.order}
        send(connection, {"event": "following", **told}, event.schema.empty_table())
    elif isinstance(event, Changes):
        removed = [event.removed] if event.removed is not None else []
        send(connection, {"event": "changes"}, event.added, *removed)


def relations(database: Database) -> dict[str, list[str]]:
    """Every name that can be used in FROM, with its known columns."""
    found: dict[str, list[str]] = {name: [] for name in database.store.names()}
    for name in database.catalog.names():
        relation = database.catalog.lookup(name)
        found[name] = list(relation.column_names or ()) if relation is not None else []
    return found


def described(error: VelostreamError, text: str) -> dict[str, Any]:
    """The error as it is sent: with the text that it points into, where that is not `text`."""
    told = dict(error.as_dict())
    place = error.location
    if place is not None:
        told |= {"start": place.start, "end": place.end, "name": place.source.name}
        if place.source.text != text:
            told["text"] = place.source.shown
    return told
