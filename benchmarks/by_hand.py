"""The same load as a person would write it in PySpark. Usage: python -m benchmarks.by_hand FILE PRICE_TYPE"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

from benchmarks.data import COLUMNS, query
from benchmarks.measure import loads


def main() -> None:
    path, price = sys.argv[1:3]
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()

    def load(_: int) -> None:
        reader = spark.read.schema(COLUMNS.format(price=price))
        frame = reader.json(path) if path.endswith("jsonl") else reader.option("header", "true").csv(path)
        frame.createOrReplaceTempView("trades")
        assert spark.sql(query("trades")).toArrow().num_rows == 10_000

    print(json.dumps(loads(load)))


main()
