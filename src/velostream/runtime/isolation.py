"""Finding the rows that a query cannot compute, when Spark only says that there is one.

Rows are divided by a hash of their position, and the half that still fails is divided again. Clean input
never pays for this; one bad row among a million costs some forty small runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from velostream.errors import RowError
from velostream.model.changes import BadRow
from velostream.plan.planner import POSITION
from velostream.plan.spark import first_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession

_MOST_RUNS = 400
"""Beyond this the batch is not worth saving row by row: the job fails and says why."""
_MOST_BITS = 48


@dataclass(frozen=True)
class Culprit:
    """One row that cannot be computed."""

    position: str
    row: BadRow


class Search:
    """Looks for culprits in one input of a query."""

    def __init__(self, spark: SparkSession, sql: str, view: str, source: str) -> None:
        self._spark = spark
        self._sql = sql
        self._view = view
        self._source = source
        self._runs = 0

    def culprits(self, rows: DataFrame, is_data_error: Callable[[BaseException], bool]) -> Iterator[Culprit]:
        """The rows (which have `_position`) on which the query fails."""
        open_parts = [(0, 0)]
        while open_parts:
            bits, value = open_parts.pop()
            mask = (1 << bits) - 1
            part = rows.where(f"(xxhash64({POSITION}) & {mask}L) = {value}L")
            failure = self._failure(part, is_data_error)
            if failure is None:
                continue
            positions = part.select(POSITION).distinct().limit(2).toArrow().column(POSITION)
            if len(positions) == 1:
                yield self._culprit(part, positions[0].as_py(), failure)
            elif bits < _MOST_BITS:
                open_parts += [(bits + 1, value), (bits + 1, value | (1 << bits))]
            else:
                raise self._hopeless(failure)

    def _failure(self, part: DataFrame, is_data_error: Callable[[BaseException], bool]) -> Exception | None:
        self._runs += 1
        part.drop(POSITION).createOrReplaceTempView(f"`{self._view}`")
        try:
            self._spark.sql(self._sql).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            if not is_data_error(exc):
                raise
            if self._runs > _MOST_RUNS:
                raise self._hopeless(exc) from exc
            return exc
        return None

    def _culprit(self, part: DataFrame, position: str, failure: Exception) -> Culprit:
        columns = [name for name in part.columns if name != POSITION]
        text = part.selectExpr(f"to_json(struct({', '.join(f'`{c}`' for c in columns)})) AS row").first()
        raw = str(text["row"]).encode() if text is not None else b""
        return Culprit(position, BadRow(first_line(failure), self._source, self._source, position, raw))

    def _hopeless(self, failure: Exception) -> RowError:
        return RowError(
            f"too many rows of {self._source} cannot be computed: {first_line(failure)}",
            hint="guard the expression: try_cast, try_divide, nullif, coalesce",
        )
