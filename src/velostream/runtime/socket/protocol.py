"""The protocol of the socket: frames, and Python values in them.

One request per connection: a frame, and frames back until one says `end`. A frame is the length of a JSON
header (4 bytes, big endian), the header, and the Arrow IPC streams whose sizes the header's `tables` lists.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from velostream.errors import ConnectionFailedError, TableError
from velostream.model.jobs import JobInfo, JobState, JobStats, PartitionStats
from velostream.serving.columns.values import to_python
from velostream.serving.table.stats import MemoryUse, TableStats

if TYPE_CHECKING:
    import socket
    from threading import Event

PROTOCOL = 3

_LENGTH = struct.Struct(">I")
_MOST_HEADER = 64 << 20

Frame = tuple[Mapping[str, Any], Sequence[pa.Table]]
"""A header and its tables."""


@dataclass(frozen=True)
class Request:
    """A request as the server got it."""

    header: Mapping[str, Any]
    tables: Sequence[pa.Table]
    stop: Event
    """Set when the client has left, or the server ends."""

    @property
    def text(self) -> str:
        """The SQL of the request."""
        return str(self.header.get("text", ""))

    @property
    def read_only(self) -> bool:
        """Whether the client asked that nothing is changed."""
        return bool(self.header.get("read_only"))


def send(connection: socket.socket, header: Mapping[str, Any], *tables: pa.Table) -> None:
    """Write one frame."""
    parts = [_ipc(table) for table in tables]
    body = json.dumps({**header, "tables": [len(part) for part in parts]}).encode()
    connection.sendall(b"".join([_LENGTH.pack(len(body)), body, *parts]))


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[pa.Table]] | None:
    """Read one frame; None when the other side has closed."""
    start = _exactly(connection, _LENGTH.size)
    if start is None:
        return None
    (length,) = _LENGTH.unpack(start)
    if length > _MOST_HEADER:
        raise ConnectionFailedError("what answers on the socket does not speak our protocol")
    body = _exactly(connection, length)
    if body is None:
        return None
    header: dict[str, Any] = json.loads(body)
    tables = []
    for size in header.get("tables", ()):
        content = _exactly(connection, size)
        if content is None:
            return None
        tables.append(pa.ipc.open_stream(content).read_all())
    return header, tables


def _ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


# --- values -----------------------------------------------------------------------------------------


def row_of(values: Mapping[str, Any]) -> pa.Table:
    """Values as the one row of a table, so that each keeps its type."""
    columns = {}
    for name, value in values.items():
        try:
            columns[name] = pa.array([_sent(value)])
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as exc:
            raise TableError(
                f"{value!r} cannot be sent to the process that holds the data directory",
                detail=f'"{name}" is a Python {type(value).__name__}',
                hint="pass numbers, texts, bytes, dates, timestamps, decimals, or lists and dicts of them",
            ) from exc
    return pa.table(columns)


def _sent(value: Any) -> Any:
    """Arrow has no integers beyond 64 bits."""
    large = type(value) is int and not -(1 << 63) <= value < 1 << 63
    return Decimal(value) if large else value


def values_of(row: pa.Table) -> dict[str, Any]:
    """The values of `row_of`."""
    return {name: to_python(row.column(name))[0] for name in row.schema.names}


def keys_table(keys: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Keys as rows. A column of mixed types is sent as one row of single values, see `keys_of`."""
    widths = set(map(len, keys))
    if len(widths) == 1 and all(len(set(map(type, column))) == 1 for column in zip(*keys, strict=True)):
        try:
            columns = [pa.array(list(column)) for column in zip(*keys, strict=True)]
            return pa.table(columns, [str(place) for place in range(len(columns))])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            pass
    return row_of(
        {f"{number}.{place}": value for number, key in enumerate(keys) for place, value in enumerate(key)}
    )


def keys_of(table: pa.Table) -> list[tuple[Any, ...]]:
    """The keys of `keys_table`."""
    if not any("." in name for name in table.schema.names):
        return list(zip(*(to_python(column) for column in table.columns), strict=True))
    keys: dict[str, list[Any]] = {}
    for name, value in values_of(table).items():
        keys.setdefault(name.partition(".")[0], []).append(value)
    return [tuple(key) for key in keys.values()]


# --- figures ----------------------------------------------------------------------------------------


def figures(told: JobInfo | TableStats) -> dict[str, Any]:
    """Statistics as JSON."""
    found: dict[str, Any] = json.loads(json.dumps(asdict(told), default=datetime.isoformat))
    return found


def job_info(found: Mapping[str, Any]) -> JobInfo:
    """The statistics of a job from `figures`."""
    stats = dict(found["stats"])
    partitions = tuple(
        PartitionStats(**{**each, "event_time": _moment(each["event_time"])}) for each in stats["partitions"]
    )
    moments = {name: _moment(stats[name]) for name in ("watermark", "last_batch_at")}
    return JobInfo(
        **{
            **found,
            "state": JobState(found["state"]),
            "started_at": _moment(found["started_at"]),
            "stats": JobStats(**{**stats, **moments, "partitions": partitions}),
        }
    )


def table_stats(found: Mapping[str, Any]) -> TableStats:
    """The statistics of a table from `figures`."""
    return TableStats(
        **{**found, "last_updated": _moment(found["last_updated"]), "memory": MemoryUse(**found["memory"])}
    )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
