"""A standalone Spark cluster on this machine: a master and two workers in processes of their own.

Its ports answer only who knows its secret, which sessions are given.

Its executors must not see the driver's files, or a test could pass by reading them directly. Where the
machine allows it they run in a mount namespace with an empty folder over the tests' temporary one, or as
another user; `Cluster.isolation` says which.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.spark.gateway import SPARK_HOME
from velostream.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

WORKERS = 2
NOBODY = 65534
CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
}


@dataclass
class Cluster:
    """A running cluster and how to reach it."""

    master: str
    isolation: str
    """`mount` (an empty folder where the driver's files are), `user` (another user), or `none`."""
    conf: Mapping[str, str]
    """Spark settings that a session on it needs."""


@dataclass
class Isolation:
    """How the cluster's processes are started."""

    name: str
    prefix: Sequence[str]
    python: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def conf(self) -> dict[str, str]:
        """What the driver has to tell its executors, which run the Python that the driver names."""
        variables = {f"spark.executorEnv.{name}": value for name, value in self.environment.items()}
        return {"spark.pyspark.python": self.python, **variables}


def _runs(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def choose_isolation(hidden: Path) -> Isolation:
    """The strongest separation from the driver's files in `hidden` that this machine allows."""
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--map-root-user", "--mount"]
    mount = [*unshare, "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(hidden)]
    if shutil.which("unshare") and _runs([*mount, "true"]):
        return Isolation("mount", mount, sys.executable)
    if os.geteuid() == 0 and shutil.which("setpriv"):
        other = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
        packages = {"PYTHONPATH": str(SPARK_HOME.parent)}
        # Another user may not be able to run our Python; one of the system with our packages does as well.
        system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
        for python in (sys.executable, system):
            probe = [
                *other,
                "env",
                f"PYTHONPATH={packages['PYTHONPATH']}",
                python,
                "-c",
                "import pyspark, pyarrow",
            ]
            if _runs(probe) and _runs([*other, str(find_java().java), "-version"]):
                return Isolation("user", other, python, packages)
    return Isolation("none", [], sys.executable)


class _Processes:
    """The master and the workers, each leader of a process group that ends with it."""

    def __init__(self, isolation: Isolation, folder: Path) -> None:
        self._isolation, self._folder = isolation, folder
        self._started: list[subprocess.Popen[bytes]] = []
        self._environment = {
            **os.environ,
            **isolation.environment,
            "JAVA_HOME": str(find_java().home),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": isolation.python,
        }

    def start(self, name: str, *arguments: str) -> Path:
        """Start `spark-class`; returns its log."""
        log = self._folder / f"{name}.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*self._isolation.prefix, str(SPARK_HOME / "bin" / "spark-class"), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                env=self._environment,
                cwd=self._folder,
                start_new_session=True,
            )
        self._started.append(process)
        return log

    def stop(self) -> None:
        """End all, workers first; executors are in their worker's group."""
        for process in reversed(self._started):
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, wait_until) -> Iterator[Cluster]:
    """A master with two workers that cannot read anything under the tests' temporary folder."""
    hidden = tmp_path_factory.getbasetemp()
    isolation = choose_isolation(hidden)
    folder = Path(tempfile.mkdtemp(prefix="velostream-cluster-"))
    folder.chmod(0o777)
    processes = _Processes(isolation, folder)
    package = "org.apache.spark.deploy"
    secret = {"spark.authenticate.secret": secrets.token_hex(16)}
    properties = folder / "cluster.properties"
    properties.write_text("".join(f"{k} {v}\n" for k, v in {"spark.authenticate": "true", **secret}.items()))
    try:
        ports = [
            "--host",
            "127.0.0.1",
            "--port",
            "0",
            "--webui-port",
            "0",
            "--properties-file",
            str(properties),
        ]
        log = processes.start("master", f"{package}.master.Master", *ports)
        found = wait_until(lambda: re.search(r"Starting Spark master at (spark://\S+)", log.read_text()), 60)
        size = ["--cores", "1", "--memory", "1g"]
        for number in range(WORKERS):
            work = ["--work-dir", str(folder / f"work{number}")]
            processes.start(f"worker{number}", f"{package}.worker.Worker", *ports, *size, *work, found[1])
        wait_until(lambda: log.read_text().count("Registering worker") == WORKERS, 60)
        yield Cluster(found[1], isolation.name, {**CONF, **secret, **isolation.conf})
    finally:
        processes.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def cluster_spark(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on the cluster; sessions that code under test starts with its master and conf share it."""
    from velostream.spark import session

    session.stop_all_sessions()
    started = session.start_session(cluster.master, cluster.conf, tmp_path_factory.mktemp("cluster"))
    yield started
    session.stop_session(started)
