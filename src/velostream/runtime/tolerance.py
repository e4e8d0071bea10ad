"""Rows that a step within a query cannot compute: found by their contents and left out wherever they occur.

Whether a row can be computed depends on its contents alone, so leaving it out is the same whenever it is met:
as it was, as it is, or among all rows. Nothing has to be remembered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.plan.planner import POSITION
from velostream.runtime.inputs import without
from velostream.runtime.isolation import Culprit, Search
from velostream.runtime.work import data_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from velostream.plan.nodes import Each


class Tolerance:
    """The rows of every stateless step that cannot be computed, as far as they were met."""

    def __init__(self, spark: SparkSession, source: str) -> None:
        self._spark = spark
        self._source = source
        self.found: dict[str, dict[str, Culprit]] = {}
        """By the view of the step: contents to culprit."""

    def computable(self, node: Each, rows: DataFrame) -> DataFrame:
        """The rows on which the step does not fail."""
        own = POSITION in rows.columns
        placed = rows if own else rows.selectExpr("*", contents())
        known = self.found.setdefault(node.view, {})
        if known:
            placed = without(placed, set(known))
        search = Search(self._spark, node.sql, node.child.view, self._source)
        known |= {culprit.position: culprit for culprit in search.culprits(placed, data_error)}
        if not known:
            return rows
        good = without(placed, set(known))
        return good if own else good.drop(POSITION)


def contents() -> str:
    """An expression for what tells rows apart that have no place of their own."""
    return f"to_json(struct(*)) AS {POSITION}"
