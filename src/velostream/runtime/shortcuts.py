"""What a database offers beyond SQL, tables and jobs: all of it made of these three."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from velostream.errors import DeadlineError, SqlError
from velostream.model.lifetime import waited
from velostream.serving.table.rows import inferred, stored_schema
from velostream.sql.types import quote, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from velostream.model.jobs import JobInfo
    from velostream.runtime.answers.result import Result

T = TypeVar("T")


class Asked(Protocol):
    """What shortcuts are made of."""

    def sql(self, text: str, params: Mapping[str, Any] | Iterable[Any] | None = None) -> Result:
        """Run one or more statements; returns the result of the last one."""

    def table(self, name: str) -> Any:
        """A table by name."""

    def jobs(self) -> list[JobInfo]:
        """Every job with its state and statistics."""


def replay_dead_letters(
    database: Asked, where: str | None, params: Mapping[str, Any] | Iterable[Any] | None
) -> Result:
    """REPLAY DEAD LETTERS."""
    return database.sql("REPLAY DEAD LETTERS" + (f" WHERE {where}" if where else ""), params)


def explain(database: Asked, text: str) -> str:
    """EXPLAIN as text."""
    return "\n".join(row[0] for row in database.sql(f"EXPLAIN {text}"))


def create_table(database: Asked, name: str, rows: Any, key: str | Iterable[str], schema: Any) -> Any:
    """Create a table to be filled by hand, with the columns of `rows` or of a pyarrow `schema`."""
    given = inferred(rows) if schema is None else rows
    columns = stored_schema(given) if schema is None else schema
    keys = tuple(part.strip() for part in key.split(",")) if isinstance(key, str) else tuple(key)
    keys = tuple(part for part in keys if part)
    primary = f", PRIMARY KEY ({', '.join(map(quote, keys))})" if keys else ""
    for each in (name, *columns.names):
        if "${" in each:
            raise SqlError(f'"{each}" cannot be a name: ${{ begins a variable of the environment')
    database.sql(f"CREATE TABLE {quote(name)} ({schema_text(columns)}{primary})")
    table = database.table(name)
    if given is not None:
        table.insert(given)
    return table


def wait_until(database: Asked, condition: Callable[[], T], timeout: float) -> T:
    """Wait until a function returns something true, and return that."""
    found = waited(condition, timeout)
    if not found:
        unwell = [f"{each.name}: {each.state}, {each.reason}" for each in database.jobs() if each.reason]
        raise DeadlineError(
            f"the condition does not hold after {timeout:g} s",
            detail="\n".join(unwell) or None,
            hint="give it more time: wait_until(…, timeout=…)",
        )
    return found


class Shortcuts(ABC):
    """The same as methods, for the database of this process; `api.database.Database` tells what each does."""

    @abstractmethod
    def sql(self, text: str, params: Mapping[str, Any] | Iterable[Any] | None = None) -> Result:
        """Run one or more statements; returns the result of the last one."""

    @abstractmethod
    def table(self, name: str) -> Any:
        """A table by name."""

    @abstractmethod
    def jobs(self) -> list[JobInfo]:
        """Every job with its state and statistics."""

    @abstractmethod
    def _check_open(self) -> None:
        """Raise ClosedError when the database is closed."""

    def replay_dead_letters(
        self, where: str | None = None, params: Mapping[str, Any] | Iterable[Any] | None = None
    ) -> Result:
        """Process rows of dead letters again."""
        return replay_dead_letters(self, where, params)

    def explain(self, text: str) -> str:
        """EXPLAIN as text."""
        return explain(self, text)

    def create_table(
        self, name: str, rows: Any = None, *, key: str | Iterable[str] = (), schema: Any = None
    ) -> Any:
        """Create a table to be filled by hand."""
        self._check_open()
        return create_table(self, name, rows, key, schema)

    def wait_until(self, condition: Callable[[], T], timeout: float = 60.0) -> T:
        """Wait until a function returns something true, and return that."""
        self._check_open()
        return wait_until(self, condition, timeout)
