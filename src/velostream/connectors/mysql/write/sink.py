"""Tables of MySQL and MariaDB as a sink."""

from __future__ import annotations

import re
from contextlib import closing, contextmanager
from itertools import islice
from typing import TYPE_CHECKING

import pymysql

from velostream.connectors.databases.write.refused_rows import RefusedRowError
from velostream.connectors.databases.write.sink import PROGRESS, TableSink
from velostream.connectors.mysql.client.connections import Client, dropped, quoted, run
from velostream.connectors.mysql.client.failures import (
    REFUSED_FOR_OTHERS,
    REFUSED_ROW,
    error_of,
    number_of,
    said,
)
from velostream.connectors.mysql.client.tables import Column, Relation, relation
from velostream.connectors.mysql.literals import tuples, type_name
from velostream.connectors.sinks import as_sink_errors
from velostream.errors import SourceConfigError, SourceError, SourceMissingError

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
_HEAD = 1 << 10
"""Bytes of a packet that are left for what is not rows."""
_NO_STEP = -1
_LOCKED_FOR = 60
"""Seconds that a step of an earlier connection is waited for, before it is an error, which is tried again."""
_THERE = "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_SAVED = "velostream_part"
_STAGE = "velostream_stage"
_WHOLE = ("tinyint", "smallint", "mediumint", "int", "bigint")
_DECIMAL = re.compile(r"decimal\(\d+,(\d+)\)")


def await_table(options: MySqlOptions, waiting: Waiting) -> None:
    """Raise where the table does not exist and is not to be made."""
    client = Client(options)
    with as_sink_errors(), closing(client), client.session() as connection:
        _target(connection, options, None, ())


class MySqlSink(TableSink):
    """See `TableSink`. Rows go in statements of many, `INSERT … ON DUPLICATE KEY UPDATE`."""

    failure = pymysql.Error

    def __init__(self, options: MySqlOptions, context: SinkContext) -> None:
        super().__init__(context)
        self._options = options
        self._client = Client(options)
        self._connection: Connection | None = None
        self._table: Relation | None = None
        self._replaces = False
        """Whether the server knows the key as unique, and no other, so that it replaces rows by itself."""
        self._largest = 0
        """Bytes that a statement may have."""

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
            self._check_scales(table, dict(filter(None, map(_scale, table.columns))))
            keys = _unique_keys(connection, table)
            self._replaces = self._upserts and keys == [set(self._context.key)]
            self._largest = int(run(connection, "SELECT @@max_allowed_packet")[0][0]) - _HEAD
            self._prepare_progress(connection, table)
            if self._upserts and not self._replaces:
                names = ", ".join(map(quoted, self._columns))
                # Before any step: a definition inside a transaction is not allowed everywhere.
                run(
                    connection,
                    f"CREATE TEMPORARY TABLE {quoted(table.schema, _STAGE)} ENGINE = InnoDB AS "
                    f"SELECT {names} FROM {table.identifier} LIMIT 0",
                )
        self._table = table
        return str(table)

    def _prepare_progress(self, connection: Connection, table: Relation) -> None:
        """Make the table of steps, and the row of this job, to be locked by every step."""
        progress = quoted(table.schema, PROGRESS)
        run(connection, f"SET SESSION innodb_lock_wait_timeout = {_LOCKED_FOR}")
        # Whoever may write to it need not be allowed to make tables.
        if not run(connection, _THERE, (table.schema, PROGRESS)):
            run(
                connection,
                f"CREATE TABLE IF NOT EXISTS {progress} (job varchar(255) COLLATE utf8mb4_bin PRIMARY KEY, "
                "step bigint NOT NULL, token varchar(64) NOT NULL) ENGINE = InnoDB",
            )
        run(
            connection,
            f"INSERT IGNORE INTO {progress} (job, step, token) VALUES (%s, %s, '')",
            (self._name, _NO_STEP),
        )

    def _apply(self, added: pa.Table, gone: pa.Table | None) -> None:
        """See `TableSink`."""
        key = list(self._context.key)
        if gone is not None and gone.num_rows:
            self._delete(gone)
        if not added.num_rows:
            return
        if self._upserts and not self._replaces:
            self._merge(added)
            return
        names = ", ".join(map(quoted, added.column_names))
        tail = ""
        if self._replaces:
            rest = [name for name in added.column_names if name not in key] or key[:1]
            tail = " ON DUPLICATE KEY UPDATE " + ", ".join(f"{n} = VALUES({n})" for n in map(quoted, rest))
        self._many(f"INSERT INTO {self._target.identifier} ({names}) VALUES ", added, ", ", tail)

    def _merge(self, added: pa.Table) -> None:
        """Update rows that are there, and insert the others.

        ON DUPLICATE KEY would also update rows of other keys, and a row that is deleted to come again would
        take those with it that refer to it.
        """
        key, target = list(self._context.key), self._target.identifier
        stage = quoted(self._target.schema, _STAGE)
        names = ", ".join(map(quoted, added.column_names))
        same = " AND ".join(f"t.{n} = s.{n}" for n in map(quoted, key))
        self._run(f"DELETE FROM {stage}")
        self._many(f"INSERT INTO {stage} ({names}) VALUES ", added, ", ", "")
        if rest := [name for name in added.column_names if name not in key]:
            sets = ", ".join(f"t.{n} = s.{n}" for n in map(quoted, rest))
            self._run(f"UPDATE {stage} s STRAIGHT_JOIN {target} t ON {same} SET {sets}")
        chosen = ", ".join(f"s.{n}" for n in map(quoted, added.column_names))
        self._run(
            f"INSERT INTO {target} ({names}) SELECT {chosen} FROM {stage} s "
            f"LEFT JOIN {target} t ON {same} WHERE t.{quoted(key[0])} IS NULL"
        )

    def _delete(self, keys: pa.Table) -> None:
        names = ", ".join(map(quoted, keys.column_names))
        self._many(f"DELETE FROM {self._target.identifier} WHERE ({names}) IN (", keys, ", ", ")")

    def _many(self, head: str, rows: pa.Table, between: str, tail: str) -> None:
        """Run a statement for many rows at a time, as often as it takes."""
        each = tuples(rows)
        most = min(self._options.batch_size, _ROWS)
        room = min(_BYTES, self._largest)
        while part := list(islice(each, most)):
            sizes = [len(text.encode()) for text in part]
            if max(sizes) > self._largest - len(head) - len(tail):
                raise RefusedRowError(
                    "the row is larger than max_allowed_packet of the server, "
                    f"which is {self._largest + _HEAD} bytes"
                )
            at = 0
            while at < len(part):
                end, size = at + 1, sizes[at]
                while end < len(part) and size + sizes[end] < room:
                    size += sizes[end] + len(between)
                    end += 1
                self._run(head + between.join(part[at:end]) + tail)
                at = end

    def _run(self, text: str) -> None:
        run(self._open(), text)

    def _record(self, batch: int) -> None:
        """See `TableSink`."""
        run(
            self._open(),
            f"INSERT INTO {self._progress} (job, step, token) VALUES (%s, %s, %s) "
            "ON DUPLICATE KEY UPDATE step = VALUES(step), token = VALUES(token)",
            (self._name, batch, self._token),
        )

    def _written(self) -> tuple[int, str] | None:
        """See `TableSink`: the row of the job is locked for a moment."""
        query = f"SELECT step, token FROM {self._progress} WHERE job = %s FOR UPDATE"
        with self._told(), self._transaction():
            found = run(self._open(), query, (self._name,))
        return None if not found or found[0][0] == _NO_STEP else (int(found[0][0]), str(found[0][1]))

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
    def _savepoint(self) -> Iterator[None]:
        """See `TableSink`."""
        self._run(f"SAVEPOINT {_SAVED}")
        try:
            yield
        except RefusedRowError:
            self._run(f"ROLLBACK TO SAVEPOINT {_SAVED}")
            raise
        except pymysql.Error as exc:
            if number_of(exc) in REFUSED_ROW:
                self._run(f"ROLLBACK TO SAVEPOINT {_SAVED}")
            raise
        self._run(f"RELEASE SAVEPOINT {_SAVED}")

    def _refusal(self, exc: Exception) -> RefusedRowError | None:
        """See `TableSink`."""
        assert isinstance(exc, pymysql.Error)
        number = number_of(exc)
        if number not in REFUSED_ROW:
            return None
        return RefusedRowError(said(exc), for_others=number in REFUSED_FOR_OTHERS)

    def _error(self, exc: Exception) -> SourceError:
        """See `TableSink`."""
        assert isinstance(exc, pymysql.Error)
        return error_of(exc, f"cannot write to {self._client.name}")

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


def _scale(column: Column) -> tuple[str, int] | None:
    """The decimal places that a column has."""
    if column.type.name in _WHOLE:
        return column.name, 0
    found = _DECIMAL.match(column.told)
    return (column.name, int(found[1])) if found else None


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
