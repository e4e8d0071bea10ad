"""The capability of tables whose rows only Spark reads, so that callers need not know the storage.

`SparkTable` and `SparkVersion` are the tables and versions of every storage that is not in memory
(`StorageTraits.in_memory`).
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from velostream.serving.contract.storage import Storage
from velostream.serving.contract.table import Table
from velostream.serving.contract.version import TableVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from velostream.engine.inputs.tables import TableSource
    from velostream.engine.rows.shape import ResultShape
    from velostream.engine.runner import Runner
    from velostream.plan.plans import Plan


class SparkVersion(TableVersion):
    """A version whose rows are in files that Spark reads."""

    @abstractmethod
    def session(self) -> SparkSession:
        """A new session that can read the rows, and those of in-memory tables registered in it."""

    @abstractmethod
    def frame(self, spark: SparkSession) -> DataFrame:
        """The visible rows, in such a session."""


class SparkTable(Table):
    """A table whose rows are in files that Spark reads and writes."""

    @abstractmethod
    def source(self, reader: str) -> TableSource:
        """The table as an input of a job: frames, so that the driver holds none of its rows."""

    @abstractmethod
    def runner(self, spark: SparkSession, plan: Plan, shape: ResultShape) -> Runner:
        """The runner of steps that fill the table: results go through files, the driver holds one part."""


class SparkStorage(Storage, Protocol):
    """A storage whose tables are `SparkTable`s."""

    def session(self) -> SparkSession:
        """A new session for a statement that reads or fills its tables."""

    @property
    def root(self) -> SparkSession | None:
        """The session from which the others are made, once there is one: functions are registered in it."""
