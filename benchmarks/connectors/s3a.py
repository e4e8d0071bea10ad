"""Spark's own reader of the same objects, by Hadoop's s3a. Usage: s3a ADDRESS FORMAT, the address as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks.connectors.objects import BUCKET, COLUMNS, QUERY, Address, summed_up
from benchmarks.measure import loads
from benchmarks.pipelines.plain_spark import session
from velostream.spark.jars.class_path import load_pinned
from velostream.spark.jars.maven import Jar


def jars() -> list[Jar]:
    """Hadoop's connector with what it needs of the AWS SDK, 13 MB instead of the bundle's 686.

    What Spark brings itself (Netty, Apache's HTTP client, logging) is not in the list.
    """
    lines = Path(__file__).with_name("s3a_jars.txt").read_text(encoding="ascii").splitlines()
    found = []
    for line in lines:
        name, pinned = line.split()
        group, artifact, version = name.split(":")
        found.append(Jar(group, artifact, version, pinned))
    return found


def main() -> None:
    address, form = Address(**json.loads(sys.argv[1])), sys.argv[2]
    spark = session()
    load_pinned(spark, "Hadoop's connector for S3", jars())
    context: Any = spark.sparkContext
    settings = {
        "endpoint": address.endpoint,
        "endpoint.region": "us-east-1",
        "access.key": address.key,
        "secret.key": address.secret,
        "path.style.access": "true",
    }
    for name, value in settings.items():
        context._jsc.hadoopConfiguration().set(f"fs.s3a.{name}", value)  # noqa: SLF001
    results = []

    def load(_: int) -> None:
        reader = spark.read.format("json" if form == "jsonl" else form)
        reader = reader if form == "parquet" else reader.schema(COLUMNS)
        reader.option("header", "true").load(f"s3a://{BUCKET}/{form}/").createOrReplaceTempView("trades")
        results.append(spark.sql(QUERY).toArrow())

    figures = loads(load)
    print(json.dumps({**figures, "result": summed_up(results[-1])}))
    spark.stop()


if __name__ == "__main__":
    main()
