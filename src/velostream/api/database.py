"""A database, as users hold it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import TYPE_CHECKING, Any, TypeVar

from velostream.api.stream import Stream
from velostream.errors import UnknownNameError, VelostreamError, did_you_mean
from velostream.runtime import shortcuts
from velostream.serving.columns.html import html_table

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.api.access import DatabaseAccess
    from velostream.api.table import Table
    from velostream.model.jobs import JobInfo
    from velostream.runtime.answers.result import Result
    from velostream.runtime.statements.dml import Params
    from velostream.serving.durable.verification import TableReport

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

Given = Mapping[str, Any] | Iterable[Any] | None
"""Parameters: a mapping for `:name`, a sequence for `?`."""


class Database:
    """An open data directory; `velostream.connect` makes it. Close it, or use it in a `with` statement."""

    def __init__(self, access: DatabaseAccess, data_dir: Path, how: str = "") -> None:
        self._access = access
        self._data_dir = data_dir
        self._how = how

    @property
    def data_dir(self) -> Path:
        """The data directory."""
        return self._data_dir

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._access.lifetime.ended

    def _check_open(self) -> None:
        self._access.lifetime.check()

    # --- SQL ----------------------------------------------------------------------------------------

    def sql(self, text: str, params: Given = None) -> Result:
        """Run one or more statements; returns the result of the last one.

        `params` bind `:name` (a mapping) or `?` (a sequence). A SELECT over a source reads the rows that are
        there and ends; `stream` follows it.
        """
        return self._access.sql(text, _bound(params))

    def stream(self, text: str, params: Given = None, *, once: bool = False) -> Stream:
        """Follow a SELECT: `with db.stream("SELECT …") as live: for added, removed in live: …`.

        Over a source: rows as they arrive. Over tables: the rows of now, then every change of the result.
        With `once` it ends when the rows that are there have been read.
        """
        return Stream(self._access.stream(text, _bound(params), once=once), text)

    def explain(self, text: str) -> str:
        """EXPLAIN as text: how the statement would be maintained."""
        return shortcuts.explain(self, text)

    def replay_dead_letters(self, where: str | None = None, params: Given = None) -> Result:
        """Replay dead letters, all or those for which `where` holds: process their rows again.

        Returns a row for each job: how many letters were tried, accepted and left, and why the first one was
        left.
        """
        return shortcuts.replay_dead_letters(self, where, params)

    # --- tables -------------------------------------------------------------------------------------

    def table(self, name: str) -> Table:
        """A table by name."""
        return self._access.table(name)

    def create_table(
        self, name: str, rows: Any = None, *, key: str | Iterable[str] = (), schema: Any = None
    ) -> Table:
        """Create a table to be filled by hand, with the columns of `rows` or of a pyarrow `schema`."""
        self._check_open()
        made: Table = shortcuts.create_table(self, name, rows, key, schema)
        return made

    def verify(self) -> list[TableReport]:
        """Check every durable file of every table; damage is reported, not raised."""
        return self._access.verify()

    # --- jobs ---------------------------------------------------------------------------------------

    def jobs(self) -> list[JobInfo]:
        """Every job with its state and statistics."""
        return self._access.jobs()

    def job(self, name: str) -> JobInfo:
        """The state and statistics of a job, by its name or id, as they are now."""
        jobs = self.jobs()
        for job in jobs:
            if name in (job.name, job.id):
                return job
        raise UnknownNameError(f'there is no job "{name}"', hint=did_you_mean(name, [j.name for j in jobs]))

    def wait_idle(self, timeout: float = 60.0) -> bool:
        """Wait until every running job has processed all that its sources have now; False on timeout."""
        return self._access.wait_idle(timeout)

    def wait_until(self, condition: Callable[[], T], timeout: float = 60.0) -> T:
        """Wait until a function returns something true, and return that: `db.wait_until(lambda: len(t) > 9)`.

        A table that waits for its first record counts as not yet: `db.wait_until(lambda: db.table("t"))`.
        Raises DeadlineError, with the jobs that are not well, when that has not happened after `timeout`
        seconds.
        """
        self._check_open()
        return shortcuts.wait_until(self, condition, timeout)

    # --- Python functions, Spark ----------------------------------------------------------------------

    def udf(self, function: F | None = None, *, returns: str | None = None, name: str | None = None) -> Any:
        """Register a Python function for SQL: `@db.udf` or `@db.udf(returns="decimal(10,2)")`."""
        if function is None:
            return lambda f: self.udf(f, returns=returns, name=name)
        self._access.udf(function, returns, name)
        return function

    def partition_strategy(self, name: str, function: Callable[[pa.RecordBatch, int], Any]) -> None:
        """Register a partition strategy for the rows of a source: `"partition.strategy" = "name"`.

        The function gets a record batch and the number of partitions, and returns an integer for each row.
        Rows with the same integer, modulo the number of partitions, are processed by the same task.
        """
        self._access.partition_strategy(name, function)

    def spark(self) -> SparkSession:
        """The Spark session, started on first use; SparkEndedError when Spark has died since."""
        return self._access.spark()

    # --- end ----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop every job after its current batch, stop Spark, release the directory.

        From its first moment every other call raises ClosedError, including calls in progress in other
        threads. A database of another process goes on; only the connection to it is closed. A second call
        does nothing.
        """
        self._access.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"<Database {self._data_dir}: closed>"
        try:
            tables, jobs = len(self._tables()), len(self.jobs())
        except VelostreamError as error:
            return f"<Database {self._data_dir}: {error.message}>"
        return f"<Database {self._data_dir}: {tables} tables, {jobs} jobs{self._how}>"

    def _tables(self) -> list[Any]:
        return self.sql("SHOW TABLES").rows()

    def _repr_html_(self) -> str:
        """The tables, in a notebook."""
        try:
            return html_table(self.sql("SHOW TABLES").arrow(), title=repr(self).strip("<>"))
        except VelostreamError:
            return escape(repr(self))

    def __enter__(self) -> Database:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bound(params: Given) -> Params:
    return params if params is None or isinstance(params, Mapping) else tuple(params)
