"""The columns of a job's result: visible ones, stored ones, and accumulators."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.model.tables import TableSpec
from velostream.spark.dataframes import checked_cast

if TYPE_CHECKING:
    from collections.abc import Mapping

EMPTY = pa.schema([])


@dataclass(frozen=True)
class ResultShape:
    """Schemas of a result: visible to readers, stored, and for groups accumulators and aggregate values."""

    visible: pa.Schema
    physical: pa.Schema
    key: tuple[str, ...] = ()
    state: pa.Schema = EMPTY
    """Groups: key columns and accumulators."""
    values: pa.Schema = EMPTY
    """Groups: key columns and aggregate values."""
    inexact: tuple[str, ...] = field(default=())
    """Groups: accumulators of floating point, which cannot be subtracted exactly."""
    merges: bool = True
    """Groups: whether Arrow can merge their accumulators, not so nested values and sums of intervals."""

    def stored(self, rows: pa.Table) -> pa.Table:
        """Rows with exactly the stored columns and types.

        Columns of a result without groups are matched by position: a query over a derived relation may have
        renamed them.
        """
        if not self.state and rows.num_columns == len(self.physical):
            rows = rows.rename_columns(self.physical.names)
        return checked_cast(rows, self.physical)

    def spec(self, name: str, options: Mapping[str, str], datasource_type: str, owner: str) -> TableSpec:
        """The table that holds this result."""
        return TableSpec(name, self.physical, self.key, dict(options), datasource_type, owner=owner)
