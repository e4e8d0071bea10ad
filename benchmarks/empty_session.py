"""An empty PySpark session: how long until it is up. Prints the moment."""

from __future__ import annotations

import json
import time

from pyspark.sql import SparkSession

SparkSession.builder.master("local[*]").config("spark.ui.enabled", "false").getOrCreate()
print(json.dumps({"up_at": time.time()}))
