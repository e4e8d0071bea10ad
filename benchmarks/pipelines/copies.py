"""From one topic to another: ours, and PySpark's own writer, which knows at least once only.

Usage: python -m benchmarks.pipelines.copies ours|by_hand BROKERS TOPIC ROWS LOADS
"""

from __future__ import annotations

import itertools
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import timed
from benchmarks.pipelines.loads import summed_up
from benchmarks.pipelines.workload import COLUMNS, COPIED
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.options import KafkaOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

PARTITIONS = 2
DELIVERIES = {"at least once": "at_least_once", "exactly once": "exactly_once"}


class Copies:
    """Topics that are copied to, each for one load, and whether all has arrived."""

    def __init__(self, brokers: str, prefix: str, rows: int) -> None:
        options = KafkaOptions.model_validate({"bootstrap.servers": brokers})
        self._cluster, self._rows = Cluster(options), rows
        self._names = (f"{prefix}-{number}" for number in itertools.count())

    def make(self) -> str:
        name = next(self._names)
        self._cluster.create(name, PARTITIONS, 1)
        return name

    def check(self, name: str) -> None:
        """Transactions leave marks of their own, so that there may be more offsets than records."""
        ends = self._cluster.latest([Part(name, number) for number in range(PARTITIONS)])
        assert sum(ends.values()) >= self._rows, f"{ends} instead of {self._rows}"


def ours(brokers: str, topic: str, copies: Copies, count: int) -> dict[str, dict[str, float]]:
    """Both guarantees in one process, in turn."""
    import velostream

    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        db.sql(source_statement(COLUMNS, brokers, topic))
        runs: dict[str, list[dict[str, float]]] = {told: [] for told in DELIVERIES}
        for number, (told, delivery) in itertools.product(range(count), DELIVERIES.items()):
            name = copies.make()
            stream = f"{delivery}_{number}"
            statement = copy_statement(stream, COPIED, brokers, name, f'"delivery" = "{delivery}"')
            runs[told].append({})
            with timed(runs[told][-1], "load"):
                db.sql(statement)
                assert db.wait_idle(600)
            copies.check(name)
            db.sql(f"DROP STREAM {stream}")
        return {told: summed_up(taken) for told, taken in runs.items()}


def source_statement(columns: str, brokers: str, topic: str) -> str:
    """The source `trades`, from its first record on also where a stream would begin with what comes."""
    return (
        f"CREATE SOURCE trades ({columns}) FROM kafka://{brokers}/{topic} "
        'WITH ("auto.offset.reset" = "earliest")'
    )


def copy_statement(stream: str, query: str, brokers: str, topic: str, *properties: str) -> str:
    """Every record of the source `trades` into a topic."""
    told = [f'"sink" = "kafka://{brokers}/{topic}"', '"key" = "user_id"']
    return (
        f"CREATE STREAM {stream} AS {query.format(source='trades')} WITH ({', '.join([*told, *properties])})"
    )


def by_hand(brokers: str, topic: str, copies: Copies, count: int) -> dict[str, dict[str, float]]:
    """A stream that ends with the topic."""
    from benchmarks.pipelines.plain_spark import session

    spark = session()
    runs: list[dict[str, float]] = []
    for _ in range(count):
        name = copies.make()
        runs.append({})
        with tempfile.TemporaryDirectory() as checkpoint, timed(runs[-1], "load"):
            writer = copying(spark, brokers, topic, COPIED, COLUMNS, name, Path(checkpoint))
            writer.trigger(availableNow=True).start().awaitTermination()
        copies.check(name)
    return {"by hand": summed_up(runs)}


def copying(
    spark: SparkSession, brokers: str, topic: str, query: str, columns: str, copy: str, checkpoint: Path
) -> Any:
    """A writer of all records into another topic, decoded and encoded again."""
    from benchmarks.pipelines.plain_spark import decoded

    decoded(spark.readStream, brokers, topic, columns).createOrReplaceTempView("trades")
    rows = spark.sql(query.format(source="trades")).selectExpr(
        "user_id AS key", "to_json(struct(*)) AS value"
    )
    writer = rows.writeStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    return writer.option("topic", copy).option("checkpointLocation", str(checkpoint))


WAYS: dict[str, Callable[[str, str, Copies, int], dict[str, dict[str, float]]]] = {
    "ours": ours,
    "by_hand": by_hand,
}


def main() -> None:
    name, brokers, topic, rows, count = sys.argv[1:6]
    print(json.dumps(WAYS[name](brokers, topic, Copies(brokers, f"copy-{name}", int(rows)), int(count))))


if __name__ == "__main__":
    main()
