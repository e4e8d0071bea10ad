from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


def test_executors_are_other_processes_that_run_python(cluster_spark, cluster):
    import os

    def where(_):
        return [os.getpid()]

    pids = cluster_spark.sparkContext.parallelize(range(4), 4).mapPartitions(where).collect()
    assert os.getpid() not in pids
    assert cluster_spark.sparkContext.master == cluster.master


def test_executors_cannot_read_the_data_directory(cluster_spark, cluster, tmp_path: Path):
    if cluster.isolation == "none":
        pytest.skip("this machine allows neither mount namespaces nor another user")
    secret = tmp_path / "secret.txt"
    secret.write_text("only for the driver")

    def readable(_):
        try:
            return [secret.read_text()]
        except OSError as exc:
            return [type(exc).__name__]

    seen = set(cluster_spark.sparkContext.parallelize(range(4), 4).mapPartitions(readable).collect())
    assert seen <= {"FileNotFoundError", "PermissionError"}
