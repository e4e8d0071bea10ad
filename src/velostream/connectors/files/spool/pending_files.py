"""Files written for a change that may yet be abandoned."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING
from zlib import crc32

from velostream.disk.private import open_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


class WrittenFiles:
    """Files of the spool that belong to an unfinished change."""

    def __init__(self) -> None:
        self._paths: list[Path] = []

    def save(self, path: Path, parts: Iterable[bytes]) -> int:
        """Write a file durably; returns its checksum."""
        self._paths.append(path)
        found = 0
        with open_file(path, "wb") as out:
            for part in parts:
                out.write(part)
                found = crc32(part, found)
            out.flush()
            os.fsync(out.fileno())
        return found

    @contextmanager
    def writing(self, path: Path) -> Iterator[None]:
        """Make the file durable that a library writes inside the block."""
        self._paths.append(path)
        yield
        with path.open("rb") as written:
            os.fsync(written.fileno())

    def abandon(self) -> None:
        """Delete all of them."""
        for path in self._paths:
            path.unlink(missing_ok=True)
