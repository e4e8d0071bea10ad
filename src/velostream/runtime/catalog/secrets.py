"""Secrets written out in statements, stored in a file of their own; statements refer to them.

A job must resume with the password in its statement. The catalogue, its copies and the tables' own
descriptions hold the statement with a reference in place of each secret; `secrets.json` holds the values. So
a catalogue can be shown, copied or repaired without revealing a secret.
"""

from __future__ import annotations

import re
import secrets
from threading import Lock
from typing import TYPE_CHECKING

from velostream.disk.record import Record
from velostream.errors import CorruptDataError, DataDirError
from velostream.secrets import with_secrets

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_REFERENCE = re.compile(r"\$\{kept-secret:([0-9a-f]{16})\}")


class KeptSecrets:
    """The secrets of a data directory. Thread safe."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self._path = root / "secrets.json"
        self._record = Record(self._path, "secrets")
        self._read_only = read_only
        self._values: dict[str, str] | None = None
        self._lock = Lock()

    def hide(self, text: str) -> str:
        """The statement with a reference in place of each secret; the secrets are made durable."""
        with self._lock:
            values = self._loaded()
            names = {value: name for name, value in values.items()}

            def reference(value: str) -> str:
                name = names.setdefault(value, secrets.token_hex(8))
                return f"${{kept-secret:{name}}}"

            hidden = with_secrets(text, reference)
            if len(names) > len(values):
                self._save({name: value for value, name in names.items()})
            return hidden

    def show(self, text: str) -> str:
        """The statement with its secrets restored; CorruptDataError where the file lacks one of them."""
        if _REFERENCE.search(text) is None:
            return text
        with self._lock:
            values = self._loaded()

        def value(match: re.Match[str]) -> str:
            if match[1] not in values:
                raise CorruptDataError(
                    f'file "{self._path}" lacks a secret that a statement of the catalogue refers to',
                    hint="put the file back from a copy of the data directory",
                )
            return values[match[1]]

        return _REFERENCE.sub(value, text)

    def forget_others(self, texts: Iterable[str]) -> None:
        """Delete all secrets except those of these statements, given in the form that `hide` returns."""
        used = {name for text in texts for name in _REFERENCE.findall(text)}
        with self._lock:
            values = self._loaded()
            if not values.keys() <= used:
                self._save({name: value for name, value in values.items() if name in used})

    def _loaded(self) -> dict[str, str]:
        if self._values is None:
            self._values = dict((self._record.load() or {}).get("values", {}))
        return self._values

    def _save(self, values: dict[str, str]) -> None:
        if self._read_only:
            raise DataDirError(f"{self._path.parent} is open for reading only")
        self._record.save({"values": values})
        self._values = values
