"""Kafka's connector reaches executors that do not see the driver's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from velostream.devtools.broker.process import BrokerProcess, free_port
from velostream.devtools.broker.process import cluster as brokers_at
from velostream.spark.jars.class_path import load_jars

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path / "broker", free_port())
    process.start()
    yield process
    process.kill()


def test_executors_write_and_read_a_topic(cluster_spark: SparkSession, broker: BrokerProcess) -> None:
    brokers_at(broker.address).create("numbers", 2, 1)
    load_jars(cluster_spark, "kafka")
    where = {"kafka.bootstrap.servers": broker.address}
    rows = cluster_spark.range(1000).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("kafka").mode("append").options(**where, topic="numbers").save()
    for session in (cluster_spark, cluster_spark.newSession()):
        found = session.read.format("kafka").options(**where, subscribe="numbers").load()
        assert found.selectExpr("SUM(CAST(CAST(value AS STRING) AS BIGINT)) AS n").collect()[0].n == 499500
