"""One version of a Delta table, whose rows stay in files that Spark reads."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from velostream.engine.on_spark import SparkVersion
from velostream.formats.columns.nested_keys import grouped
from velostream.model.columns import DELTA_ROW, SHOWN
from velostream.spark import delta
from velostream.spark.dataframes import arrow_frame, brought, checked_cast, empty_frame
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

    from velostream.engine.delta.commit_metadata import State
    from velostream.model.tables import TableSpec
    from velostream.spark.delta import DeltaEngine


class DeltaVersion(SparkVersion):
    """All rows of a table as of one commit, for as long as its files are kept."""

    def __init__(self, spec: TableSpec, state: State, path: Path, delta: DeltaEngine) -> None:
        self.spec = spec
        self.number = state.number
        self.commit = state.commit
        self.state = state
        self._path = path
        self._delta = delta

    def __len__(self) -> int:
        return self.state.rows

    # --- frames -----------------------------------------------------------------------------------------

    def session(self) -> SparkSession:
        """A session with Delta."""
        return self._delta.session()

    def all_rows(self, spark: SparkSession) -> DataFrame:
        """All rows with all columns, hidden ones and the row's number included; in a session with Delta."""
        if self.state.physical is None:
            return empty_frame(spark, self.spec.schema.append(pa.field(DELTA_ROW, pa.int64())))
        return delta.read(spark, self._path, self.state.physical)

    def frame(self, spark: SparkSession) -> DataFrame:
        """The visible rows and columns."""
        return self.shown(self.all_rows(spark)).select(*map(quote, self.spec.visible))

    def shown(self, frame: DataFrame) -> DataFrame:
        """The frame without rows that HAVING hides."""
        return frame.where(SHOWN) if SHOWN in self.spec.schema.names else frame

    def matching(
        self, spark: SparkSession, columns: Sequence[str], keys: pa.Table, *, nulls_meet: bool
    ) -> DataFrame:
        """The stored rows whose columns equal one of the keys; NaN equals NaN."""
        from pyspark.sql import functions

        names = [f"__k{number}" for number in range(len(columns))]
        keys = keys.rename_columns(names)
        if not nulls_meet:
            keys = keys.drop_null()
        frame = self.all_rows(spark)
        for column, key in zip(columns, keys.columns, strict=True):
            bounds = _bounds(frame[quote(column)], key)
            if bounds is not None:
                frame = frame.where(bounds)
        wanted = arrow_frame(spark, grouped(keys, names))
        same = [frame[quote(c)].eqNullSafe(wanted[n]) for c, n in zip(columns, names, strict=True)]
        on = reduce(lambda one, other: one & other, same)
        return frame.join(functions.broadcast(wanted), on, "left_semi")

    # --- rows brought here --------------------------------------------------------------------------------

    def here(self, frame: DataFrame) -> pa.Table:
        """The rows of a frame of stored rows, in the order of writing, without their numbers."""
        return self.numbered(frame)[0]

    def numbered(self, frame: DataFrame) -> tuple[pa.Table, pa.ChunkedArray]:
        """As `here`, with the row numbers. Rows are few: sorting them here costs less than in Spark."""
        with translated():
            rows = brought(frame).sort_by(DELTA_ROW)
        return checked_cast(rows, self.spec.schema), rows.column(DELTA_ROW)

    def snapshot(self) -> pa.Table:
        """All visible rows, in memory: of a large table, read a part instead."""
        return self._visible(self.shown(self.all_rows(self.session())))

    def slice(self, offset: int, limit: int) -> pa.Table:
        """Up to `limit` rows after the first `offset`."""
        frame = self.shown(self.all_rows(self.session())).orderBy(DELTA_ROW)
        return self._visible(frame.offset(offset).limit(limit))

    def physical(self) -> pa.Table:
        """All rows with all columns."""
        return self.here(self.all_rows(self.session()))

    def fetch_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The rows that readers see whose columns equal a row of `keys`; null equals nothing."""
        return self.where(columns, keys, nulls_meet=False)

    def where(self, columns: Sequence[str], keys: pa.Table, *, nulls_meet: bool) -> pa.Table:
        """As `fetch_where`; with `nulls_meet` null equals null."""
        session = self.session()
        return self._visible(self.shown(self.matching(session, columns, keys, nulls_meet=nulls_meet)))

    def physical_where(self, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """As `fetch_where`, with hidden rows and all columns."""
        return self.here(self.matching(self.session(), columns, keys, nulls_meet=False))

    def _visible(self, frame: DataFrame) -> pa.Table:
        return self.here(frame).select(list(self.spec.visible))


def _bounds(column: Column, keys: pa.ChunkedArray) -> Column | None:
    """A condition by which Delta skips files by their statistics; None for types without statistics."""
    kind = keys.type
    if keys.null_count or not len(keys):
        return None
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)):
        return None
    ends: Any = pc.min_max(keys)
    return column.between(ends["min"].as_py(), ends["max"].as_py())
