"""Single records of topics, read again by their positions."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from velostream.connectors.kafka.frames import RAW
from velostream.connectors.kafka.places import place
from velostream.formats.spark_frames import rows_at
from velostream.model.changes import Located

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from velostream.connectors.kafka.frames import KafkaFrames
    from velostream.connectors.kafka.places import Ranges


def located(frames: KafkaFrames, runs: Sequence[Ranges], positions: Collection[str]) -> dict[str, Located]:
    """Where the records at these positions are, and their values; `runs` are ranges that hold them."""
    found: dict[str, Located] = {}
    for ranges in runs:
        frame = frames.raw_records(ranges)
        rows = rows_at(frame, positions).toArrow().to_pylist() if frame is not None else []
        for row in rows:
            part, offset = place(row["_position"])
            found[row["_position"]] = Located(part.text, str(offset), row[RAW] or b"", row["_timestamp"])
    return found


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
