"""Spark sessions with Delta Lake, created when the first statement needs one.

A plain session never loads Delta. When it is needed, its jars are added to the class path of the running JVM,
and a second session with Delta's rules is created beside the first: same context, settings and functions.
"""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from velostream.errors import UnsupportedError
from velostream.model.columns import DELTA_GONE, DELTA_ROW
from velostream.spark.dataframes import private_session
from velostream.spark.failures import translated
from velostream.spark.jars.class_path import add_jars
from velostream.spark.jars.maven import DELTA_JARS, fetched
from velostream.spark.session import local_cores

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


SETTINGS = {
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.databricks.delta.vacuum.logging.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "parquet.page.verify-checksum.enabled": "true",
}
"""Delta's defaults are for large clusters: fifty tasks to read its log, ten thousand to list a folder.

Parquet has a checksum for each page, but verifies it only when told to.
"""

PROPERTIES = {
    "delta.enableChangeDataFeed": "true",
    "delta.enableDeletionVectors": "true",
}
_REFUSED = " ,;{}()\n\t="
_TAKEN = {"_change_type", "_commit_version", "_commit_timestamp"}
_APPLICATION = "velostream"
_jars_lock = RLock()


class DeltaEngine:
    """Sessions with Delta Lake, on the Spark of a database."""

    def __init__(self, spark: Callable[[], SparkSession], conf: Mapping[str, str]) -> None:
        self._spark = spark
        self._ivy_settings = conf.get("spark.jars.ivySettings")
        self._root: SparkSession | None = None
        self._lock = RLock()

    @property
    def root(self) -> SparkSession | None:
        """The session with Delta; None if none was created."""
        return self._root

    def session(self) -> SparkSession:
        """A new session with Delta."""
        base = self._spark()
        with self._lock:
            if self._root is None:
                _check_shared(base)
                self._root = _extended(base, fetched(DELTA_JARS, "Delta Lake", self._ivy_settings))
            return private_session(self._root)


def _check_shared(spark: SparkSession) -> None:
    """Raise unless executors can access the data directory, as they write the files."""
    shared = spark.conf.get("spark.velostream.sharedDataDir", "false")
    if local_cores(str(spark.sparkContext.master)) is None and shared != "true":
        raise UnsupportedError(
            "a table in Delta Lake needs a data directory that all machines of the cluster share",
            hint="if it is one, say so: --conf spark.velostream.sharedDataDir=true",
        )


def _extended(base: SparkSession, jars: tuple[Path, ...]) -> SparkSession:
    from pyspark.sql import SparkSession as Session

    with _jars_lock, translated():
        context = base.sparkContext
        add_jars(base, jars)
        jvm: Any = context._jvm  # noqa: SLF001
        inner: Any = base._jsparkSession  # noqa: SLF001
        extensions = jvm.org.apache.spark.sql.SparkSessionExtensions()
        jvm.io.delta.sql.DeltaSparkSessionExtension().apply(extensions)
        some, nothing = jvm.scala.Option.apply, jvm.PythonUtils.toScalaMap({})
        # Like cloneSession, but with rules of its own: a plain session's rules are fixed when it starts.
        made = jvm.org.apache.spark.sql.classic.SparkSession(
            context._jsc.sc(),  # noqa: SLF001
            some(inner.sharedState()),
            some(inner.sessionState()),
            extensions,
            nothing,
            nothing,
        )
        session = Session(context, made)
        for key, value in SETTINGS.items():
            session.conf.set(key, value)
        return session


# --- one table --------------------------------------------------------------------------------------


def read(spark: SparkSession, path: Path, version: int) -> DataFrame:
    """All rows of a version."""
    # Without a version Delta takes the newest when the frame is run, which may be later than this call.
    with translated():
        return _ours(spark.read.format("delta").option("versionAsOf", version).load(str(path)))


def change_feed(spark: SparkSession, path: Path, first: int, last: int) -> DataFrame:
    """The changes of the commits from `first` to `last`, with Delta's `_change_type`, `_commit_version`."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    with translated():
        return _ours(reader.option("startingVersion", first).option("endingVersion", last).load(str(path)))


def append(frame: DataFrame, path: Path, said: str, sequence: int, *, create: bool) -> None:
    """Add rows; with `create` they are the first, and create the table."""
    writer = _theirs(frame).write.format("delta").mode("append").option("userMetadata", said)
    writer = writer.option("txnAppId", _APPLICATION).option("txnVersion", sequence)
    if create:
        writer = writer.options(**PROPERTIES)
    with translated():
        writer.save(str(path))


def overwrite(frame: DataFrame, path: Path, said: str, sequence: int) -> None:
    """Replace the whole table by these rows, with their columns."""
    writer = _theirs(frame).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer = writer.option("userMetadata", said).option("txnAppId", _APPLICATION)
    with translated():
        writer.option("txnVersion", sequence).save(str(path))


def merge(
    spark: SparkSession, path: Path, source: DataFrame, lowest: int, highest: int, said: str, sequence: int
) -> None:
    """Delete the rows whose number is marked gone in `source`, and insert its other rows, in one commit."""
    with translated(), _saying(spark, said, sequence):
        target = _table(spark, path)
        # The bounds let Delta skip files by their statistics: mostly recent rows change.
        on = f"t.{DELTA_ROW} = s.{DELTA_ROW} AND t.{DELTA_ROW} BETWEEN {lowest} AND {highest}"
        rows = getattr(_theirs(source)._jdf, "as")("s")  # noqa: SLF001
        merging = getattr(target, "as")("t").merge(rows, on)
        deleting = merging.whenMatched(f"s.{DELTA_GONE}").delete()
        deleting.whenNotMatched(f"NOT s.{DELTA_GONE}").insertAll().execute()


def compact(spark: SparkSession, path: Path, said: str) -> None:
    """Compaction: many small files into few."""
    with translated(), _saying(spark, said, None):
        _table(spark, path).optimize().executeCompaction()


def vacuum(spark: SparkSession, path: Path, hours: float) -> None:
    """Delete files that no version of the last `hours` needs."""
    with translated():
        _table(spark, path).vacuum(float(hours))


def _table(spark: SparkSession, path: Path) -> Any:
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return jvm.io.delta.tables.DeltaTable.forPath(spark._jsparkSession, str(path))  # noqa: SLF001


class _saying:  # noqa: N801
    """Metadata for the log entries of commands, which take no options."""

    def __init__(self, spark: SparkSession, said: str, sequence: int | None) -> None:
        self._spark = spark
        self._settings = {"spark.databricks.delta.commitInfo.userMetadata": said}
        if sequence is not None:
            self._settings |= {
                "spark.databricks.delta.write.txnAppId": _APPLICATION,
                "spark.databricks.delta.write.txnVersion": str(sequence),
            }

    def __enter__(self) -> None:
        for key, value in self._settings.items():
            self._spark.conf.set(key, value)

    def __exit__(self, *_: object) -> None:
        for key in self._settings:
            self._spark.conf.unset(key)


def _theirs(frame: DataFrame) -> DataFrame:
    """The frame with column names that Delta accepts; only unusual ones are changed."""
    return frame.withColumnsRenamed({name: _taken(name) for name in frame.columns if _taken(name) != name})


def _ours(frame: DataFrame) -> DataFrame:
    """The frame with the table's column names."""
    return frame.withColumnsRenamed({name: unquote(name) for name in frame.columns if "%" in name})


def _taken(name: str) -> str:
    escaped = "".join(f"%{ord(each):02X}" if each in _REFUSED or each == "%" else each for each in name)
    return f"%5F{escaped[1:]}" if name.casefold() in _TAKEN else escaped
