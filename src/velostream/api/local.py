"""A database of this process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from velostream.api.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.model.jobs import JobInfo
    from velostream.runtime.answers.result import Result
    from velostream.runtime.instance import Instance
    from velostream.runtime.statements.dml import Params
    from velostream.runtime.statements.live_select import LiveSelect
    from velostream.serving.durable.verification import TableReport


class LocalDatabase:
    """The database that this process has opened."""

    def __init__(self, database: Instance) -> None:
        self.database = database
        self.lifetime = database.lifetime

    def sql(self, text: str, params: Params = None) -> Result:
        """Run statements."""
        return self.database.sql(text, params)

    def stream(self, text: str, params: Params = None, *, once: bool = False) -> LiveSelect:
        """Follow a SELECT."""
        return self.database.stream(text, params, once=once)

    def table(self, name: str) -> Table:
        """A table by name."""
        table = self.database.table(name)
        return Table(lambda: table, table.changelog, same=table)

    def jobs(self) -> list[JobInfo]:
        """Every job."""
        return self.database.jobs()

    def wait_idle(self, timeout: float) -> bool:
        """Wait until every running job has processed all that its sources have."""
        return self.database.wait_idle(timeout)

    def verify(self) -> list[TableReport]:
        """Check the files of every table."""
        return self.database.verify()

    def udf(self, function: Callable[..., Any], returns: str | None, name: str | None) -> None:
        """Register a function for SQL."""
        self.database.udf(function, returns=returns, name=name)

    def partition_strategy(self, name: str, function: Callable[[pa.RecordBatch, int], Any]) -> None:
        """Register a partition strategy."""
        self.database.partition_strategy(name, function)

    def spark(self) -> SparkSession:
        """The Spark session."""
        return self.database.spark()

    def close(self) -> None:
        """Stop its jobs and Spark, and release the directory."""
        self.database.close()
