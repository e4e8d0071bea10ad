"""Connections of HTTP that can be ended while a thread waits for an answer."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection

if TYPE_CHECKING:
    from urllib3 import PoolManager


class Sockets:
    """Those of one client."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: WeakSet[Any] = WeakSet()
        self._ended = False

    def watch(self, pools: PoolManager) -> None:
        """Know the connections that are made from now on."""
        watching = self

        class Plain(HTTPConnection):
            def connect(self) -> None:
                watching.begin()
                super().connect()
                watching.opened(self.sock)

        class Encrypted(HTTPSConnection):
            def connect(self) -> None:
                watching.begin()
                super().connect()
                watching.opened(self.sock)

        class PlainPool(HTTPConnectionPool):
            ConnectionCls = Plain

        class EncryptedPool(HTTPSConnectionPool):
            ConnectionCls = Encrypted

        pools.pool_classes_by_scheme = {"http": PlainPool, "https": EncryptedPool}
        pools.clear()

    def begin(self) -> None:
        """Raise where no connection is wanted any more."""
        if self._ended:
            raise OSError("reading was stopped")

    def opened(self, made: Any) -> None:
        """A connection is there."""
        with self._lock:
            self._open.add(made)
            ended = self._ended
        if ended:
            self.end()

    def end(self) -> None:
        """End all, and those that are made later: whoever waits for an answer gets an error."""
        with self._lock:
            self._ended = True
            found = list(self._open)
        for each in found:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
