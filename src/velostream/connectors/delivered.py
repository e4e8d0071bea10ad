"""The rows of a source in the form that the engine reads: batches of even size, with their partition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.model.columns import PARTITION, WEIGHT, arrow_types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from velostream.connectors.base import Source


def delivered(source: Source, partition: str, start: Any, end: Any) -> Iterator[pa.RecordBatch]:
    """The rows of `Source.read`, `batch_rows` at a time, each with its partition."""
    for batch in sized(source.read(partition, start, end), source.batch_rows):
        if PARTITION in batch.schema.names:
            yield batch
        else:
            yield batch.append_column(PARTITION, pa.repeat(pa.scalar(partition, pa.string()), batch.num_rows))


def with_columns(batch: pa.RecordBatch, columns: Sequence[str]) -> pa.RecordBatch:
    """These columns of a batch, in this order.

    System columns that the source does not have are null, and rows without a weight are added rows.
    """
    have = set(batch.schema.names)
    arrays = [batch.column(name) if name in have else _without(name, batch.num_rows) for name in columns]
    return pa.RecordBatch.from_arrays(arrays, list(columns))


def _without(column: str, rows: int) -> pa.Array:
    return (
        pa.repeat(pa.scalar(1, pa.int64()), rows)
        if column == WEIGHT
        else pa.nulls(rows, arrow_types()[column])
    )


def sized(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.RecordBatch]:
    """The same rows: large batches are cut, small ones joined, since each costs Spark a round trip."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if waiting and batch.schema != waiting[0].schema:
            yield _joined(waiting)
            waiting, rows = [], 0
        for first in range(0, batch.num_rows, most):
            piece = batch.slice(first, most)
            if rows + piece.num_rows > most:
                yield _joined(waiting)
                waiting, rows = [], 0
            waiting.append(piece)
            rows += piece.num_rows
            if rows == most:
                yield _joined(waiting)
                waiting, rows = [], 0
        if not batch.num_rows and not waiting:
            # It has no rows, but tells the columns, system columns among them.
            waiting.append(batch)
    if waiting:
        yield _joined(waiting)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)
