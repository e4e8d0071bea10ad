"""The filter of a table that is followed, applied to its changes.

The binlog has the changes of all rows, and only the server knows what a condition in its SQL means: it is
asked about the rows as they were, in a table of the session.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from velostream.connectors.mysql.client.connections import dropped, quoted, run
from velostream.connectors.mysql.client.failures import translated
from velostream.connectors.mysql.client.user_sql import condition
from velostream.connectors.mysql.literals import tuples
from velostream.model.columns import TOMBSTONE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pymysql.connections import Connection

    from velostream.connectors.mysql.client.connections import Client
    from velostream.connectors.mysql.client.tables import Relation

_ASKED = "velostream_rows"
_NUMBER = "velostream_row"
_AT_A_TIME = 1000
_RIGHTS = 'the user needs CREATE TEMPORARY TABLES; or leave "where" out, and filter in the statement'


class Filter:
    """A condition on the rows of a table; `close` ends its connection."""

    def __init__(self, client: Client, where: str) -> None:
        self._client, self._where = client, where
        self._connection: Connection | None = None
        self._columns: Sequence[str] = ()

    def applied(self, rows: pa.Table, table: Relation) -> pa.Table:
        """Rows of the log: those that the condition does not hold for are deletions of their keys."""
        names = [column.name for column in table.columns if column.name in rows.column_names]
        there = np.flatnonzero(~rows[TOMBSTONE].combine_chunks().to_numpy(zero_copy_only=False))
        if not len(there):
            return rows
        numbered = rows.select(names).take(there).add_column(0, _NUMBER, pa.array(there))
        with translated(f"the filter of {table} cannot be applied to its changes", _RIGHTS):
            taken = self._ask(numbered, table, names)
        gone = np.ones(rows.num_rows, dtype=bool)
        gone[taken] = False
        return rows.set_column(rows.schema.get_field_index(TOMBSTONE), TOMBSTONE, pa.array(gone))

    def _ask(self, rows: pa.Table, table: Relation, names: list[str]) -> list[int]:
        connection = self._prepared(table, names)
        head = f"INSERT INTO {quoted(_ASKED)} ({', '.join(map(quoted, rows.column_names))}) VALUES "
        run(connection, f"DELETE FROM {quoted(_ASKED)}")
        each = tuples(rows)
        while part := list(islice(each, _AT_A_TIME)):
            run(connection, head + ", ".join(part))
        asked = f"FROM {quoted(_ASKED)} AS {quoted(table.name)} WHERE {condition(self._where)}"
        return [int(number) for (number,) in run(connection, f"SELECT {quoted(_NUMBER)} {asked}")]

    def _prepared(self, table: Relation, names: list[str]) -> Connection:
        """A connection with a table like the one that is followed, without keys."""
        if self._connection is None or not self._connection.open:
            self._connection = self._client.connect()
            run(self._connection, "SET SESSION sql_mode = ''")
            self._columns = ()
        if list(self._columns) != names:
            columns = ", ".join(map(quoted, names))
            run(self._connection, f"DROP TEMPORARY TABLE IF EXISTS {quoted(_ASKED)}")
            run(
                self._connection,
                f"CREATE TEMPORARY TABLE {quoted(_ASKED)} AS "
                f"SELECT 0 AS {quoted(_NUMBER)}, {columns} FROM {table.identifier} LIMIT 0",
            )
            self._columns = names
        return self._connection

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            dropped(self._connection)
            self._connection = None
