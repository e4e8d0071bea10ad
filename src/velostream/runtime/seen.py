"""The latest event time of each partition, as rows pass by on their way into a query.

Spark keeps figures of a frame while it reads it for something else (`observe`): nothing is read twice.
Where a source has more partitions than can be named beforehand, they are asked for in a query of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.model.changes import WEIGHT
from velostream.plan.event_time import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

PARTITION = ("_partition",)
_METRIC = "__seen_"


class Seen:
    """Event times seen in frames since they were last taken."""

    def __init__(self) -> None:
        self._names: dict[str, list[str]] = {}
        self._found: dict[str, dict[str, int | None]] = {}

    def watch(self, name: str, frame: DataFrame, partitions: Mapping[str, str] | None) -> DataFrame:
        """Have the frame tell, once it is read, how far each partition is."""
        from pyspark.sql.functions import expr

        came = f"({WEIGHT} > 0) AND " if WEIGHT in frame.columns else ""
        if partitions is None:
            self._grouped(name, frame.where(f"{WEIGHT} > 0") if came else frame)
            return frame
        self._names[name] = list(partitions)
        self._found.setdefault(name, {}).update(
            {part: None for part in partitions if part not in self._known(name)}
        )
        figures = [
            expr(f"max(CASE WHEN {came}{condition} THEN unix_micros({EVENT_TIME}) END)").alias(f"p{number}")
            for number, condition in enumerate(partitions.values())
        ]
        return frame.observe(f"{_METRIC}{name}", *figures) if figures else frame

    def read(self, frame: DataFrame) -> None:
        """Take the figures of a frame that Spark has read."""
        observed = frame._jdf.queryExecution().observedMetrics()  # noqa: SLF001
        for name, parts in self._names.items():
            row: Any = observed.get(f"{_METRIC}{name}")
            if row.isEmpty():
                continue
            values = row.get()
            for number, part in enumerate(parts):
                if not values.isNullAt(number):
                    self._note(name, part, values.getLong(number))

    def note(self, name: str, part: str, at: int) -> None:
        """A row of this event time was seen."""
        self._note(name, part, at)

    def take(self) -> dict[str, dict[str, int | None]]:
        """What was seen, which is forgotten here."""
        found, self._found = self._found, {}
        return found

    def _known(self, name: str) -> Mapping[str, int | None]:
        return self._found.get(name, {})

    def _grouped(self, name: str, frame: DataFrame) -> None:
        from pyspark.sql.functions import expr

        found = frame.groupBy("_partition").agg(expr(f"max(unix_micros({EVENT_TIME}))").alias("at")).toArrow()
        for part, at in zip(*(column.to_pylist() for column in found.columns), strict=True):
            if at is not None:
                self._note(name, part, at)

    def _note(self, name: str, part: str, at: int) -> None:
        parts = self._found.setdefault(name, {})
        known = parts.get(part)
        parts[part] = at if known is None else max(known, at)
