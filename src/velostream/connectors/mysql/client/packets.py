"""Packets of a connection as they come, many at a time.

The driver reads one packet in about five microseconds, and turns each row into Python objects. Here what has
come is cut into packets in one go, and the rows of many are read by numpy.
"""

from __future__ import annotations

import struct
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pymysql
from pymysql.constants import COMMAND
from pymysql.cursors import SSCursor
from pymysql.err import raise_mysql_exception

from velostream.connectors.databases.sockets import readable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt
    from pymysql.connections import Connection

    Integers = npt.NDArray[np.int64]
    Bytes = npt.NDArray[np.uint8]
    Flags = npt.NDArray[np.bool_]

ERROR, END = 0xFF, 0xFE
_CHUNK = 1 << 18
_LONGEST = 0xFFFFFF
"""A packet of this size goes on in the next one."""
_SHORT_END = 9
_SIZE = struct.Struct("<I")


class Packets:
    """The answer to a command that was sent on a connection, after what the driver has read of it."""

    def __init__(self, connection: Connection) -> None:
        self._socket: Any = connection._sock
        self._file: Any = connection._rfile
        self._most_silence: float | None = connection._read_timeout
        self._parts: list[bytes] = []
        self._have = 0
        self._need = 4
        self._long: list[bytes] = []
        self._begun = False
        self.received = 0
        """Bytes, those of packets that have come in part included."""

    def read(self, timeout: float | None = None) -> list[bytes]:
        """The packets that have come; none where nothing came within `timeout` seconds.

        Without a `timeout` the server may be silent for as long as the connection allows.
        """
        if self._begun and not self._readable(self._most_silence if timeout is None else timeout):
            if timeout is None:
                raise pymysql.OperationalError(2013, f"the server was silent for {self._most_silence:.0f} s")
            return []
        # What the driver has read ahead comes first: it cannot be seen at the socket.
        self._begun = True
        chunk = self._file.read1(_CHUNK)
        if not chunk:
            raise pymysql.OperationalError(2013, "the server closed the connection")
        self.received += len(chunk)
        self._parts.append(chunk)
        self._have += len(chunk)
        return self._cut() if self._have >= self._need else []

    def _readable(self, timeout: float | None) -> bool:
        pending = getattr(self._socket, "pending", None)
        if pending is not None and pending():
            return True
        return readable(self._socket.fileno(), timeout)

    def _cut(self) -> list[bytes]:
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        found: list[bytes] = []
        at, end, size_at = 0, len(data), _SIZE.unpack_from
        self._need = 4
        while end - at >= 4:
            size = size_at(data, at)[0] & _LONGEST
            stop = at + 4 + size
            if stop > end:
                self._need = stop - at
                break
            packet = data[at + 4 : stop]
            at = stop
            if size == _LONGEST:
                self._long.append(packet)
            elif self._long:
                found.append(b"".join([*self._long, packet]))
                self._long = []
            else:
                found.append(packet)
        rest = data[at:]
        self._parts, self._have = [rest] if rest else [], len(rest)
        return found


@contextmanager
def answered(connection: Connection, query: str, values: Sequence[Any] | None) -> Iterator[Packets]:
    """The rows of a query as packets; a connection whose answer was not read to its end is of no use."""
    # The cursor must live: when it is forgotten it reads the rows itself.
    cursor = connection.cursor(SSCursor)
    cursor.execute(query, values)
    result: Any = connection._result
    result.unbuffered_active, result.connection = False, None
    try:
        yield Packets(connection)
    except BaseException:
        connection._force_close()
        raise
    connection._result = None


def dumped(connection: Connection, asked: bytes) -> Packets:
    """The events of the binlog, from where `asked` says."""
    connection._execute_command(COMMAND.COM_BINLOG_DUMP, asked)
    return Packets(connection)


def fields_of(connection: Connection, query: str, values: Sequence[Any] | None) -> list[Any]:
    """The columns of a query's result, as the protocol describes them."""
    with connection.cursor() as cursor:
        cursor.execute(query, values)
        result: Any = cursor._result
        return list(result.fields)


def failed(packet: bytes) -> bool:
    """Raise the error that a packet holds; False where it holds none."""
    if packet[0] == ERROR:
        raise_mysql_exception(packet)
    return False


def ended(packet: bytes) -> bool:
    """Whether it ends the rows of a result."""
    return packet[0] == END and len(packet) < _SHORT_END


ROOM = 32
"""Bytes that may be read from any place on: no value of a fixed size takes more (DECIMAL(65,30) takes 30)."""


def joined(packets: Sequence[bytes]) -> tuple[Bytes, Integers]:
    """The bytes of packets in one array, with `ROOM` after its end, and where each begins."""
    data = np.frombuffer(b"".join([*packets, bytes(ROOM)]), dtype=np.uint8)
    lengths = np.fromiter(map(len, packets), dtype=np.int64, count=len(packets))
    starts = np.zeros(len(packets), dtype=np.int64)
    np.cumsum(lengths[:-1], out=starts[1:])
    return data, starts


def little(data: Bytes, at: Integers, width: int) -> Integers:
    """Unsigned numbers of some bytes, the least first; at most 7, or 8 whose first bit counts as a sign."""
    made = data[at].astype(np.int64)
    for place in range(1, width):
        made |= data[at + place].astype(np.int64) << (8 * place)
    return made


def gathered(data: Bytes, starts: Integers, lengths: Integers, valid: Flags) -> pa.Array:
    """Values as bytes, null where they are not valid."""
    lengths = np.where(valid, lengths, 0)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    total = int(offsets[-1])
    places = np.repeat(starts - offsets[:-1], lengths)
    places += np.arange(total, dtype=np.int64)
    nulls = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    large = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(lengths),
        [nulls, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(data[places]))],
    )
    return large.cast(pa.binary())


_NULL, _TWO, _THREE, _EIGHT = 0xFB, 0xFC, 0xFD, 0xFE


def text_rows(packets: Sequence[bytes], columns: int) -> list[pa.Array]:
    """The values of rows of the text protocol as bytes, by column."""
    data, at = joined(packets)
    found = []
    for _ in range(columns):
        first = data[at].astype(np.int64)
        sizes, heads = first.copy(), np.ones(len(at), dtype=np.int64)
        valid = first != _NULL
        sizes[~valid] = 0
        for mark, width in ((_TWO, 2), (_THREE, 3), (_EIGHT, 8)):
            which = first == mark
            if which.any():
                sizes[which] = little(data, at[which] + 1, width)
                heads[which] += width
        found.append(gathered(data, at + heads, sizes, valid))
        at = at + heads + sizes
    return found
