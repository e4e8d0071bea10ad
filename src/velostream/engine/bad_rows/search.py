"""Finds the rows that a query cannot compute, when Spark only reports that it failed.

Clean input never pays for this. Where Spark can evaluate the query in a try (`probe`), all such rows are
found in one run. Elsewhere rows are bisected by a hash of their position, and the half that still fails is
bisected again: one bad row among a million costs some forty small runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from velostream.engine.bad_rows.data_errors import data_error, maybe_data_error
from velostream.engine.bad_rows.probe import Probe, divided, probe_of
from velostream.errors import RowError
from velostream.model.changes import BadRow
from velostream.model.columns import POSITION
from velostream.spark.failures import cause_of
from velostream.spark.try_eval import unshared
from velostream.sql.types import quote

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

log = structlog.get_logger("velostream.job")

_MOST_RUNS = 5000
"""After this many runs the search is given up: the job fails and reports why."""
_MOST_REASONS = 3
"""For this many of the rows found in one run, the query runs on the row alone to learn the reason."""
_MOST_BITS = 48


@dataclass(frozen=True)
class Culprit:
    """One row that cannot be computed."""

    position: str
    row: BadRow


class Search:
    """Searches one input of a query for the rows that make it fail."""

    def __init__(self, spark: SparkSession, sql: str, view: str, source: str) -> None:
        self._spark = spark
        self._sql = sql
        self._view = view
        self._source = source
        self._placed = POSITION in sql
        """Whether the query itself uses the positions of rows."""
        self._runs = 0

    def culprits(self, rows: DataFrame) -> Iterator[Culprit]:
        """The rows (which have `_position`) on which the query fails."""
        probe = probe_of(self._sql)
        found = None if probe is None else self._probed(rows, probe)
        if probe is None or not found:
            yield from self._divided(rows)
            return
        yield from found
        with unshared(self._spark):
            yield from self._divided(divided(self._spark, rows, probe)[1])

    def _probed(self, rows: DataFrame, probe: Probe) -> list[Culprit] | None:
        """All rows that fail by themselves, found in one run; None where the query has no usable probe."""
        columns = ", ".join(quote(name) for name in rows.columns if name != POSITION)
        try:
            failing, _ = divided(self._spark, rows, probe)
            with unshared(self._spark):
                found = failing.selectExpr(POSITION, f"to_json(struct({columns})) AS row").toArrow()
        except Exception as exc:
            log.debug("probe", reason=cause_of(exc))
            return None
        culprits: list[Culprit] = []
        reasons: list[str] = []
        for position, text in zip(*(column.to_pylist() for column in found.columns), strict=True):
            if len(reasons) < _MOST_REASONS:
                alone = rows.where(rows[POSITION] == position)
                failure = self._failure(alone)
                if failure is None or not self._caused(alone, failure):
                    # The query computes a row on which the probe raises: the probe's findings are not
                    # reliable.
                    return None
                reasons.append(cause_of(failure))
            alike = len(set(reasons)) == 1
            reason = reasons[len(culprits)] if len(culprits) < len(reasons) else reasons[-1]
            if len(culprits) >= len(reasons) and not alike:
                reason = f"cannot be computed, like others of its batch: {reasons[-1]}"
            culprits.append(self._as_culprit(position, reason, text))
        return culprits

    def _divided(self, rows: DataFrame) -> Iterator[Culprit]:
        open_parts = [(0, 0)]
        while open_parts:
            bits, value = open_parts.pop()
            mask = (1 << bits) - 1
            part = rows.where(f"(xxhash64({POSITION}) & {mask}L) = {value}L")
            failure = self._failure(part)
            if failure is None:
                continue
            positions = part.select(POSITION).distinct().limit(2).toArrow().column(POSITION)
            if len(positions) == 0:
                # No row causes it: the query fails without rows.
                raise failure
            if len(positions) == 1:
                if not self._caused(part, failure):
                    raise failure
                yield self._culprit(part, positions[0].as_py(), failure)
            elif bits < _MOST_BITS:
                open_parts += [(bits + 1, value), (bits + 1, value | (1 << bits))]
            else:
                raise self._hopeless(failure)

    def _failure(self, part: DataFrame) -> Exception | None:
        self._runs += 1
        (part if self._placed else part.drop(POSITION)).createOrReplaceTempView(quote(self._view))
        try:
            self._spark.sql(self._sql).write.format("noop").mode("overwrite").save()
        except Exception as exc:
            if not maybe_data_error(exc):
                raise
            if self._runs > _MOST_RUNS:
                raise self._hopeless(exc) from exc
            return exc
        return None

    def _caused(self, row: DataFrame, failure: Exception) -> bool:
        """Whether the row causes the failure: certainly, or because it can be read and fails every time."""
        if data_error(failure):
            return True
        row.write.format("noop").mode("overwrite").save()
        again = self._failure(row)
        return again is not None and cause_of(again) == cause_of(failure)

    def _culprit(self, part: DataFrame, position: str, failure: Exception) -> Culprit:
        columns = [name for name in part.columns if name != POSITION]
        text = part.selectExpr(f"to_json(struct({', '.join(f'`{c}`' for c in columns)})) AS row").first()
        return self._as_culprit(position, cause_of(failure), text["row"] if text is not None else "")

    def _as_culprit(self, position: str, reason: str, text: str) -> Culprit:
        return Culprit(position, BadRow(reason, self._source, self._source, position, text.encode()))

    def _hopeless(self, failure: Exception) -> RowError:
        return RowError(
            f"too many rows of {self._source} cannot be computed: {cause_of(failure)}",
            hint="guard the expression: try_cast, try_divide, nullif, coalesce",
        )
