"""A durable list of JSON entries: each is whole or not there."""

from __future__ import annotations

import json
import os
import zlib
from typing import TYPE_CHECKING, Any

from velostream.errors import CorruptDataError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class Journal:
    """Appended entries, one framed line each (checksum, space, JSON).

    A line that a crash left unfinished at the end is cut off when the journal is opened; a damaged line
    with good ones after it is an error, since something was lost that had been promised.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0

    def load(self) -> list[dict[str, Any]]:
        """All entries; the file is ready for `append` afterwards."""
        if not self._path.exists():
            self.rewrite([])
            return []
        data = self._path.read_bytes()
        entries, self._size = _whole(data)
        rest = data[self._size :]
        if b"\n" in rest[:-1]:
            raise CorruptDataError(f"{self._path} is damaged at byte {self._size}")
        if rest:
            os.truncate(self._path, self._size)
        return entries

    def append(self, entry: dict[str, Any]) -> None:
        """Make one entry durable; when it raises, nothing was added."""
        line = _frame(entry)
        with self._path.open("r+b") as out:
            try:
                out.seek(self._size)
                out.write(line)
                out.flush()
                os.fsync(out.fileno())
            except OSError:
                out.truncate(self._size)
                raise
        self._size += len(line)

    def rewrite(self, entries: Iterable[dict[str, Any]]) -> None:
        """Replace all entries, atomically."""
        partial = self._path.with_name(self._path.name + ".partial")
        try:
            with partial.open("wb") as out:
                for entry in entries:
                    out.write(_frame(entry))
                out.flush()
                os.fsync(out.fileno())
                size = out.tell()
            partial.replace(self._path)
        except OSError:
            # On a full disk it would be in the way of what is appended.
            partial.unlink(missing_ok=True)
            raise
        self._size = size
        sync_folder(self._path.parent)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self._size


def sync_folder(folder: Path) -> None:
    """Make names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _frame(entry: dict[str, Any]) -> bytes:
    body = json.dumps(entry, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _whole(data: bytes) -> tuple[list[dict[str, Any]], int]:
    entries: list[dict[str, Any]] = []
    position = 0
    for line in _lines(data):
        checksum, _, body = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(body):
            break
        entries.append(json.loads(body))
        position += len(line) + 1
    return entries, position


def _lines(data: bytes) -> Iterator[bytes]:
    position = 0
    while (end := data.find(b"\n", position)) >= 0:
        yield data[position:end]
        position = end + 1
