"""SELECT over tables, answered now: on DuckDB where it means the same, else on Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from velostream.plan.spark import arrow_frame, private_session, rows_of
from velostream.runtime.results import Result
from velostream.serving.queries import NeedsSpark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.model.statements import Query
    from velostream.serving.store import TableStore
    from velostream.serving.version import TableVersion


class AdHoc:
    """Answers queries over the newest versions of tables."""

    def __init__(self, store: TableStore, spark: Callable[[], SparkSession]) -> None:
        self._store = store
        self._spark = spark
        self._engine = store.questions.engine
        store.questions.spark = self.on_spark

    def answer(self, query: Query, params: Mapping[str, Any] | tuple[Any, ...] | None = None) -> Result:
        """One consistent answer."""
        versions = {name: self._store.open(name).version_object for name in query.tables}
        if not query.udfs:
            try:
                return Result(self._engine.answer(query, versions, params), engine="duckdb")
            except NeedsSpark:
                pass
        return Result(self.on_spark(query, versions, params), engine="spark")

    def on_spark(
        self,
        query: Query,
        versions: Mapping[str, TableVersion],
        params: Mapping[str, Any] | tuple[Any, ...] | None,
    ) -> pa.Table:
        """The answer by Spark itself, over the given versions."""
        spark = private_session(self._spark())
        for name, version in versions.items():
            arrow_frame(spark, version.snapshot()).createOrReplaceTempView(f"`{name}`")
        sql = query.tree.sql(dialect="spark")
        if not params:
            return rows_of(spark, sql)
        bound = dict(params) if isinstance(params, Mapping) else list(params)
        return rows_of(spark, sql, bound)
