"""PyFlink's SQL, in a virtual environment of its own.

Usage: python -m benchmarks.pipelines.flink BROKERS TOPIC QUERY EXPECTED LOADS JAR [verify]

With `verify` the result is counted once after the measured loads, whose own results go nowhere.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyflink.table import EnvironmentSettings, TableEnvironment

from benchmarks.pipelines.loads import loads
from benchmarks.pipelines.windows import CHECKED, FLINK, LATENESS
from benchmarks.pipelines.workload import QUERIES

COLUMNS = """trade_id STRING, user_id STRING, symbol STRING, quantity BIGINT, price DECIMAL(18,2),
  ts TIMESTAMP_LTZ(6)"""
TIMED = COLUMNS.replace("(6)", "(3)") + f", WATERMARK FOR ts AS ts - INTERVAL '{LATENESS}' SECOND"
"""For windows, which take no more than milliseconds."""
SINKS = {
    "tumbling": """symbol STRING, window_start TIMESTAMP(3), trades BIGINT, quantity BIGINT,
      turnover DECIMAL(38,2)""",
    "filter": "trade_id STRING, user_id STRING, price DECIMAL(18,2)",
    "group": """user_id STRING, trades BIGINT, quantity BIGINT, turnover DECIMAL(38,2),
      PRIMARY KEY (user_id) NOT ENFORCED""",
}
SETTINGS = {
    "parallelism.default": "2",
    "table.local-time-zone": "UTC",
    # As its manual advises for groups: updates are collected, and summed up before they are shuffled.
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "1 s",
    "table.exec.mini-batch.size": "20000",
}


def main() -> None:
    brokers, topic, name, expected, count, jar = sys.argv[1:7]
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in (SETTINGS | {"pipeline.jars": f"file://{jar}"}).items():
        environment.get_config().set(key, value)
    source, columns = ("ticks", TIMED) if name in FLINK else ("trades", COLUMNS)
    environment.execute_sql(
        f"""CREATE TABLE {source} ({columns}) WITH ('connector' = 'kafka', 'topic' = '{topic}',
          'properties.bootstrap.servers' = '{brokers}', 'scan.startup.mode' = 'earliest-offset',
          'scan.bounded.mode' = 'latest-offset', 'format' = 'json',
          'json.timestamp-format.standard' = 'ISO-8601')"""
    )
    environment.execute_sql(f"CREATE TABLE taken ({SINKS[name]}) WITH ('connector' = 'blackhole')")
    query = FLINK[name] if name in FLINK else QUERIES[name].format(source=source)

    def load(number: int) -> None:
        environment.execute_sql(f"INSERT INTO taken {query}").wait()

    figures = loads(load, int(count))
    if sys.argv[7:] == ["verify"]:
        found = _last(environment, f"SELECT {_SUMMED[name]} FROM ({query})")
        assert found == int(expected), f"{found} instead of {expected}"
    print(json.dumps(figures))


_SUMMED = {"filter": "COUNT(*)", "group": "SUM(trades)", "tumbling": f"SUM(trades) FILTER (WHERE {CHECKED})"}


def _last(environment: Any, question: str) -> int:
    """The answer when the topic has ended: the last that a stream of answers gives."""
    with environment.execute_sql(question).collect() as answers:
        found = 0
        for answer in answers:
            found = answer[0]
        return int(found)


main()
