"""A table of MySQL or MariaDB, followed by the binlog.

A place in the binlog, a load, and then every transaction from that place on. What changed while the load was
read is applied to it once more, by key, before any of it can be seen.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pymysql

from velostream.connectors.databases.marks import percent_doubled
from velostream.connectors.databases.parallel import released
from velostream.connectors.databases.rows import UTC_TIME, log_rows, no_rows, same_moment
from velostream.connectors.databases.source import ChangesLostError, Described, Reader, stopped
from velostream.connectors.databases.text_rows import Bad, Decoded, decode, needed
from velostream.connectors.databases.wider_types import type_written, wider
from velostream.connectors.mysql.client.connections import dropped
from velostream.connectors.mysql.client.failures import LOST_BINLOG, error_of, number_of, said, translated
from velostream.connectors.mysql.client.tables import relation, text_column
from velostream.connectors.mysql.client.user_sql import check_condition, condition
from velostream.connectors.mysql.read import server
from velostream.connectors.mysql.read.binlog.protocol import Binlog, Position, here
from velostream.connectors.mysql.read.binlog.row_events import Places, read_images
from velostream.connectors.mysql.read.binlog.texts import Texts
from velostream.connectors.mysql.read.binlog.values import Values, arrow_type, read_values
from velostream.connectors.mysql.read.conditions import conditions
from velostream.connectors.mysql.read.load import parts_of, read_parts
from velostream.connectors.mysql.read.row_filter import Filter
from velostream.connectors.mysql.read.transactions import Following
from velostream.connectors.narrowing import Narrowing
from velostream.errors import SourceConfigError, SourceNetworkError
from velostream.model.columns import ENTERED, KEY, TOMBSTONE

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    import numpy.typing as npt
    from pymysql.connections import Connection

    from velostream.connectors.databases.change_log import ChangeLog, SetAside
    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.client.tables import Column, Relation
    from velostream.connectors.mysql.options import MySqlOptions
    from velostream.connectors.mysql.read.binlog.row_events import Images
    from velostream.connectors.mysql.read.binlog.table_maps import Stored, TableMap

    Integers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

_SYSTEM = frozenset({KEY, TOMBSTONE, ENTERED})
_LOADS = 5
"""How often a load is begun again because the table was altered while it was read."""
_AGAIN = "CREATE OR REPLACE the tables that are built on it"


@dataclass(frozen=True)
class Written:
    """A column of the log of changes, and its type as it is written there."""

    name: str
    type: str


class TableChanges(Reader):
    """See `Reader`. A position of the log is a place in a binlog, when that was begun, and the server."""

    def __init__(self, client: Client, options: MySqlOptions) -> None:
        self._client = client
        self._options = options
        self._table: Relation | None = None
        self._texts = Texts(client)
        self._filter = Filter(client, options.where) if options.where else None
        self._narrowing = Narrowing()
        self._known: dict[str, pa.DataType] = {}
        """The columns of the rows that are in the log."""
        self._asking: Connection | None = None
        self._seen: Position | None = None
        """Every transaction that was committed before is in the log."""
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
                server.check_table(table)
                server.check_server(connection, table)
                server.check_cascades(connection, table)
                if self._options.where:
                    check_condition(connection, self._options.where, percent_doubled(table.identifier))
            self._table = table
        return self._table

    def narrow(self, narrowing: Narrowing) -> None:
        """See `Reader`: of changes only columns are left out, since a row may begin to pass a condition."""
        # A filter of the user's may name any column.
        self._narrowing = replace(narrowing, columns=None) if self._filter is not None else narrowing

    @property
    def _columns(self) -> list[Column]:
        """The columns that the statement needs."""
        table = self._relation()
        return needed(table.columns, self._narrowing, table.key)

    @property
    def table(self) -> tuple[str, str]:
        """The database and the table."""
        found = self._relation()
        return found.schema, found.name

    def caught_up(self, changes: ChangeLog) -> bool:
        """See `Reader`: the server is asked how far its binlog goes."""
        with translated(f"{self._client.name} refuses"):
            if self._asking is None:
                self._asking = self._client.connect()
            end, _, _ = here(self._asking)
        return self._seen is not None and self._seen >= end

    def interrupt(self) -> None:
        """See `Reader`."""
        self._client.interrupt()

    def close(self) -> None:
        """See `Reader`."""
        if self._asking is not None:
            dropped(self._asking)
            self._asking = None
        if self._filter is not None:
            self._filter.close()
        self._client.close()

    # --- everything ---------------------------------------------------------------------------------------

    def load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        """See `Reader`."""
        for attempt in range(1, _LOADS + 1):
            self._table = None
            try:
                self._load(changes, after, stop)
            except ChangesLostError as exc:
                changes.abandon()
                if attempt == _LOADS:
                    raise SourceNetworkError(f"{self.name} changes while it is loaded: {exc}") from exc
            else:
                return

    def _load(self, changes: ChangeLog, after: int, stop: threading.Event) -> None:
        table, options = self._relation(), self._options
        with self._client.session() as connection:
            start = server.start_of_load(connection, table, options.start, stop)
            which = server.identity(connection)
        made = server.made_at(self._client, start, stop)
        stopped(stop)
        changes.begin_load(after)
        self._known = {column.name: column.type.arrow for column in self._columns}
        if options.initial_load == "full":
            self._scan(changes, table, stop)
        with self._client.session() as connection:
            end, _, _ = here(connection)
        self._receive(changes, stop, start, {"made": made, "server": which}, until=end, after=after)

    def _scan(self, changes: ChangeLog, table: Relation, stop: threading.Event) -> None:
        options, columns = self._options, self._columns
        texts = [text_column(column) for column in columns]
        where = [condition(options.where)] if options.where is not None else []
        where += conditions(self._narrowing, columns)[0]
        with self._client.session() as connection:
            parts = parts_of(connection, table, columns, where, options.readers)
        now = time.time_ns() // 1000
        level = options.transaction_isolation
        # What is rolled back is not in the binlog either.
        level = None if level == "read_uncommitted" else level
        read = read_parts(
            self._client, parts, columns, options.readers, ahead=options.prefetch_count, isolation=level
        )
        with translated(f"cannot read {self.name}"), released(read) as answer:
            for found in answer:
                stopped(stop)
                count = len(found[0])
                there, entered = np.zeros(count, dtype=bool), same_moment(now, count)
                rows, aside = log_rows(decode(texts, found), table.key, there, entered, changes.written)
                changes.append(rows, whole=False, divisible=True, aside=aside)

    # --- changes ------------------------------------------------------------------------------------------

    def follow(self, changes: ChangeLog, stop: threading.Event) -> None:
        """See `Reader`."""
        position = changes.position
        written = [Written(name, kind) for name, kind in changes.last_columns if name not in _SYSTEM]
        chosen = needed(written, self._narrowing, self._relation().key)
        self._known = {column.name: type_written(column.type) for column in chosen}
        with self._client.session() as connection:
            if server.identity(connection) != position["server"]:
                raise ChangesLostError("the server is another one than before")
        told = {"made": position["made"], "server": position["server"]}
        self._receive(changes, stop, Position.load(position), told)

    def _receive(
        self,
        changes: ChangeLog,
        stop: threading.Event,
        start: Position,
        told: dict[str, object],
        until: Position | None = None,
        after: int | None = None,
    ) -> None:
        """Receive changes from a place on until `stop` is set, or, for a load, until another place."""
        binlog = Binlog(self._client)
        earlier = until is not None and self._options.start != "latest"
        following = Following(self, binlog, changes, start, told, until=until, after=after, earlier=earlier)
        try:
            following.run(stop)
        except pymysql.Error as exc:
            if number_of(exc) == LOST_BINLOG and "max_allowed_packet" not in said(exc):
                raise ChangesLostError(said(exc)) from exc
            raise error_of(exc, f"changes of {self.name} cannot be read", server.RIGHTS) from exc
        except OSError as exc:
            raise SourceNetworkError(f"changes of {self.name} cannot be read: {exc.strerror or exc}") from exc
        finally:
            changes.abandon()
            binlog.close()

    def saw(self, position: Position) -> None:
        """Every transaction that was committed before this position is in the log."""
        self._seen = position

    def no_rows(self) -> pa.Table:
        """Rows of the log without any."""
        return no_rows(pa.schema(list(self._known.items())))

    # --- rows ---------------------------------------------------------------------------------------------

    def rows(
        self, events: Sequence[bytes], layout: TableMap, times: Sequence[int], first: int
    ) -> tuple[pa.Table, list[SetAside]]:
        """Row events as rows of the log, which begin after row `first`; `times` are those of the events."""
        images = read_images(events, layout.columns)
        order, deleted = self._in_order(images, layout)
        columns: dict[str, pa.Array] = {}
        wrong: dict[int, list[tuple[str, str]]] = {}
        key = self._relation().key
        for number, column in enumerate(layout.columns):
            if column.hidden or column.name not in self._known:
                continue
            # Of a deleted row only the key counts.
            made = self._values(images, number, column, order, None if column.name in key else deleted)
            columns[column.name] = made.column
            for row, text in made.bad.items():
                if not deleted[row]:
                    wrong.setdefault(row, []).append((column.name, text))
        bad = {row: _bad(columns, row, texts) for row, texts in sorted(wrong.items())}
        entered = pa.array(np.asarray(times, dtype=np.int64)[images.events[order]]).cast(UTC_TIME)
        rows, aside = log_rows(Decoded(columns, bad), key, deleted, entered, first)
        if self._filter is not None:
            rows = self._filter.applied(rows, self._relation())
        return rows, aside

    def _in_order(self, images: Images, layout: TableMap) -> tuple[Integers, Flags]:
        """Which rows come into the log, and which of them are deletions.

        Before an update that changed the key of its row comes the deletion of the old key.
        """
        shown = np.flatnonzero(~images.before)
        deleted = images.deleted[shown]
        if not images.before.any():
            return shown, deleted
        updated = np.flatnonzero(images.before)
        same = np.ones(len(updated), dtype=bool)
        for number, column in enumerate(layout.columns):
            if column.name in self._relation().key:
                old = self._values(images, number, column, updated, None).column
                new = self._values(images, number, column, updated + 1, None).column
                same &= pc.equal(old, new).fill_null(fill_value=False).to_numpy(zero_copy_only=False)
        if same.all():
            return shown, deleted
        order = np.sort(np.concatenate([shown, updated[~same]]))
        return order, images.deleted[order] | images.before[order]

    def _values(
        self, images: Images, number: int, column: Stored, rows: Integers, without: Flags | None
    ) -> Values:
        places = images.columns[number]
        valid = places.valid[rows]
        chosen = Places(
            places.starts[rows], places.lengths[rows], valid if without is None else valid & ~without
        )
        return read_values(images.data, column, chosen, self._texts, self._kinds.get(column.name))

    @property
    def _kinds(self) -> dict[str, str]:
        """What the catalogue calls the types of columns: MariaDB stores addresses and UUIDs as bytes."""
        return {column.name: column.type.name for column in self._relation().columns}

    # --- columns ------------------------------------------------------------------------------------------

    def take_columns(self, layout: TableMap) -> None:
        """Take the columns that the row events that follow have.

        Columns that were added are followed, and types that became wider. Columns that were dropped or
        renamed, and other types, are refused: tables that are there would have to lose values.
        """
        shown = [column for column in layout.columns if not column.hidden]
        if {column.name for column in shown} - self._kinds.keys():
            self._table = None
        chosen = needed(shown, self._narrowing, self._relation().key)
        now = {column.name: arrow_type(column, self._kinds.get(column.name)) for column in chosen}
        self._compare(now)
        self._known = now

    def altered(self) -> None:
        """The table was altered: see `take_columns`; the catalogue tells its columns.

        It may have been altered again since: rows that follow need not have all of these columns yet.
        """
        self._table = None
        self._compare({column.name: column.type.arrow for column in self._columns})

    def _compare(self, now: dict[str, pa.DataType]) -> None:
        table = self._relation()
        for name, before in self._known.items():
            if name not in now:
                raise SourceConfigError(f'column "{name}" of {table} was dropped or renamed', hint=_AGAIN)
            if not wider(before, now[name]):
                raise SourceConfigError(
                    f'column "{name}" of {table} is {now[name]} now, and was {before}', hint=_AGAIN
                )
        for column in table.columns:
            if column.name in now and column.name not in self._known and column.filled:
                raise ChangesLostError(
                    f'column "{column.name}" was added with a value for the rows that were there'
                )


def _bad(columns: dict[str, pa.Array], row: int, wrong: list[tuple[str, str]]) -> Bad:
    name, text = wrong[0]
    values = {each: _told(column[row].as_py()) for each, column in columns.items()}
    reason = f'"{text}" in column "{name}" does not fit {columns[name].type}'
    return Bad(reason, json.dumps({**values, **dict(wrong)}, ensure_ascii=False))


def _told(value: object) -> str | None:
    """A value as text, as a load would have it."""
    if value is None:
        return None
    if isinstance(value, bytes):
        return value.hex()
    return str(int(value)) if isinstance(value, bool) else str(value).removesuffix("+00:00")
