"""Rows that were already made for readers, by key, for the newest version.

Making a row out of columns costs a microsecond or two, finding one in a dict a tenth of it. Rows are kept
here as they are asked for, block by block once a block is asked for often, and dropped when a commit
replaces them. Readers never wait here: one that finds the lock taken does without keeping its row.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping

    from velostream.serving.index.keys import Link
    from velostream.serving.table.record import Row

_STEP = 5_000


class ReadyRows:
    """The made rows of one table. A row is kept only while the version that it came from is the newest."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Row | None] = {}
        """By canonical key. None stands for a row that was replaced: in place, since a dict of millions from
        which keys come and go has to be laid out afresh now and then, while nobody else runs."""
        self._lock = Lock()

    def keep(self, link: Link, key: Hashable, row: Row | None) -> None:
        """Keep one row of the version with this link."""
        if self._lock.acquire(blocking=False):
            try:
                if link.newest:
                    self.by_key[key] = row
            finally:
                self._lock.release()

    def keep_many(self, link: Link, keys: list[Hashable], rows: list[Row | None]) -> None:
        """The same for several, a few thousand at a time, so that nobody else is kept out for long."""
        for start in range(0, len(keys), _STEP):
            if not self._lock.acquire(blocking=False):
                return
            try:
                if not link.newest:
                    return
                stop = start + _STEP
                self.by_key.update(zip(keys[start:stop], rows[start:stop], strict=True))
            finally:
                self._lock.release()

    def give_up(self) -> None:
        """Let go of all rows, to have the memory."""
        with self._lock:
            self.by_key.clear()

    def retire(self, link: Link, changed: Mapping[Hashable, int], deleted: Iterable[Hashable]) -> None:
        """The version with this link is about to be followed by one in which these keys are other rows."""
        with self._lock:
            link.newest = False
            held = self.by_key
            if held:
                for key in changed:
                    if key in held:
                        held[key] = None
                for key in deleted:
                    held.pop(key, None)
