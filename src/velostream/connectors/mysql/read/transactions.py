"""Transactions of a binlog, written to the log of changes: whole ones, and the parts of long ones."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from velostream.connectors.databases.source import ChangesLostError
from velostream.connectors.mysql.read.binlog import protocol as b
from velostream.connectors.mysql.read.binlog.protocol import Position
from velostream.connectors.mysql.read.binlog.row_events import ROWS
from velostream.connectors.mysql.read.binlog.statements import Meaning, meaning
from velostream.connectors.mysql.read.binlog.table_maps import named, table_map
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    import threading

    from velostream.connectors.databases.change_log import ChangeLog
    from velostream.connectors.mysql.read.binlog.table_maps import TableMap
    from velostream.connectors.mysql.read.changes import TableChanges

_MOST_EVENTS = 20_000
"""Row events that are read into columns at a time."""
_MOST_BYTES = 4 << 20
_WAIT = 0.2
"""Seconds to wait for an event before looking whether to stop."""
_OF_ALL_ROWS = (Meaning.TRUNCATED, Meaning.ALTERED, Meaning.REPLACED, Meaning.MADE)
_NOTED_EVERY = 60.0
"""Seconds after which a place without changes of the table is noted, so that the binlog may be purged."""


class Following:
    """Receives events from `start` on; `told` is what a position of the log has besides the place.

    With `until`, what is received belongs to a load, and can be seen once that place is reached; `after` is
    the job's position then. `earlier`: it begins before the load, where the table need not have been there.
    """

    def __init__(
        self,
        reader: TableChanges,
        binlog: b.Binlog,
        changes: ChangeLog,
        start: Position,
        told: dict[str, Any],
        *,
        until: Position | None,
        after: int | None,
        earlier: bool = False,
    ) -> None:
        self._reader, self._binlog, self._changes = reader, binlog, changes
        self._told, self._until, self._after, self._earlier = told, until, after, earlier
        self._table = reader.table
        self._start = self._position = self._logged = start
        """Where it began, after the last transaction that has ended, and after the last in the log."""
        self._file = start.file
        self._ours: set[bytes] = set()
        """The numbers by which row events name the table."""
        self._map = b""
        self._layout: TableMap | None = None
        self._events: list[bytes] = []
        self._times: list[int] = []
        self._bytes = 0
        self._committed = 0
        """How many of the events belong to transactions that have ended."""
        self._part = False
        """Whether a part of the transaction that goes on was written."""
        self._emptied = False
        """Whether a load of nothing was begun that is not in the log as a whole."""
        self._open = self._begun = False
        """Whether a transaction goes on, and whether it is one of several events."""
        self._entered = 0
        self._prepared: dict[str, bool] = {}
        """Transactions of two phases that wait for their second, and whether they changed the table."""
        self._noted_at = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set, or a load is complete."""
        if not self._complete():
            self._binlog.start(self._start)
        while not stop.is_set() and not self._complete():
            events = self._binlog.receive(0.0 if self._ended else _WAIT)
            for event in events:
                self._take(event)
            if not events:
                self._write()
                self._note()

    @property
    def _ended(self) -> bool:
        """Whether a transaction has ended that is not in the log as a whole."""
        if self._until is not None:
            return self._position >= self._until and not self._open
        return self._committed > 0 or ((self._part or self._emptied) and not self._open)

    def _complete(self) -> bool:
        """Whether the load has everything up to where it was to be followed; it can be seen then."""
        if self._until is None or not self._ended:
            return False
        self._write()
        return True

    # --- events -------------------------------------------------------------------------------------------

    def _take(self, event: bytes) -> None:
        kind = event[4]
        if kind in ROWS:
            if event[19:25] in self._ours:
                self._take_rows(event)
        elif kind == b.TABLE_MAP:
            self._take_map(event)
        elif kind == b.XID:
            self._commit(event)
        elif kind in (b.GTID, b.ANONYMOUS, b.MARIADB_GTID):
            self._begin(event)
            # MariaDB leaves BEGIN out, but for statements that are a transaction of their own.
            self._begun = kind == b.MARIADB_GTID and not event[31] & 1
        elif kind == b.QUERY:
            self._take_statement(event)
        else:
            self._take_other(kind, event)

    def _begin(self, event: bytes) -> None:
        if not self._open:
            # What has ended must not be taken back with the next transaction.
            if self._part or self._emptied:
                self._write()
            self._entered = b.committed_at(event)
        self._open = True

    def _take_other(self, kind: int, event: bytes) -> None:
        if kind == b.ROTATE:
            place = b.rotated_to(event)
            self._file = place.file
            if place > self._position and not self._open:
                self._position = place
        elif kind == b.FORMAT:
            self._ours.clear()
            self._take_format(int.from_bytes(event[:4], "little"))
        elif kind == b.HEARTBEAT:
            self._moved(event)
        elif kind == b.XA_PREPARE:
            self._take_prepared(event)
        elif kind == b.LOAD_QUERY:
            self._take_statement(event)
        elif kind in (b.PARTIAL_UPDATE, b.PAYLOAD):
            raise SourceConfigError(
                "the binlog has partial updates of JSON, or compressed transactions",
                hint="SET GLOBAL binlog_row_value_options = '', binlog_transaction_compression = OFF",
            )
        elif not self._open:
            self._moved(event)

    def _take_format(self, made: int) -> None:
        """The first event of a binlog; its time tells one from another of the same name."""
        if self._file == self._start.file and self._told["made"] not in (0, made):
            raise ChangesLostError(f"binlog {self._file} is another one than before")
        self._told = {**self._told, "made": made}

    def _moved(self, event: bytes) -> None:
        """The end of an event that changes nothing of ours, between two transactions."""
        at = int.from_bytes(event[13:17], "little")
        if not self._open and at > 0 and (place := Position.of(self._file, at)) > self._position:
            self._position = place

    def _take_rows(self, event: bytes) -> None:
        self._events.append(event)
        self._times.append(self._entered)
        self._bytes += len(event)
        if len(self._events) >= _MOST_EVENTS or self._bytes >= _MOST_BYTES:
            self._write()
            self._write_part()

    def _take_map(self, event: bytes) -> None:
        """Row events before it may have the columns of before."""
        number = event[19:25]
        if named(event) != self._table:
            self._ours.discard(number)
            return
        self._ours.add(number)
        if event[27:] == self._map:
            return
        layout = table_map(event, mariadb=self._binlog.mariadb)
        if self._layout is None or layout.columns != self._layout.columns:
            self._write()
            self._write_part()
            self._reader.take_columns(layout)
        self._map, self._layout = event[27:], layout

    def _commit(self, event: bytes) -> None:
        self._open = self._begun = False
        self._position = Position.of(self._file, int.from_bytes(event[13:17], "little"))
        self._committed = len(self._events)

    def _take_statement(self, event: bytes) -> None:
        ran_in, text = b.statement_of(event)
        if text.startswith("XA "):
            self._take_two_phases(text, event)
            return
        found = meaning(text, ran_in, *self._table)
        if found is Meaning.BEGIN:
            self._begin(event)
            self._begun = True
            return
        if found is Meaning.NOTHING and self._begun:
            # Such as SAVEPOINT, or a change of another table.
            return
        if found is Meaning.ROLLBACK:
            self._take_back()
        elif found in _OF_ALL_ROWS:
            # With the place before the statement: after a crash it has to come again.
            self._write()
        if found is Meaning.REPLACED or (found is Meaning.MADE and not self._earlier):
            raise ChangesLostError(
                f"{' '.join(text.split())[:80]} changes rows that the binlog does not tell"
            )
        if found is Meaning.ALTERED:
            self._reader.altered()
        self._commit(event)
        if found in (Meaning.TRUNCATED, Meaning.MADE):
            # Everything is nothing; what comes afterwards follows.
            self._events, self._times, self._bytes, self._committed = [], [], 0, 0
            self._changes.begin_load(self._after or 0)
            self._part, self._emptied = False, True

    @property
    def _changed(self) -> bool:
        """Whether the transaction that goes on has changed the table."""
        return len(self._events) > self._committed or self._part

    def _take_back(self) -> None:
        """Forget the transaction that goes on."""
        self._events, self._times = self._events[: self._committed], self._times[: self._committed]
        self._bytes = sum(map(len, self._events))
        if self._part:
            if self._until is not None:
                raise ChangesLostError("a long transaction was taken back")
            self._changes.abandon()
            self._part = False

    # --- transactions of two phases -----------------------------------------------------------------------

    def _take_prepared(self, event: bytes) -> None:
        """The end of a first phase; with one phase only, it is the commit."""
        if event[19]:
            self._commit(event)
            return
        form, first, second = (int.from_bytes(event[at : at + 4], "little") for at in (20, 24, 28))
        name = f"X'{event[32 : 32 + first].hex()}',X'{event[32 + first : 32 + first + second].hex()}',{form}"
        self._prepared[name] = self._changed
        self._take_back()
        self._commit(event)

    def _take_two_phases(self, text: str, event: bytes) -> None:
        verb, _, name = text[3:].partition(" ")
        if verb in ("START", "BEGIN"):
            self._begin(event)
            self._begun = True
        elif verb in ("COMMIT", "ROLLBACK"):
            # Of one that was prepared before we began, it is not known what it changed.
            if self._prepared.pop(name.replace(" ", ""), True) and verb == "COMMIT":
                # With the place before the commit: after a crash it has to come again.
                self._write()
                raise ChangesLostError("a transaction of two phases was committed, which came before")
            self._commit(event)

    # --- the log ------------------------------------------------------------------------------------------

    def _write(self) -> None:
        """Write the transactions that have ended."""
        if not self._ended:
            return
        self._append(self._committed, whole=True)
        self._committed = 0
        self._part = self._emptied = False
        self._logged = self._position
        self._noted_at = time.monotonic()
        if not self._events:
            self._reader.saw(self._position)

    def _write_part(self) -> None:
        """Write what has come of a transaction that goes on; of a load, also of those that have ended."""
        if self._events:
            self._append(len(self._events), whole=False)
            self._part, self._committed = True, 0

    def _append(self, count: int, *, whole: bool) -> None:
        events, self._events = self._events[:count], self._events[count:]
        times, self._times = self._times[:count], self._times[count:]
        self._bytes = sum(map(len, self._events))
        if events:
            assert self._layout is not None
            rows, aside = self._reader.rows(events, self._layout, times, self._changes.written)
        else:
            rows, aside = self._reader.no_rows(), []
        self._changes.append(rows, self._noted() if whole else None, whole=whole, aside=aside)

    def _noted(self) -> dict[str, Any]:
        return {"file": self._position.file, "at": self._position.at, **self._told}

    def _note(self) -> None:
        """Note how far the binlog was read, where it has no changes of the table."""
        if self._until is not None or self._events or self._part:
            return
        self._reader.saw(self._position)
        late = time.monotonic() - self._noted_at > _NOTED_EVERY
        if self._position > self._logged and (late or self._position.file != self._logged.file):
            self._append(0, whole=True)
            self._logged = self._position
            self._noted_at = time.monotonic()
