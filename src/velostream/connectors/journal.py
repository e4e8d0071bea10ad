"""A durable list of JSON entries: each is whole or not there."""

from __future__ import annotations

import json
import logging
import os
import secrets
import zlib
from typing import TYPE_CHECKING, Any

from velostream.connectors.sealed import (
    damaged,
    owner_and_token,
    replace_file,
    seal,
    signed,
    sync_folder,
    unseal,
)
from velostream.model.storage import storing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import RawIOBase
    from pathlib import Path

log = logging.getLogger("velostream.connectors")

_OF, _ID, _BEFORE = "journal", "id", "before"


class Journal:
    """Appended entries, one framed line each (checksum, space, JSON).

    The first line says whose the journal is, and how many entries there were before those that follow. A
    note beside it says how many there were when it was last closed: a journal may be longer, never shorter.
    A line that a crash left unfinished at the end is cut off when the journal is opened; any other that is
    damaged is an error, since something was lost that had been promised.

    `required`: the journal was made with the job, so that it must be there.
    """

    def __init__(self, path: Path, of: str = "", *, required: bool = False) -> None:
        self._path = path
        self._note = path.with_name(f"{path.name}.closed")
        self._of = of
        self._required = required
        self._size = 0
        self._total = 0
        """Entries ever written; never goes back."""
        self._noted = 0
        self._token = ""
        """Tells it from the journal of a job of the same name elsewhere."""

    def load(self) -> list[dict[str, Any]]:
        """All entries; the file is ready for `append` afterwards."""
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
        """Note how many entries there are; without the note only a check is lost."""
        if self._total <= self._noted:
            return
        try:
            replace_file(self._note, seal({"entries": self._total}, signed(self._of, self._token)))
            self._noted = self._total
        except OSError as exc:
            log.warning('cannot write "%s": %s', self._note, exc.strerror)

    def _read_note(self) -> tuple[int, str]:
        """How many entries there were, and the journal's token."""
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
        """Where it lies."""
        return self._path


def _write_all(out: RawIOBase, line: bytes) -> None:
    """Without a buffer, which would be written once more when the file is closed after a failure."""
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
    """Whether what follows the last good line was once whole, so that it is no crash that left it so.

    A line is written at once. Of one that was not, the end is missing, or is on the disk before the rest,
    which then reads as zeros.
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
