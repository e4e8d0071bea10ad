"""Messages of a slot, as they are written to the log of changes: a transaction is there as a whole."""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pytest

from velostream.connectors.databases.change_log import ChangeLog
from velostream.connectors.postgres.read import following
from velostream.connectors.postgres.read.following import Following, Layout
from velostream.connectors.postgres.read.watch import State

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from velostream.connectors.postgres.read.pgoutput import RelationMessage
    from velostream.connectors.postgres.read.replication import Replication

ORDERS = 7
RELATION = (
    b"R" + struct.pack(">I", ORDERS) + b"public\0orders\0d" + struct.pack(">H", 1)
    + b"\1id\0" + struct.pack(">Ii", 23, -1)
)  # fmt: skip
INSERT = b"I" + struct.pack(">I", ORDERS) + b"N" + struct.pack(">H", 1) + b"t" + struct.pack(">I", 1) + b"1"


class StoppedError(BaseException):
    """There are no more messages."""


class Slot:
    """Sends messages, and looks after each of them at what can be read."""

    server_end = 0

    def __init__(self, changes: ChangeLog, messages: Sequence[bytes | None]) -> None:
        self._changes, self._left = changes, list(messages)
        self.seen: list[int] = []

    def receive(self, timeout: float) -> bytes | None:
        self.seen.append(self._changes.end)
        if not self._left:
            raise StoppedError
        return self._left.pop(0)

    def acknowledge(self, lsn: int) -> None:
        """Nobody minds."""


class Orders:
    def look(self) -> State:
        return State(ORDERS, 1, "a", (), ("id",), False, "p", {})

    def layout(self, message: RelationMessage, *, old: bool) -> Layout:
        return Layout(message.columns, [])

    def rows(
        self, layout: Layout | None, messages: list[bytes], entered: pa.Array, first: int
    ) -> tuple[pa.Table, list[Any]]:
        return pa.table({"n": pa.array(range(len(messages)), pa.int64())}), []

    def saw(self, lsn: int) -> None:
        """Nobody asks."""

    def acknowledging(self, lsn: int) -> None:
        """Nobody asks."""


def begin(lsn: int) -> bytes:
    return b"B" + struct.pack(">QQI", lsn, 0, 1)


def commit(lsn: int) -> bytes:
    return b"C\0" + struct.pack(">QQQ", lsn, lsn + 1, 0)


def ends_seen(folder: Path, messages: Sequence[bytes | None]) -> list[int]:
    """How many rows could be read after each of the messages."""
    changes = ChangeLog(folder, "job")
    changes.open()
    changes.begin_load(0)
    changes.append(pa.table({"n": pa.array([], pa.int64())}), {"lsn": 10}, whole=True)
    slot = Slot(changes, messages)
    with pytest.raises(StoppedError):
        Following(Orders(), cast("Replication", slot), changes).run(threading.Event(), 60.0)
    return slot.seen


@pytest.fixture(autouse=True)
def few_messages_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "MOST_MESSAGES", 3)


@pytest.mark.parametrize("paused", [False, True])
def test_a_transaction_after_one_without_our_rows(tmp_path: Path, paused: bool) -> None:
    """Such as one of another table of the same publication."""
    pause: list[bytes | None] = [None] if paused else []
    other = [begin(20), commit(20), *pause]
    ours = [begin(30), RELATION, *[INSERT] * 10]
    seen = ends_seen(tmp_path, [*other, *ours, *pause, commit(30), None])
    assert set(seen[:-1]) == {0}
    assert seen[-1] == 10


def test_transactions_of_many_parts_one_after_the_other(tmp_path: Path) -> None:
    first, second = [begin(20), RELATION, *[INSERT] * 7], [begin(30), *[INSERT] * 8]
    seen = ends_seen(tmp_path, [*first, commit(20), *second, commit(30), None])
    assert set(seen) == {0, 7, 15}
