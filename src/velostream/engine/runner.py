"""Runs the SQL of a step: text, views and types in, Arrow out.

The queries of a step go through here, so that another engine for small steps would be added in one place.
What does not: the search for rows that cannot be used (`bad_rows`), event times that Spark could not observe,
and storage (`delta`) and streams (`realtime`) that are Spark's.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.spark.dataframes import brought, checked_cast
from velostream.spark.failures import translated
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Progress:
    """The rows that one step read and wrote."""

    rows_in: int
    rows_out: int

    def __add__(self, other: Progress) -> Progress:
        """The figures of two parts of a step."""
        return Progress(self.rows_in + other.rows_in, self.rows_out + other.rows_out)


@dataclass
class Halves:
    """Rows added and rows retracted, as frames; `minus` is None when nothing was retracted."""

    plus: DataFrame
    minus: DataFrame | None


@dataclass(frozen=True)
class Computed:
    """What a query gives for the added rows of a step, and for the retracted ones."""

    plus: pa.Table
    minus: pa.Table | None
    """None where no row was retracted."""
    frame: DataFrame | None = None
    """The frame that `plus` was computed from, with the figures that were observed on it."""


class Runner:
    """Runs SQL in one Spark session and collects the rows."""

    observes = True
    """Whether figures can be observed on frames while a result is computed from them."""

    in_memory = True
    """Whether results are held in memory as a whole; otherwise a step is divided into parts by Spark."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def parts(self) -> AbstractContextManager[Iterable[int]]:
        """The parts that a step is run for; more than one where results do not fit into memory."""
        return nullcontext((0,))

    def run(
        self, sql: str, views: Mapping[str, DataFrame] | None = None, types: pa.Schema | None = None
    ) -> pa.Table:
        """The rows of a query over these views and those registered before, cast to `types` if given."""
        rows = self.rows(self.frame(sql, views))
        return rows if types is None else checked_cast(rows, types)

    def frame(self, sql: str, views: Mapping[str, DataFrame] | None = None) -> DataFrame:
        """A query over these views and those registered before, which is not computed yet."""
        self.show(views or {})
        with translated():
            return self.spark.sql(sql)

    def rows(self, frame: DataFrame) -> pa.Table:
        """The rows of a frame, collected to the driver."""
        with translated():
            return brought(frame)

    def whole(self, sql: str) -> pa.Table:
        """The rows of a query that computes a whole result, over views registered before."""
        return self.run(sql)

    def halves(self, sql: str, changes: Mapping[str, Halves], *, divisible: bool = True) -> Computed:
        """The query over the added rows, and over the retracted ones.

        `divisible`: whether parts of the result can be applied one after the other.
        """
        frame = self.frame(sql, {key: halves.plus for key, halves in changes.items()})
        plus, retracted = self.rows(frame), retracted_frames(changes)
        return Computed(plus, None if retracted is None else self.run(sql, retracted), frame)

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
