"""A table in Delta Lake as a source for other jobs: frames, so that the driver holds none of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from velostream.connectors.capabilities import SparkReader
from velostream.engine.inputs.tables import PARTITION, TableSource
from velostream.engine.inputs.widening import ColumnsWidenedError
from velostream.model.columns import POSITION, WEIGHT
from velostream.spark.dataframes import empty_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.delta.table import DeltaTable
    from velostream.engine.delta.version import DeltaVersion
    from velostream.model.changes import Offset


class DeltaTableSource(TableSource, SparkReader):
    """Changes of a Delta table between two of its versions, from its change data feed."""

    _table: DeltaTable

    def __init__(self, table: DeltaTable, reader: str) -> None:
        super().__init__(table, reader)
        self._schema = table.spec.visible_schema

    def frame(
        self,
        spark: SparkSession,
        start: Offset | None,
        end: Offset,
        columns: Sequence[str] | None,
        *,
        careful: bool = False,
    ) -> DataFrame | None:
        """The rows at a position, or the changes with weights."""
        self._refuse_changed_columns()
        version = self._version(end)
        wanted = [name for name in columns or self._schema.names if name in self._schema.names]
        if start is None:
            frame = version.frame(spark)
            weight = []
        else:
            found = self._table.change_frame(spark, int(start[PARTITION]), int(end[PARTITION]))
            frame = empty_frame(spark, self._schema) if found is None else found
            weight = [WEIGHT] if found is not None else []
        items = [*map(quote, wanted), *weight]
        if columns is not None and POSITION in columns:
            # Rows of a multiset have no position, so their values identify them.
            values = ", ".join(map(quote, wanted))
            items.append(f"to_json(struct({values})) AS {POSITION}")
        return frame.selectExpr(*items)

    def where(self, offset: Offset, columns: Sequence[str], keys: pa.Table) -> pa.Table:
        """The visible rows at a position whose columns equal one of the keys; null equals null."""
        self._refuse_changed_columns()
        if keys.num_rows == 0:
            return self._schema.empty_table()
        return self._version(offset).where(columns, keys, nulls_meet=True)

    def changed_in_files(self, start: Offset, end: Offset) -> int:
        """An upper bound of the rows added and removed between two positions."""
        return self._table.changed_rows(int(start[PARTITION]), int(end[PARTITION]))

    def _version(self, offset: Offset) -> DeltaVersion:
        return cast("DeltaVersion", self._at(offset[PARTITION]))

    def _refuse_changed_columns(self) -> None:

        if not self._table.spec.visible_schema.equals(self._schema):
            raise ColumnsWidenedError(f"{self._table.name} has wider columns now")
