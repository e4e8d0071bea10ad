"""Rows generated from their number, at a steady rate since the source was created."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from velostream.connectors.base import Source, SourceContext
from velostream.connectors.capabilities import BadRecords, Counted, SparkReader
from velostream.connectors.datagen.generators import generator
from velostream.connectors.datagen.values import Mix, Moment, Values
from velostream.disk.private import make_folder
from velostream.disk.record import Record
from velostream.model.changes import Located
from velostream.model.columns import ENTERED, OFFSET, PARTITION, POSITION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from velostream.connectors.datagen.options import DatagenOptions
    from velostream.model.changes import Offset

ONLY = "rows"
"""The name of the one partition."""
_STEP = 2_000_000
_BATCH = 65_536


class DatagenSource(Source, SparkReader, Counted, BadRecords):
    """Row n exists from `created + n / rows_per_second` on; its values are a function of n and the seed."""

    def __init__(self, options: DatagenOptions, context: SourceContext) -> None:
        self._options = options
        self._context = context
        self._created_at = self._creation()
        self._moment = Moment(_micros(self._created_at), options.rows_per_second)
        schema = context.schema if context.declared else None
        self._columns = dict(generator(options.generator or "trades", schema, self._moment))
        self._at_open = self._rows_by_now()

    def discover(self) -> pa.Schema:
        """See `Source`."""
        return pa.schema([pa.field(name, values.type) for name, values in self._columns.items()])

    def latest(self, after: Offset | None) -> Offset:
        """See `Source`; at most `max.rows.per.batch`, or two million, rows at a time."""
        have = int(after[ONLY]) if after else 0
        end = self._at_open if self._context.once else self._rows_by_now()
        return {ONLY: max(have, min(end, have + (self._context.most_rows or _STEP)))}

    def finished(self, offset: Offset) -> bool:
        """See `Source`."""
        end = self._at_open if self._context.once else self._options.rows
        return end is not None and int(offset[ONLY]) >= end

    def read(self, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See `Source`."""
        for first in range(int(start or 0), int(end), _BATCH):
            ids = np.arange(first, min(first + _BATCH, int(end)), dtype=np.int64)
            arrays = {name: values.array(ids, mix) for name, values, mix in self._mixed()}
            arrays[ENTERED] = self._moment.array(ids, Mix(0))
            arrays[PARTITION] = pa.array([ONLY] * len(ids))
            arrays[OFFSET] = pa.array(ids)
            arrays[POSITION] = pa.array([f"{number:020d}" for number in ids.tolist()])
            yield pa.RecordBatch.from_pydict(arrays)

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
        first, last = int(start[ONLY]) if start else 0, int(end[ONLY])
        available = {name: values.sql(mix) for name, values, mix in self._mixed()}
        system = {
            ENTERED: self._moment.sql(Mix(0)),
            PARTITION: f"'{ONLY}'",
            OFFSET: "id",
            POSITION: "lpad(CAST(id AS STRING), 20, '0')",
        }
        wanted = list(available) if columns is None else [c for c in columns if c in {**available, **system}]
        expressions = [f"{({**system, **available})[name]} AS `{name}`" for name in wanted]
        parts = max(1, min(spark.sparkContext.defaultParallelism, (last - first) // _BATCH))
        return spark.range(first, last, 1, parts).selectExpr(*expressions)

    def located(self, positions: Collection[str], end: Offset) -> dict[str, Located]:
        """See `BadRecords`: generated rows have numbers and no bytes."""
        return {position: Located(ONLY, str(int(position))) for position in positions}

    def count(self, start: Offset | None, end: Offset) -> int:
        """See `Counted`."""
        return int(end[ONLY]) - (int(start[ONLY]) if start else 0)

    def _mixed(self) -> Iterator[tuple[str, Values, Mix]]:
        for number, (name, values) in enumerate(self._columns.items(), start=1):
            yield name, values, Mix(self._options.seed * 1_009 + number)

    def _rows_by_now(self) -> int:
        elapsed = (self._context.clock() - self._created_at) / timedelta(seconds=1)
        number = max(0, int(elapsed * self._options.rows_per_second))
        if self._options.rows is None:
            return number
        return self._options.rows if self._context.once else min(number, self._options.rows)

    def _creation(self) -> datetime:
        """The instant of creation, made durable before the first row is emitted."""
        context = self._context
        record = Record(context.spool / "created.json", f"{context.owner} created", required=context.resumed)
        found = record.load()
        if found is None:
            make_folder(context.spool)
            found = {"created_at": context.clock().astimezone(UTC).isoformat()}
            record.save(found)
        return datetime.fromisoformat(found["created_at"])


def _micros(moment: datetime) -> int:
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
