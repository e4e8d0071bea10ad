"""Timers of the rows of a table: when they appear, close, are retracted or forgotten.

A column of each row holds its due time. The distinct times are kept in order; when one has passed, its rows
are found by an index of that column, without a scan. Times whose rows could not be committed are due again.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.model.changes import FORGETS
from velostream.model.moments import DueMoments

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from velostream.model.changes import Commit
    from velostream.serving.contract.table import Table


class DueRows:
    """The rows of one table by the due time in one column, which is a timestamp or whole microseconds."""

    def __init__(self, table: Table, column: str, *, later: int = 0) -> None:
        """A row is due `later` microseconds after the time in its column."""
        self._table = table
        self._column = column
        self._later = later
        self._moments = DueMoments()

    @property
    def first(self) -> int | None:
        """The earliest due time; None when no row is due at any time."""
        return self._moments.first

    @property
    def last(self) -> int | None:
        """The latest due time; None when no row is due at any time."""
        return self._moments.last

    def due(self, at: int | None) -> bool:
        """Whether a row is due at a time."""
        return at is not None and self.first is not None and self.first <= at

    def remember(self, rows: pa.Table, *, after: int | None = None) -> None:
        """Schedule these rows, but those due up to `after`, which were processed already."""
        times = rows.column(self._column)
        if pa.types.is_timestamp(times.type):
            times = times.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        moments = np.unique(times.drop_null().to_numpy()) + self._later
        self.add((moments if after is None else moments[moments > after]).tolist())

    def add(self, moments: Sequence[int]) -> None:
        """Schedule these times."""
        self._moments.add(moments)

    def clear(self) -> None:
        """Drop all scheduled times."""
        self._moments = DueMoments()

    @contextmanager
    def taken(self, at: int | None) -> Iterator[list[int]]:
        """Take the due times up to `at` off the schedule; they are put back when the block raises."""
        moments = [] if at is None else self._moments.take(at)
        try:
            yield moments
        except BaseException:
            self._moments.add(moments)
            raise

    def wanted(self, moments: Sequence[int]) -> pa.Table:
        """The values of the column by which rows due at these times are looked up."""
        kind = self._table.spec.schema.field(self._column).type
        values = pa.array([moment - self._later for moment in moments], pa.int64())
        return pa.table({self._column: values.cast(kind)})

    def rows(self, moments: Sequence[int]) -> pa.Table:
        """The stored rows that are due at these times."""
        if not moments:
            return self._table.spec.schema.empty_table()
        return self._table.version_object.physical_where((self._column,), self.wanted(moments))


def forget(table: Table, rows: pa.Table) -> None:
    """Delete rows in a commit of their own that readers skip, so that nothing downstream is retracted."""
    commit = forgetting(table)
    if commit is None or not rows.num_rows:
        return
    if table.spec.key:
        table.commit_keyed(None, rows.select(table.spec.key), commit)
    else:
        table.commit_rows(rows, pa.array(np.full(rows.num_rows, -1), pa.int64()), commit)


def forgetting(table: Table) -> Commit | None:
    """A commit marked `FORGETS` with the positions of the last one; None before the first commit."""
    last = table.last_commit
    return None if last is None else replace(last, extra={**last.extra, FORGETS: True})
