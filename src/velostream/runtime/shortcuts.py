"""What a database offers beyond SQL, tables and jobs: all of it made of these three."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, TypeVar

from velostream.errors import DeadlineError, SqlError
from velostream.model.lifetime import waited
from velostream.serving.table.rows import inferred, stored_schema
from velostream.sql.types import quote, schema_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from velostream.model.jobs import JobInfo
    from velostream.runtime.answers.result import Result

T = TypeVar("T")


class Shortcuts(ABC):
    """Calls that are made of `sql`, `table` and `jobs`."""

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
        """Replay dead letters, all or those for which `where` holds: process their rows again.

        Returns a row for each job: how many letters were tried, accepted and left, and why the first one was
        left.
        """
        return self.sql("REPLAY DEAD LETTERS" + (f" WHERE {where}" if where else ""), params)

    def explain(self, text: str) -> str:
        """EXPLAIN as text: how the statement would be maintained."""
        return "\n".join(row[0] for row in self.sql(f"EXPLAIN {text}"))

    def create_table(
        self, name: str, rows: Any = None, *, key: str | Iterable[str] = (), schema: Any = None
    ) -> Any:
        """Create a table to be filled by hand, with the columns of `rows` or of a pyarrow `schema`."""
        self._check_open()
        given = inferred(rows) if schema is None else rows
        columns = stored_schema(given) if schema is None else schema
        keys = tuple(part.strip() for part in key.split(",")) if isinstance(key, str) else tuple(key)
        keys = tuple(part for part in keys if part)
        primary = f", PRIMARY KEY ({', '.join(map(quote, keys))})" if keys else ""
        for each in (name, *columns.names):
            if "${" in each:
                raise SqlError(f'"{each}" cannot be a name: ${{ begins a variable of the environment')
        self.sql(f"CREATE TABLE {quote(name)} ({schema_text(columns)}{primary})")
        table = self.table(name)
        if given is not None:
            table.insert(given)
        return table

    def wait_until(self, condition: Callable[[], T], timeout: float = 60.0) -> T:
        """Wait until a function returns something true, and return that: `db.wait_until(lambda: len(t) > 9)`.

        A table that waits for its first record counts as not yet: `db.wait_until(lambda: db.table("t"))`.
        Raises DeadlineError, with the jobs that are not well, when that has not happened after `timeout`
        seconds.
        """
        self._check_open()
        found = waited(condition, timeout)
        if not found:
            unwell = [f"{each.name}: {each.state}, {each.reason}" for each in self.jobs() if each.reason]
            raise DeadlineError(
                f"the condition does not hold after {timeout:g} s",
                detail="\n".join(unwell) or None,
                hint="give it more time: wait_until(…, timeout=…)",
            )
        return found
