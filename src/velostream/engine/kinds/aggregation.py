"""From the rows of a batch to accumulators of their groups: what Spark computes, and what is made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.spark.dataframes import checked_cast

if TYPE_CHECKING:
    import pyarrow as pa

    from velostream.engine.rows.shape import ResultShape
    from velostream.plan.plans import GroupsPlan


class Aggregation:
    """Spark aggregates the groups themselves."""

    def __init__(self, plan: GroupsPlan, shape: ResultShape) -> None:
        self.plan = plan
        self._state = shape.state
        self.sql = plan.partial_sql
        """The query that aggregates the rows of a batch."""

    def groups(self, rows: pa.Table) -> pa.Table:
        """The accumulators of each group, as they are stored, of what `sql` returned."""
        return checked_cast(rows, self._state)
