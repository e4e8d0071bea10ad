"""A way to a server, which holds back what a test wants it to."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMIT = b"Q\x00\x00\x00\x0bCOMMIT\x00"
"""As PostgreSQL's protocol has it."""


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
        self._followers: set[socket.socket] = set()
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
                if b"replication\x00database" in data:
                    self._followers.add(server)
                if self.holds_commits.is_set() and data == COMMIT:
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
        mute = False
        with suppress(OSError):
            while data := server.recv(1 << 16):
                mute = mute or (self.silent.is_set() and server in self._followers)
                if not mute:
                    client.sendall(data)
            client.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.delivered.set()
        self._listening.close()


@contextmanager
def way_to(port: int) -> Iterator[Way]:
    made = Way(port)
    try:
        yield made
    finally:
        made.close()
