"""Places in topics: where reading begins, and which of two records is later."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.read.dataframes import OFFSET_WIDTH
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from velostream.connectors.kafka.client.cluster import Cluster
    from velostream.connectors.kafka.options import KafkaOptions

Ranges = dict[Part, tuple[int, int]]
_FAR = 20_000
"""Records further apart than this are read in separate ranges."""
_MOST_RUNS = 20
"""The most separate ranges of one partition."""
_EARLIEST, _LATEST = -2, -1
"""Values of `starting.offsets` for the beginning and the end, as in Spark."""


def starting(
    options: KafkaOptions, cluster: Cluster, parts: Sequence[Part], *, whole: bool
) -> dict[Part, int]:
    """The first offset to read of each partition; by default the oldest, or the end if not `whole`."""
    if options.starting_timestamp is not None:
        return cluster.at_time(parts, _millis(options.starting_timestamp))
    reset = options.auto_offset_reset or ("earliest" if whole else "latest")
    first = cluster.latest(parts) if reset == "latest" else cluster.earliest(parts)
    if options.starting_offsets is None:
        return first
    given = _given_offsets(options.starting_offsets)
    unknown = set(given) - set(parts)
    if unknown:
        raise SourceConfigError(
            f'"starting.offsets" names {min(unknown).text}, which is not read',
            hint=f"the source has {', '.join(part.text for part in parts)}",
        )
    named = {_EARLIEST: cluster.earliest, _LATEST: cluster.latest}
    return {
        part: named[given[part]]([part])[part] if given.get(part) in named else given.get(part, first[part])
        for part in parts
    }


def sequence(positions: pa.ChunkedArray) -> pa.Array:
    """Numbers that sort in the order of the records with these positions.

    Within a partition by offset; across partitions by time, for a key that has moved from one to another.
    """
    texts = positions.combine_chunks()
    offsets = _digits(texts, 0, OFFSET_WIDTH)
    times = _digits(texts, OFFSET_WIDTH, 2 * OFFSET_WIDTH)
    parts = pc.utf8_slice_codeunits(texts, 2 * OFFSET_WIDTH).dictionary_encode()
    if len(parts.dictionary) <= 1:
        return pa.array(offsets)
    codes = parts.indices.to_numpy()
    by_part = np.lexsort((offsets, codes))
    # Timestamps are made non-decreasing within a partition, whatever the producers' clocks said.
    for code in range(len(parts.dictionary)):
        place = by_part[codes[by_part] == code]
        times[place] = np.maximum.accumulate(times[place])
    ranks = np.empty(len(texts), dtype=np.int64)
    ranks[np.lexsort((offsets, codes, times))] = np.arange(len(texts))
    return pa.array(ranks)


def place(position: str) -> tuple[Part, int]:
    """The partition and the offset of a record, from its `_position`."""
    return Part.of(position[2 * OFFSET_WIDTH :]), int(position[:OFFSET_WIDTH])


def runs(positions: Collection[str], first: Mapping[Part, int], last: Mapping[Part, int]) -> list[Ranges]:
    """Offset ranges, within the bounds, that contain the records at these positions.

    One range of each partition at a time: records far apart are not read with everything between them.
    """
    offsets: dict[Part, list[int]] = {}
    for part, offset in map(place, positions):
        if first.get(part, 0) <= offset < last.get(part, 0):
            offsets.setdefault(part, []).append(offset)
    found: list[Ranges] = []
    for part, wanted in offsets.items():
        for number, bounds in enumerate(_near(sorted(wanted))):
            if number == len(found):
                found.append({})
            found[number][part] = bounds
    return found


def _near(offsets: list[int]) -> list[tuple[int, int]]:
    """Offsets grouped into ranges of near ones."""
    gaps = sorted((b - a for a, b in pairwise(offsets)), reverse=True)
    far = max(_FAR, gaps[_MOST_RUNS - 1]) if len(gaps) >= _MOST_RUNS else _FAR
    found = [[offsets[0], offsets[0] + 1]]
    for offset in offsets[1:]:
        if offset - found[-1][1] > far:
            found.append([offset, offset + 1])
        found[-1][1] = offset + 1
    return [(first, last) for first, last in found]


def _digits(texts: pa.Array, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    numbers = pc.utf8_slice_codeunits(texts, start, stop).cast(pa.int64())
    return np.array(numbers, dtype=np.int64)


def _given_offsets(text: str) -> dict[Part, int]:
    try:
        return {
            Part(topic, int(number)): int(offset)
            for topic, parts in json.loads(text).items()
            for number, offset in parts.items()
        }
    except (ValueError, AttributeError, TypeError) as exc:
        raise SourceConfigError(
            f'"starting.offsets" cannot be read: {exc}',
            hint='write {"topic": {"0": 42}}; -2 is the beginning of a partition, -1 its end',
        ) from exc


def _millis(text: str) -> int:
    if text.strip().isdigit():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as exc:
        raise SourceConfigError(
            f'"starting.timestamp" cannot be read: {text}',
            hint="write 2026-05-01T12:00:00Z, or milliseconds since 1970",
        ) from exc
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
