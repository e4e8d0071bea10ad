"""Journal: a durable list of JSON entries, each of which is complete or absent."""

from __future__ import annotations

import json
import logging
import os
import secrets
import zlib
from typing import TYPE_CHECKING, Any

from velostream.disk.full_disk import storing
from velostream.disk.sealed_json import (
    damaged,
    owner_and_token,
    replace_file,
    seal,
    signed,
    sync_folder,
    unseal,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import RawIOBase
    from pathlib import Path

log = logging.getLogger("velostream.connectors")

_OF, _ID, _BEFORE = "journal", "id", "before"


class Journal:
    """Appended entries, one framed line each (checksum, space, JSON).

    The first line names the owner of the journal, and how many entries preceded those that follow. A note
    beside it records how many entries there were at the last close: a journal may be longer, never shorter.
    An incomplete last line, as a crash leaves it, is cut off on opening; any other damaged line is an error,
    since an entry was lost that had been promised.

    `required`: the journal was created with the job, so it must exist.
    """

    def __init__(self, path: Path, of: str = "", *, required: bool = False) -> None:
        self._path = path
        self._note = path.with_name(f"{path.name}.closed")
        self._of = of
        self._required = required
        self._size = 0
        self._total = 0
        """The number of entries ever written; never decreases."""
        self._noted = 0
        self._token = ""
        """Distinguishes it from the journal of a job of the same name in another data directory."""

    def load(self) -> list[dict[str, Any]]:
        """All entries; afterwards the file is ready for `append`."""
        self._noted, noted_of = self._read_note()
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            if self._required or self._noted:
                raise damaged(self._path, "is missing") from None
            self.rewrite([])
            return []
        entries, size = _whole(data)
        before = 0
        if entries and _OF in entries[0]:
            first, *entries = entries
            before, self._token = first[_BEFORE], first.get(_ID, "")
            if first[_OF] != self._of:
                raise damaged(self._path, f"belongs to {first[_OF]}")
        if noted_of and self._token and noted_of != self._token:
            raise damaged(self._path, f'and "{self._note}" do not belong together', "one is from elsewhere")
        rest = data[size:]
        if _promised(rest):
            raise damaged(self._path, f"is damaged at byte {size}")
        self._size, self._total = size, before + len(entries)
        if self._total < self._noted:
            raise damaged(
                self._path,
                "is cut off, or older than it was",
                f"it has {self._total} entries, and had {self._noted} when it was closed",
            )
        if rest:
            with storing(self._path):
                os.truncate(self._path, self._size)
        return entries

    def append(self, entry: dict[str, Any]) -> None:
        """Make one entry durable; when it raises, nothing was added."""
        line = _frame(entry)
        with storing(self._path), self._path.open("r+b", buffering=0) as out:
            try:
                out.seek(self._size)
                _write_all(out, line)
                os.fsync(out.fileno())
            except OSError:
                out.truncate(self._size)
                raise
        self._size += len(line)
        self._total += 1

    def rewrite(self, entries: Iterable[dict[str, Any]]) -> None:
        """Replace all entries, atomically."""
        kept = list(entries)
        total = self._total + 1
        before = max(total - len(kept), 0)
        self._token = self._token or secrets.token_hex(8)
        head = {_OF: self._of, _ID: self._token, _BEFORE: before}
        text = b"".join(map(_frame, [head, *kept]))
        with storing(self._path):
            replace_file(self._path, text, named=False)
            self._size, self._total = len(text), before + len(kept)
            sync_folder(self._path.parent)

    def close(self) -> None:
        """Record the number of entries; without the note only a consistency check is lost."""
        if self._total <= self._noted:
            return
        try:
            replace_file(self._note, seal({"entries": self._total}, signed(self._of, self._token)))
            self._noted = self._total
        except OSError as exc:
            log.warning('cannot write "%s": %s', self._note, exc.strerror)

    def _read_note(self) -> tuple[int, str]:
        """The recorded number of entries, and the journal's token."""
        try:
            content = unseal(self._note.read_bytes())
            owner, token = owner_and_token(content.of or "")
            if not content.checked or owner != self._of:
                raise ValueError("it is not of this journal")
            return int(content.value["entries"]), token
        except FileNotFoundError:
            return 0, ""
        except (OSError, ValueError, KeyError) as exc:
            log.warning('file "%s" is damaged and is not needed: %s', self._note, exc)
            return 0, ""

    @property
    def path(self) -> Path:
        """The path of the journal."""
        return self._path


def _write_all(out: RawIOBase, line: bytes) -> None:
    """Write without a buffer, which would be written once more when the file is closed after a failure."""
    view = memoryview(line)
    while view:
        view = view[out.write(view) or 0 :]


def entries_of(path: Path) -> list[dict[str, Any]]:
    """The entries of a journal that is only read; CorruptDataError when one is damaged."""
    data = path.read_bytes()
    entries, size = _whole(data)
    if _promised(data[size:]):
        raise damaged(path, f"is damaged at byte {size}")
    return [entry for entry in entries if _OF not in entry]


def _promised(rest: bytes) -> bool:
    """Whether the damaged rest after the last good line was once complete, so that no crash explains it.

    A line is written in one call. Of a line that a crash interrupted, the end is missing, or reached the disk
    before the rest, which then reads as zeros.
    """
    return b"\n" in rest[:-1] or (rest.endswith(b"\n") and b"\0" not in rest)


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
