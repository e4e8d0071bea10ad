"""A small durable value of a job, stored in two files so that each can repair the other."""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from velostream.disk.full_disk import storing
from velostream.disk.journal import entries_of
from velostream.disk.sealed_json import (
    Sealed,
    damaged,
    owner_and_token,
    replace_file,
    seal,
    signed,
    unseal,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

log = logging.getLogger("velostream.connectors")


class Record:
    """A value that is replaced atomically and durably, with a copy beside it.

    `of` is its owner: a file of another job, or an older version, is not accepted. A token in both files
    distinguishes them from those of a job of the same name in another data directory. `required`: it was
    written when the job was created, so it must exist. `before` is where an earlier version stored it.
    """

    def __init__(self, path: Path, of: str, *, required: bool = False, before: Path | None = None) -> None:
        self._path = path
        self._copy = path.with_name(f"{path.stem}.copy{path.suffix}")
        self._of = of
        self._required = required
        self._before = before
        self._number = 0
        self._token = ""

    def load(self) -> dict[str, Any] | None:
        """The value; None where none was saved yet. CorruptDataError when neither file is valid."""
        found = {path: self._read(path) for path in (self._path, self._copy)}
        good = [content for content in found.values() if isinstance(content, Sealed)]
        if not good:
            return self._without(found)
        newest = max(good, key=lambda content: (content.checked, content.number))
        tokens = {owner_and_token(content.of)[1] for content in good if content.of is not None} - {""}
        if len(tokens) > 1:
            raise damaged(self._path, f'and "{self._copy}" do not belong together', "one is from elsewhere")
        self._number, self._token = newest.number, "".join(tokens)
        if not newest.checked:
            self.save(newest.value)
            return newest.value
        for path, content in found.items():
            if content != newest:
                self._put_right(path, content if isinstance(content, str) else "was older", newest)
        return newest.value

    def _put_right(self, path: Path, why: str, newest: Sealed) -> None:
        """Repair the second file. It is only a backup, so a refusal of the disk is logged and not raised."""
        try:
            replace_file(path, seal(newest.value, newest.of, newest.number))
        except OSError as exc:
            log.warning('file "%s" %s, and cannot be written again: %s', path, why, exc.strerror)
        else:
            log.warning('file "%s" %s; it was written again from the other of the two', path, why)

    def _without(self, found: Mapping[Path, Sealed | str]) -> dict[str, Any] | None:
        if self._before is not None and self._before.exists():
            entries = entries_of(self._before)
            if entries:
                self.save(entries[-1])
            return entries[-1] if entries else None
        there = [(path, why) for path, why in found.items() if path.exists()]
        if there:
            path, why = there[0]
            raise damaged(path, str(why))
        if self._required:
            raise damaged(self._path, "is missing")
        return None

    def save(self, value: Mapping[str, Any]) -> None:
        """Replace the value; a crash leaves the old or the new one."""
        self._token = self._token or secrets.token_hex(8)
        text = seal(dict(value), signed(self._of, self._token), self._number + 1)
        with storing(self._path):
            replace_file(self._path, text)
            self._number += 1
            replace_file(self._copy, text)
            if self._before is not None:
                self._before.unlink(missing_ok=True)

    def _read(self, path: Path) -> Sealed | str:
        """The content of a file, or why it is not valid."""
        try:
            content = unseal(path.read_bytes())
        except FileNotFoundError:
            return "was missing"
        except (OSError, ValueError) as exc:
            return f"is damaged: {exc}"
        if content.of is not None and owner_and_token(content.of)[0] != self._of:
            return f"belongs to {owner_and_token(content.of)[0]}"
        if content.of is None and "of" in content.value:
            return "is damaged: it has no checksum"
        return content
