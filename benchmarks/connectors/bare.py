"""The same query over a data source of Spark's own in Python, streamed. Usage: bare ROWS STEP"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from benchmarks.connectors.rows import BATCH, DDL, QUERY, batches, kept
from benchmarks.measure import loads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

CORES = 2


class Range(InputPartition):
    def __init__(self, first: int, last: int) -> None:
        super().__init__(first)
        self.first, self.last = first, last


class MadeUp(DataSource):
    @classmethod
    def name(cls) -> str:
        return "madeup"

    def schema(self) -> str:
        return DDL

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return Reader(int(self.options["rows"]), int(self.options["step"]))


class Reader(DataSourceStreamReader):
    def __init__(self, rows: int, step: int) -> None:
        self._rows, self._step = rows, step

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"all": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: N802
        return {"all": min(self._rows, start["all"] + self._step)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        most = -(-(end["all"] - start["all"]) // CORES // BATCH) * BATCH
        cuts = range(start["all"], end["all"], most)
        return [Range(first, min(first + most, end["all"])) for first in cuts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return batches(partition.first, partition.last)


def main() -> None:
    rows, step = sys.argv[1:3]
    # Spark plans a data source with the first Python on the path, and runs it with the other.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master(f"local[{CORES}]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(MadeUp)

    def load(number: int) -> None:
        found: list[int] = []

        def keep(frame: DataFrame, _: int) -> None:
            found.append(frame.toArrow().num_rows)

        stream = spark.readStream.format("madeup").option("rows", rows).option("step", step).load()
        stream.createOrReplaceTempView("made_up")
        query = spark.sql(QUERY.format(rows="made_up")).writeStream.foreachBatch(keep)
        with tempfile.TemporaryDirectory() as folder:
            running = query.option("checkpointLocation", folder).start()
            while sum(found) < kept(int(rows)):
                running.processAllAvailable()
            running.stop()
        assert sum(found) == kept(int(rows))

    print(json.dumps(loads(load)))
    spark.stop()


if __name__ == "__main__":
    from benchmarks.connectors.bare import main as run

    run()
