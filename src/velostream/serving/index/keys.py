"""Key index: from keys to row ids, for readers of any version while one writer commits.

One dict maps each key to its newest row id and is changed in place, so that a lookup in the newest version is
one dict access, whatever the history. Row ids only increase, so a reader of an older version sees from the id
alone that a row is too new for it. Each version links to the ids that the next version overwrote, and the
reader follows these links for such keys only. When no reader holds an old version, its links are garbage
collected.
"""

from __future__ import annotations

from itertools import count, islice, repeat
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from velostream.serving.columns.segments import Ids, Views
    from velostream.serving.columns.values import KeyCodec
    from velostream.serving.index.made_rows import MadeRows
    from velostream.serving.table.record import Row

_STEP = 5_000
"""Keys handled in one call: one or two milliseconds, in which no other thread can run."""


class Link:
    """Links a version to its successor.

    `overwritten` is set when the successor is made: the rows that it replaced or deleted, from key to old row
    id.
    """

    __slots__ = ("direct", "newest", "next", "overwritten", "ready")

    def __init__(self, ready: MadeRows, *, plain: bool) -> None:
        self.overwritten: Mapping[Hashable, int] | None = None
        self.next: Link | None = None
        self.newest = True
        """False once the successor is being made: rows read before that belong to this version."""
        self.ready = ready
        self.direct: dict[Hashable, Row | None] = ready.by_key if plain else {}
        """Rows by the key as a caller writes it, where that is the canonical key."""


class KeyIndex:
    """The newest row id of each key. Built on first use: a table that only answers SQL never needs it."""

    def __init__(self, codec: KeyCodec, views: Views) -> None:
        self.codec = codec
        self._views: Views | None = views
        self._slots: dict[Hashable, int] = {}
        self._lock = Lock()

    @property
    def slots(self) -> dict[Hashable, int]:
        """Key to newest row id; only the writer may change it."""
        if self._views is not None:
            self._build()
        return self._slots

    @property
    def built(self) -> bool:
        """Whether the index has been built."""
        return self._views is None

    def rearranged(self, views: Views) -> None:
        """The rows are in other segments now: an index that is not built yet is built from these."""
        with self._lock:
            if self._views is not None:
                self._views = views

    def _build(self) -> None:
        with self._lock:
            if self._views is None:
                return
            slots: dict[Hashable, int] = {}
            # In small steps, since no other thread can run during each.
            for view in self._views:
                batch, ids = view.live_batch(), view.live_ids()
                for start in range(0, batch.num_rows, _STEP):
                    keys = self.codec.encode_columns(batch.slice(start, _STEP))
                    slots.update(zip(keys, ids[start : start + _STEP].tolist(), strict=True))
            self._slots = slots
            self._views = None

    def find(self, key: Hashable, limit: int, link: Link) -> int | None:
        """The row id of `key` in the version with ids below `limit` and this link; None without a row."""
        found = (self._slots if self._views is None else self.slots).get(key)
        if found is not None and found < limit:
            return found
        # No lock is needed: the writer sets the link before it changes the dict, and we read the dict before
        # the link. So if we missed the old id in the dict, its link is set.
        step: Link | None = link
        while step is not None and step.overwritten is not None:
            old = step.overwritten.get(key)
            if old is not None:
                return old if old < limit else None
            step = step.next
        return None

    def find_all(self, keys: Sequence[Hashable], limit: int, link: Link) -> Ids:
        """Like `find` for many keys; -1 where there is no row."""
        slots = self.slots
        if not slots and link.overwritten is None:
            return np.full(len(keys), -1, dtype=np.int64)
        found = np.empty(len(keys), dtype=np.int64)
        for start in range(0, len(keys), _STEP):
            step = keys[start : start + _STEP]
            found[start : start + len(step)] = np.fromiter(
                map(slots.get, step, repeat(-1)), np.int64, count=len(step)
            )
        # One dict access per key, as if the version were the newest;
        # only keys that a later version changed follow links.
        if link.overwritten is not None:
            for place in np.flatnonzero((found < 0) | (found >= limit)).tolist():
                old = self.find(keys[place], limit, link)
                found[place] = -1 if old is None else old
        return found

    def advance(
        self,
        link: Link,
        overwritten: Mapping[Hashable, int],
        written: dict[Hashable, int],
        deleted: Iterable[Hashable],
    ) -> Link:
        """Advance by one version; returns its link. `overwritten` must hold every replaced or deleted row."""
        slots = self.slots
        after = Link(link.ready, plain=self.codec.plain)
        deleted = list(deleted)
        # The order matters to readers without locks: first no row that is read counts as the newest any more
        # (`retire`), then the old ids are reachable by the link, and only then the dict changes.
        link.ready.retire(link, overwritten, deleted)
        link.next = after
        link.overwritten = overwritten
        if not slots:
            self._slots = written
            return after
        # In small steps: one update with a large batch would keep all readers out for its whole length.
        if len(written) <= 2 * _STEP:
            slots.update(written)
        else:
            items = iter(written.items())
            while step := dict(islice(items, _STEP)):
                slots.update(step)
        for key in deleted:
            del slots[key]
        return after


def numbered(keys: Sequence[Hashable], first: int) -> dict[Hashable, int]:
    """Each key with its number, counted from `first`; of equal keys the last number."""
    numbers: dict[Hashable, int] = {}
    for start in range(0, len(keys), _STEP):
        numbers.update(zip(keys[start : start + _STEP], count(first + start), strict=False))
    return numbers
