"""Spark's own JDBC reader: everything of a table into Arrow in the driver, by as many readers."""

from __future__ import annotations

import json
import sys

from benchmarks.measure import loads
from benchmarks.pipelines.plain_spark import session

JAR = "ivy://org.postgresql:postgresql:42.7.7?transitive=false"


def main() -> None:
    """`python -m benchmarks.databases.jdbc arguments`, the arguments as JSON."""
    given = json.loads(sys.argv[1])
    spark = session()
    spark.sql(f"ADD JAR '{JAR}'")
    reader = (
        spark.read.format("jdbc")
        .option("url", given["url"])
        .option("driver", "org.postgresql.Driver")
        .option("dbtable", "orders")
        .option("partitionColumn", "id")
        .option("lowerBound", "1")
        .option("upperBound", str(given["rows"]))
        .option("numPartitions", str(given["readers"]))
        .option("fetchsize", "10000")
    )

    def once(_: int) -> None:
        assert reader.load().toArrow().num_rows == given["rows"]

    print(json.dumps(loads(once)))
    spark.stop()


if __name__ == "__main__":
    main()
