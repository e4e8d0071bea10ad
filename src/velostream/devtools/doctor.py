"""`velo doctor`: is this machine ready, and if not, what to do about it."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from velostream.config import cache_home, machine_memory
from velostream.errors import VelostreamError
from velostream.runtime.datadir import DataDirectory
from velostream.spark.failures import cause_of
from velostream.spark.java import JavaHome, find_java

if TYPE_CHECKING:
    from collections.abc import Iterator

PYSPARK = "4.2.0"
DISK_NEEDED = 1 << 30
MEMORY_NEEDED = 2 << 30
EXTRAS = {
    "avro": "fastavro",
    "protobuf": "grpcio-tools",
    "kafka": "confluent-kafka",
    "postgres": "psycopg",
    "mysql": "pymysql",
    "clickhouse": "clickhouse-connect",
    "sql": "sqlalchemy",
    "pandas": "pandas",
    "polars": "polars",
}
"""Each optional part of the package and the module by which it is detected."""

PREPARE = "velo doctor --prepare"


@dataclass(frozen=True)
class Check:
    """One check and its result."""

    name: str
    ok: bool
    detail: str
    hint: str | None = None
    required: bool = True
    """Whether Velostream cannot work without it; if not, `ok` False is advice."""


def checks(data_dir: Path, *, master: str | None = None, deep: bool = False) -> Iterator[Check]:
    """Check everything that Velostream needs, in the order in which it needs it.

    Each check is yielded as soon as it is done. `deep` also starts a Spark session, which takes seconds.
    Nothing is changed, and nothing is raised: a failure is a check that is not ok.
    """
    for check in _all(data_dir, master, deep):
        yield replace(check, hint=None) if check.ok else check


def _all(data_dir: Path, master: str | None, deep: bool) -> Iterator[Check]:
    yield _python()
    java, check = _java()
    yield check
    yield _pyspark()
    if java is not None:
        yield from _prepared(java)
    yield _loopback()
    yield _memory()
    yield from _data_directory(data_dir)
    yield from _extras()
    if deep:
        yield _session(master)


def _python() -> Check:
    found = platform.python_version()
    return Check(
        "python", sys.version_info >= (3, 11), f"{found} at {sys.executable}", "install Python 3.11 or later"
    )


def _java() -> tuple[JavaHome | None, Check]:
    try:
        java = find_java()
    except VelostreamError as exc:
        return None, Check("java", False, exc.message, exc.hint)
    return java, Check("java", True, f"{java.version} at {java.home} (from {java.origin})")


def _pyspark() -> Check:
    try:
        found = version("pyspark")
    except PackageNotFoundError:
        return Check("spark", False, "pyspark is not installed", f"pip install pyspark=={PYSPARK}")
    home = os.environ.get("SPARK_HOME")
    detail = f"pyspark {found}" + (f", SPARK_HOME={home} (used on clusters only)" if home else "")
    return Check("spark", found == PYSPARK, detail, f"pip install pyspark=={PYSPARK}")


def _prepared(java: JavaHome) -> Iterator[Check]:
    from velostream.spark.jars.maven import JARS, KAFKA_JARS, broker_jars, cached
    from velostream.spark.prepare import prepared

    cache = cache_home()
    found = prepared(cache, java)
    there = {path.name for path in found.jars}
    for jar in JARS:
        ok = jar.file_name in there
        detail = f"{jar.file_name} in {cache / 'jars'}" if ok else "not fetched: small batches are slower"
        yield Check("jars", ok, detail, PREPARE, required=False)
    if found.archives:
        size = sum(path.stat().st_size for path in found.archives) >> 20
        yield Check("class archive", True, f"{size} MB in {cache}", required=False)
    else:
        yield Check("class archive", False, "not made: starts take twice as long", PREPARE, required=False)
    for name, jars, hint in (
        ("kafka connector", KAFKA_JARS, "the first statement that uses kafka:// fetches it"),
        ("kafka broker", broker_jars(), "velo broker fetches it"),
    ):
        ok = cached(jars)
        detail = f"{len(jars)} jars in {cache / 'jars'}" if ok else "not fetched"
        yield Check(name, ok, detail, hint, required=False)


def _loopback() -> Check:
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), 5),
        ):
            return Check("ports", True, "loopback connections work")
    except OSError as exc:
        hint = "Spark's parts talk over 127.0.0.1: allow it in the firewall or sandbox"
        return Check("ports", False, f"no loopback connection: {exc.strerror or exc}", hint)


def _memory() -> Check:
    total = machine_memory()
    hint = "Spark alone wants 1 GB: give the machine or container 2 GB at least"
    return Check("memory", total >= MEMORY_NEEDED, f"{total / (1 << 30):.1f} GB", hint)


def _data_directory(data_dir: Path) -> Iterator[Check]:
    directory = DataDirectory(data_dir)
    above = next(path for path in (directory.root, *directory.root.parents) if path.exists())
    free = shutil.disk_usage(above).free
    yield Check(
        "disk",
        free >= DISK_NEEDED,
        f"{free / (1 << 30):.1f} GB free for {directory.root}",
        "free some space, or give another place with --data-dir",
    )
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        yield Check("data directory", False, f"cannot write to {above}", "give another place with --data-dir")
    elif above != directory.root:
        yield Check("data directory", True, f"{directory.root} will be made on first use")
    else:
        yield _held(directory)
        yield _catalogue(directory)


def _held(directory: DataDirectory) -> Check:
    mode = directory.root.stat().st_mode & 0o777
    if mode & 0o077:
        hint = f"chmod 700 {directory.root}"
        return Check("data directory", False, f"others can read {directory.root} (mode {mode:o})", hint)
    holder = directory.holder()
    state = "free" if holder is None else f"in use by process {holder}"
    return Check("data directory", True, f"{directory.root}, {state}")


def _catalogue(directory: DataDirectory) -> Check:
    from velostream.runtime.catalog.catalog import remembered

    try:
        found = len(list(remembered(directory.root)))
    except VelostreamError as exc:
        return Check("catalogue", False, exc.message, exc.hint)
    return Check("catalogue", True, f"{found} statement{'' if found == 1 else 's'}, as written")


def _extras() -> Iterator[Check]:
    for name, module in EXTRAS.items():
        there = _installed(module)
        detail = "installed" if there else "not installed"
        yield Check(f"extra {name}", there, detail, f'pip install "velostream[{name}]"', required=False)


def _installed(distribution: str) -> bool:
    """Whether a package is installed on disk: the command line blocks importing some modules."""
    try:
        version(distribution)
    except PackageNotFoundError:
        return False
    return True


def _session(master: str | None) -> Check:
    from velostream.spark.session import start_session, stop_session

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="velostream-") as folder:
        try:
            spark = start_session(master, {}, Path(folder) / "data")
            ready = time.monotonic()
            try:
                count = spark.range(1000).selectExpr("sum(id)").collect()[0][0]
                answered = time.monotonic()
            finally:
                stop_session(spark)
        except VelostreamError as exc:
            return Check("session", False, exc.message, exc.detail or exc.hint)
        except Exception as exc:
            # Any failure of Spark's first query is the finding, not a failure of the doctor.
            return Check("session", False, f"Spark starts but does not answer: {cause_of(exc)}")
    took = f"up in {ready - started:.1f} s, first answer after {answered - started:.1f} s"
    return Check("session", count == 499500, took)
