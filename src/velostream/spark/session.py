"""The Spark session. This is the only place that sets Spark's configuration."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

from velostream.config import cache_home, machine_memory
from velostream.disk.private import OTHERS, make_folder
from velostream.errors import ConfigError, JavaError, did_you_mean
from velostream.spark.failures import cause_of
from velostream.spark.java import JavaHome, find_java
from velostream.spark.prepare import Prepared, prepared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from velostream.spark.gateway import Jvm

FIXED = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.decimalOperations.allowPrecisionLoss": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
"""Settings that exact results depend on: a different value of the user's is refused."""

STREAMING = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.pollingDelay": "50ms",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    # Every small side of a join takes a whole page: by default 64 MB for three rows.
    "spark.buffer.pageSize": "2m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.pythonUDF.arrow.enabled": "true",
    # A value too large for memory fails its task. By default it ends Java, and every job with it.
    "spark.executor.killOnFatalError.depth": "0",
}
"""For many small batches: nothing that re-plans, waits, or grows with the number of batches."""

QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.ui.retainedJobs": "20",
    # Every query would be described for a user interface that is off.
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.maxPlanStringLength": "500",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "500",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.log.structuredLogging.enabled": "false",
}
"""No web page, no progress bars, and no history of jobs in memory for a page nobody sees."""

BARE_FILES = {
    "spark.hadoop.fs.file.impl": "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Local files without forking a command per file: the log of a micro-batch costs 2 ms instead of 60."""

CLUSTER_PARTITIONS = 16
_SPARK_SECRETS = frozenset({"spark.authenticate.secret", "spark.authenticate.secret.file"})
_LOCAL = re.compile(r"local(?:\[\s*(\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_MASTER = re.compile(r"spark://.+|yarn|k8s://.+|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]")


@dataclass
class _Engine:
    """The JVM of this process, and its sessions."""

    master: str
    conf: dict[str, str]
    jvm: Jvm
    sessions: list[SparkSession]


_engines: list[_Engine] = []
"""At most one: pyspark allows no more per process."""
_lock = RLock()
"""Held while a session starts or stops."""


def start_session(master: str | None, conf: Mapping[str, str], data_dir: Path) -> SparkSession:
    """Start Spark without output: its log is `logs/spark.log` of the data directory.

    `master` None means all cores of this machine. `conf` are Spark's own settings; they override ours, except
    those that exact results depend on (ConfigError).

    There is one JVM per process. Called again with the same master and settings, it returns another session
    on it at once, with temporary views of its own, the log staying where it is; with others, or while a
    foreign session is active, it raises JavaError. Only `stop_session` may stop a session.
    """
    from velostream.spark import gateway

    master = master or default_master()
    with _lock:
        return _share(master, conf) if gateway.session_active() else _start(master, conf, data_dir)


def current_session() -> SparkSession | None:
    """A session of the Spark that runs in this process; None where none does."""
    with _lock:
        return next((each for engine in _engines for each in engine.sessions), None)


def running(session: SparkSession) -> bool:
    """Whether the JVM of a session that was started here is still alive."""
    return any(engine.jvm.process.poll() is None for engine in _engines if session in engine.sessions)


def java_processes() -> list[int]:
    """Process ids of the JVMs that were started here and still live."""
    return [engine.jvm.process.pid for engine in _engines if engine.jvm.process.poll() is None]


def _start(master: str, conf: Mapping[str, str], data_dir: Path) -> SparkSession:
    from velostream.spark import gateway

    java = find_java()
    local = local_cores(master) is not None
    found = prepared(cache_home(), java) if local else Prepared()
    settings = session_conf(master, conf, data_dir, found)
    _make_folders(data_dir)
    gateway.quieten()
    gateway.forget()
    if local:
        command = gateway.local_command(java, settings, found.jars)
    else:
        command = gateway.cluster_command(settings)
    environment = _environment(java, local, settings, data_dir)
    jvm = gateway.launch(command, settings, environment, data_dir / "logs" / "spark.out", data_dir / "tmp")
    try:
        spark = _open(jvm, settings)
    except BaseException as exc:
        jvm.stop()
        gateway.forget()
        if not isinstance(exc, Exception):
            raise
        raise JavaError(
            f'no Spark session on master "{master}"',
            detail=cause_of(exc),
            hint=f"Spark's log is {data_dir / 'logs' / 'spark.log'}",
        ) from exc
    _warn_of_open_ports(spark, master)
    _engines.append(_Engine(master, dict(conf), jvm, [spark]))
    return spark


def _warn_of_open_ports(spark: SparkSession, master: str) -> None:
    if spark.sparkContext.getConf().get("spark.authenticate") != "true":
        import structlog

        structlog.get_logger("velostream.session").warning(
            "Spark's ports are not authenticated: whoever reaches them can read and change rows",
            master=master,
            hint="set spark.authenticate and spark.authenticate.secret on the cluster and for velostream",
        )


def _share(master: str, conf: Mapping[str, str]) -> SparkSession:
    for engine in _engines:
        if (engine.master, engine.conf) == (master, dict(conf)):
            session = engine.sessions[0].newSession()
            engine.sessions.append(session)
            return session
    raise JavaError(
        "a Spark session with other settings is already active in this process",
        hint="stop it first, or use the same master and settings: there can be one Spark per process",
    )


def _open(jvm: Jvm, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    from velostream.spark.gateway import own_interrupts

    with own_interrupts():
        conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
        context: Any = SparkContext(conf=conf, gateway=jvm.gateway)
        # Messages of others to this port are refused; pyspark would print them to our screen.
        context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001
        return SparkSession.builder.getOrCreate()


def stop_session(spark: SparkSession, timeout: float | None = None) -> None:
    """Release a session; the last one stops the JVM, and a new one may be started. Idempotent.

    A JVM that has not ended by itself after `timeout` seconds is killed.
    """
    with _lock:
        engine = next((engine for engine in _engines if spark in engine.sessions), None)
        if engine is None:
            return
        engine.sessions.remove(spark)
        if not engine.sessions:
            _engines.remove(engine)
            _end(engine, spark, timeout)


def stop_all_sessions() -> None:
    """Give back every session that was handed out here, so that one with other settings may be started."""
    for session in [session for engine in _engines for session in engine.sessions]:
        stop_session(session)


def _end(engine: _Engine, last: SparkSession, timeout: float | None) -> None:
    from py4j.protocol import Py4JError

    from velostream.spark import gateway

    try:
        last.stop()
    except (Py4JError, OSError):
        pass  # the JVM is gone already, which is what we want
    finally:
        engine.jvm.stop(timeout or gateway.STOP_TIMEOUT)
        gateway.forget()


def interrupt(spark: SparkSession) -> None:
    """Cancel the current computations of a session; their callers get an error."""
    from py4j.protocol import Py4JError

    # It may have ended meanwhile, or Spark with it.
    with suppress(Py4JError, OSError):
        spark.interruptAll()


def tasks(spark: SparkSession) -> tuple[int, int]:
    """Progress of Spark's current stages: finished tasks, and all tasks."""
    from py4j.protocol import Py4JError

    try:
        tracker = spark.sparkContext.statusTracker()
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    except (Py4JError, OSError, AttributeError):
        # Spark is stopping meanwhile.
        return 0, 0
    known = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in known), sum(s.numTasks for s in known)


def default_master() -> str:
    """All cores of this machine, at least two: a batch and the query that waits for it."""
    return f"local[{max(2, os.cpu_count() or 2)}]"


def local_cores(master: str) -> int | None:
    """Threads of a `local` master, None for a cluster; ConfigError for an invalid master."""
    match = _LOCAL.fullmatch(master.strip())
    if match:
        return (os.cpu_count() or 1) if match[1] == "*" else int(match[1] or 1)
    if _MASTER.fullmatch(master.strip()):
        return None
    raise ConfigError(
        f'"{master}" is not a Spark master',
        hint="write local[4], spark://host:7077, yarn or k8s://https://host",
    )


def session_conf(master: str, user: Mapping[str, str], data_dir: Path, found: Prepared) -> dict[str, str]:
    """Every Spark setting of the session: ours, overridden by the user's where that is allowed."""
    _check_user_conf(user)
    cores = local_cores(master)
    folder = data_dir.resolve()
    settings = {
        "spark.master": master,
        "spark.app.name": "velostream",
        "spark.driver.memory": f"{_driver_memory() >> 20}m",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.sql.shuffle.partitions": str(cores or CLUSTER_PARTITIONS),
        **STREAMING,
        **QUIET,
        **_authentication(master, user),
        # Hadoop sets the mode of each file by this, whatever the umask of the process.
        "spark.hadoop.fs.permissions.umask-mode": f"{OTHERS:03o}",
    }
    if cores is not None:
        settings |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.default.parallelism": str(cores),
            # Not Kafka, whose older reader creates a row of Java objects for every record. On a cluster its
            # jars are added when needed, and the newer writer's results are of another class loader.
            "spark.sql.sources.useV1SourceList": "avro,csv,json,orc,parquet,text",
        }
        if found.jars:
            settings |= BARE_FILES
    settings |= {**user, **FIXED}
    given = user.get("spark.driver.extraJavaOptions", "")
    settings["spark.driver.extraJavaOptions"] = f"{_java_options(folder, found)} {given}".rstrip()
    return settings


def _authentication(master: str, user: Mapping[str, str]) -> dict[str, str]:
    """Spark's ports accept only clients with a secret of this session.

    Spark creates the secret itself and passes it to its executors, except for a cluster within this process
    (ours). The master and the workers of a standalone cluster have to know it as well: there the user sets it
    on both sides; the log says where it is missing.
    """
    if master.strip().startswith("spark://"):
        return {"spark.authenticate": "true"} if _SPARK_SECRETS & user.keys() else {}
    own = master.strip().startswith("local-cluster")
    made = {"spark.authenticate.secret": secrets.token_hex(32)} if own else {}
    return {"spark.authenticate": "true", **made}


def _java_options(folder: Path, found: Prepared) -> str:
    # Deeply nested plans overflow the default stack of 1 MB.
    options = [
        "-Xss16m",
        f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}",
        f"-Dvelostream.logs={folder / 'logs'}",
        f"-Dderby.system.home={folder / 'tmp'}",
        f"-Djava.io.tmpdir={folder / 'tmp'}",
        "-Dfile.encoding=UTF-8",
        "-Duser.timezone=UTC",
    ]
    if found.archives:
        options += [f"-XX:SharedArchiveFile={os.pathsep.join(map(str, found.archives))}", "-Xshare:auto"]
    return shlex.join(options)


def _driver_memory() -> int:
    """A quarter of the memory: tables are in Python beside it. Above 31 GB Java's pointers double in size."""
    return min(max(machine_memory() // 4, 1 << 30), 31 << 30)


def _check_user_conf(user: Mapping[str, str]) -> None:
    for key, value in user.items():
        if not key.startswith("spark."):
            raise ConfigError(f'"{key}" is not a setting of Spark', hint=did_you_mean(f"spark.{key}", QUIET))
        if key in FIXED and value.strip().lower() != FIXED[key].lower():
            raise ConfigError(
                f'"{key}" cannot be changed: exact results rest on it being {FIXED[key]}',
                hint="leave it out",
            )
        if key.startswith("spark.sql.legacy."):
            raise ConfigError(f'"{key}" cannot be changed: it alters what SQL means', hint="leave it out")


def _environment(java: JavaHome, local: bool, settings: Mapping[str, str], data_dir: Path) -> dict[str, str]:
    """Variables for the JVM; the choice of Python also has to be in our own environment, for pyspark."""
    from velostream.spark.gateway import SPARK_HOME, spark_home

    python = settings.get("spark.pyspark.python")
    if local:
        # Workers must run the driver's Python, or pickled functions and packages do not match.
        python = python or sys.executable
    os.environ["PYSPARK_PYTHON"] = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    environment = {"JAVA_HOME": str(java.home), "PYSPARK_PYTHON": os.environ["PYSPARK_PYTHON"]}
    if local:
        return environment | {
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": settings.get("spark.local.dir") or str(data_dir.resolve() / "tmp"),
            "SPARK_SCALA_VERSION": "2.13",
        }
    return environment | {"SPARK_HOME": str(spark_home())}


def _make_folders(data_dir: Path) -> None:
    """Create the data directory, private to its owner, without leftovers of a killed process in `tmp`."""
    try:
        make_folder(data_dir)
        for name in ("logs", "tmp"):
            make_folder(data_dir / name)
        for left in (data_dir / "tmp").iterdir():
            if left.is_dir() and left.name.startswith(("spark-", "blockmgr-", "hsperf", "artifacts-")):
                shutil.rmtree(left, ignore_errors=True)
    except OSError as exc:
        raise ConfigError(f'cannot use data directory "{data_dir}": {exc.strerror}') from exc
