"""The replication protocol of PostgreSQL: messages in, acknowledgements out."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result

from velostream.connectors.databases.sockets import readable
from velostream.connectors.databases.source import stopped

if TYPE_CHECKING:
    import threading

    from velostream.connectors.postgres.client.connections import Client

_EPOCH = 946_684_800
"""2000-01-01 in seconds since 1970: times of the protocol are counted from there."""
_DATA, _KEEPALIVE = b"wk"
_HEADER = 25
_WAIT = 0.2
_STATUS = struct.Struct(">cQQQQ?")
SILENCE_SECONDS = 60.0
"""`wal_sender_timeout` where the server has none."""


class Replication:
    """One connection that receives the changes of a slot. A slot serves one connection at a time."""

    def __init__(self, client: Client) -> None:
        self._connection = client.connect(replication=True)
        self._raw = self._connection.pgconn
        self._acknowledged = 0
        self.server_end = 0
        """How far the server has read its WAL for us; changes before it have all been received."""
        self._heard_at = self._asked_at = time.monotonic()
        self._most_silence = 2 * SILENCE_SECONDS

    def create_slot(self, name: str, stop: threading.Event, *, temporary: bool = False) -> tuple[int, str]:
        """Create a slot; its first LSN, and the name of a snapshot of what was there before.

        The server waits for every transaction that is under way; `stop` ends the wait. The snapshot can be
        used until the next command on this connection, with which a temporary slot ends.
        """
        text = sql.SQL("CREATE_REPLICATION_SLOT {} {} LOGICAL pgoutput EXPORT_SNAPSHOT").format(
            sql.Identifier(name), sql.SQL("TEMPORARY" if temporary else "")
        )
        self._raw.send_query(text.as_bytes(self._connection))
        while self._raw.is_busy():
            stopped(stop)
            if readable(self._raw.socket, _WAIT):
                self._raw.consume_input()
        result = self._raw.get_result()
        assert result is not None
        if result.status != pq.ExecStatus.TUPLES_OK:
            raise error_from_result(result)
        while self._raw.get_result() is not None:
            pass
        place, snapshot = result.get_value(0, 1), result.get_value(0, 2)
        assert place is not None
        assert snapshot is not None
        return lsn_of(place.decode()), snapshot.decode()

    def start(self, slot: str, publication: str, after: int) -> None:
        """Begin to receive the transactions that were committed after an LSN."""
        text = sql.SQL(
            "START_REPLICATION SLOT {} LOGICAL {} (proto_version '1', publication_names {})"
        ).format(sql.Identifier(slot), sql.SQL(lsn_text(after)), sql.Literal(_quoted(publication)))
        setting = "SELECT setting::bigint FROM pg_settings WHERE name = 'wal_sender_timeout'"
        found = self._execute(sql.Composed([sql.SQL(setting)])).get_value(0, 0)
        self._most_silence = 2 * (int(found or 0) / 1000 or SILENCE_SECONDS)
        self._execute(text, expected=pq.ExecStatus.COPY_BOTH)
        self._acknowledged = self.server_end = after
        self._heard_at = self._asked_at = time.monotonic()

    def _execute(
        self, text: sql.Composed, expected: pq.ExecStatus = pq.ExecStatus.TUPLES_OK
    ) -> pq.abc.PGresult:
        result = self._raw.exec_(text.as_bytes(self._connection))
        if result.status != expected:
            raise error_from_result(result)
        return result

    def receive(self, timeout: float) -> bytes | None:
        """The next message of the plugin; None where none came within `timeout` seconds.

        A server that stays silent for twice its `wal_sender_timeout` is given up: it sends something more
        often than that, and answers when it is asked.
        """
        while True:
            size, data = self._raw.get_copy_data(1)
            if size > 0:
                self._heard_at = time.monotonic()
                if data[0] == _DATA:
                    return bytes(data[_HEADER:])
                if data[0] == _KEEPALIVE:
                    self._kept_alive(bytes(data))
                continue
            if size < 0:
                raise self._ended()
            if timeout < 0:
                return None
            if not readable(self._raw.socket, timeout):
                self._check_silence()
                return None
            self._raw.consume_input()
            timeout = -1

    def _check_silence(self) -> None:
        now = time.monotonic()
        silence = now - self._heard_at
        if silence > self._most_silence:
            raise psycopg.OperationalError(f"the server was silent for {silence:.0f} s")
        if silence > self._most_silence / 2 and now - self._asked_at > self._most_silence / 8:
            self._asked_at = now
            self._send_status(answer=True)

    def _kept_alive(self, data: bytes) -> None:
        (end,) = struct.unpack_from(">Q", data, 1)
        self.server_end = max(self.server_end, end)
        if data[17]:
            self.acknowledge(self._acknowledged)

    def _ended(self) -> psycopg.Error:
        result = self._raw.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            return error_from_result(result)
        return psycopg.OperationalError("the server ended the replication")

    def acknowledge(self, lsn: int) -> None:
        """Tell the server that everything before an LSN is durable here, so that it may forget it."""
        self._acknowledged = max(lsn, self._acknowledged)
        self._send_status(answer=False)

    def _send_status(self, *, answer: bool) -> None:
        lsn = self._acknowledged
        now = int((time.time() - _EPOCH) * 1_000_000)
        self._raw.put_copy_data(_STATUS.pack(b"r", lsn, lsn, lsn, now, answer))
        self._raw.flush()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


def lsn_of(text: str) -> int:
    """An LSN such as `0/16B3748` as a number."""
    high, low = text.split("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def moment(micros: int) -> int:
    """Microseconds since 1970 of a time of the protocol."""
    return micros + _EPOCH * 1_000_000


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
