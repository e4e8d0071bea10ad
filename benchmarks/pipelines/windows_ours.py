"""Velostream's windows.

Usage: python -m benchmarks.pipelines.windows_ours BROKERS TOPIC WINDOW EXPECTED LOADS BATCH

EXPECTED are the trades in all windows, BATCH the most records of a micro-batch.
"""

from __future__ import annotations

import json
import sys
import tempfile
from typing import TYPE_CHECKING

import velostream
from benchmarks.pipelines.loads import loads
from benchmarks.pipelines.windows import CHECKED, LATENESS, OURS
from benchmarks.pipelines.workload import COLUMNS

if TYPE_CHECKING:
    from velostream import Database


def declare(db: Database, brokers: str, topic: str, batch: str) -> None:
    """The source, under the name that the queries have for it."""
    db.sql(
        f"""CREATE SOURCE ticks ({COLUMNS}, WATERMARK FOR ts AS ts - INTERVAL '{LATENESS}' SECOND)
          FROM kafka://{brokers}/{topic} WITH ("changelog" = "append", "max.rows.per.batch" = "{batch}")"""
    )


def load(db: Database, name: str, expected: int, table: str, properties: str = "") -> None:
    """All of the topic into a table, which is looked at and dropped."""
    db.sql(f"CREATE TABLE {table} AS {OURS[name]}{properties}")
    assert db.wait_idle(600)
    what = "COUNT(*)" if name == "rows" else "SUM(trades)"
    found = db.sql(f"SELECT {what} FROM {table} WHERE {CHECKED}").scalar()
    assert found == expected, f"{found} instead of {expected}"
    db.sql(f"DROP TABLE {table}")


def main() -> None:
    brokers, topic, name, expected, count, batch = sys.argv[1:7]
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        declare(db, brokers, topic, batch)
        figures = loads(lambda number: load(db, name, int(expected), f"load_{number}"), int(count))
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
