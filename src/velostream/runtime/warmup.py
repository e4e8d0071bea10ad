"""Spark once through what jobs do, so that Java can record the classes; run by `prepare` as a process."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.runtime.session import start_session, stop_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Writing 100 MB of classes down happens while Java exits.
EXIT_TIMEOUT = 200.0

_QUERY = """
SELECT t.symbol, COUNT(*) AS n, SUM(CAST(t.price AS DECIMAL(18, 2))) AS total, MAX(t.at) AS last,
       AVG(CAST(t.price AS DECIMAL(18, 2))) AS mean, MIN(t.symbol) AS least, COUNT(DISTINCT t.qty) AS kinds
FROM trades t LEFT JOIN names n ON t.symbol = n.symbol
WHERE t.qty > 0 AND t.symbol IN ('A', 'B') AND CASE WHEN t.price > 0 THEN true ELSE false END
GROUP BY t.symbol HAVING COUNT(*) > 0
"""
_RANKED = (
    "SELECT *, row_number() OVER (PARTITION BY symbol ORDER BY at) AS rank FROM trades ORDER BY at LIMIT 5"
)


def warm_up(spark: SparkSession, folder: Path) -> None:
    """Read, query and stream tiny inputs in every way that a job does."""
    (folder / "t.csv").write_text("symbol,price,qty,at\nA,1.50,1,2024-01-01T00:00:00Z\nB,2.25,2,\n")
    (folder / "n.jsonl").write_text('{"symbol":"A","name":"Alpha"}\n{"symbol":"B","name":"Beta"}\n')
    trades = spark.read.csv(
        str(folder / "t.csv"),
        header=True,
        schema="symbol STRING, price DECIMAL(18,2), qty BIGINT, at TIMESTAMP, _bad STRING",
        columnNameOfCorruptRecord="_bad",
        mode="PERMISSIVE",
    )
    trades.createOrReplaceTempView("trades")
    spark.read.json(str(folder / "n.jsonl"), schema="symbol STRING, name STRING").createOrReplaceTempView(
        "names"
    )
    spark.sql(_QUERY).toArrow()
    spark.sql(_RANKED).toArrow()
    rows = spark.createDataFrame(pa.table({"symbol": ["A"], "_weight": pa.array([1], pa.int64())}))
    rows.createOrReplaceTempView("changes")
    spark.sql(
        "SELECT symbol, SUM(CASE WHEN _weight > 0 THEN 1 ELSE -1 END) FROM changes GROUP BY symbol"
    ).toArrow()
    trades.write.mode("overwrite").parquet(str(folder / "p"))
    spark.read.parquet(str(folder / "p")).distinct().toArrow()
    _stream(spark, folder)


def _stream(spark: SparkSession, folder: Path) -> None:
    feed = folder / "feed"
    feed.mkdir()
    (feed / "0.json").write_text('{"offset": "0"}\n')

    def batch(frame: DataFrame, number: int) -> None:
        spark.sql(_QUERY).toArrow()

    stream = spark.readStream.schema("offset STRING").json(str(feed))
    query = (
        stream.writeStream.foreachBatch(batch)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.processAllAvailable()
    (feed / "1.json").write_text('{"offset": "1"}\n')
    query.processAllAvailable()
    query.stop()


def main(folder: Path, archive: Path, *base: Path) -> None:
    """Warm a session up and leave the archive of its classes, on top of `base` if given, behind."""
    options = [f"-XX:SharedArchiveFile={path}" for path in base]
    options += [f"-XX:ArchiveClassesAtExit={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    spark = start_session(None, {"spark.driver.extraJavaOptions": " ".join(options)}, folder / "data")
    try:
        warm_up(spark, folder)
    finally:
        stop_session(spark, EXIT_TIMEOUT)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
