"""The latest event time of each partition, as rows pass by on their way into a query.

Spark keeps figures of a frame while it reads it for something else (`observe`): nothing is read twice.
Where a source has more partitions than can be named beforehand, they are asked for in a query of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.model.columns import EVENT_TIME, WEIGHT
from velostream.spark.dataframes import observed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

MOST_NAMED = 64
"""Beyond so many partitions, what each of them had last is found by grouping instead of naming them."""
_METRIC = "__seen_"
_TIMELESS = f"count_if({{came}}{EVENT_TIME} IS NULL)"


class Seen:
    """Event times seen in frames since they were last taken."""

    def __init__(self) -> None:
        self._unread: dict[str, tuple[DataFrame, list[str], list[Column]]] = {}
        """Frames that nothing has read yet, the names of their partitions and what is asked of each."""
        self._found: dict[str, dict[str, int | None]] = {}
        self.timeless = 0
        """Rows without an event time in the same frames."""
        self.named: set[str] = set()
        """Inputs whose partitions are known whether they have rows or not."""

    def watch(
        self, name: str, frame: DataFrame, partitions: Mapping[str, str] | None, named: str
    ) -> DataFrame:
        """Have the frame tell, once it is read, how far each partition is; `named` is SQL of its name."""
        from pyspark.sql.functions import expr

        came = f"({WEIGHT} > 0) AND " if WEIGHT in frame.columns else ""
        if partitions is not None:
            self.named.add(name)
        known = self._found.setdefault(name, {})
        known.update({part: None for part in partitions or () if part not in known})
        if partitions is None or len(partitions) > MOST_NAMED:
            self._grouped(name, frame.where(f"{WEIGHT} > 0") if came else frame, named)
            return frame
        figures = [expr(_TIMELESS.format(came=came)).alias("timeless")] + [
            expr(f"max(CASE WHEN {came}{condition} THEN unix_micros({EVENT_TIME}) END)").alias(f"p{number}")
            for number, condition in enumerate(partitions.values())
        ]
        if not partitions:
            return frame
        self._unread[name] = frame, list(partitions), figures
        return frame.observe(f"{_METRIC}{name}", *figures)

    @property
    def unread(self) -> bool:
        """Whether a frame has figures to tell."""
        return bool(self._unread)

    def read(self, frame: DataFrame) -> None:
        """Take the figures of a frame that Spark has read."""
        found = observed(frame, [f"{_METRIC}{name}" for name in self._unread])
        for name, (_, parts, _) in list(self._unread.items()):
            figures = found.get(f"{_METRIC}{name}")
            if figures is not None:
                self._take(name, parts, figures)

    def _take(self, name: str, parts: list[str], found: Sequence[int | None]) -> None:
        del self._unread[name]
        self.timeless += found[0] or 0
        for part, at in zip(parts, found[1:], strict=True):
            if at is not None:
                self.note(name, part, at)

    def note(self, name: str, part: str, at: int) -> None:
        """A row of this event time was seen."""
        parts = self._found.setdefault(name, {})
        known = parts.get(part)
        parts[part] = at if known is None else max(known, at)

    def take(self) -> dict[str, dict[str, int | None]]:
        """What was seen, which is forgotten here."""
        for name, (frame, parts, figures) in list(self._unread.items()):
            # Spark saw that the query needs no row of it, for example of a join with nothing.
            row = frame.agg(*figures).toArrow().to_pylist()[0]
            self._take(name, parts, list(row.values()))
        found, self._found, self.timeless = self._found, {}, 0
        return found

    def forget(self) -> None:
        """Pass over frames that were made to be read for something else."""
        self._unread.clear()

    def _grouped(self, name: str, frame: DataFrame, named: str) -> None:
        from pyspark.sql.functions import expr

        latest = expr(f"max(unix_micros({EVENT_TIME}))").alias("at")
        found = frame.groupBy(expr(named)).agg(latest, expr(_TIMELESS.format(came=""))).toArrow()
        for part, at, timeless in zip(*(column.to_pylist() for column in found.columns), strict=True):
            self.timeless += timeless
            if at is not None:
                self.note(name, part, at)
