"""A sink: a table of SQLite that holds the rows of a query, each exactly once, and loses those that go."""

import sqlite3
from uuid import uuid4

from pydantic import Field

from velostream.connectors import Connector, Options, Sink


class LedgerOptions(Options):
    path: str = Field(description="file of the database", json_schema_extra={"reaches": "file"})
    table: str = Field(pattern=r"^\w+$", description="table that is written to, made if it is missing")


class LedgerSink(Sink):
    takes_deletes = True

    def __init__(self, options, context):
        self._db = sqlite3.connect(options.path, check_same_thread=False)
        self._table, self._columns = options.table, [f'"{name}"' for name in context.schema.names]
        self._writer = str(context.state)  # Others may write into the same database.

    def recover(self, recorded):
        self._db.execute(f"CREATE TABLE IF NOT EXISTS {self._table} ({', '.join(self._columns)})")
        self._db.execute("CREATE TABLE IF NOT EXISTS marks (writer PRIMARY KEY, mark)")

    def intend(self, batch, rows):
        self._mark = uuid4().hex
        return {"mark": self._mark}

    def settle(self, intended):
        return bool(self._db.execute("SELECT 1 FROM marks WHERE mark = ?", [intended["mark"]]).fetchone())

    def write(self, batch, rows):
        same = " AND ".join(f"{column} IS ?" for column in self._columns)
        take = f"DELETE FROM {self._table} WHERE rowid = (SELECT MAX(rowid) FROM {self._table} WHERE {same})"
        add = f"INSERT INTO {self._table} VALUES ({', '.join('?' * len(self._columns))})"
        with self._db:  # One transaction: the rows, and the mark by which `settle` knows them.
            for row in rows.to_pylist():
                sql = add if row.pop("_weight", 1) > 0 else take
                values = [v if isinstance(v, int | float | bytes | None) else str(v) for v in row.values()]
                self._db.execute(sql, values)
            self._db.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", [self._writer, self._mark])
        return {"mark": self._mark}

    def close(self):
        self._db.close()


class LedgerConnector(Connector):
    name, schemes, Options = "ledger", ("ledger",), LedgerOptions
    address = "path"

    def sink(self, uri, options, context):
        return LedgerSink(options, context)
