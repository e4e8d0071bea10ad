"""Server of the socket in the data directory, through which other processes use the one that holds it."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import structlog

from velostream.disk.private import open_file
from velostream.errors import ConnectionFailedError, InternalError, VelostreamError
from velostream.runtime.socket.operations import OPERATIONS
from velostream.runtime.socket.protocol import PROTOCOL, Request, receive, send
from velostream.spark.failures import translate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.runtime.instance import Instance

log = structlog.get_logger("velostream.control")

LONGEST_PATH = 100
"""Unix sockets take 107 bytes of path on Linux and 103 on macOS."""


def socket_path(root: Path) -> Path | None:
    """The path of the socket of a data directory's holder; None when it is not listening yet."""
    pointer = root / "socket.path"
    try:
        return Path(pointer.read_text(encoding="utf-8").strip())
    except OSError:
        path = root / "socket"
        return path if path.exists() else None


class ControlServer:
    """Listens while the database is open; one thread per connection."""

    def __init__(self, database: Instance) -> None:
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

    def _answer(self, connection: socket.socket, header: dict[str, Any], tables: list[pa.Table]) -> None:
        stop = threading.Event()
        try:
            operation = OPERATIONS.get(str(header.get("op")))
            if header.get("protocol") != PROTOCOL or operation is None:
                raise ConnectionFailedError(
                    "the process that holds the data directory speaks another protocol",
                    hint="use the same version of velostream on both sides",
                )
            frames = operation(self._database, Request(header, tables, stop))
            with self._until_left(connection, stop), contextlib.closing(frames):
                for told, parts in frames:
                    send(connection, told, *parts)
                    if stop.is_set():
                        break
        except OSError:
            raise
        except Exception as exc:
            error = translate(exc)
            if isinstance(error, InternalError):
                log.exception("request failed", reason=error.message)
            send(connection, {"end": True, "error": described(error, str(header.get("text", "")))})
        else:
            send(connection, {"end": True})

    @contextlib.contextmanager
    def _until_left(self, connection: socket.socket, stop: threading.Event) -> Iterator[None]:
        """Set `stop` when the client leaves or the server ends, until the request is answered."""
        self._stops.add(stop)
        done, left = socket.socketpair()
        watcher = threading.Thread(target=_watch, args=(connection, done, stop), daemon=True)
        watcher.start()
        try:
            yield
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


def listen(database: Instance) -> ControlServer | None:
    """Serve the database to other processes; logs and returns None where sockets cannot be created."""
    try:
        return ControlServer(database)
    except OSError as exc:
        log.warning("no socket: other processes cannot ask this one", reason=str(exc))
        return None


def _watch(connection: socket.socket, done: socket.socket, stop: threading.Event) -> None:
    """Set `stop` when the client closes its end, unless the request is answered first."""
    with contextlib.suppress(OSError, ValueError):
        readable, _, _ = select.select([connection, done], [], [])
        if connection in readable:
            stop.set()


def _runtime_folder() -> str | None:
    given = os.environ.get("XDG_RUNTIME_DIR")
    return given if given and len(given) < LONGEST_PATH // 2 and Path(given).is_dir() else None


def described(error: VelostreamError, text: str) -> dict[str, Any]:
    """The error as it is sent: with the text that it points into, where that is not `text`."""
    told = dict(error.as_dict())
    place = error.location
    if place is not None:
        told |= {"start": place.start, "end": place.end, "name": place.source.name}
        if place.source.text != text:
            told["text"] = place.source.shown
    return told
