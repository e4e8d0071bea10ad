"""What every program written by hand begins with."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.functions import from_json

from benchmarks.pipelines.workload import COLUMNS
from velostream.spark.jars.class_path import load_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def session() -> SparkSession:
    """Spark as it comes, but for the shuffle partitions: two hundred of them help nobody on one machine."""
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    load_jars(spark, "kafka")
    return spark


def decoded(reader: Any, brokers: str, topic: str, columns: str) -> DataFrame:
    """The topic's JSON as columns; `reader` is `spark.read` or `spark.readStream`."""
    records: DataFrame = (
        reader.format("kafka")
        .option("kafka.bootstrap.servers", brokers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    return records.select(from_json(records.value.cast("string"), columns).alias("t")).select("t.*")


def check_whole(plan: str) -> None:
    """That every column is decoded wherever a record is."""
    decoded_columns = [
        text.count("StructField(") for text in re.findall(r"from_json\(([^$]*?), cast\(", plan)
    ]
    assert decoded_columns
    assert set(decoded_columns) == {COLUMNS.count(", ") + 1}, plan
