"""Retention of tables in memory: each row is stored with the time at which it expires."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.model.columns import EXPIRES
from velostream.model.moments import DueMoments
from velostream.model.tables import Retention

if TYPE_CHECKING:
    from collections.abc import Hashable

    from velostream.model.tables import TableSpec
    from velostream.serving.columns.segments import Counts
    from velostream.serving.columns.values import KeyCodec
    from velostream.serving.memory.version import MemoryVersion

_DAY = 86_400_000_000


class Expiry:
    """Stamps the rows of one table with their time of expiry, and knows which times are due."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention
        self._due: DueMoments | None = None

    @classmethod
    def of(cls, spec: TableSpec) -> Expiry | None:
        """The expiry of a table with a retention; None for others."""
        found = Retention.of(spec)
        return cls(found) if found is not None else None

    def stamped(self, rows: pa.Table, at: int) -> pa.Table:
        """The rows, each with the time at which it expires when it is written at `at`."""
        retention = self._retention
        if retention.column is None:
            moments = pa.array(np.full(rows.num_rows, at + retention.micros), pa.int64())
        else:
            column = rows.column(retention.column)
            if pa.types.is_date(column.type):
                column = pc.multiply(column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64()), _DAY)
            times = pc.multiply(column.cast(pa.int64()), retention.unit)
            moments = pc.add(times, retention.micros)
        plain = rows.drop_columns([EXPIRES]) if EXPIRES in rows.schema.names else rows
        return plain.append_column(pa.field(EXPIRES, pa.int64()), moments)

    def upserts(self, rows: pa.Table, codec: KeyCodec, at: int) -> tuple[pa.Table, list[Hashable]]:
        """The rows to upsert, and the keys to delete because their last row has expired already."""
        rows = self.stamped(rows, at)
        late = _late(rows, at)
        if not late.any():
            return rows, []
        keys = codec.encode_columns(rows)
        last = dict(zip(keys, range(len(keys)), strict=True))
        gone = {key for key, number in last.items() if late[number]}
        return rows.filter(pa.array([key not in gone for key in keys], pa.bool_())), list(gone)

    def weighted(self, rows: pa.Table, weights: Counts | None, at: int) -> tuple[pa.Table, Counts | None]:
        """The rows of a multiset to add and to retract, without added ones that have expired already."""
        rows = self.stamped(rows, at)
        kept = ~_late(rows, at) if weights is None else (weights < 0) | ~_late(rows, at)
        if kept.all():
            return rows, weights
        return rows.filter(pa.array(kept)), None if weights is None else weights[kept]

    def written(self, rows: pa.Table) -> None:
        """Schedule the expiry of rows that were committed."""
        if self._due is not None:
            self._due.add(_moments(rows))

    def next_due(self, version: MemoryVersion) -> int | None:
        """The time at which the next row expires; None when none does."""
        return self._known(version).first

    def take(self, version: MemoryVersion, at: int) -> list[int]:
        """Take the times up to `at` off the schedule."""
        return self._known(version).take(at)

    def put_back(self, moments: list[int]) -> None:
        """Schedule times again whose rows could not be deleted."""
        if self._due is not None:
            self._due.add(moments)

    def _known(self, version: MemoryVersion) -> DueMoments:
        if self._due is None:
            self._due = DueMoments()
            self._due.add(_moments(version.physical()))
        return self._due


def _late(rows: pa.Table, at: int) -> np.ndarray:
    return np.asarray(pc.fill_null(pc.less_equal(rows.column(EXPIRES), at), False), dtype=bool)


def _moments(rows: pa.Table) -> list[int]:
    found: list[int] = np.unique(rows.column(EXPIRES).drop_null().to_numpy()).tolist()
    return found
