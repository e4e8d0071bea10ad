"""Runs the SQL of a step: text, views and types in, Arrow out.

Every query of a step goes through here, so that another engine for small steps would be added in one place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.spark.dataframes import brought, checked_cast
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.inputs.inputs import Halves


@dataclass(frozen=True)
class Progress:
    """The rows that one step read and wrote."""

    rows_in: int
    rows_out: int


class Runner:
    """Runs SQL in one Spark session and collects the rows."""

    observes = True
    """Whether figures can be observed on frames while a result is computed from them."""

    in_memory = True
    """Whether results are held in memory as a whole; otherwise a step is divided into parts by Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def in_parts(self, step: Callable[[], Progress]) -> Progress:
        """Run a step; a runner whose results do not fit into memory repeats it for each part of them."""
        return step()

    def run(
        self, sql: str, views: Mapping[str, DataFrame] | None = None, types: pa.Schema | None = None
    ) -> pa.Table:
        """The rows of a query over these views and those registered before, cast to `types` if given."""
        self.show(views or {})
        with translated():
            rows = brought(self.spark.sql(sql))
        return rows if types is None else checked_cast(rows, types)

    def whole(self, sql: str) -> pa.Table:
        """The rows of a query that computes a whole result, over views registered before."""
        return self.run(sql)

    def halves(
        self,
        sql: str,
        changes: Mapping[str, Halves],
        observed: Callable[[DataFrame], None],
        *,
        divisible: bool = True,
    ) -> tuple[pa.Table, pa.Table | None]:
        """The query over the added rows, and over the retracted ones; None where none were retracted.

        `divisible`: whether parts of the result can be applied one after the other.
        """
        self.show({key: halves.plus for key, halves in changes.items()})
        with translated():
            frame = self.spark.sql(sql)
            plus = brought(frame)
        observed(frame)
        retracted = retracted_frames(changes)
        return plus, None if retracted is None else self.run(sql, retracted)

    def show(self, views: Mapping[str, DataFrame]) -> None:
        """Register frames as views under these names."""
        for name, frame in views.items():
            frame.createOrReplaceTempView(quote(name))


def retracted_frames(changes: Mapping[str, Halves]) -> dict[str, DataFrame] | None:
    """The retracted rows of each input; None where no input retracted any."""
    if all(halves.minus is None for halves in changes.values()):
        return None
    return {
        key: halves.minus if halves.minus is not None else halves.plus.where("false")
        for key, halves in changes.items()
    }
