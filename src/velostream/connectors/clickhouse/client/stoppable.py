"""Connections of HTTP that can be ended while a thread waits for an answer."""

from __future__ import annotations

import socket
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
        self._open.add(made)
        if self._ended:
            self.end()

    def end(self) -> None:
        """End all, and those that are made later: whoever waits for an answer gets an error."""
        self._ended = True
        for each in list(self._open):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
