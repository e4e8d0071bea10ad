"""A table of PostgreSQL, followed by logical replication.

A load under the slot's snapshot, then every transaction.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import psycopg
import pyarrow as pa

from velostream.connectors.base import log
from velostream.connectors.databases.parallel import released
from velostream.connectors.databases.rows import log_rows, no_rows, same_moment
from velostream.connectors.databases.source import AGAIN, ChangesLostError, Described, Reader, stopped
from velostream.connectors.databases.text_rows import TextColumn, needed
from velostream.connectors.databases.wider_types import wider_than_written
from velostream.connectors.narrowing import Narrowing
from velostream.connectors.postgres.client.failures import (
    GONE_SLOT,
    NOT_DEFINED,
    REPLICATION,
    error_of,
    translated,
)
from velostream.connectors.postgres.client.tables import (
    Relation,
    relation,
    relation_oid,
    text_column,
    types_by_oid,
)
from velostream.connectors.postgres.client.user_sql import check_condition, condition
from velostream.connectors.postgres.read import replication_slots as slots
from velostream.connectors.postgres.read.changed_rows import ChangedRows
from velostream.connectors.postgres.read.conditions import conditions
from velostream.connectors.postgres.read.following import Following, Layout
from velostream.connectors.postgres.read.load import parts_of, read_parts
from velostream.connectors.postgres.read.replication import Replication, lsn_of, lsn_text
from velostream.connectors.postgres.read.watch import State, empty_leaves, state_of
from velostream.disk.record import Record
from velostream.errors import SourceConfigError, SourceMissingError

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from velostream.connectors.base import SourceContext
    from velostream.connectors.databases.change_log import ChangeLog, SetAside
    from velostream.connectors.postgres.client.connections import Client
    from velostream.connectors.postgres.options import PostgresOptions
    from velostream.connectors.postgres.read.pgoutput import RelationMessage

LOOK_EVERY = 5.0
"""Seconds between two looks at what no message tells."""
WARN_EVERY = 60.0
HELD_BACK_BYTES = 1 << 30
"""A slot that holds back more WAL than this is warned of, when it is opened and every minute."""


class TableChanges(Reader):
    """See `Reader`. A position of the log is the LSN after the last transaction in it."""

    def __init__(self, client: Client, options: PostgresOptions, context: SourceContext) -> None:
        self._client = client
        self._options = options
        self._owner = context.owner
        self._record = Record(context.spool / "slot.json", f"{context.owner} slot")
        self._table: Relation | None = None
        self._known: dict[str, str] = {}
        """The columns of the rows that are in the log, with their types."""
        self._state: State | None = None
        """How the table was stored when it was looked at last."""
        self._narrowing = Narrowing()
        self._asking: psycopg.Connection | None = None
        self._passing = context.passing and options.slot_name is None
        """Whether the slot is temporary, and ends with the connection that made it."""
        self._held: Replication | None = None
        """The connection that a temporary slot belongs to, once it is loaded and until it is followed."""
        self._seen = 0
        """Every transaction that was committed before this LSN is in the log."""
        self._warned_at = -WARN_EVERY
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
                if self._options.where is not None:
                    check_condition(connection, self._options.where, table.identifier)
            self._table = table
        return self._table

    @property
    def _columns(self) -> list[TextColumn]:
        return [text_column(column.name, column.type) for column in self._relation().columns]

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Reader`: of changes only columns are left out, since a row may begin to pass a condition."""
        self._narrowing = narrowing

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

    def interrupt(self) -> None:
        """See `Reader`."""
        self._client.interrupt()

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

    # --- what is on the server ----------------------------------------------------------------------------

    def _names(self) -> slots.Names:
        """The slot and the publication, recorded before they are made, so that they are never forgotten."""
        found = self._record.load()
        if found is None:
            names = slots.names_for(self._options, self._owner, secrets.token_hex(16))
            self._note(names)
            return names
        return slots.Names.of(found)

    def _note(self, names: slots.Names | None = None, **more: object) -> None:
        """Record names, and what else is known about what they stand for."""
        known = names.as_json() if names is not None else {}
        self._record.save({**(self._record.load() or {}), **known, **more})

    def _prepared(self, table: Relation) -> tuple[slots.Names, bool]:
        """Make the publication, and remove a slot of before; the names, and whether the user's slot is used.

        The slot is made after the publication, so that it has no changes from before it.
        """
        names = self._names()
        with self._client.session() as connection:
            reused = not names.own_slot and slots.slot_of(connection, names.slot) is not None
            makes = slots.will_make_publication(connection, names)
            if reused and makes:
                raise SourceConfigError(
                    f'replication slot "{names.slot}" has changes from before any publication of ours',
                    hint='give the "publication.name" of one that was made before the slot, or leave out '
                    '"slot.name"',
                )
            names = replace(names, own_slot=not reused, own_publication=makes)
            self._note(names)
            if makes:
                slots.make_publication(connection, names, table)
            slots.check_publication(connection, names.publication, table)
            if not reused:
                slots.drop_slot(connection, names.slot)
        return names, reused

    def look(self) -> State:
        """See `Followed`."""
        names, table = self._names(), self._relation()
        with self._client.session() as connection:
            found = relation_oid(connection, table)
            now = state_of(connection, found, table.kind, names.publication) if found is not None else None
            if now is None:
                self._table = None
                raise SourceMissingError(f"{table} does not exist any more")
            before = self._state
            if before is not None:
                now.check_since(before, empty_leaves(connection, now, before))
            slot = slots.slot_of(connection, names.slot)
        if slot is None:
            raise ChangesLostError(f'replication slot "{names.slot}" is gone, or has lost its WAL')
        self._warn_of(names.slot, slot.held)
        if now != before:
            self._state = now
            self._note(state=now.as_json())
        return now

    def _warn_of(self, slot: str, held: int) -> None:
        now = time.monotonic()
        if held > HELD_BACK_BYTES and now - self._warned_at >= WARN_EVERY:
            self._warned_at = now
            log.warning('replication slot "%s" holds back %d MB of WAL on the server', slot, held >> 20)

    # --- everything ---------------------------------------------------------------------------------------

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`.

        Under the snapshot that a new slot exports, so that changes follow without gap or overlap. For a slot
        of the user's that is a temporary one: its changes from before are left out.
        """
        self._let_go()
        self._table = None
        table, first = self._relation(), changes.position is None
        self._known = _columns_of(changes)
        self._check_columns(self._columns)
        names, reused = self._prepared(table)
        with self._client.session() as connection:
            # Read before the rows: what changes it afterwards is noticed.
            self._state = state_of(connection, table.oid, table.kind, names.publication)
        replication: Replication | None = Replication(self._client)
        assert replication is not None
        try:
            with translated(f'cannot create replication slot "{names.slot}"', REPLICATION):
                start = self._start_of(names, reused=reused, first=first)
                temporary = f"velostream_{secrets.token_hex(8)}" if reused else names.slot
                made, snapshot = replication.create_slot(temporary, stop, temporary=reused or self._passing)
            changes.begin_load(after)
            self._known = self._needed(self._columns)
            if self._options.initial_load == "full":
                start = None
                self._load(changes, table, snapshot, stop)
            position = {"lsn": made} if start is None else {"lsn": start, "new_from": made}
            assert self._state is not None
            self._note(state=self._state.as_json())
            changes.append(self._nothing(), position, whole=True, divisible=True)
            if self._passing:
                self._held, replication = replication, None
        finally:
            if replication is not None:
                replication.close()

    def _start_of(self, names: slots.Names, *, reused: bool, first: bool) -> int | None:
        """The LSN that the user wants to begin with, of the changes that a slot has kept; None: from now on.

        `first`: nothing was loaded before, so that the user may say where to begin.
        """
        wanted = self._options.start if first else None
        if not reused:
            if wanted not in (None, "latest"):
                raise SourceConfigError(
                    f'replication slot "{names.slot}" does not exist, so changes since {wanted} are not kept',
                    hint='create the slot before the changes are made, or leave out "cdc.start"',
                )
            return None
        with self._client.session() as connection:
            slot = slots.slot_of(connection, names.slot)
        assert slot is not None
        if wanted in (None, "earliest"):
            return slot.confirmed
        if wanted == "latest":
            return None
        asked = lsn_of(wanted)
        if asked < slot.confirmed:
            raise SourceConfigError(
                f'replication slot "{names.slot}" has changes from {lsn_text(slot.confirmed)} on, '
                f"and not from {wanted}",
                hint='"cdc.start" = "earliest" begins with the first that it has',
            )
        return asked

    def _load(self, changes: ChangeLog, table: Relation, snapshot: str, stop: threading.Event) -> None:
        columns = needed(self._columns, self._narrowing, table.key)
        readers, own = self._options.readers, self._options.where
        where = [condition(own)] if own else []
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
        self._known = _columns_of(changes)
        self._check_slot(names.slot, changes.position["lsn"])
        held, self._held = self._held, None
        if self._passing and held is None:
            raise ChangesLostError("the connection that its temporary slot belongs to was lost")
        replication = held or Replication(self._client)
        started = False
        try:
            following = Following(self, replication, changes)
            replication.start(names.slot, names.publication, changes.position["lsn"])
            started = True
            following.run(stop, LOOK_EVERY)
        except psycopg.Error as exc:
            said = str(exc.diag.message_primary)
            if started and exc.sqlstate == NOT_DEFINED and not (names.own_slot or names.own_publication):
                raise SourceConfigError(
                    f'changes that replication slot "{names.slot}" keeps cannot be read: {said}',
                    hint="create the slot after the publication",
                ) from exc
            if exc.sqlstate in GONE_SLOT:
                raise ChangesLostError(said) from exc
            raise error_of(exc, f"changes of {self.name} cannot be read") from exc
        finally:
            changes.abandon()
            replication.close()

    def _check_slot(self, name: str, have: int) -> None:
        """Notice that a slot is gone, or ahead: the server would go on from there without a word."""
        found = self._record.load() or {}
        if self._state is None and found.get("state") is not None:
            self._state = State.of(found["state"])
        with self._client.session() as connection:
            slot = slots.slot_of(connection, name)
        if slot is None:
            raise ChangesLostError(f'replication slot "{name}" is gone, or has lost its WAL')
        if slot.confirmed > max(have, found.get("acknowledged", 0)):
            raise ChangesLostError(
                f'replication slot "{name}" has gone on to {lsn_text(slot.confirmed)}, '
                f"and {lsn_text(have)} is known here"
            )

    def acknowledging(self, lsn: int) -> None:
        """See `Followed`."""
        self._note(acknowledged=lsn)

    def saw(self, lsn: int) -> None:
        """See `Followed`."""
        self._seen = lsn

    def rows(
        self, layout: Layout | None, messages: list[bytes], entered: pa.Array, first: int
    ) -> tuple[pa.Table, list[SetAside]]:
        """See `Followed`."""
        if not messages or layout is None:
            return self._nothing(), []
        made = ChangedRows(self._client, self._relation(), self._options.where, self._narrowing)
        return made.of(layout, messages, entered, first)

    def layout(self, message: RelationMessage, *, old: bool) -> Layout:
        """See `Followed`.

        Columns that were added are followed, and types that became wider. Columns that were dropped or
        renamed, and other types, are refused: tables that are there would have to lose values.
        """
        with self._client.session() as connection:
            types = types_by_oid(connection, [kind for _, kind, _, _ in message.columns])
        columns = [text_column(name, types[kind](modifier)) for name, kind, modifier, _ in message.columns]
        if not old:
            self._table = None
            computed = {each.name for each in self._relation().columns if each.generated}
            every = [*columns, *(each for each in self._columns if each.name in computed)]
            self._check_columns(every)
            self._known = self._needed(every)
        return Layout(message.columns, columns)

    def _nothing(self) -> pa.Table:
        columns = needed(self._columns, self._narrowing, self._relation().key)
        return no_rows(pa.schema([pa.field(column.name, column.type) for column in columns]))

    def _needed(self, columns: Sequence[TextColumn]) -> dict[str, str]:
        found = needed(columns, self._narrowing, self._relation().key)
        return {column.name: str(column.type) for column in found}

    def _check_columns(self, columns: Sequence[TextColumn]) -> None:
        """Refuse columns by which rows that are there would lose values."""
        now = {column.name: column.type for column in columns}
        for name, before in self._known.items():
            told = f'column "{name}" of {self._relation()}'
            if name not in now:
                raise SourceConfigError(f"{told} was dropped or renamed", hint=AGAIN)
            if not wider_than_written(before, now[name]):
                raise SourceConfigError(f"{told} is {now[name]} now, and was {before}", hint=AGAIN)


def _columns_of(changes: ChangeLog) -> dict[str, str]:
    return {name: kind for name, kind in changes.last_columns if not name.startswith("_")}
