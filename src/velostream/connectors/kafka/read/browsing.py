"""Records of a topic as they are, for people who look at them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.connectors.kafka.client.cluster import TIMEOUT
from velostream.connectors.kafka.client.ranges import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from velostream.connectors.kafka.client.cluster import Cluster

_PAGE = 5000
"""The most records of one partition that are read at a time."""
_GROUP = "velostream-show"

SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("ms", "UTC")),
        pa.field("key", pa.string()),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("value", pa.string()),
    ]
)
"""The columns of `Browser`: keys, values and headers as text, or as \\\\x and hexadecimal digits."""

_TIME_UNKNOWN = 0


class Browser:
    """Reads one topic page by page; records of a page are in the order of their times."""

    def __init__(self, cluster: Cluster, topic: str, partitions: int) -> None:
        self._cluster = cluster
        self._reader = cluster.reader(_GROUP, reset="earliest")
        self._parts = [Part(topic, number) for number in range(partitions)]

    def bounds(self) -> tuple[dict[Part, int], dict[Part, int]]:
        """The first offset of each partition, and the one after its last record."""
        return self._cluster.earliest(self._parts), self._cluster.latest(self._parts)

    def ends(self) -> dict[Part, int]:
        """The offset after the last record of each partition."""
        return self._cluster.latest(self._parts)

    def first(self, most: int | None) -> Iterator[pa.Table]:
        """The oldest records, up to now, and no more than `most`."""
        start, end = self.bounds()
        left = most
        for page in self.between(start, end, most):
            rows = page if left is None else page.slice(0, left)
            if rows.num_rows:
                yield rows
            if left is not None:
                left -= rows.num_rows
                if left <= 0:
                    return

    def last(self, most: int) -> pa.Table:
        """The newest records, no more than `most`, the oldest of them first."""
        first, end = self.bounds()
        reach = most
        while True:
            # Offsets without a record (compacted, or marks of transactions) may leave too few.
            start = {part: max(first[part], end[part] - reach) for part in self._parts}
            found = pa.concat_tables([SCHEMA.empty_table(), *self.between(start, end, None)])
            if found.num_rows >= most or start == first:
                break
            reach *= 4
        found = found.sort_by([(name, "ascending") for name in ("timestamp", "partition", "offset")])
        return found.slice(max(0, found.num_rows - most))

    def between(
        self, start: Mapping[Part, int], end: Mapping[Part, int], most: int | None
    ) -> Iterator[pa.Table]:
        """The records of these ranges, in pages; `most` of any partition are enough for the first page."""
        size = _PAGE if most is None else max(1, min(most, _PAGE))
        at = dict(start)
        while any(at[part] < end[part] for part in at):
            upto = {part: min(end[part], at[part] + size) for part in at}
            ranges = {part: (at[part], upto[part]) for part in at}
            found, _ = self._reader.read(ranges, most=size * len(at), patience=TIMEOUT)
            if found:
                yield _rows(sorted(found, key=_order))
            at = upto

    def close(self) -> None:
        """Disconnect."""
        self._reader.close()


def _order(message: Any) -> tuple[int, int, int]:
    return message.timestamp()[1], message.partition(), message.offset()


def _rows(messages: list[Any]) -> pa.Table:
    columns = [
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [_time(message) for message in messages],
        [_text(message.key()) for message in messages],
        [_headers(message) for message in messages],
        [_text(message.value()) for message in messages],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.table(arrays, schema=SCHEMA)


def _headers(message: Any) -> list[tuple[str, str | None]] | None:
    return [(name, _text(value)) for name, value in message.headers() or ()] or None


def _time(message: Any) -> int | None:
    kind, millis = message.timestamp()
    return None if kind == _TIME_UNKNOWN else int(millis)


def _text(value: bytes | None) -> str | None:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"
