"""A table of PostgreSQL, followed by logical replication.

A load under the slot's snapshot, then every transaction.
"""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from velostream.connectors.databases.parallel import released
from velostream.connectors.databases.rows import UTC_TIME, log_rows, no_rows, same_moment
from velostream.connectors.databases.source import ChangesLostError, Described, Reader, stopped
from velostream.connectors.databases.text_rows import TextColumn, decode, needed
from velostream.connectors.narrowing import Narrowing
from velostream.connectors.postgres.client.catalog import Relation, relation, text_column, types_by_oid
from velostream.connectors.postgres.client.failures import GONE_SLOT, error_of, translated
from velostream.connectors.postgres.read import pgoutput, slots
from velostream.connectors.postgres.read.conditions import conditions
from velostream.connectors.postgres.read.load import parts_of, read_parts
from velostream.connectors.postgres.read.replication import Replication, lsn_of, moment
from velostream.connectors.record import Record
from velostream.errors import SourceConfigError

if TYPE_CHECKING:
    import threading

    import numpy.typing as npt

    from velostream.connectors.base import SourceContext
    from velostream.connectors.databases.change_log import ChangeLog, SetAside
    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.options import PostgresOptions

    Flags = npt.NDArray[np.bool_]

_MOST_MESSAGES = 20_000
"""Row messages that are read into columns at a time."""
_MOST_BYTES = 16 << 20
_WAIT = 0.2
"""Seconds to wait for a message before looking whether to stop."""
_ACKNOWLEDGED_EVERY = 1.0
_ASKED_AT_ONCE = 500
"""Rows whose large values are asked for by one query."""
_NO_TEXT = pa.scalar(None, pa.string())


class TableChanges(Reader):
    """See `Reader`. A position of the log is the LSN after the last transaction in it."""

    def __init__(self, client: Client, options: PostgresOptions, context: SourceContext) -> None:
        self._client = client
        self._options = options
        self._owner = context.owner
        self._record = Record(context.spool / "slot.json", f"{context.owner} slot")
        self._table: Relation | None = None
        self._known = {field.name: field.type for field in context.schema or ()}
        """The columns of the rows that are in the log."""
        self._layout: list[TextColumn] = []
        """The columns of the messages that come."""
        self._narrowing = Narrowing()
        self._asking: psycopg.Connection | None = None
        self._passing = context.passing and options.slot_name is None
        """Whether the slot is temporary, and ends with the connection that made it."""
        self._held: Replication | None = None
        """The connection that a temporary slot belongs to, once it is loaded and until it is followed."""
        self._seen = 0
        """Every transaction that was committed before this LSN is in the log."""
        self.name = f'{client.name}, table "{options.table}"'

    def describe(self) -> Described:
        """See `Reader`."""
        table = self._relation()
        schema = pa.schema([pa.field(column.name, column.type.arrow) for column in table.columns])
        return Described(schema, table.key)

    def _relation(self) -> Relation:
        if self._table is None:
            with self._client.session() as connection:
                table = relation(connection, self._options.database_schema, self._options.table or "")
                slots.check_table(table)
                slots.check_server(connection)
            self._table = table
        return self._table

    @property
    def _columns(self) -> list[TextColumn]:
        return [text_column(column.name, column.type) for column in self._relation().columns]

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Reader`: of changes only columns are left out, since a row may begin to pass a condition."""
        self._narrowing = narrowing

    def _needed(self, columns: list[TextColumn]) -> list[TextColumn]:
        return needed(columns, self._narrowing, self._relation().key)

    def _names(self) -> slots.Names:
        """The slot and the publication, recorded before they are made, so that they are never forgotten."""
        found = self._record.load()
        if found is None:
            names = slots.names_for(self._options, self._owner, secrets.token_hex(16))
            self._record.save(names.as_json())
            return names
        return slots.Names.of(found)

    def release(self) -> None:
        """Remove what was made on the server for the statement."""
        found = self._record.load()
        if found is not None:
            slots.release(self._client, slots.Names.of(found))

    def caught_up(self, changes: ChangeLog) -> bool:
        """See `Reader`: the server is asked how far its WAL goes."""
        with translated(f"{self._client.name} refuses"):
            if self._asking is None:
                self._asking = self._client.connect()
            found = self._asking.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        assert found is not None
        return self._seen >= lsn_of(found[0])

    def close(self) -> None:
        """See `Reader`."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None
        self._let_go()
        self._client.close()

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    # --- everything ---------------------------------------------------------------------------------------

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`.

        Under the snapshot that the new slot exports, so that changes follow without gap or overlap.
        """
        names, table = self._names(), self._relation()
        self._let_go()
        with self._client.session() as connection:
            slots.make_publication(connection, names, table, self._options.where)
            reused = not names.own_slot and slots.slot_there(connection, names.slot)
            if not reused:
                slots.drop_slot(connection, names.slot)
        replication: Replication | None = Replication(self._client)
        assert replication is not None
        try:
            with translated(f'cannot create replication slot "{names.slot}"', _RIGHTS):
                first = changes.position is None
                start, snapshot = self._start_of(replication, names, reused=reused, first=first)
            changes.begin_load(after)
            self._known = {column.name: column.type for column in self._columns}
            if self._options.initial_load == "full":
                self._load(changes, table, snapshot, stop)
            changes.append(no_rows(self.describe().schema), {"lsn": start}, whole=True, divisible=True)
            if self._passing:
                self._held, replication = replication, None
        finally:
            if replication is not None:
                replication.close()

    def _start_of(
        self, replication: Replication, names: slots.Names, *, reused: bool, first: bool
    ) -> tuple[int, str | None]:
        """The LSN after which changes are followed, and the snapshot that belongs to it, if there is one.

        `first`: nothing was loaded before, so that the user may say where to begin.
        """
        wanted = self._options.start if first else None
        if not reused:
            if wanted not in (None, "latest"):
                raise SourceConfigError(
                    f'replication slot "{names.slot}" does not exist, so changes since {wanted} are not kept',
                    hint='create the slot before the changes are made, or leave out "cdc.start"',
                )
            return replication.create_slot(names.slot, temporary=self._passing)
        # Changes before the load are applied to it once more: by key, so that the end is the same.
        with self._client.session() as connection:
            found = connection.execute(
                "SELECT confirmed_flush_lsn::text, pg_current_wal_flush_lsn()::text "
                "FROM pg_replication_slots WHERE slot_name = %s",
                (names.slot,),
            ).fetchone()
        assert found is not None
        kept, newest = map(lsn_of, found)
        if wanted in (None, "earliest"):
            return kept, None
        asked = newest if wanted == "latest" else lsn_of(wanted)
        if asked < kept:
            raise SourceConfigError(
                f'replication slot "{names.slot}" has changes from {found[0]} on, and not from {wanted}',
                hint='"cdc.start" = "earliest" begins with the first that it has',
            )
        return asked, None

    def _load(self, changes: ChangeLog, table: Relation, snapshot: str | None, stop: threading.Event) -> None:
        columns, readers = self._needed(self._columns), self._options.readers
        own = self._options.where
        where = [sql.SQL("({})").format(sql.SQL(own))] if own else []
        where += conditions(self._narrowing, self._columns)[0]
        with self._client.session() as connection:
            parts = parts_of(connection, table, columns, where, readers)
        now = time.time_ns() // 1000
        read = read_parts(self._client, parts, columns, snapshot, readers, ahead=self._options.prefetch_count)
        with translated(f"cannot read {self.name}"), released(read) as answer:
            for found in answer:
                stopped(stop)
                count = len(next(iter(found.columns.values())))
                there, entered = np.zeros(count, dtype=bool), same_moment(now, count)
                rows, aside = log_rows(found, table.key, there, entered, changes.written)
                changes.append(rows, whole=False, divisible=True, aside=aside)

    # --- changes ------------------------------------------------------------------------------------------

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`."""
        names = self._names()
        with self._client.session() as connection:
            if not slots.slot_there(connection, names.slot):
                raise ChangesLostError(f'replication slot "{names.slot}" is gone, or has lost its WAL')
        held, self._held = self._held, None
        if self._passing and held is None:
            raise ChangesLostError("the connection that its temporary slot belongs to was lost")
        replication = held or Replication(self._client)
        try:
            replication.start(names.slot, names.publication, changes.position["lsn"])
            _Following(self, replication, changes).run(stop)
        except psycopg.Error as exc:
            if exc.sqlstate in GONE_SLOT:
                raise ChangesLostError(str(exc.diag.message_primary)) from exc
            raise error_of(exc, f"changes of {self.name} cannot be read") from exc
        finally:
            changes.abandon()
            replication.close()

    def saw(self, lsn: int) -> None:
        """Every transaction that was committed before this LSN is in the log."""
        self._seen = lsn

    def rows(self, messages: list[bytes], entered: pa.Array, first: int) -> tuple[pa.Table, list[SetAside]]:
        """Row messages as rows of the log, which begin after row `first`."""
        table, columns = self._relation(), self._layout
        if not messages:
            return no_rows(self.describe().schema), []
        found = pgoutput.read_rows(messages, len(columns))
        texts = [values.text(found.data) for values in found.new]
        texts = self._with_unchanged(table, found, texts)
        keys = [number for number, column in enumerate(columns) if column.name in table.key]
        deleted = found.deleted
        if deleted.any():
            # Of a deleted row only the key counts.
            there = pa.array(~deleted)
            texts = [
                text if number in keys else pc.if_else(there, text, _NO_TEXT)
                for number, text in enumerate(texts)
            ]
        if found.has_old.any():
            texts, deleted, entered = self._with_old_keys(found, texts, keys, deleted, entered)
        wanted = self._needed(columns)
        texts = [text for column, text in zip(columns, texts, strict=True) if column in wanted]
        return log_rows(decode(wanted, texts), table.key, deleted, entered, first)

    def _with_old_keys(
        self,
        found: pgoutput.Changes,
        texts: list[pa.Array],
        keys: list[int],
        deleted: Flags,
        entered: pa.Array,
    ) -> tuple[list[pa.Array], Flags, pa.Array]:
        """Before each update that changed the key of its row, the deletion of the old key."""
        places = np.flatnonzero(found.has_old)
        old = {number: found.old[number].text(found.data) for number in keys}
        same = np.ones(len(places), dtype=bool)
        for number, values in old.items():
            equal = pc.equal(values, texts[number].take(pa.array(places)))
            same &= equal.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        if same.all():
            return texts, deleted, entered
        at = places[~same]
        rows = pa.array(np.insert(np.arange(len(deleted)), at, at))
        extra = np.insert(np.zeros(len(deleted), dtype=bool), at, True)
        which = pa.array(np.maximum(np.cumsum(extra) - 1, 0))
        mask = pa.array(extra)
        made = []
        for number, text in enumerate(texts):
            before = old[number].filter(pa.array(~same)).take(which) if number in old else _NO_TEXT
            made.append(pc.if_else(mask, before, text.take(rows)))
        return made, deleted[rows.to_numpy()] | extra, entered.take(rows)

    def _with_unchanged(
        self, table: Relation, found: pgoutput.Changes, texts: list[pa.Array]
    ) -> list[pa.Array]:
        """Large values that an update did not change are not sent: they are in the old row, or asked for."""
        made = list(texts)
        needed_columns = self._needed(self._layout)
        missing = [
            number
            for number, values in enumerate(found.new)
            if self._layout[number] in needed_columns and values.unchanged.any()
        ]
        if not missing:
            return made
        places = np.full(len(found.deleted), -1)
        places[found.has_old] = np.arange(int(found.has_old.sum()))
        rows = np.flatnonzero(np.any([found.new[number].unchanged for number in missing], axis=0))
        if found.whole_old:
            for number in missing:
                lacks = found.new[number].unchanged
                old = found.old[number].text(found.data)
                at = pa.array(np.where(lacks & (places >= 0), places, 0))
                made[number] = pc.if_else(pa.array(lacks & (places >= 0)), old.take(at), made[number])
            return made
        keys = [number for number, column in enumerate(self._layout) if column.name in table.key]
        wanted = [tuple(texts[number][int(row)].as_py() for number in keys) for row in rows]
        values = self._asked_for(table, keys, missing, set(wanted))
        for place, number in enumerate(missing):
            lacks = found.new[number].unchanged
            lists = made[number].to_pylist()
            for row, key in zip(rows, wanted, strict=True):
                if lacks[row]:
                    lists[row] = values.get(key, (None,) * len(missing))[place]
            made[number] = pa.array(lists, pa.string())
        return made

    def _asked_for(
        self, table: Relation, keys: list[int], missing: list[int], wanted: set[tuple[Any, ...]]
    ) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        """The values of columns now, by key. What changed since comes as a change of its own."""
        names = [sql.Identifier(self._layout[number].name) for number in keys]
        texts = [
            sql.SQL("{}::text").format(sql.Identifier(self._layout[number].name))
            for number in [*keys, *missing]
        ]
        one = sql.SQL("({})").format(sql.SQL(", ").join([sql.Placeholder()] * len(keys)))
        found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        every = sorted(wanted)
        with self._client.session() as connection:
            for start in range(0, len(every), _ASKED_AT_ONCE):
                some = every[start : start + _ASKED_AT_ONCE]
                query = sql.SQL("SELECT {} FROM {} WHERE ({}) IN ({})").format(
                    sql.SQL(", ").join(texts),
                    table.identifier,
                    sql.SQL(", ").join(names),
                    sql.SQL(", ").join([one] * len(some)),
                )
                for row in connection.execute(query, [value for key in some for value in key]):
                    found[tuple(row[: len(keys)])] = tuple(row[len(keys) :])
        return found

    def take_columns(self, message: pgoutput.RelationMessage) -> None:
        """Take the columns that the messages that follow have.

        Columns that were added are followed, and types that became wider. Columns that were dropped or
        renamed, and other types, are refused: tables that are there would have to lose values.
        """
        table = self._relation()
        with self._client.session() as connection:
            types = types_by_oid(connection, [kind for _, kind, _, _ in message.columns])
            layout = [text_column(name, types[kind](modifier)) for name, kind, modifier, _ in message.columns]
            now = {column.name: column.type for column in layout}
            for name, before in self._known.items():
                if name not in now:
                    raise SourceConfigError(f'column "{name}" of {table} was dropped or renamed', hint=_AGAIN)
                if now[name] != before and not _wider(before, now[name]):
                    raise SourceConfigError(
                        f'column "{name}" of {table} is {now[name]} now, and was {before}', hint=_AGAIN
                    )
            filled = _filled(connection, table, [name for name in now if name not in self._known])
        self._layout, self._table = layout, None
        if filled:
            raise ChangesLostError(
                f'column "{filled[0]}" was added with a value for the rows that were there'
            )
        self._known = now


_AGAIN = "CREATE OR REPLACE the tables that are built on it"


def _wider(before: pa.DataType, now: pa.DataType) -> bool:
    """Whether every value of a type is one of another."""
    if pa.types.is_decimal(before) and pa.types.is_decimal(now):
        return bool(
            now.scale >= before.scale and now.precision - now.scale >= before.precision - before.scale
        )
    whole = [pa.int16(), pa.int32(), pa.int64()]
    if before in whole and now in whole:
        return whole.index(now) >= whole.index(before)
    return bool(before == pa.float32() and now == pa.float64())


def _filled(connection: psycopg.Connection, table: Relation, added: list[str]) -> list[str]:
    """Columns that rows of before have a value in, though no change told it."""
    found = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attname = ANY(%s) AND "
        "(atthasmissing OR attgenerated <> '' OR attidentity <> '')",
        (table.oid, added),
    ).fetchall()
    return [name for (name,) in found]


_RIGHTS = "the user needs the attribute REPLICATION: ALTER ROLE name REPLICATION"


class _Following:
    """Receives messages, and writes transactions to the log: whole ones, and the parts of long ones."""

    def __init__(self, reader: TableChanges, replication: Replication, changes: ChangeLog) -> None:
        self._reader = reader
        self._replication = replication
        self._changes = changes
        self._messages: list[bytes] = []
        self._bytes = 0
        self._begun: list[tuple[int, int]] = []
        """Each transaction of the messages: the number of messages before it, and its time."""
        self._committed = 0
        """How many of the messages belong to transactions that have ended."""
        self._position: int = changes.position["lsn"]
        self._acknowledged_at = 0.0

    def run(self, stop: threading.Event) -> None:
        """Follow until `stop` is set."""
        while not stop.is_set():
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
        return self._position > self._changes.position["lsn"] and (
            self._committed > 0 or self._changes.written > self._changes.end
        )

    def _take(self, message: bytes) -> None:
        tag = message[0]
        if tag in pgoutput.ROWS:
            self._messages.append(message)
            self._bytes += len(message)
            if len(self._messages) >= _MOST_MESSAGES or self._bytes >= _MOST_BYTES:
                self._write()
                self._write_part()
        elif tag == pgoutput.BEGIN:
            _, at = pgoutput.begin_message(message)
            self._begun.append((len(self._messages), moment(at)))
        elif tag == pgoutput.COMMIT:
            _, self._position = pgoutput.commit_message(message)
            self._committed = len(self._messages)
        elif tag == pgoutput.RELATION:
            # Messages before it have the columns of before.
            self._write()
            self._write_part()
            self._reader.take_columns(pgoutput.relation_message(message))
        elif tag == pgoutput.TRUNCATE:
            self._write()
            self._messages, self._bytes = [], 0
            self._begun = [(0, at) for _, at in self._begun[-1:]]
            # Everything is nothing; what the transaction inserts afterwards follows.
            self._changes.begin_load(self._changes.end)

    def _write(self) -> None:
        """Write the transactions that have ended."""
        if self._ended:
            self._append(self._committed, whole=True)
            self._committed = 0
            self._acknowledge()

    def _write_part(self) -> None:
        """Write what has come of a transaction that goes on."""
        if self._messages:
            self._append(len(self._messages), whole=False)

    def _append(self, count: int, *, whole: bool) -> None:
        messages, self._messages = self._messages[:count], self._messages[count:]
        self._bytes = sum(map(len, self._messages))
        rows, aside = self._reader.rows(messages, self._times(count), self._changes.written)
        self._changes.append(rows, {"lsn": self._position} if whole else None, whole=whole, aside=aside)

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
        idle = not self._messages and self._changes.written == self._changes.end and not self._ended
        if idle:
            durable = max(durable, self._position, self._replication.server_end)
        self._reader.saw(durable)
        if now - self._acknowledged_at >= _ACKNOWLEDGED_EVERY:
            self._acknowledged_at = now
            self._replication.acknowledge(durable)
