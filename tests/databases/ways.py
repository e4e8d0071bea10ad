"""A way to a server, which holds back what a test wants it to."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMITS = (b"Q\x00\x00\x00\x0bCOMMIT\x00", b"\x07\x00\x00\x00\x03COMMIT")
"""As the protocols of PostgreSQL and of MySQL have it."""
_FOLLOWS = (b"replication\x00database", b"@master_heartbeat_period")
_DRIP = 1 << 17


class Way:
    """Hands on what comes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.holds_commits = threading.Event()
        """A connection is cut at its COMMIT, which the server gets later."""
        self.delivered = threading.Event()
        """To be set when the server is to have the COMMIT."""
        self.silent = threading.Event()
        """What the server says to those who follow its changes is lost; their connections stay open."""
        self.slow = threading.Event()
        """What the server says to those who follow its changes comes slowly: 1.3 MB in a second."""
        self.most_bytes: int | None = None
        """What the server says on one connection after this many bytes is lost."""
        self._followers: set[socket.socket] = set()
        self._closed = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                threading.Thread(target=self._hand_on, args=(client, server), daemon=True).start()
                threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    def _hand_on(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError), client, server:
            while data := client.recv(1 << 16):
                if any(words in data for words in _FOLLOWS):
                    self._followers.add(server)
                if self.holds_commits.is_set() and data in COMMITS:
                    client.shutdown(socket.SHUT_RDWR)
                    self.delivered.wait(60)
                    server.sendall(data)
                    # Whoever closes before reading the answer resets the connection, and the COMMIT with it.
                    server.shutdown(socket.SHUT_WR)
                    while server.recv(1 << 16):
                        pass
                    return
                server.sendall(data)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        mute, said = False, 0
        with suppress(OSError):
            while data := server.recv(_DRIP):
                said += len(data)
                mute = mute or (self.silent.is_set() and server in self._followers)
                mute = mute or (self.most_bytes is not None and said > self.most_bytes)
                if self.slow.is_set() and server in self._followers:
                    self._closed.wait(0.1)
                if not mute:
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._closed.set()
        self.delivered.set()
        self._listening.close()


@contextmanager
def way_to(port: int) -> Iterator[Way]:
    made = Way(port)
    try:
        yield made
    finally:
        made.close()
