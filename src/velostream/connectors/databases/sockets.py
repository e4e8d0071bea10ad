"""Waiting for a server's next bytes."""

from __future__ import annotations

import select


def readable(descriptor: int, timeout: float | None) -> bool:
    """Whether a socket has something to read, or has ended, within `timeout` seconds (None: however long).

    Of a descriptor of any number: `select` takes none above 1023.
    """
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN | select.POLLPRI)
    return bool(waiting.poll(None if timeout is None else max(timeout, 0.0) * 1000))
