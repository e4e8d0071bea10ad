"""State of joins of streams: rows are kept until the watermark says that no other row can match them.

A table beside the job holds them. Rows that the watermark has passed are forgotten in commits of their own,
which readers of the table skip, so that joined rows made from them are not retracted. The watermark of each
input is recorded in the commits of its table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.event_time.watermark import WATERMARK
from velostream.engine.kept.table import KeptTable
from velostream.engine.outputs.outputs import TableOutput
from velostream.engine.rows.due import forget
from velostream.engine.rows.group_keys import distinct_keys
from velostream.engine.rows.multisets import codes
from velostream.model.changes import FORGETS
from velostream.model.columns import CLOSED, CLOSES, PASSES, TIME, UNTIL

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from velostream.model.changes import Commit
    from velostream.serving.contract.table import Table


class StreamRows(KeptTable):
    """A multiset of rows, each with the watermarks at which it changes, in hidden columns.

    `__closes`: no later row can match it; `__closed` becomes true, and an outer join adds it without a match.
    `__until`: it is forgotten. `__passes` (ASOF): it is forgotten unless it is the last of its key.
    """

    def __init__(self, table: Table, last: tuple[str, ...] = ()) -> None:
        """`last`: the key of ASOF, of which the last row stays: any later row of the other may match it."""
        self._last = last
        super().__init__(table, (CLOSES, UNTIL, PASSES))

    def due(self, at: int | None) -> bool:
        """See `KeptTable`."""
        return any(due.due(at) for due in self._due.values())

    @property
    def furthest(self) -> int | None:
        """The watermark at which the last kept row closes or is forgotten."""
        return max((due.last for due in self._due.values() if due.last is not None), default=None)

    def rows(self, added: pa.Table, removed: pa.Table | None, commit: Commit) -> None:
        """Add and retract rows; retractions of rows that were forgotten change nothing."""
        if removed is not None and removed.num_rows:
            removed = self._not_forgotten(removed, commit)
        super().rows(added, removed, commit)
        self._remember(added)

    def close_due(self, at: int | None) -> None:
        """See `KeptTable`."""
        last = self.table.last_commit
        if CLOSES not in self._due or last is None:
            return
        with self._due[CLOSES].taken(at) as moments:
            rows = self._due[CLOSES].rows(moments)
            if rows.num_rows:
                place = rows.schema.get_field_index(CLOSED)
                marks = pa.array(np.ones(rows.num_rows, bool))
                # As a retraction and an addition, so that the join reads it as a change. No input has moved:
                # the commit repeats the positions of the last one. That one may have been skipped by readers
                # as it only forgot rows, this one must not be.
                closed = rows.set_column(place, rows.schema.field(place), marks)
                TableOutput.rows(self, closed, rows, replace(last, extra=_plain(last.extra)))

    def forget_due(self, at: int | None, settled: int | None) -> None:
        """See `KeptTable`."""
        if UNTIL in self._due:
            with self._due[UNTIL].taken(at) as moments:
                forget(self.table, self._due[UNTIL].rows(moments))
        if PASSES in self._due:
            with self._due[PASSES].taken(at) as moments:
                self._forget_passed(self._due[PASSES].rows(moments), at)

    def _forget_passed(self, passed: pa.Table, at: int | None) -> None:
        """Forget all rows of these keys that the watermark has passed, but the last of each key."""
        if not passed.num_rows:
            return
        keys = distinct_keys(passed.select(self._last))
        rows = self.table.version_object.physical_where(self._last, keys)
        forget(self.table, _earlier(rows.filter(pc.less_equal(rows.column(PASSES), at)), self._last))
        # A key with a null matches no row, and the index by which keys were looked up does not contain it.
        forget(self.table, passed.filter(reduce(pc.or_, [pc.is_null(passed[name]) for name in self._last])))

    def _not_forgotten(self, removed: pa.Table, commit: Commit) -> pa.Table:
        at = commit.extra[WATERMARK]["at"]
        if UNTIL not in removed.schema.names or at is None:
            return removed
        return removed.filter(pc.greater(removed.column(UNTIL), at))

    def _remember(self, rows: pa.Table) -> None:
        for name, due in self._due.items():
            due.remember(rows.filter(pc.invert(rows.column(CLOSED))) if name == CLOSES else rows)


def _earlier(rows: pa.Table, keys: tuple[str, ...]) -> pa.Table:
    """The rows that are earlier than the last of their key; rows of equal last time all stay."""
    latest: dict[Hashable, int] = {}
    own = list(zip(codes(rows, keys), rows.column(TIME).to_pylist(), strict=True))
    for key, at in own:
        latest[key] = max(at, latest.get(key, at))
    return rows.filter(pa.array([at < latest[key] for key, at in own], pa.bool_()))


def _plain(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extra.items() if name != FORGETS}
