"""PySpark, written as one would. Usage: python -m benchmarks.pipelines.by_hand BROKERS TOPIC QUERY ROWS"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json

from benchmarks.measure import loads
from benchmarks.pipelines.workload import COLUMNS, QUERIES, symbols
from velostream.runtime.class_path import load_kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main() -> None:
    brokers, topic, name, rows = sys.argv[1:5]
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    load_kafka(spark)
    spark.createDataFrame(
        pa.table(dict(zip(("symbol", "sector"), zip(*symbols(), strict=True), strict=True)))
    ).createOrReplaceTempView("symbols")

    def load(number: int) -> None:
        stream = (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", brokers)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        decoded = stream.select(from_json(stream.value.cast("string"), COLUMNS).alias("t")).select("t.*")
        decoded.createOrReplaceTempView("trades")
        result = spark.sql(QUERIES[name].format(source="trades"))
        held: dict[str, object] = {}

        def take(batch: DataFrame, _: int) -> None:
            for row in batch.toArrow().to_pylist():
                held[row["trade_id"] if name == "filter" else next(iter(row.values()))] = row

        mode = "append" if name == "filter" else "update"
        with tempfile.TemporaryDirectory() as checkpoint:
            query = (
                result.writeStream.outputMode(mode)
                .foreachBatch(take)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
        if name != "filter":
            assert sum(row["trades"] for row in held.values()) == int(rows)

    print(json.dumps(loads(load)))


main()
