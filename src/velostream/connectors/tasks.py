"""Sources that Spark's tasks read: on all cores and machines, and never held in the driver."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from velostream import errors
from velostream.connectors.base import Source
from velostream.connectors.capabilities import Counted, Explaining, SparkReader
from velostream.connectors.delivered import delivered, sized, with_columns
from velostream.connectors.numbered import NumberedSource
from velostream.errors import InternalError, SourceConfigError, VelostreamError
from velostream.model.columns import PARTITION, POSITION, SYSTEM_TYPES, WEIGHT
from velostream.spark.dataframes import frame_of_batches
from velostream.sql.types import quote, spark_ddl

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from velostream.model.changes import Offset

    Range = tuple[str, Any, Any]

FEW_ROWS = 5_000
"""Ranges of fewer rows are read in the driver, which takes less time than starting Python in a task."""
FAILED = "SOURCE_FAILED"
"""Prefix of an error that a source raised in a task, as JSON."""


class TaskReader(SparkReader, Explaining):
    """`Source.read` runs in Spark's tasks, one for each partition, instead of in the driver.

    Each task opens the source again with `Connector.source`, calls `read` and nothing else, and closes it. It
    gets the properties of the statement, but no folder: what `SourceContext.spool` names is the driver's. The
    package that the connector comes from must be installed where Spark's executors run.
    """

    opened: Callable[[], Source]
    """Opens the source again; set by the caller that opens it in the driver."""

    def ranges(self, start: Offset | None, end: Offset, tasks: int) -> list[Range]:
        """What is read, a range of one partition per task; `tasks` is how many run at the same time."""
        found = [(name, (start or {}).get(name), at) for name, at in end.items()]
        found = [each for each in found if each[1] != each[2]]
        if not isinstance(self, NumberedSource) or not self.splits:
            return found
        # Numbers can be cut anywhere, so that a single partition keeps all cores busy.
        rows = -(-(self.count(start, end)) // tasks)
        most = max(self.batch_rows, -(-rows // self.batch_rows) * self.batch_rows)
        return [
            (name, at, min(at + most, int(last)))
            for name, first, last in found
            for at in range(int(first or 0), int(last), most)
        ]

    def frame(
        self,
        spark: SparkSession,
        start: Offset | None,
        end: Offset,
        columns: Sequence[str] | None,
        *,
        careful: bool = False,
    ) -> DataFrame | None:
        """See `SparkReader`."""
        if not isinstance(self, Source):
            raise InternalError(f"{type(self).__name__} is no source")
        count = Counted.of(self).count(start, end)
        if count is not None and count < FEW_ROWS:
            return None
        ranges = self.ranges(start, end, self.tasks or spark.sparkContext.defaultParallelism)
        if not ranges:
            return None
        types = {**SYSTEM_TYPES, WEIGHT: "BIGINT", **{f.name: spark_ddl(f.type) for f in self.discover()}}
        asked = list(self.discover().names if columns is None else columns)
        # Rows of a source without positions are told apart by what they hold.
        positioned = self.traits.positioned or POSITION not in asked
        names = asked if positioned else [name for name in asked if name != POSITION]
        if not self.traits.only_grows and start is not None:
            names = [*names, WEIGHT]
        reading = _Reading(self.opened, ranges, names)
        frame = frame_of_batches(spark, reading, len(ranges), [(name, types[name]) for name in names])
        return frame if positioned else frame.selectExpr("*", f"to_json(struct(*)) AS {quote(POSITION)}")

    def explained(self, said: str) -> VelostreamError | None:
        """See `Explaining`."""
        _, found, rest = said.partition(f"{FAILED} ")
        if not found:
            return None
        told, _ = json.JSONDecoder().raw_decode(rest)
        kind = getattr(errors, str(told.pop("kind")), None)
        if not (isinstance(kind, type) and issubclass(kind, VelostreamError)):
            return None
        return kind(told.pop("message"), **told)


class _Reading:
    """What each task runs; sent to it by value."""

    def __init__(
        self,
        opened: Callable[[], Source],
        ranges: Sequence[tuple[str, Any, Any]],
        names: Sequence[str],
    ) -> None:
        self.opened = opened
        self.ranges = ranges
        self.names = names

    def __call__(self, number: int, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            source = self.opened()
            try:
                if isinstance(source, NumberedSource):
                    source.asked = self.names
                makes = isinstance(source, NumberedSource) or not source.traits.positioned
                for batch in self._batches(source, *self.ranges[number]):
                    if not makes and POSITION not in batch.schema.names:
                        raise SourceConfigError(
                            f"{type(source).__name__} gives its rows no {POSITION}",
                            hint="give each row one that sorts by its place, derive from NumberedSource, "
                            "or return SourceTraits(positioned=False)",
                        )
                    found = with_columns(batch, self.names)
                    yield found if found.schema.equals(schema) else found.cast(schema)
            finally:
                source.close()
        except VelostreamError as exc:
            told = {
                "kind": type(exc).__name__,
                "message": exc.message,
                "detail": exc.detail,
                "hint": exc.hint,
                "retry_after": exc.retry_after,
            }
            raise RuntimeError(f"{FAILED} {json.dumps(told)}") from None

    def _batches(self, source: Source, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        if PARTITION in self.names:
            return delivered(source, partition, start, end)
        return sized(source.read(partition, start, end), source.batch_rows)
