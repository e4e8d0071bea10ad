"""SELECT over tables: answered by DuckDB where it gives the same result, else by Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from velostream.engine.on_spark import SparkVersion
from velostream.plan.time.asof import asof_tables
from velostream.runtime.answers.result import Result
from velostream.serving.sql.engine import NeedsSpark
from velostream.spark.dataframes import answer_of, arrow_frame, private_session
from velostream.spark.session import interrupt
from velostream.sql.names.usage import resolved
from velostream.sql.text.spark_text import SPARK
from velostream.sql.types import ddl_types, quote

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.model.statements import Query
    from velostream.serving.contract.version import TableVersion
    from velostream.serving.table.store import TableStore


class AdHoc:
    """Answers queries over the newest versions of tables."""

    def __init__(self, store: TableStore, spark: Callable[[], SparkSession]) -> None:
        self._store = store
        self._spark = spark
        self._running: set[SparkSession] = set()
        self._engine = store.questions.engine
        store.questions.spark = self.on_spark

    def answer(self, query: Query, params: Mapping[str, Any] | tuple[Any, ...] | None = None) -> Result:
        """The result over one consistent set of table versions."""
        return self.over(query, self._store.versions(query.tables), params)

    def over(
        self,
        query: Query,
        versions: Mapping[str, TableVersion],
        params: Mapping[str, Any] | tuple[Any, ...] | None = None,
    ) -> Result:
        """The result over these versions of tables."""
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
        outside = [version for version in versions.values() if isinstance(version, SparkVersion)]
        spark = outside[0].session() if outside else private_session(self._spark())
        self._running.add(spark)
        try:
            for name, version in versions.items():
                if isinstance(version, SparkVersion):
                    frame = version.frame(spark)
                else:
                    frame = arrow_frame(spark, version.snapshot())
                frame.createOrReplaceTempView(quote(name))
            schemas = {name: version.spec.visible_schema for name, version in versions.items()}
            columns = {name: schema.names for name, schema in schemas.items()}
            sql = asof_tables(resolved(query, columns), lambda: ddl_types(schemas)).tree.sql(dialect=SPARK)
            if not params:
                return answer_of(spark, sql)
            bound = dict(params) if isinstance(params, Mapping) else list(params)
            return answer_of(spark, sql, bound)
        except (KeyboardInterrupt, SystemExit):
            # The caller has left, but Spark would continue the query.
            interrupt(spark)
            raise
        finally:
            self._running.discard(spark)

    def interrupt(self) -> None:
        """Cancel Spark's current queries; their callers get an error."""
        for spark in list(self._running):
            interrupt(spark)
