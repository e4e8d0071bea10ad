"""The same table held by ours, a plain dict, DuckDB, SQLite and polars."""

from __future__ import annotations

import sqlite3
from abc import ABC, abstractmethod
from datetime import UTC, datetime
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any

import duckdb
import polars
import pyarrow as pa

from benchmarks.tables.workload import SCHEMA
from velostream.model.changes import Commit
from velostream.model.tables import TableSpec
from velostream.serving.columns.values import to_python
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_COLUMNS = ", ".join(SCHEMA.names)


class Contender(ABC):
    """One way to hold the table."""

    cannot: frozenset[str] = frozenset()
    """Figures that make no sense for it."""
    lookups = 200_000
    """How many single lookups it is given: slow ones get fewer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def load(self, batches: list[pa.Table]) -> None:
        """Take the rows from Arrow in memory."""

    @abstractmethod
    def load_durable(self, batches: list[pa.Table]) -> None:
        """The same into files, with the key and the columns of the questions indexed."""

    def reopen(self) -> None:
        """Open what `load_durable` left in the folder."""
        raise NotImplementedError

    def disk_bytes(self) -> int:
        """Bytes of its files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    @abstractmethod
    def getter(self) -> Callable[[str], Any]:
        """A function from key to row."""

    @abstractmethod
    def get_many(self, keys: list[str]) -> list[Any]: ...

    @abstractmethod
    def scalar(self, expression: str, where: str | None = None) -> Any: ...

    @abstractmethod
    def column(self, column: str, where: str) -> Any:
        """As Arrow, or what the contender has that is nearest."""

    @abstractmethod
    def column_values(self, column: str, where: str) -> list[Any]: ...

    @abstractmethod
    def stream(self) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def rows(self) -> Iterator[Any]: ...

    @abstractmethod
    def page(self, limit: int, offset: int) -> list[Any]: ...

    @abstractmethod
    def upsert(self, rows: pa.Table) -> None: ...

    def close(self) -> None:  # noqa: B027 - most have nothing to let go of
        """Let go of files."""


class Ours(Contender):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = TableStore(folder / "tables")
        self.batch = 0

    def _commit(self) -> Commit:
        self.batch += 1
        return Commit("bench", self.batch, {}, datetime.now(UTC))

    def load(self, batches: list[pa.Table]) -> None:
        self.table = self.store.create(TableSpec("transactions", SCHEMA, ("txn",)))
        for rows in batches:
            self.table.commit_keyed(rows, None, self._commit())

    def load_durable(self, batches: list[pa.Table]) -> None:
        self.load(batches)
        # The third equality on a column makes its index.
        for _ in range(3):
            self.table.column("id", "status = 'active'")
            self.table.column("id", "account_id = 'ACC000000'")

    def reopen(self) -> None:
        self.table = self.store.open("transactions")

    def getter(self) -> Callable[[str], Any]:
        return self.table.get

    def get_many(self, keys: list[str]) -> list[Any]:
        return self.table.get_many(keys)

    def scalar(self, expression: str, where: str | None = None) -> Any:
        return self.table.scalar(expression, where)

    def column(self, column: str, where: str) -> Any:
        return self.table.column(column, where)

    def column_values(self, column: str, where: str) -> list[Any]:
        return self.table.column_values(column, where)

    def stream(self) -> Iterator[pa.RecordBatch]:
        return self.table.stream()

    def rows(self) -> Iterator[Any]:
        return self.table.rows()

    def page(self, limit: int, offset: int) -> list[Any]:
        return self.table.page(limit, offset)

    def upsert(self, rows: pa.Table) -> None:
        self.table.commit_keyed(rows, None, self._commit())

    def close(self) -> None:
        self.store.close()


class PlainDict(Contender):
    """Key to tuple; every question is a loop, as one would write it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.held: dict[str, tuple[Any, ...]] = {}

    def load(self, batches: list[pa.Table]) -> None:
        for rows in batches:
            self.upsert(rows)

    def load_durable(self, batches: list[pa.Table]) -> None:
        raise NotImplementedError

    cannot = frozenset(
        {"load durable and indexed", "stream as batches", "recovery to SQL", "recovery to get"}
    )

    def getter(self) -> Callable[[str], Any]:
        return self.held.get

    def get_many(self, keys: list[str]) -> list[Any]:
        get = self.held.get
        return [get(key) for key in keys]

    def scalar(self, expression: str, where: str | None = None) -> Any:
        if where is None:
            return len(self.held)
        rows = list(self._where(where))
        function, _, inner = expression.rstrip(")").partition("(")
        if inner in ("*", "category"):
            return len(rows)
        values = [row[SCHEMA.get_field_index(inner)] for row in rows]
        return {"SUM": sum, "MAX": max, "MIN": min}[function](values)

    def _where(self, where: str) -> Iterator[tuple[Any, ...]]:
        name, _, constant = where.partition(" = ")
        place, value = SCHEMA.get_field_index(name), constant.strip("'")
        return (row for row in self.held.values() if row[place] == value)

    def column(self, column: str, where: str) -> Any:
        return self.column_values(column, where)

    def column_values(self, column: str, where: str) -> list[Any]:
        place = SCHEMA.get_field_index(column)
        return [row[place] for row in self._where(where)]

    def stream(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def rows(self) -> Iterator[Any]:
        return iter(self.held.values())

    def page(self, limit: int, offset: int) -> list[Any]:
        return list(islice(self.held.values(), offset, offset + limit))

    def upsert(self, rows: pa.Table) -> None:
        columns = [to_python(column) for column in rows.columns]
        self.held.update(zip(columns[0], zip(*columns, strict=True), strict=True))


class DuckDb(Contender):
    lookups = 500

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = duckdb.connect(":memory:")

    def load(self, batches: list[pa.Table]) -> None:
        self._create()
        for rows in batches:
            self.database.register("given", rows)
            self.database.execute("INSERT INTO transactions SELECT * FROM given")

    def load_durable(self, batches: list[pa.Table]) -> None:
        self.database = duckdb.connect(str(self.folder / "transactions.duckdb"))
        self._create()
        for rows in batches:
            self.database.register("given", rows)
            self.database.execute("INSERT INTO transactions SELECT * FROM given")
        self.database.execute("CREATE INDEX by_account ON transactions (account_id)")

    def reopen(self) -> None:
        self.database = duckdb.connect(str(self.folder / "transactions.duckdb"))

    def _create(self) -> None:
        columns = "id BIGINT, account_id VARCHAR, amount DECIMAL(18,2), status VARCHAR, category VARCHAR"
        self.database.execute(f"CREATE TABLE transactions (txn VARCHAR PRIMARY KEY, {columns})")

    def getter(self) -> Callable[[str], Any]:
        execute = self.database.execute
        return lambda key: execute("SELECT * FROM transactions WHERE txn = ?", [key]).fetchall()[0]

    def get_many(self, keys: list[str]) -> list[Any]:
        self.database.register("wanted", pa.table({"txn": keys}))
        return self.database.execute("SELECT t.* FROM wanted LEFT JOIN transactions t USING (txn)").fetchall()

    def scalar(self, expression: str, where: str | None = None) -> Any:
        return self.database.execute(_select(expression, where)).fetchall()[0][0]

    def column(self, column: str, where: str) -> Any:
        return self.database.execute(_select(column, where)).to_arrow_table()

    def column_values(self, column: str, where: str) -> list[Any]:
        return [row[0] for row in self.database.execute(_select(column, where)).fetchall()]

    def stream(self) -> Iterator[pa.RecordBatch]:
        return iter(self.database.execute("SELECT * FROM transactions").to_arrow_reader(65_536))

    def rows(self) -> Iterator[Any]:
        found = self.database.execute("SELECT * FROM transactions")
        while some := found.fetchmany(10_000):
            yield from some

    def page(self, limit: int, offset: int) -> list[Any]:
        return self.database.execute(_select("*", None) + f" LIMIT {limit} OFFSET {offset}").fetchall()

    def upsert(self, rows: pa.Table) -> None:
        self.database.register("given", rows)
        self.database.execute("INSERT OR REPLACE INTO transactions SELECT * FROM given")

    def close(self) -> None:
        self.database.close()


def _select(projection: str, where: str | None) -> str:
    return f"SELECT {projection} FROM transactions" + ("" if where is None else f" WHERE {where}")


class Sqlite(Contender):
    """Amounts as whole cents, which is the exact number that SQLite has."""

    lookups = 50_000
    cannot = frozenset({"stream as batches"})

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.database = sqlite3.connect(":memory:")

    def load(self, batches: list[pa.Table]) -> None:
        self.database.execute(f"CREATE TABLE transactions ({_COLUMNS}, PRIMARY KEY (txn)) WITHOUT ROWID")
        for rows in batches:
            self.upsert(rows)
        self.database.execute("CREATE INDEX by_account ON transactions (account_id)")
        self.database.execute("CREATE INDEX by_status ON transactions (status)")
        self.database.commit()

    def load_durable(self, batches: list[pa.Table]) -> None:
        self.database = sqlite3.connect(self.folder / "transactions.sqlite")
        self.database.execute("PRAGMA journal_mode = WAL")
        self.load(batches)

    def reopen(self) -> None:
        self.database = sqlite3.connect(self.folder / "transactions.sqlite")

    def getter(self) -> Callable[[str], Any]:
        execute = self.database.execute
        return lambda key: execute("SELECT * FROM transactions WHERE txn = ?", (key,)).fetchone()

    def get_many(self, keys: list[str]) -> list[Any]:
        get = self.getter()
        return [get(key) for key in keys]

    def scalar(self, expression: str, where: str | None = None) -> Any:
        return self.database.execute(_select(expression, where)).fetchone()[0]

    def column(self, column: str, where: str) -> Any:
        return self.column_values(column, where)

    def column_values(self, column: str, where: str) -> list[Any]:
        return [row[0] for row in self.database.execute(_select(column, where))]

    def stream(self) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError

    def rows(self) -> Iterator[Any]:
        return iter(self.database.execute("SELECT * FROM transactions"))

    def page(self, limit: int, offset: int) -> list[Any]:
        return self.database.execute(_select("*", None) + f" LIMIT {limit} OFFSET {offset}").fetchall()

    def upsert(self, rows: pa.Table) -> None:
        columns = [to_python(column) for column in rows.columns]
        columns[3] = [
            int(amount.scaleb(2)) if isinstance(amount, Decimal) else amount for amount in columns[3]
        ]
        self.database.executemany(
            "INSERT OR REPLACE INTO transactions VALUES (?, ?, ?, ?, ?, ?)", zip(*columns, strict=True)
        )
        self.database.commit()

    def close(self) -> None:
        self.database.close()


class Polars(Contender):
    """A data frame that is replaced by every change."""

    lookups = 100
    cannot = frozenset({"load durable and indexed", "recovery to SQL", "recovery to get"})

    def load(self, batches: list[pa.Table]) -> None:
        frames = [polars.DataFrame(polars.from_arrow(rows)) for rows in batches]
        self.frame = polars.concat(frames, rechunk=True)

    def load_durable(self, batches: list[pa.Table]) -> None:
        raise NotImplementedError

    def getter(self) -> Callable[[str], Any]:
        return lambda key: self.frame.row(by_predicate=polars.col("txn") == key)

    def get_many(self, keys: list[str]) -> list[Any]:
        return polars.DataFrame({"txn": keys}).join(self.frame, on="txn", how="left").rows()

    def scalar(self, expression: str, where: str | None = None) -> Any:
        return self._ask(expression, where).item()

    def _ask(self, projection: str, where: str | None) -> polars.DataFrame:
        context = polars.SQLContext(transactions=self.frame)
        return context.execute(_select(projection, where), eager=True)

    def column(self, column: str, where: str) -> Any:
        return self._ask(column, where).to_arrow()

    def column_values(self, column: str, where: str) -> list[Any]:
        return self._ask(column, where)[column].to_list()

    def stream(self) -> Iterator[pa.RecordBatch]:
        return (batch for piece in self.frame.iter_slices(65_536) for batch in piece.to_arrow().to_batches())

    def rows(self) -> Iterator[Any]:
        return self.frame.iter_rows()

    def page(self, limit: int, offset: int) -> list[Any]:
        return self.frame.slice(offset, limit).rows()

    def upsert(self, rows: pa.Table) -> None:
        self.frame = self.frame.update(polars.DataFrame(polars.from_arrow(rows)), on="txn", how="full")


CONTENDERS: dict[str, type[Contender]] = {
    "velostream": Ours,
    "plain dict": PlainDict,
    "DuckDB": DuckDb,
    "SQLite": Sqlite,
    "polars": Polars,
}
