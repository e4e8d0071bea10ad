"""Windows in PySpark, written as one would.

Usage: python -m benchmarks.pipelines.windows_by_hand BROKERS TOPIC WINDOW EXPECTED LOADS BATCH

EXPECTED and BATCH as for ours. Windows that closed do not change, so their batches are kept as they come, in
Arrow; those of `changes` are rows in a dict.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import TYPE_CHECKING

from benchmarks.pipelines.loads import loads
from benchmarks.pipelines.plain_spark import check_whole, decoded, session
from benchmarks.pipelines.windows import BY_HAND, LATENESS
from benchmarks.pipelines.workload import CLOSING, COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def main() -> None:
    brokers, topic, name, expected, count, batch = sys.argv[1:7]
    spark = session()

    def load(number: int) -> None:
        source = decoded(spark.readStream.option("maxOffsetsPerTrigger", batch), brokers, topic, COLUMNS)
        source.withWatermark("ts", f"{LATENESS} seconds").createOrReplaceTempView("ticks")
        closed: list[pa.Table] = []
        held: dict[tuple[object, object], dict[str, object]] = {}

        def keep(batch: DataFrame, _: int) -> None:
            closed.append(batch.toArrow())

        def replace(batch: DataFrame, _: int) -> None:
            for row in batch.toArrow().to_pylist():
                held[row["symbol"], row["window_start"]] = row

        windows, changes = spark.sql(BY_HAND[name]), name == "changes"
        check_whole(windows._jdf.queryExecution().toString())  # noqa: SLF001
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                windows.writeStream.outputMode("update" if changes else "append")
                .foreachBatch(replace if changes else keep)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        rows = [*held.values(), *(row for table in closed for row in _counted(table))]
        found = sum(row["trades"] for row in rows if row["symbol"] != CLOSING)
        assert found == int(expected), f"{found} instead of {expected}"

    print(json.dumps(loads(load, int(count))))


def _counted(closed: pa.Table) -> list[dict[str, object]]:
    return closed.select(["symbol", "trades"]).to_pylist()


main()
