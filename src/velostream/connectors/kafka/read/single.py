"""Single records of topics, read again by their positions."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

from velostream.connectors.kafka.read.dataframes import RAW, RAW_KEY
from velostream.connectors.kafka.read.decoder import Message
from velostream.connectors.kafka.read.ordering import place
from velostream.formats.columns.dataframes import rows_at
from velostream.model.changes import Located
from velostream.model.columns import ENTERED, POSITION

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from velostream.connectors.kafka.read.dataframes import KafkaFrames
    from velostream.connectors.kafka.read.ordering import Ranges


def located(frames: KafkaFrames, runs: Sequence[Ranges], positions: Collection[str]) -> dict[str, Located]:
    """The places and values of the records at these positions; `runs` are ranges that contain them."""
    found: dict[str, Located] = {}
    for row in _rows(frames, runs, positions):
        part, offset = place(row[POSITION])
        found[row[POSITION]] = Located(part.text, str(offset), row[RAW] or b"", row[ENTERED])
    return found


def messages(frames: KafkaFrames, runs: Sequence[Ranges], positions: Collection[str]) -> dict[str, Message]:
    """The keys and values of the records at these positions."""
    rows = _rows(frames, runs, positions)
    return {row[POSITION]: Message(row[RAW_KEY], row[RAW]) for row in rows}


def _rows(
    frames: KafkaFrames, runs: Sequence[Ranges], positions: Collection[str]
) -> Iterator[dict[str, Any]]:
    for ranges in runs:
        frame = frames.raw_records(ranges)
        if frame is not None:
            yield from rows_at(frame, positions).toArrow().to_pylist()


def records_at(
    frames: KafkaFrames,
    runs: Sequence[Ranges],
    positions: Collection[str],
    fields: Sequence[pa.Field],
    system: Sequence[str],
) -> DataFrame:
    """A careful frame of the records at these positions; `system` has `_position`."""
    parts = [frames.rows(ranges, fields, system, careful=True) for ranges in runs or [{}]]
    return rows_at(reduce(lambda one, other: one.unionByName(other), parts), positions)
