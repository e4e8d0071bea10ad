"""The contract of a driver: how a database is reached, and its rows become Arrow columns."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from velostream.model.reach import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from velostream.connectors.any_sql.options import SqlOptions
    from velostream.connectors.databases.text_rows import Decoded


@dataclass(frozen=True)
class Address:
    """Which database to connect to."""

    text: str
    """What follows `sql://driver:`, as it was written; empty where properties say everything."""
    options: SqlOptions
    reach: Reach = field(default_factory=Reach)
    """Which files and hosts may be reached; the driver checks those in `text`."""


class Connection(ABC):
    """An open database, used by one thread at a time. Three methods make one; the rest have defaults.

    Errors of the driver library may be raised as they are: they are put into categories by their words.
    """

    mark: ClassVar[str] = "?"
    """How a bound value is written in a query; `{}` in it is its number."""
    shuts_out: ClassVar[bool] = False
    """Whether nobody can write to the database while it is open; it is closed between two reads then."""

    @abstractmethod
    def columns(self, query: str, values: Sequence[Any]) -> pa.Schema:
        """The columns of a query's result, with types that Spark has."""

    @abstractmethod
    def rows(self, query: str, values: Sequence[Any], schema: pa.Schema, size: int) -> Iterator[Decoded]:
        """The rows of a query, about `size` at a time, as these columns.

        A value that does not fit its column sets its row aside.
        """

    @abstractmethod
    def close(self) -> None:
        """Close it; may be called twice."""

    def interrupt(self) -> None:  # noqa: B027
        """End a query that another thread waits for, where the database can."""

    def sampled(self, table: str | None, schema: str | None) -> bool:
        """Whether types of columns are those of the rows that are there, of a table, or of a query."""
        return False

    def table_columns(self, table: str, schema: str | None) -> pa.Schema:
        """The columns of a table."""
        return self.columns(f"SELECT * FROM {self.table(table, schema)}", ())

    def key(self, table: str, schema: str | None) -> tuple[str, ...]:
        """The primary key of a table, where the database knows one."""
        return ()

    def tables(self) -> list[str]:
        """The names of tables, for messages."""
        return []

    def quoted(self, name: str) -> str:
        """A name, quoted."""
        return '"' + name.replace('"', '""') + '"'

    def table(self, name: str, schema: str | None) -> str:
        """The quoted name of a table."""
        return ".".join(self.quoted(part) for part in (schema, name) if part)

    def grows(self, column: pa.Field, sign: str, mark: str) -> str:
        """The condition that a column is beyond a bound value."""
        return f"{self.quoted(column.name)} {sign} {mark}"

    def after(self, column: pa.Field, text: str) -> Any:
        """The value to bind for a value of the column, which is given as its text in the log."""
        from velostream.connectors.any_sql.values import value_of

        return value_of(column.type, text)


class Driver(ABC):
    """A kind of database; registered with `velostream.register_driver`, or an entry point of the group
    `velostream.drivers`.
    """

    name: ClassVar[str]
    packages: ClassVar[Mapping[str, str]] = {}
    """Modules that it needs, each with the name to install it by."""
    takes: ClassVar[frozenset[str]] = frozenset({"host", "port", "database", "username", "password"})
    """The fields of `SqlOptions` about connections that it makes something of; others are refused."""

    def check(self, address: Address) -> None:  # noqa: B027
        """Raise the error that tells what is wrong with an address; opens nothing."""

    @abstractmethod
    def connect(self, address: Address) -> Connection:
        """Open the database, for reading only where it can be said."""
