"""Event notifications of a bucket: which objects came, changed or went, as a queue tells it."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import structlog

from velostream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from velostream.connectors.s3.queue import Queue

log = structlog.get_logger("velostream.connectors")

_WAIT_SECONDS = 10
_PAUSE_SECONDS = 5.0


class Events:
    """A thread receives notifications. A listing of everything makes up for what it misses."""

    def __init__(self, queue: Queue, bucket: str) -> None:
        self._queue, self._bucket = queue, bucket
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        self._stop = threading.Event()
        self._news = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, news: threading.Event) -> None:
        """Receive from now on; `news` is set whenever there is something to take."""
        self._news = news
        self._thread = threading.Thread(target=self._run, name="receives events", daemon=True)
        self._thread.start()

    def take(self) -> set[str]:
        """The keys that notifications named since they were last taken."""
        with self._lock:
            found, self._keys = self._keys, set()
        return found

    def close(self) -> None:
        """Receive no more; a request under way ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                messages = self._queue.receive(_WAIT_SECONDS)
                if self._stop.is_set():
                    # Whoever reads on gets them again.
                    return
                keys = {key for body, _ in messages for key in keys_in(body, self._bucket)}
                with self._lock:
                    self._keys |= keys
                if keys:
                    self._news.set()
                # What is lost with this process is found by the listing with which the next one begins.
                self._queue.delete([receipt for _, receipt in messages])
            except SourceError as exc:
                log.warning(
                    "events", queue=self._bucket, code=exc.code, reason=exc.message, then="listing goes on"
                )
                self._stop.wait(_PAUSE_SECONDS)


def keys_in(body: str, bucket: str) -> Iterator[str]:
    """The keys that a message names: from the bucket itself, through a topic (SNS), or from EventBridge."""
    try:
        told = json.loads(body)
    except ValueError:
        return
    if not isinstance(told, dict):
        return
    if told.get("Type") == "Notification" and isinstance(told.get("Message"), str):
        yield from keys_in(told["Message"], bucket)
        return
    for record in told.get("Records") or ():
        key = _key_of(record.get("s3") if isinstance(record, dict) else None, bucket)
        if key is not None:
            yield unquote_plus(key)
    key = _key_of(told.get("detail"), bucket)
    if key is not None:
        yield key


def _key_of(named: Any, bucket: str) -> str | None:
    if not isinstance(named, dict):
        return None
    there, thing = named.get("bucket"), named.get("object")
    if not isinstance(there, dict) or not isinstance(thing, dict) or there.get("name") != bucket:
        return None
    key = thing.get("key")
    return key if isinstance(key, str) else None
