"""The storages outside memory; a new one is added here.

Its traits are declared in `model/table_storage.py`, so that planning opens nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from velostream.engine.delta.storage import DeltaStorage
from velostream.model.table_storage import STORAGES
from velostream.spark.delta import DeltaEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from pyspark.sql import SparkSession

    from velostream.engine.on_spark import SparkStorage
    from velostream.serving.sql.questions import Questions


def spark_storages(
    spark: Callable[[], SparkSession],
    conf: Mapping[str, str],
    questions: Questions,
    clock: Callable[[], datetime],
) -> dict[str, SparkStorage]:
    """The storages by name; Spark is loaded when the first of their tables is read or written."""
    delta = DeltaStorage(STORAGES["delta"], DeltaEngine(spark, conf), questions, clock)
    return {delta.traits.name: delta}
