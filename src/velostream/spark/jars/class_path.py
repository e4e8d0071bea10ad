"""Jars added to a running Spark: a session that does not use them loads nothing of them."""

from __future__ import annotations

from threading import RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from velostream.errors import InternalError
from velostream.spark.failures import translated
from velostream.spark.jars.maven import JAR_SETS, fetched
from velostream.spark.session import local_cores

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from velostream.spark.jars.maven import Jar

_lock = RLock()
_loaded: WeakKeyDictionary[SparkContext, set[str]] = WeakKeyDictionary()


def load_jars(spark: SparkSession, name: str) -> None:
    """Add a set of jars to the class path of all sessions of this Spark; downloaded the first time.

    Idempotent. Raises JavaError when the jars are not available.
    """
    load_pinned(spark, *JAR_SETS[name])


def load_pinned(spark: SparkSession, name: str, jars: Sequence[Jar]) -> None:
    """The same for jars that are in no set, under a display name that is also what they are known by."""
    context = spark.sparkContext
    with _lock:
        loaded = _loaded.setdefault(context, set())
        if name in loaded:
            return
        paths = fetched(jars, name, context.getConf().get("spark.jars.ivySettings"))
        with translated():
            add_jars(spark, paths)
        loaded.add(name)


def add_jars(spark: SparkSession, jars: Sequence[Path]) -> None:
    """ADD JAR on a cluster. In local mode driver and tasks would each load the same class separately."""
    if local_cores(str(spark.sparkContext.master)) is None:
        for jar in jars:
            spark.sql(f"ADD JAR '{jar}'")
        return
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    while loader is not None and loader.getClass().getName() != "org.apache.spark.util.MutableURLClassLoader":
        loader = loader.getParent()
    if loader is None:
        raise InternalError("no class loader of Spark's takes jars")
    for jar in jars:
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
