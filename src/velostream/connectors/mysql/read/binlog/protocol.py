"""The replication protocol: a connection that receives the events of the server's binlog."""

from __future__ import annotations

import re
import secrets
import struct
import time
import uuid
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pymysql

from velostream.connectors.mysql.client.connections import dropped, mariadb, run
from velostream.connectors.mysql.client.packets import dumped, failed
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pymysql.connections import Connection

    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.client.packets import Packets

QUERY, ROTATE, FORMAT, XID, LOAD_QUERY, TABLE_MAP, HEARTBEAT = 2, 4, 15, 16, 18, 19, 27
GTID, ANONYMOUS, XA_PREPARE, PARTIAL_UPDATE, PAYLOAD, MARIADB_GTID = 33, 34, 38, 39, 40, 162
_COMPRESSED = {165: QUERY, 166: 23, 167: 24, 168: 25, 169: 30, 170: 31, 171: 32}
"""Events of MariaDB with `log_bin_compress`, and what they are."""
HEADER = 19
_FILE = re.compile(rb"[^\0]*\.\d{6,}(?=.{4}$|$)", re.DOTALL)
HEARTBEAT_SECONDS = 5.0
"""How often the server says something where no events come; after four times that, the connection is dead."""
_ROWS_HEAD = 8


@dataclass(frozen=True, order=True)
class Position:
    """A place in the binlog, between two events. Later ones are greater."""

    number: int
    """That of the file, which its name ends with."""
    at: int
    file: str

    @staticmethod
    def of(file: str, at: int) -> Position:
        """From the name of a file."""
        return Position(int(file.rpartition(".")[2]), at, file)

    @staticmethod
    def load(found: Mapping[str, Any]) -> Position:
        """From a position of the log of changes."""
        return Position.of(found["file"], int(found["at"]))

    def __str__(self) -> str:
        return f"{self.file}:{self.at}"


def here(connection: Connection) -> tuple[Position, str, str]:
    """Where the binlog ends now, and which databases the server writes to it, and which not."""
    try:
        found = run(connection, "SHOW MASTER STATUS")
    except pymysql.ProgrammingError:
        # Removed in MySQL 8.4.
        found = run(connection, "SHOW BINARY LOG STATUS")
    if not found:
        raise SourceConfigError(
            "the server writes no binlog", hint="set log_bin and server_id, and restart it"
        )
    file, at, only, ignored = found[0][:4]
    return Position.of(file, int(at)), str(only or ""), str(ignored or "")


def earliest(connection: Connection) -> Position:
    """Where the first binlog that the server still has begins."""
    return Position.of(run(connection, "SHOW BINARY LOGS")[0][0], 4)


class Binlog:
    """One connection that receives events, each with its header and without a checksum."""

    def __init__(self, client: Client) -> None:
        self._connection = client.connect(for_good=True)
        self.mariadb = mariadb(self._connection)
        self._packets: Packets | None = None
        self._checked = 0
        """The bytes of checksums at the end of events."""
        self._heard_at = time.monotonic()
        self._heard = 0
        """Bytes that had come then."""

    def start(self, after: Position) -> None:
        """Ask for the events after a position.

        Of each connection the server knows another number: it ends one whose number comes again.
        """
        period = round(HEARTBEAT_SECONDS * 1_000_000_000)
        settings = [
            "@master_binlog_checksum = @@GLOBAL.binlog_checksum",
            "@source_binlog_checksum = @@GLOBAL.binlog_checksum",
            f"@master_heartbeat_period = {period}",
            f"@source_heartbeat_period = {period}",
        ]
        if self.mariadb:
            settings.append("@mariadb_slave_capability = 4")
        else:
            name = str(uuid.uuid4())
            settings += [f"@slave_uuid = '{name}'", f"@replica_uuid = '{name}'"]
        run(self._connection, f"SET {', '.join(settings)}")
        number = secrets.randbelow(1 << 31) + (1 << 30)
        asked = struct.pack("<IHI", after.at, 0, number) + after.file.encode()
        self._packets = dumped(self._connection, asked)
        self._heard_at = time.monotonic()

    def receive(self, timeout: float) -> list[bytes]:
        """The events that have come; none where none came within `timeout` seconds."""
        assert self._packets is not None, "start was called"
        found = self._packets.read(timeout)
        now, silence = time.monotonic(), 4 * HEARTBEAT_SECONDS
        # A long event comes in many parts.
        if self._packets.received > self._heard:
            self._heard_at, self._heard = now, self._packets.received
        elif now - self._heard_at > silence:
            raise pymysql.OperationalError(2013, f"the server was silent for {silence:.0f} s")
        events = []
        for packet in found:
            if packet[0]:
                failed(packet)
                raise pymysql.OperationalError(2013, "the server ended the binlog")
            if packet[5] == FORMAT:
                # It ends with how events are checked, and always with four bytes for that.
                self._checked = 4 * (packet[-5] == 1)
            event = packet[1 : len(packet) - self._checked]
            events.append(_expanded(event) if event[4] in _COMPRESSED else event)
        return events

    def close(self) -> None:
        """Close the connection: the server notices when it sends the next event."""
        dropped(self._connection)


def _expanded(event: bytes) -> bytes:
    """A compressed event as the one it was made of; positions in its header stay."""
    kind = _COMPRESSED[event[4]]
    at = _packed_at(event, kind)
    head = event[at]
    size = head & 7
    body = zlib.decompress(event[at + 1 + size :])
    return event[:4] + bytes([kind]) + event[5:at] + body


def _packed_at(event: bytes, kind: int) -> int:
    """Where the compressed part begins: after the columns of a table, or the state of a statement."""
    if kind == QUERY:
        names, variables = event[HEADER + 8], int.from_bytes(event[HEADER + 11 : HEADER + 13], "little")
        return HEADER + 13 + variables + names + 1
    at = HEADER + _ROWS_HEAD
    if kind >= 30:
        at += event[at] | event[at + 1] << 8
    columns = event[at]
    at += 1
    if columns >= 0xFB:
        columns = event[at] | event[at + 1] << 8
        at += 2
    return at + (columns + 7) // 8 * (2 if kind in (24, 31) else 1)


def statement_of(event: bytes) -> tuple[str, str]:
    """The database in which a statement ran, and its text, of an event that holds one."""
    size, names = event[HEADER + 8], int.from_bytes(event[HEADER + 11 : HEADER + 13], "little")
    at = HEADER + 13 + (13 if event[4] == LOAD_QUERY else 0) + names
    schema = event[at : at + size].decode("utf-8", "replace")
    return schema, event[at + size + 1 :].decode("utf-8", "replace")


def rotated_to(event: bytes) -> Position:
    """The beginning of the next binlog; the event may have a checksum before that is known."""
    found = _FILE.match(event[27:])
    assert found is not None, f"a binlog called {event[27:]!r}"
    return Position.of(found[0].decode(), int.from_bytes(event[19:27], "little"))


def committed_at(event: bytes) -> int:
    """Microseconds since 1970: MySQL's GTID events have them, the header of others only seconds."""
    if event[4] in (GTID, ANONYMOUS) and len(event) >= 68:
        return int.from_bytes(event[61:67], "little") | (event[67] & 0x7F) << 48
    return int.from_bytes(event[:4], "little") * 1_000_000
