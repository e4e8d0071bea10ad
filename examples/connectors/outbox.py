"""A source: the outbox of an application, a table of SQLite with a row for each thing that happened."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow as pa
from pydantic import Field

from velostream.connectors import Connector, NumberedSource, SourceOptions, Widening
from velostream.errors import SourceMissingError

TYPES = {"INTEGER": pa.int64(), "REAL": pa.float64(), "BLOB": pa.binary()}


class OutboxOptions(SourceOptions):
    path: str = Field(description="file of the database", json_schema_extra={"reaches": "file"})
    table: str = Field("outbox", pattern=r"^\w+$", description="table, with an INTEGER PRIMARY KEY named id")


class OutboxSource(Widening, NumberedSource):
    """Row number n has the id n + 1: SQLite has one writer at a time, and its ids have no gaps."""

    def __init__(self, options, context):
        self._path, self._table, self._known = Path(options.path), options.table, context.schema

    def _ask(self, query, *values):
        if not self._path.exists():
            raise SourceMissingError(f"no database {self._path}", hint="the application makes it")
        with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return database.execute(query, values).fetchall()

    def discover(self):
        columns = self._ask("SELECT name, type FROM pragma_table_info(?)", self._table)
        if not columns:
            raise SourceMissingError(f"no table {self._table} in {self._path}", hint='WITH ("table" = "…")')
        found = pa.schema([(name, TYPES.get(kind, pa.string())) for name, kind in columns])
        self._known = self._known or found
        return found

    def new_columns(self, start, end):
        return len(self.discover()) > len(self._known)

    def widen(self, start, end):
        return self.discover()

    def newest(self):
        return {self._table: self._ask(f"SELECT COALESCE(MAX(id), 0) FROM {self._table}")[0][0]}

    def rows(self, partition, first, last):
        schema = self.discover()
        query = f"SELECT * FROM {self._table} WHERE id > ? AND id <= ? ORDER BY id"
        for at in range(first, last, self.batch_rows):
            found = self._ask(query, at, min(at + self.batch_rows, last))
            yield pa.record_batch([list(column) for column in zip(*found, strict=True)], schema=schema)


class OutboxConnector(Connector):
    name, schemes, Options = "outbox", ("outbox",), OutboxOptions
    address = "path"

    def source(self, uri, options, context):
        return OutboxSource(options, context)
