"""The table of rows that are kept by event time, until the watermark tells that nothing can concern them."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.event_time.watermark import WATERMARK
from velostream.engine.outputs.outputs import TableOutput
from velostream.engine.rows.groups import distinct_keys
from velostream.engine.rows.multisets import codes
from velostream.model.changes import FORGETS
from velostream.model.columns import CLOSED, CLOSES, PASSES, TIME, UNTIL
from velostream.model.moments import DueMoments

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from velostream.model.changes import Commit
    from velostream.serving.table.table import Table


class TimedOutput(TableOutput):
    """A multiset of rows that are forgotten when the watermark has passed `__until`, where they have that."""

    def __init__(self, table: Table, last: tuple[str, ...] = ()) -> None:
        super().__init__(table)
        self._last = last
        """Of rows that the watermark has passed, the last of each key is kept, by these columns."""
        names = [name for name in (CLOSES, UNTIL, PASSES) if name in table.spec.schema.names]
        self._due = {name: DueMoments() for name in names}
        self._remember(table.version_object.physical())

    def due(self, at: int | None) -> bool:
        """Whether a row closes or is forgotten when the watermark is there."""
        firsts = [queue.first for queue in self._due.values() if queue.first is not None]
        return at is not None and bool(firsts) and min(firsts) <= at

    @property
    def furthest(self) -> int | None:
        """When the last of the rows closes, or is forgotten."""
        return max((queue.last for queue in self._due.values() if queue.last is not None), default=None)

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add rows and take rows back. One that has been forgotten stays so."""
        if removed is not None and removed.num_rows:
            removed = self._known(removed, commit)
        super().rows(added, removed, commit)
        self._remember(added)

    def close_due(self, at: int | None) -> None:
        """Mark rows as closed that no other can meet any more."""
        rows = self._stored(CLOSES, at)
        last = self.table.last_commit
        if rows.num_rows and last is not None:
            place = rows.schema.get_field_index(CLOSED)
            closed = rows.set_column(place, rows.schema.field(place), pa.array(np.ones(rows.num_rows, bool)))
            super().rows(closed, rows, replace(last, extra=_plain(last.extra)))

    def forget_due(self, at: int | None) -> None:
        """Forget the rows that the watermark has passed."""
        self.forget(self._stored(UNTIL, at))
        passed = self._stored(PASSES, at)
        if passed.num_rows:
            keys = distinct_keys(passed.select(self._last))
            rows = self.table.version_object.physical_where(self._last, keys)
            self.forget(_earlier(rows.filter(pc.less_equal(rows.column(PASSES), at)), self._last))
            # A key with a null meets nobody, and no index holds it.
            self.forget(passed.filter(reduce(pc.or_, [pc.is_null(passed[name]) for name in self._last])))

    def _stored(self, name: str, at: int | None) -> pa.Table:
        """The stored rows with a moment that is due."""
        moments = self._due[name].take(at) if at is not None and name in self._due else []
        if not moments:
            return self.table.spec.schema.empty_table()
        wanted = pa.table({name: pa.array(moments, pa.int64())})
        return self.table.version_object.physical_where((name,), wanted)

    def forget(self, rows: pa.Table) -> None:
        """Take rows out that nothing can concern any more: readers do not see them go."""
        last = self.table.last_commit
        if rows.num_rows == 0 or last is None:
            return
        weights = pa.array(np.full(rows.num_rows, -1), pa.int64())
        self.table.commit_rows(rows, weights, replace(last, extra={**last.extra, FORGETS: True}))

    def _known(self, removed: pa.Table, commit: Commit) -> pa.Table:
        at = commit.extra[WATERMARK]["at"]
        if UNTIL not in removed.schema.names or at is None:
            return removed
        return removed.filter(pc.greater(removed.column(UNTIL), at))

    def _remember(self, rows: pa.Table) -> None:
        for name, queue in self._due.items():
            waiting = rows.filter(pc.invert(rows.column(CLOSED))) if name == CLOSES else rows
            queue.add(np.unique(waiting.column(name).drop_null().to_numpy()).tolist())


def _earlier(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows that are not of the last time of their key."""
    latest: dict[Hashable, int] = {}
    own = list(zip(codes(rows, keys), rows.column(TIME).to_pylist(), strict=True))
    for key, at in own:
        latest[key] = max(at, latest.get(key, at))
    return rows.filter(pa.array([at < latest[key] for key, at in own], pa.bool_()))


def _plain(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if name != FORGETS}
