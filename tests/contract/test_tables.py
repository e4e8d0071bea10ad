"""The contract of tables, kept by those in memory and those in Delta Lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from contract.tables import COLUMNS, Home, TableContract, commit, rows
from velostream.connectors.capabilities import SparkReader
from velostream.engine.on_spark import SparkTable
from velostream.engine.rows.shape import ResultShape
from velostream.engine.storages import spark_storages
from velostream.model.table_storage import MEMORY, STORAGES
from velostream.plan.plans import RowsPlan
from velostream.runtime.answers.query import AdHoc
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from velostream.engine.on_spark import SparkStorage


class InMemory(Home):
    """Segments of Arrow memory, a log and snapshots."""

    traits = MEMORY

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._folder = folder

    def store(self, *, read_only: bool = False) -> TableStore:
        return TableStore(self._folder, read_only=read_only, clock=lambda: self.now)


class InDelta(Home):
    """Delta Lake's files, read and written by Spark."""

    traits = STORAGES["delta"]
    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_column_of_maps": "Spark does not compare maps, so a row that has one could not be retracted",
    }

    def __init__(self, folder: Path, spark: SparkSession) -> None:
        super().__init__()
        self._folder = folder
        self._spark = spark

    def store(self, *, read_only: bool = False) -> TableStore:
        store = TableStore(self._folder, read_only=read_only, clock=lambda: self.now)
        store.storages |= spark_storages(lambda: self._spark, {}, store.questions, lambda: self.now)
        AdHoc(store, lambda: self._spark)
        return store


class TestInMemory(TableContract):
    @pytest.fixture
    def home(self, tmp_path: Path) -> Home:
        return InMemory(tmp_path / "tables")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.sampled(3)
class TestInDelta(TableContract):
    @pytest.fixture
    def home(self, tmp_path: Path, spark: SparkSession) -> Home:
        return InDelta(tmp_path / "tables", spark)

    def test_a_job_reads_and_fills_it_by_spark(self, home: Home, spark: SparkSession) -> None:
        with home.store() as store:
            table = store.create(home.spec("id"))
            assert isinstance(table, SparkTable)
            runner = table.runner(spark, RowsPlan(""), ResultShape(COLUMNS, COLUMNS, ("id",)))
            filled = rows((1, "a"))
            with runner.parts() as parts:
                for _ in parts:
                    given = runner.whole("SELECT 1 AS id, 'a' AS name")
                    table.commit_keyed(given.cast(filled.schema), None, commit(1))
            source = table.source("reader")
            assert isinstance(source, SparkReader)
            storage: SparkStorage = store.storages[home.traits.name]  # type: ignore[assignment]
            frame = source.frame(storage.session(), None, source.latest(None), None)
            assert frame is not None
            assert frame.toArrow().cast(COLUMNS).to_pylist() == [{"id": 1, "name": "a"}]
