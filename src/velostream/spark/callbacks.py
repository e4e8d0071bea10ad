"""Calls from Java into Python: each keeps a py4j connection with a thread of ours, forever."""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CallFromJava:
    """The connection on which Java called this thread."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway  # noqa: SLF001
        client = gateway._gateway_client if gateway is not None else None  # noqa: SLF001
        self._connection = client.get_thread_connection() if client is not None else None

    def hang_up(self) -> None:
        """Close the connection and end the thread that waits on it; for when Java will not call any more."""
        if self._connection is not None:
            with suppress(OSError, AttributeError):
                self._connection.socket.shutdown(socket.SHUT_RDWR)
