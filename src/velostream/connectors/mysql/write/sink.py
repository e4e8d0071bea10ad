"""Tables of MySQL and MariaDB as a sink."""

from __future__ import annotations

from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import pymysql

from velostream.connectors.databases.sink import PROGRESS, TableSink
from velostream.connectors.mysql.client.connections import Client, dropped, quoted, run
from velostream.connectors.mysql.client.failures import REFUSED_ROW, error_of, number_of, said
from velostream.connectors.mysql.client.tables import Relation, relation
from velostream.connectors.mysql.literals import tuples, type_name
from velostream.connectors.sinks import as_sink_errors
from velostream.errors import SourceConfigError, SourceMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa
    from pymysql.connections import Connection

    from velostream.connectors.base import SinkContext
    from velostream.connectors.mysql.options import MySqlOptions
    from velostream.connectors.waiting import Waiting

_MODE = "STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"
"""A value that does not fit is refused instead of changed, and 0 is a number like others."""
_BYTES = 1 << 20
"""About how long a statement may become."""
_ROWS = 2_000


class RefusedRowError(Exception):
    """The server refuses a row; the cause is its error."""


def await_table(options: MySqlOptions, waiting: Waiting) -> None:
    """Raise where the table does not exist and is not to be made."""
    client = Client(options)
    with as_sink_errors(), closing(client), client.session() as connection:
        _target(connection, options, None, ())


class MySqlSink(TableSink):
    """See `TableSink`. Rows go in statements of many, `INSERT … ON DUPLICATE KEY UPDATE`."""

    refused = (RefusedRowError,)

    def __init__(self, options: MySqlOptions, context: SinkContext) -> None:
        super().__init__(context)
        self._options = options
        self._client = Client(options)
        self._connection: Connection | None = None
        self._table: Relation | None = None
        self._replaces = False
        """Whether the server knows the key as unique, and no other, so that it replaces rows by itself."""

    def close(self) -> None:
        """See `Sink`."""
        if self._connection is not None:
            dropped(self._connection)
            self._connection = None

    # --- what a database does -----------------------------------------------------------------------------

    def _connected(self) -> str:
        """See `TableSink`."""
        self._connection = connection = self._client.connect()
        with self._told():
            run(connection, "SET SESSION sql_mode = %s", (_MODE,))
            table = _target(connection, self._options, self._context.schema, self._context.key)
            if self._context.resumed and self._options.create_table:
                table = _widened(connection, table, self._context.schema)
            self._check_columns(table, {column.name for column in table.columns})
            if not _transactional(connection, table):
                raise SourceConfigError(
                    f"{table} has no transactions, so that a step cannot be written exactly once",
                    hint=f"ALTER TABLE {table.identifier} ENGINE = InnoDB",
                )
            keys = _unique_keys(connection, table)
            self._replaces = self._upserts and keys == [set(self._context.key)]
            run(
                connection,
                f"CREATE TABLE IF NOT EXISTS {quoted(table.schema, PROGRESS)} (job varchar(255) COLLATE "
                "utf8mb4_bin PRIMARY KEY, step bigint NOT NULL, token varchar(64) NOT NULL) ENGINE = InnoDB",
            )
        self._table = table
        return str(table)

    def _apply(self, added: pa.Table, gone: pa.Table | None) -> None:
        """See `TableSink`."""
        key = list(self._context.key)
        if gone is not None and gone.num_rows:
            self._delete(gone)
        if not added.num_rows:
            return
        if self._upserts and not self._replaces:
            self._delete(added.select(key))
        names = ", ".join(map(quoted, added.column_names))
        tail = ""
        if self._replaces:
            rest = [name for name in added.column_names if name not in key] or key[:1]
            tail = " ON DUPLICATE KEY UPDATE " + ", ".join(f"{n} = VALUES({n})" for n in map(quoted, rest))
        self._many(f"INSERT INTO {self._target.identifier} ({names}) VALUES ", added, ", ", tail)

    def _delete(self, keys: pa.Table) -> None:
        names = ", ".join(map(quoted, keys.column_names))
        self._many(f"DELETE FROM {self._target.identifier} WHERE ({names}) IN (", keys, ", ", ")")

    def _many(self, head: str, rows: pa.Table, between: str, tail: str) -> None:
        """Run a statement for many rows at a time, as often as it takes."""
        each = tuples(rows)
        most = min(self._options.batch_size, _ROWS)
        while part := list(islice(each, most)):
            while part:
                size = count = 0
                while count < len(part) and (size < _BYTES or not count):
                    size += len(part[count])
                    count += 1
                self._run(head + between.join(part[:count]) + tail)
                part = part[count:]

    def _run(self, text: str) -> None:
        try:
            run(self._open(), text)
        except pymysql.Error as exc:
            if number_of(exc) in REFUSED_ROW:
                raise RefusedRowError from exc
            raise

    def _record(self, batch: int) -> None:
        """See `TableSink`."""
        run(
            self._open(),
            f"REPLACE INTO {self._progress} (job, step, token) VALUES (%s, %s, %s)",
            (self._name, batch, self._token),
        )

    def _written(self) -> tuple[int, str] | None:
        """See `TableSink`."""
        with self._told():
            query = f"SELECT step, token FROM {self._progress} WHERE job = %s"
            found = run(self._open(), query, (self._name,))
        return (int(found[0][0]), str(found[0][1])) if found else None

    @contextmanager
    def _transaction(self, *, undone: bool = False) -> Iterator[None]:
        """See `TableSink`."""
        connection = self._open()
        connection.begin()
        try:
            yield
        except BaseException:
            if connection.open:
                connection.rollback()
            raise
        if undone:
            connection.rollback()
        else:
            connection.commit()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """See `TableSink`."""
        try:
            yield
        except pymysql.Error as exc:
            raise error_of(exc, f"cannot write to {self._client.name}") from exc

    def _reason(self, exc: Exception) -> str:
        """See `TableSink`."""
        cause = exc.__cause__
        return said(cause) if isinstance(cause, pymysql.Error) else str(exc)

    # --- inside -------------------------------------------------------------------------------------------

    def _open(self) -> Connection:
        assert self._connection is not None, "recover was called"
        return self._connection

    @property
    def _target(self) -> Relation:
        assert self._table is not None, "recover was called"
        return self._table

    @property
    def _progress(self) -> str:
        return quoted(self._target.schema, PROGRESS)


def _target(
    connection: Connection, options: MySqlOptions, schema: pa.Schema | None, key: tuple[str, ...]
) -> Relation:
    """The table that is written; made if it is missing and the options say so."""
    assert options.table is not None
    try:
        return relation(connection, options.database_schema, options.table)
    except SourceMissingError as exc:
        if not options.create_table:
            raise SourceMissingError(
                exc.message, hint=f'{exc.hint or "create it"}; or WITH ("table.create.if.missing" = "true")'
            ) from exc
    if schema is None:
        return Relation(options.database_schema or "", options.table, "BASE TABLE", 0, (), ())
    columns = [f"{quoted(f.name)} {type_name(f.type, key=f.name in key)}" for f in schema]
    if key:
        columns.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
    name = quoted(*filter(None, (options.database_schema, options.table)))
    run(
        connection,
        f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(columns)}) ENGINE = InnoDB CHARACTER SET utf8mb4",
    )
    return relation(connection, options.database_schema, options.table)


def _transactional(connection: Connection, table: Relation) -> bool:
    found = run(
        connection,
        "SELECT e.TRANSACTIONS FROM information_schema.TABLES t JOIN information_schema.ENGINES e "
        "ON t.ENGINE = e.ENGINE WHERE t.TABLE_SCHEMA = %s AND t.TABLE_NAME = %s",
        (table.schema, table.name),
    )
    return not found or found[0][0] == "YES"


def _unique_keys(connection: Connection, table: Relation) -> list[set[str]]:
    """The columns of each unique index of the table."""
    found: dict[str, set[str]] = {}
    for index, column in run(
        connection,
        "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND NON_UNIQUE = 0",
        (table.schema, table.name),
    ):
        found.setdefault(index, set()).add(column)
    return list(found.values())


def _widened(connection: Connection, table: Relation, schema: pa.Schema) -> Relation:
    """A table that was made for these rows follows them when they get another column."""
    there = {column.name for column in table.columns}
    for field in schema:
        if field.name not in there:
            written = f"{quoted(field.name)} {type_name(field.type, key=False)}"
            run(connection, f"ALTER TABLE {table.identifier} ADD COLUMN {written}")
    return relation(connection, table.schema, table.name)
