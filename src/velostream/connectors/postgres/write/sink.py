"""Tables of PostgreSQL as a sink."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from velostream.connectors.databases.write.refused_rows import RefusedRowError
from velostream.connectors.databases.write.sink import PROGRESS, TableSink
from velostream.connectors.postgres.client.connections import Client
from velostream.connectors.postgres.client.failures import error_of, refuses_for_others, refuses_row
from velostream.connectors.postgres.client.tables import KEY_COLUMNS, Column, Relation, relation
from velostream.connectors.postgres.write.literals import csv_of, type_name
from velostream.connectors.sinks import as_sink_errors
from velostream.errors import SourceMissingError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from velostream.connectors.base import SinkContext
    from velostream.connectors.postgres.options import PostgresOptions
    from velostream.connectors.waiting import Waiting
    from velostream.errors import SourceError

_STAGE, _GONE = sql.Identifier("velostream_stage"), sql.Identifier("velostream_gone")
_NO_STEP = -1
_NUMERIC = re.compile(r"numeric\(\d+(?:,(-?\d+))?\)")
_LOCKED_FOR = "60s"
"""How long a step of an earlier connection is waited for, before it is an error, which is tried again."""


def await_table(options: PostgresOptions, waiting: Waiting) -> None:
    """Raise where the table does not exist and is not to be made."""
    client = Client(options)
    with as_sink_errors(), closing(client), client.session() as connection:
        _target(connection, options, None, ())


class PostgresSink(TableSink):
    """See `TableSink`. Rows go by COPY into a table of the session, and from there into the target."""

    failure = psycopg.Error

    def __init__(self, options: PostgresOptions, context: SinkContext) -> None:
        super().__init__(context)
        self._options = options
        self._client = Client(options)
        self._connection: psycopg.Connection | None = None
        self._table: Relation | None = None
        self._conflict = False

    def close(self) -> None:
        """See `Sink`."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # --- what a database does -----------------------------------------------------------------------------

    def _connected(self) -> str:
        """See `TableSink`."""
        self._connection = connection = self._client.connect()
        with self._told():
            table = _target(connection, self._options, self._context.schema, self._context.key)
            if self._context.resumed and self._options.create_table:
                table = _widened(connection, table, self._context.schema)
            self._check_columns(table, {column.name for column in table.columns})
            self._conflict = self._upserts and self._unique(connection, table)
            self._check_scales(table, dict(filter(None, map(_scale, table.columns))))
            progress = self._progress(table)
            # Whoever may write to it need not be allowed to make tables.
            if connection.execute("SELECT to_regclass(%s)", (progress.as_string(connection),)).fetchone() == (
                None,
            ):
                connection.execute(
                    sql.SQL(
                        "CREATE TABLE IF NOT EXISTS {} "
                        "(job text PRIMARY KEY, step bigint NOT NULL, token text NOT NULL)"
                    ).format(progress)
                )
            # There to be locked by every step, so that a commit which is under way can be waited for.
            connection.execute(
                sql.SQL(
                    "INSERT INTO {} (job, step, token) VALUES (%s, %s, '') ON CONFLICT (job) DO NOTHING"
                ).format(progress),
                (self._name, _NO_STEP),
            )
        self._table = table
        return str(table)

    def _apply(self, added: pa.Table, gone: pa.Table | None) -> None:
        """See `TableSink`."""
        if not self._upserts and self._target.kind != "v":
            self._copy(self._target.identifier, added)
            return
        key = list(self._context.key)
        if gone is not None and gone.num_rows:
            self._staged(gone, _GONE)
            self._open().execute(
                sql.SQL("DELETE FROM {} t USING {} s WHERE {}").format(
                    self._target.identifier, _GONE, self._same
                )
            )
        if not added.num_rows:
            return
        self._staged(added, _STAGE)
        names = sql.SQL(", ").join(map(sql.Identifier, self._columns))
        rest = [name for name in self._columns if name not in key]
        text = sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {} s").format(
            self._target.identifier, names, names, _STAGE
        )
        if self._conflict:
            sets = sql.SQL(", ").join(
                sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)) for name in rest
            )
            keys = sql.SQL(", ").join(map(sql.Identifier, key))
            action = sql.SQL("UPDATE SET {}").format(sets) if rest else sql.SQL("NOTHING")
            text = sql.SQL("{} ON CONFLICT ({}) DO {}").format(text, keys, action)
        elif self._upserts:
            if rest:
                sets = sql.SQL(", ").join(
                    sql.SQL("{0} = s.{0}").format(sql.Identifier(name)) for name in rest
                )
                self._open().execute(
                    sql.SQL("UPDATE {} t SET {} FROM {} s WHERE {}").format(
                        self._target.identifier, sets, _STAGE, self._same
                    )
                )
            text = sql.SQL("{} WHERE NOT EXISTS (SELECT FROM {} t WHERE {})").format(
                text, self._target.identifier, self._same
            )
        self._open().execute(text)

    @property
    def _same(self) -> sql.Composed:
        """That a row of the target, `t`, and one of a table of the session, `s`, have the same key."""
        return sql.SQL(" AND ").join(
            sql.SQL("t.{0} = s.{0}").format(sql.Identifier(name)) for name in self._context.key
        )

    def _staged(self, rows: pa.Table, stage: sql.Identifier) -> None:
        """Put rows into a table of the session, with the types of the target.

        The table stays until the end of the transaction: each one that is made needs a lock until then.
        """
        names = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        connection = self._open()
        there = sql.SQL("pg_temp.{}").format(stage).as_string(connection)
        if connection.execute("SELECT to_regclass(%s)", (there,)).fetchone() == (None,):
            connection.execute(
                sql.SQL("CREATE TEMP TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                    stage, names, self._target.identifier
                )
            )
        else:
            connection.execute(sql.SQL("TRUNCATE pg_temp.{}").format(stage))
        self._copy(stage, rows)

    def _copy(self, into: sql.Identifier, rows: pa.Table) -> None:
        names = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
        text = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(into, names)
        size = self._options.batch_size
        with self._open().cursor().copy(text) as out:
            for start in range(0, rows.num_rows, size):
                out.write(csv_of(rows.slice(start, size)))

    def _record(self, batch: int) -> None:
        """See `TableSink`."""
        self._open().execute(
            sql.SQL(
                "INSERT INTO {} (job, step, token) VALUES (%s, %s, %s) "
                "ON CONFLICT (job) DO UPDATE SET step = EXCLUDED.step, token = EXCLUDED.token"
            ).format(self._progress(self._target)),
            (self._name, batch, self._token),
        )

    def _transaction(self, *, undone: bool = False) -> AbstractContextManager[object]:
        """See `TableSink`."""
        return self._open().transaction(force_rollback=undone)

    def _savepoint(self) -> AbstractContextManager[object]:
        """See `TableSink`."""
        # Rows that need each other are checked together, and not each after it was written.
        self._open().execute("SET CONSTRAINTS ALL DEFERRED")
        return self._open().transaction()

    def _check_late(self) -> None:
        """See `TableSink`."""
        self._open().execute("SET CONSTRAINTS ALL IMMEDIATE")

    def _refusal(self, exc: Exception) -> RefusedRowError | None:
        """See `TableSink`."""
        assert isinstance(exc, psycopg.Error)
        if not refuses_row(exc):
            return None
        return RefusedRowError(str(exc.diag.message_primary), for_others=refuses_for_others(exc))

    def _error(self, exc: Exception) -> SourceError:
        """See `TableSink`."""
        assert isinstance(exc, psycopg.Error)
        return error_of(exc, f"cannot write to {self._client.name}")

    # --- inside -------------------------------------------------------------------------------------------

    def _open(self) -> psycopg.Connection:
        assert self._connection is not None, "recover was called"
        return self._connection

    @property
    def _target(self) -> Relation:
        assert self._table is not None, "recover was called"
        return self._table

    def _progress(self, table: Relation) -> sql.Identifier:
        return sql.Identifier(table.schema, PROGRESS)

    def _written(self) -> tuple[int, str] | None:
        """See `TableSink`; a COMMIT of before that the server still has to read is waited for."""
        query = sql.SQL("SELECT step, token FROM {} WHERE job = %s FOR UPDATE")
        with self._told(), self._open().transaction():
            self._open().execute("SELECT set_config('lock_timeout', %s, true)", (_LOCKED_FOR,))
            asked = query.format(self._progress(self._target))
            found = self._open().execute(asked, (self._name,)).fetchone()
        return None if found is None or found[0] == _NO_STEP else (int(found[0]), str(found[1]))

    def _unique(self, connection: psycopg.Connection, table: Relation) -> bool:
        """Whether the server knows the key as unique, so that it can replace rows by itself."""
        found = connection.execute(
            "SELECT array_agg(a.attname ORDER BY a.attname) FROM pg_index i "
            "CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) "
            "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
            "WHERE i.indrelid = %s AND i.indisunique AND i.indimmediate AND i.indisvalid "
            f"AND i.indpred IS NULL AND i.indexprs IS NULL AND k.place <= {KEY_COLUMNS} "
            "GROUP BY i.indexrelid",
            (table.oid,),
        ).fetchall()
        return any(sorted(names) == sorted(self._context.key) for (names,) in found)


def _target(
    connection: psycopg.Connection, options: PostgresOptions, schema: pa.Schema | None, key: tuple[str, ...]
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
    name = sql.Identifier(*filter(None, (options.database_schema, options.table)))
    if schema is None:
        return Relation(0, options.database_schema or "public", options.table, "r", "d", 0, (), (), False)
    columns = [sql.SQL("{} {}").format(sql.Identifier(f.name), sql.SQL(type_name(f.type))) for f in schema]
    if key:
        columns.append(sql.SQL("PRIMARY KEY ({})").format(sql.SQL(", ").join(map(sql.Identifier, key))))
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(name, sql.SQL(", ").join(columns))
    )
    return relation(connection, options.database_schema, options.table)


def _scale(column: Column) -> tuple[str, int] | None:
    """The decimal places that a column has."""
    found = _NUMERIC.fullmatch(column.written)
    return (column.name, int(found[1] or 0)) if found else None


def _widened(connection: psycopg.Connection, table: Relation, schema: pa.Schema) -> Relation:
    """A table that was made for these rows follows them when they get another column."""
    there = {column.name for column in table.columns}
    for field in schema:
        if field.name not in there:
            connection.execute(
                sql.SQL("ALTER TABLE {} ADD COLUMN IF NOT EXISTS {} {}").format(
                    table.identifier, sql.Identifier(field.name), sql.SQL(type_name(field.type))
                )
            )
    return relation(connection, table.schema, table.name)
