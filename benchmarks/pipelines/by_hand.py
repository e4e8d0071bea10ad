"""PySpark, written as one would.

Usage: python -m benchmarks.pipelines.by_hand BROKERS TOPIC QUERY EXPECTED LOADS [batch|whole]

With `batch` the same SQL reads the topic once, without a stream. With `whole` Spark may not leave columns out
when it decodes a record, which the plan is asked for. EXPECTED as for ours.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import TYPE_CHECKING

import pyarrow as pa

from benchmarks.pipelines.loads import loads
from benchmarks.pipelines.plain_spark import check_whole, decoded, session
from benchmarks.pipelines.workload import COLUMNS, QUERIES, symbols

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    brokers, topic, name, expected, count = sys.argv[1:6]
    whole, at_once = (sys.argv[6:] == [way] for way in ("whole", "batch"))
    spark = session()
    if whole:
        spark.conf.set("spark.sql.optimizer.enableJsonExpressionOptimization", "false")
    spark.createDataFrame(
        pa.table(dict(zip(("symbol", "sector"), zip(*symbols(), strict=True), strict=True)))
    ).createOrReplaceTempView("symbols")

    def check(found: int) -> None:
        assert found == int(expected), f"{found} instead of {expected}"

    def load(number: int) -> None:
        decoded(spark.readStream, brokers, topic, COLUMNS).createOrReplaceTempView("trades")
        result = spark.sql(QUERIES[name].format(source="trades"))
        held: dict[str, dict[str, int]] = {}

        def take(batch: DataFrame, _: int) -> None:
            for row in batch.toArrow().to_pylist():
                held[next(iter(row.values()))] = row

        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                result.writeStream.outputMode("append" if name == "filter" else "update")
                .foreachBatch(take)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            if whole:
                check_whole(query._jsq.explainInternal(False))  # noqa: SLF001
        check(len(held) if name == "filter" else sum(row["trades"] for row in held.values()))

    def load_batch(number: int) -> None:
        decoded(spark.read, brokers, topic, COLUMNS).createOrReplaceTempView("trades")
        rows = spark.sql(QUERIES[name].format(source="trades")).toArrow().to_pylist()
        check(len(rows) if name == "filter" else sum(row["trades"] for row in rows))

    print(json.dumps(loads(load_batch if at_once else load, int(count))))


main()
