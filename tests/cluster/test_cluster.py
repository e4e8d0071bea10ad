from __future__ import annotations

import os
from pathlib import Path

import pytest

pytestmark = pytest.mark.spark


def test_executors_are_other_processes_that_run_python(cluster_spark, cluster):
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


def test_the_clusters_secret_is_on_no_command_line(cluster_spark, cluster):
    assert cluster_spark.range(4).count() == 4
    secret = cluster.conf["spark.authenticate.secret"].encode()
    commands = {
        path: path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if os.access(path, os.R_OK)
    }
    assert any(b"CoarseGrainedExecutorBackend" in command for command in commands.values())
    assert not [path for path, command in commands.items() if secret in command]
