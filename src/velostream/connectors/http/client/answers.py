"""Answers of servers: read whole, within bounds, and unpacked."""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator
    from email.message import Message

_PIECE = 64 * 1024
_PACKED = {"gzip", "x-gzip", "deflate"}
_MOST_WAITED = 3600.0
"""Seconds. A server that asks for more is asked again after an hour."""


class DamagedError(Exception):
    """An answer that is cut off, too large, or cannot be unpacked; the message says which."""


class Readable(Protocol):
    """What an answer is read from."""

    length: int | None

    def read1(self, n: int = -1, /) -> bytes:
        """Some of the content; nothing at its end."""


@dataclass(frozen=True)
class Answer:
    """An answer."""

    url: str
    """The address that answered, after redirects."""
    status: int
    headers: Message
    content: bytes = b""

    @property
    def kind(self) -> str:
        """The media type of the content, without parameters."""
        return self.headers.get("Content-Type", "").partition(";")[0].strip().lower()

    @property
    def ok(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.status < 300

    def pause(self, now: datetime) -> float | None:
        """The seconds that the server asks to wait before the next request (Retry-After)."""
        text = self.headers.get("Retry-After", "").strip()
        if not text:
            return None
        try:
            seconds = float(text)
        except ValueError:
            try:
                moment = parsedate_to_datetime(text)
            except ValueError:
                return None
            moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
            seconds = (moment - now).total_seconds()
        return min(max(seconds, 0.0), _MOST_WAITED) if math.isfinite(seconds) else None


class Deadline:
    """A moment after which nothing is waited for."""

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds

    def left(self) -> float:
        """Seconds that are left; TimeoutError when there are none."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise TimeoutError
        return left


def pieces(stream: Readable, headers: Message, limit: int) -> Iterator[bytes]:
    """The content, unpacked, piece by piece; DamagedError where it ends too soon or has no end."""
    encoding = headers.get("Content-Encoding", "").strip().lower()
    if encoding in ("", "identity"):
        yield from _within(_raw(stream), limit)
    elif encoding in _PACKED:
        yield from _within(_unpacked(_within(_raw(stream), limit)), limit)
    else:
        raise DamagedError(f'it is packed as "{encoding}", which was not asked for')


def _within(parts: Iterator[bytes], limit: int) -> Iterator[bytes]:
    total = 0
    for part in parts:
        total += len(part)
        if total > limit:
            raise DamagedError(f'it has more than {limit:,} bytes ("response.limit")')
        yield part


def _raw(stream: Readable) -> Iterator[bytes]:
    while part := stream.read1(_PIECE):
        yield part
    if stream.length:
        raise DamagedError(f"it ended {stream.length:,} bytes too soon")


def _unpacked(parts: Iterator[bytes]) -> Iterator[bytes]:
    unpacker, started = zlib.decompressobj(47), False
    for part in parts:
        started = True
        while part:
            if unpacker.eof:
                # Several files in a row are one content.
                unpacker = zlib.decompressobj(47)
            try:
                # A little may unpack to very much: never more at once than is counted.
                yield unpacker.decompress(part, _PIECE)
            except zlib.error as exc:
                raise DamagedError(f"it is not packed as it says: {exc}") from exc
            part = unpacker.unconsumed_tail or unpacker.unused_data
    if started and not unpacker.eof:
        raise DamagedError("its packed content ended too soon")


FAILURES = (OSError, HTTPException, ValueError)
"""What reading from a server may raise, besides DamagedError."""
