"""What a process that is killed leaves in the log of changes, for each kind of statement in a binlog."""

from __future__ import annotations

import struct
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from velostream.connectors.databases.change_log import ChangeLog
from velostream.connectors.databases.source import ChangesLostError
from velostream.connectors.mysql.read.binlog.protocol import Binlog, Position
from velostream.connectors.mysql.read.transactions import Following

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from velostream.connectors.mysql.read.changes import TableChanges

QUERY, XID, TABLE_MAP, WRITE, XA_PREPARE, GTID = 2, 16, 19, 23, 38, 162
LONGLONG = 8
TABLE = bytes(5) + b"\x01"
FILE = "b.000001"
LONG = 5 << 20
"""More bytes of rows than are kept in memory."""


class KilledError(BaseException):
    """The process ends here."""


class Server:
    """Sends events, as many at a time as are given, and then the process is killed."""

    mariadb = True

    def __init__(self, *received: Sequence[bytes]) -> None:
        self._received = list(received)
        self.started: Position | None = None

    def start(self, after: Position) -> None:
        self.started = after

    def receive(self, timeout: float) -> list[bytes]:
        if not self._received:
            raise KilledError
        return list(self._received.pop(0))


class Orders:
    """The table: each of its row events is a row."""

    table = ("shop", "orders")

    def rows(
        self, events: Sequence[bytes], layout: object, times: Sequence[int], first: int
    ) -> tuple[pa.Table, list[Any]]:
        return pa.table({"n": pa.array([int.from_bytes(e[29:37], "little") for e in events], pa.int64())}), []

    def no_rows(self) -> pa.Table:
        return pa.table({"n": pa.array([], pa.int64())})

    def saw(self, position: Position) -> None:
        """Nobody asks."""

    def take_columns(self, layout: object) -> None:
        """All are taken."""

    def altered(self) -> None:
        raise ChangesLostError("a column was added with a value")


def head(kind: int, end: int) -> bytes:
    return struct.pack("<IBIIIH", 1, kind, 1, 0, end, 0)


def begin(end: int, *, alone: bool = False) -> bytes:
    return head(GTID, end) + bytes(12) + bytes([alone]) + bytes(8)


def mapped(end: int) -> bytes:
    names = b"\x01n"
    return (
        head(TABLE_MAP, end) + TABLE + bytes(2) + b"\x04shop\0\x06orders\0"
        + bytes([1, LONGLONG, 0, 0, 4, len(names)]) + names
    )  # fmt: skip


def row(end: int, number: int, *, size: int = 0) -> bytes:
    return head(WRITE, end) + TABLE + b"\x01\0" + bytes(2) + number.to_bytes(8, "little") + bytes(size)


def commit(end: int) -> bytes:
    return head(XID, end) + bytes(8)


def said(end: int, text: str) -> bytes:
    return head(QUERY, end) + struct.pack("<IIBHH", 0, 0, 4, 0, 0) + b"shop\0" + text.encode()


def prepared(end: int, name: bytes) -> bytes:
    return head(XA_PREPARE, end) + bytes(1) + struct.pack("<III", 1, len(name), 0) + name


def log_of(folder: Path) -> ChangeLog:
    log = ChangeLog(folder, "job")
    log.open()
    return log


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    """A log that has a load of two rows."""
    made = log_of(tmp_path)
    made.begin_load(0)
    loaded = pa.table({"n": pa.array([1, 2], pa.int64())})
    made.append(loaded, {"file": FILE, "at": 4}, whole=True)
    return made


def follow(log: ChangeLog, *received: Sequence[bytes]) -> None:
    """Receive events, and be killed."""
    server = cast("Binlog", Server(*received))
    start = Position.load(log.position)
    told = {"made": 0, "server": "1"}
    orders = cast("TableChanges", Orders())
    Following(orders, server, log, start, told, until=None, after=None).run(Event())


def there(log: ChangeLog) -> list[int]:
    return [n for _, batch in log.between(None, log.end) for n in batch["n"].to_pylist()]


def at(log: ChangeLog) -> int:
    return int(log.position["at"])


INSERTED = [begin(100), mapped(120), row(150, 3), commit(200)]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("TRUNCATE orders", KilledError),
        ("RENAME TABLE orders TO old, new TO orders", ChangesLostError),
        ("ALTER TABLE orders TRUNCATE PARTITION p1", ChangesLostError),
        ("ALTER TABLE orders ADD COLUMN paid int DEFAULT 7", ChangesLostError),
        ("XA COMMIT X'61',X'',1", ChangesLostError),
    ],
)
def test_a_statement_that_is_not_in_the_log_as_a_whole_comes_again(
    log: ChangeLog, tmp_path: Path, statement: str, error: type[BaseException]
) -> None:
    """It came with a transaction before it, and we are killed before what it means is written."""
    with pytest.raises(error):
        follow(log, [*INSERTED, begin(250, alone=True), said(300, statement)])
    again = log_of(tmp_path)
    assert (there(again), at(again)) == ([1, 2, 3], 200)
    if error is KilledError:
        with pytest.raises(KilledError):
            follow(again, [begin(250, alone=True), said(300, statement)], [])
        again = log_of(tmp_path)
        assert (there(again), at(again)) == ([], 300)


def test_a_truncation_before_a_transaction_that_is_taken_back(log: ChangeLog, tmp_path: Path) -> None:
    """Parts of a long transaction that is only prepared are forgotten, and nothing but they."""
    truncated = [begin(50, alone=True), said(60, "TRUNCATE orders")]
    long = [begin(100), mapped(120), row(150, 3, size=LONG), row(160, 4), prepared(200, b"a")]
    with pytest.raises(KilledError):
        follow(log, [*truncated, *long], [])
    again = log_of(tmp_path)
    assert (there(again), at(again)) == ([], 60)


def test_a_transaction_of_two_phases_that_changed_nothing_of_ours(log: ChangeLog, tmp_path: Path) -> None:
    others = [begin(100), prepared(200, b"a"), begin(250), said(300, "XA COMMIT X'61',X'',1")]
    with pytest.raises(KilledError):
        follow(log, [*others, begin(310), mapped(320), row(350, 3), commit(400)], [])
    again = log_of(tmp_path)
    assert (there(again), at(again)) == ([1, 2, 3], 400)
