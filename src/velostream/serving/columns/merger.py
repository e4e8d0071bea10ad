"""Background merging of large segments: a million rows take a tenth of a second."""

from __future__ import annotations

import logging
from threading import Condition, Thread
from typing import TYPE_CHECKING

from velostream.serving.columns.merging import brought_up_to_date, compact, large_group, merge

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import RLock

    from velostream.serving.columns.segments import Segment, SegmentView, Views

log = logging.getLogger("velostream.serving")

AT_ONCE = 1 << 15
"""Up to this many rows, segments are merged in the commit itself: about 5 ms, indexes included."""
_PATIENCE = 0.05
"""Seconds between checks whether the table is closing, while the writer holds the lock."""


class Merger:
    """Keeps the segments of one table few: small ones merge in the commit, large ones in a thread.

    Upserts of 10,000 rows into a million cost the writer 25 to 40 ms, and 95 to 127 ms if segments merge
    inside. Merging only reads immutable segments, so the writer continues meanwhile; it must not merge the
    same segments itself. Rows deleted meanwhile are removed from the result before it is published.
    """

    def __init__(self, lock: RLock, newest: Callable[[], Views], install: Callable[[Views], None]) -> None:
        self._writer_lock = lock
        self._newest = newest
        self._install = install
        self._group: Views = ()
        """The segments being merged. This and what follows change under the writer's lock only."""
        self._unfit: frozenset[Segment] = frozenset()
        """Segments that failed to merge, and are left as they are."""
        self._state = Condition()
        self._running = False
        self._closing = False

    # --- the writer's side, which holds its lock ----------------------------------------------------

    def at_once(self, views: Views) -> Views:
        """The views with small segments merged."""
        return compact(views, most=AT_ONCE, leave=self._left_alone)

    def after_commit(self) -> None:
        """Start merging in the background where large segments are worth it."""
        with self._state:
            if self._running or self._closing:
                return
            self._group = self._next_group()
            if not self._group:
                return
            self._running = True
        Thread(target=self._merge_all, args=(self._group,), name="table-merge", daemon=True).start()

    def forget(self) -> None:
        """The segments are about to be replaced: do not install the merge in progress."""
        self._group = ()
        self._unfit = frozenset()

    @property
    def _left_alone(self) -> frozenset[Segment]:
        return self._unfit.union(view.segment for view in self._group)

    def _next_group(self) -> Views:
        return large_group(self._newest(), AT_ONCE, self._unfit)

    # --- anybody's side -----------------------------------------------------------------------------

    def settle(self) -> None:
        """Wait until no merge is in progress."""
        with self._state:
            self._state.wait_for(lambda: not self._running)

    def stop(self) -> None:
        """Start no more merges, and wait for the one in progress."""
        self._closing = True
        self.settle()

    # --- the work -----------------------------------------------------------------------------------

    def _merge_all(self, group: Views) -> None:
        while group:
            merged = self._merged(group)
            group = self._installed(group, merged)

    def _merged(self, group: Views) -> SegmentView | None:
        try:
            return merge(group)
        except Exception as exc:
            log.warning("segments stay unmerged: %s", exc, exc_info=True)
            return None

    def _installed(self, group: Views, merged: SegmentView | None) -> Views:
        """Publish the result; returns the segments to merge next."""
        while not self._writer_lock.acquire(timeout=_PATIENCE):
            if self._closing:
                self._stopped()
                return ()
        try:
            if self._group is group:
                if merged is None:
                    self._unfit = self._left_alone
                else:
                    self._install(_replaced(self._newest(), group, merged))
            self._group = () if self._closing else self._next_group()
            if not self._group:
                self._stopped()
            return self._group
        except BaseException:
            self._group = ()
            self._stopped()
            raise
        finally:
            self._writer_lock.release()

    def _stopped(self) -> None:
        with self._state:
            self._running = False
            self._state.notify_all()


def _replaced(views: Views, group: Views, merged: SegmentView) -> Views:
    """The views with the group's segments replaced by the merged one."""
    segments = {view.segment for view in group}
    at = next((place for place, view in enumerate(views) if view.segment in segments), None)
    if at is None:
        return views
    now = brought_up_to_date(merged, group, views)
    newer = tuple(view for view in views[at:] if view.segment not in segments)
    return views[:at] + ((now,) if now.live else ()) + newer
