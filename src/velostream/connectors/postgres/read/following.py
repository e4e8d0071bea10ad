"""The messages of a slot, written to the log: whole transactions, and the parts of long ones."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from velostream.connectors.databases.rows import UTC_TIME
from velostream.connectors.databases.source import ChangesLostError
from velostream.connectors.postgres.read import pgoutput
from velostream.connectors.postgres.read.replication import moment

if TYPE_CHECKING:
    import threading

    from velostream.connectors.databases.change_log import ChangeLog, SetAside
    from velostream.connectors.databases.text_rows import TextColumn
    from velostream.connectors.postgres.read.replication import Replication
    from velostream.connectors.postgres.read.watch import State

MOST_MESSAGES = 20_000
"""Row messages that are read into columns at a time."""
_MOST_BYTES = 16 << 20
_WAIT = 0.2
"""Seconds to wait for a message before looking whether to stop."""
ACKNOWLEDGED_EVERY = 1.0
IDLE_EVERY = 10.0
"""Seconds between two acknowledgements of WAL that has nothing of ours: each is recorded before."""


@dataclass(frozen=True)
class Layout:
    """The columns of messages, in their order."""

    told: tuple[tuple[str, int, int, bool], ...]
    columns: list[TextColumn]


class Followed(Protocol):
    """The table that is followed, as the messages see it."""

    def look(self) -> State:
        """How it is stored now; raises where it was changed by what no message tells."""

    def layout(self, message: pgoutput.RelationMessage, *, old: bool) -> Layout:
        """The columns of the messages that follow; `old`: of before it began to be followed."""

    def rows(
        self, layout: Layout | None, messages: list[bytes], entered: pa.Array, first: int
    ) -> tuple[pa.Table, list[SetAside]]:
        """Row messages as rows of the log, which begin after row `first`; None where there is none."""

    def saw(self, lsn: int) -> None:
        """Every transaction that was committed before this LSN is in the log."""

    def acknowledging(self, lsn: int) -> None:
        """The server is about to be told to go on from an LSN that the log does not have."""


class Following:
    """Receives messages until it is stopped."""

    def __init__(self, table: Followed, replication: Replication, changes: ChangeLog) -> None:
        self._table = table
        self._replication = replication
        self._changes = changes
        self._state = table.look()
        self._layouts: dict[bytes, Layout] = {}
        """By the number of the table, as messages have it; those of other tables are missing."""
        self._layout: Layout | None = None
        """The columns of the messages."""
        self._messages: list[bytes] = []
        self._bytes = 0
        self._begun: list[tuple[int, int]] = []
        """Each transaction of the messages: the number of messages before it, and its time."""
        self._committed = 0
        """How many of the messages belong to transactions that have ended."""
        self._parts_ended = False
        """Whether the transaction has ended whose first parts are in the log."""
        self._position: int = changes.position["lsn"]
        self._new_from: int = changes.position.get("new_from", 0)
        """Transactions that were committed before this LSN may have the columns of before."""
        self._commits_at = 0
        """The LSN of the commit of the transaction that is under way."""
        self._acknowledged_at = self._idle_at = 0.0

    def run(self, stop: threading.Event, look_every: float) -> None:
        """Follow until `stop` is set."""
        looked_at = time.monotonic()
        while not stop.is_set():
            if time.monotonic() - looked_at >= look_every:
                self._state = self._table.look()
                looked_at = time.monotonic()
            message = self._replication.receive(0.0 if self._ended else _WAIT)
            if message is not None:
                self._take(message)
                continue
            if self._ended:
                self._write()
            self._acknowledge()

    @property
    def _ended(self) -> bool:
        """Whether a transaction has ended that is not in the log as a whole."""
        there = self._committed > 0 or self._parts_ended
        return there and self._position > self._changes.position["lsn"]

    def _take(self, message: bytes) -> None:
        tag = message[0]
        if tag in pgoutput.ROWS:
            self._take_row(message)
        elif tag == pgoutput.BEGIN:
            self._commits_at, at = pgoutput.begin_message(message)
            if self._begun and self._begun[-1][0] == len(self._messages):
                self._begun.pop()  # it has no messages
            self._begun.append((len(self._messages), moment(at)))
        elif tag == pgoutput.COMMIT:
            _, self._position = pgoutput.commit_message(message)
            self._committed = len(self._messages)
            self._parts_ended = self._changes.written > self._changes.end
        elif tag == pgoutput.RELATION:
            self._take_relation(pgoutput.relation_message(message), message[1:5])
        elif tag == pgoutput.TRUNCATE:
            self._take_truncation(set(pgoutput.truncated_oids(message)))

    def _take_row(self, message: bytes) -> None:
        layout = self._layouts.get(message[1:5])
        if layout is None:
            return
        if layout is not self._layout:
            self._change_layout(layout)
        self._messages.append(message)
        self._bytes += len(message)
        if len(self._messages) >= MOST_MESSAGES or self._bytes >= _MOST_BYTES:
            self._write()
            self._write_part()

    def _take_relation(self, message: pgoutput.RelationMessage, number: bytes) -> None:
        """Columns that are announced: of a new table or partition, or since something about one changed."""
        if message.oid not in self._state.oids and self._state.leaves:
            self._state = self._table.look()
        if message.oid not in self._state.oids:
            self._layouts.pop(number, None)
            return
        # Messages before it have the columns of before, and are written before anything is refused.
        self._write()
        self._write_part()
        self._state = self._table.look()
        found = self._table.layout(message, old=self._commits_at < self._new_from)
        same = [each for each in self._layouts.values() if each.told == found.told]
        self._layouts[number] = same[0] if same else found

    def _change_layout(self, layout: Layout) -> None:
        """Messages of partitions whose columns have another order are read apart."""
        self._write()
        self._write_part()
        self._layout = layout

    def _take_truncation(self, oids: set[int]) -> None:
        state = self._state
        if not oids & state.oids:
            return
        self._write()
        if state.oid not in oids and not oids.issuperset(state.leaves):
            raise ChangesLostError("a partition was truncated")
        self._messages, self._bytes = [], 0
        self._begun = [(0, at) for _, at in self._begun[-1:]]
        # Everything is nothing; what the transaction inserts afterwards follows.
        self._changes.begin_load(self._changes.end)

    def _write(self) -> None:
        """Write the transactions that have ended."""
        if self._ended:
            self._append(self._committed, whole=True)
            self._committed, self._parts_ended = 0, False
            self._acknowledge()

    def _write_part(self) -> None:
        """Write what has come of a transaction that goes on."""
        if self._messages:
            self._append(len(self._messages), whole=False)

    def _append(self, count: int, *, whole: bool) -> None:
        messages, self._messages = self._messages[:count], self._messages[count:]
        self._bytes = sum(map(len, self._messages))
        rows, aside = self._table.rows(self._layout, messages, self._times(count), self._changes.written)
        position = {"lsn": self._position}
        if self._position < self._new_from:
            position["new_from"] = self._new_from
        self._changes.append(rows, position if whole else None, whole=whole, aside=aside)

    def _times(self, count: int) -> pa.Array:
        """When each of the first messages was committed; the rest is counted from there."""
        starts = [min(before, count) for before, _ in self._begun]
        times: Any = (
            np.repeat([at for _, at in self._begun], np.diff([*starts, count])) if self._begun else []
        )
        later = [(before - count, at) for before, at in self._begun if before >= count]
        last = [(0, at) for before, at in self._begun if before < count][-1:]
        self._begun = [*last, *later]
        return pa.array(np.asarray(times, dtype=np.int64)).cast(UTC_TIME)

    def _acknowledge(self) -> None:
        """Tell the server what is durable here; of WAL without changes of ours, what it has read."""
        now = time.monotonic()
        durable: int = self._changes.position["lsn"]
        seen = durable
        idle = not self._messages and self._changes.written == self._changes.end and not self._ended
        if idle:
            seen = max(durable, self._position, self._replication.server_end)
        self._table.saw(seen)
        if seen > durable and now - self._idle_at >= IDLE_EVERY:
            self._idle_at = now
            self._table.acknowledging(seen)
            durable = seen
        if now - self._acknowledged_at >= ACKNOWLEDGED_EVERY:
            self._acknowledged_at = now
            self._replication.acknowledge(durable)
