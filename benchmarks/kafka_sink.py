"""What writing to Kafka costs: at least once, exactly once, and Spark's own writer.

`python -m benchmarks.kafka_sink [rows]`: a million trades unless said otherwise, two partitions, one broker.
First whole statements over a Parquet file, then the sink alone in steps of 50,000 rows, where transactions
show. Each is run three times in turn; the best of each counts, with the processor seconds of the driver.
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

import velostream
from velostream.connectors.base import Delivery, SinkContext
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.kafka.write.sink import KafkaSink
from velostream.devtools.broker.process import BrokerProcess, free_port
from velostream.engine.outputs.outputs import SinkOutput
from velostream.model.changes import Commit
from velostream.spark.jars.class_path import load_jars

if TYPE_CHECKING:
    from collections.abc import Callable

ROUNDS = 3
STEP = 50_000
SYMBOLS = ("AAPL", "MSFT", "GOOG", "AMZN", "NVDA", "TSLA", "META", "ORCL")


def trades(count: int) -> pa.Table:
    """Rows as those of the demo."""
    start = datetime(2026, 1, 5, 9, 30, tzinfo=UTC)
    return pa.table(
        {
            "trade_id": pa.array([f"t{n:08d}" for n in range(count)]),
            "symbol": pa.array([SYMBOLS[n * 7919 % len(SYMBOLS)] for n in range(count)]),
            "price": pa.array(
                [Decimal(10_000 + n % 5_000).scaleb(-2) for n in range(count)], pa.decimal128(10, 2)
            ),
            "quantity": pa.array([n % 100 + 1 for n in range(count)], pa.int64()),
            "ts": pa.array(
                [start + timedelta(milliseconds=n) for n in range(count)], pa.timestamp("us", "UTC")
            ),
        }
    )


def measured(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds, and processor seconds of this process."""
    used, began = _processor(), time.perf_counter()
    work()
    return time.perf_counter() - began, _processor() - used


def _processor() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    return own.ru_utime + own.ru_stime


class Bench:
    """One broker, one database, topics of their own for each run."""

    def __init__(self, folder: Path, rows: pa.Table, broker: BrokerProcess) -> None:
        self.rows, self.broker, self.folder = rows, broker, folder
        self.file = folder / "trades.parquet"
        pq.write_table(rows, self.file)
        self.options = KafkaOptions.model_validate({"bootstrap.servers": broker.address})
        self._made = 0

    def topic(self) -> str:
        self._made += 1
        name = f"out{self._made}"
        Cluster(self.options).create(name, 2, 1)
        return name

    def statement(self, database: Any, delivery: str) -> tuple[float, float]:
        """From the statement to the last record."""
        topic = self.topic()

        def run() -> None:
            database.sql(
                f"CREATE STREAM {topic} AS SELECT * FROM file://{self.file} WITH "
                f'("sink" = "kafka://{self.broker.address}/{topic}", "key" = "symbol", '
                f'"delivery" = "{delivery}")'
            )
            database.wait_idle(300)

        found = measured(run)
        database.sql(f"DROP STREAM {topic}")
        return found

    def spark(self, spark: Any) -> tuple[float, float]:
        """As a user writes it by hand."""
        topic = self.topic()
        frame = spark.read.parquet(str(self.file)).selectExpr("symbol AS key", "to_json(struct(*)) AS value")
        writer = frame.write.format("kafka").mode("append")
        writer = writer.option("kafka.bootstrap.servers", self.broker.address)
        return measured(lambda: writer.option("topic", topic).save())

    def steps(self, delivery: Delivery) -> tuple[float, float]:
        """The sink alone."""
        topic = self.topic()
        options = KafkaOptions.model_validate({"bootstrap.servers": self.broker.address, "topic": topic})
        state = self.folder / topic
        state.mkdir()
        context = SinkContext(state, self.rows.schema, ("symbol",), delivery=delivery)
        output = SinkOutput(KafkaSink(options, context), state / "journal")

        def run() -> None:
            for start in range(0, self.rows.num_rows, STEP):
                commit = Commit("bench", 0, {"s": {"n": start}}, datetime.now(UTC))
                output.rows(self.rows.slice(start, STEP), None, commit)

        found = measured(run)
        output.close()
        return found


def main() -> None:
    """Run, and print the figures as one line of JSON."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        broker = BrokerProcess(folder / "broker", free_port())
        broker.start()
        try:
            bench = Bench(folder, trades(count), broker)
            with velostream.connect(folder / "data") as database:
                spark = database.spark()
                load_jars(spark, "kafka")
                ways: dict[str, Callable[[], tuple[float, float]]] = {
                    "statement, at least once": lambda: bench.statement(database, "at_least_once"),
                    "statement, exactly once": lambda: bench.statement(database, "exactly_once"),
                    "Spark's writer": lambda: bench.spark(spark),
                    "sink alone, at least once": lambda: bench.steps(Delivery.AT_LEAST_ONCE),
                    "sink alone, exactly once": lambda: bench.steps(Delivery.EXACTLY_ONCE),
                }
                seen: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
                for _ in range(ROUNDS):
                    for way, run in ways.items():
                        seen[way].append(run())
        finally:
            broker.kill()
    best = {way: min(runs) for way, runs in seen.items()}
    figures = {way: {"rows/s": count / seconds, "cpu": cpu} for way, (seconds, cpu) in best.items()}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
