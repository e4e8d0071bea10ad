"""The same load as a person would write it in PySpark. Usage: python -m benchmarks.by_hand FILE PRICE_TYPE"""

from __future__ import annotations

import json
import sys
import time

from pyspark.sql import SparkSession

from benchmarks.data import COLUMNS, query


def main() -> None:
    path, price = sys.argv[1:3]
    spark = SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
    figures = {}
    for name in ("cold", "warm"):
        started = time.perf_counter()
        frame = spark.read.schema(COLUMNS.format(price=price)).option("header", "true").csv(path)
        frame.createOrReplaceTempView("trades")
        groups = spark.sql(query("trades")).toArrow()
        figures[name] = time.perf_counter() - started
    assert groups.num_rows == 10_000
    print(json.dumps(figures))


main()
