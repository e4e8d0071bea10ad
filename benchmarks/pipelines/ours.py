"""Velostream. Usage: python -m benchmarks.pipelines.ours BROKERS TOPIC QUERY EXPECTED LOADS [STRATEGY]

EXPECTED are the rows of the filter's result, or the trades in all groups.
"""

from __future__ import annotations

import json
import sys
import tempfile

import velostream
from benchmarks.pipelines.loads import loads
from benchmarks.pipelines.workload import COLUMNS, QUERIES, symbols


def main() -> None:
    brokers, topic, name, expected, count = sys.argv[1:6]
    spread = f' WITH ("partition.strategy" = "{sys.argv[6]}")' if len(sys.argv) > 6 else ""
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        db.sql(
            f'CREATE SOURCE trades ({COLUMNS}) FROM kafka://{brokers}/{topic} WITH ("changelog" = "append")'
        )
        db.create_table("symbols", [{"symbol": s, "sector": c} for s, c in symbols()], key="symbol")

        def load(number: int) -> None:
            table = f"load_{number}"
            db.sql(f"CREATE TABLE {table} AS {QUERIES[name].format(source='trades')}{spread}")
            assert db.wait_idle(600)
            what = "COUNT(*)" if name == "filter" else "SUM(trades)"
            found = db.sql(f"SELECT {what} FROM {table}").scalar()
            assert found == int(expected), f"{found} instead of {expected}"
            db.sql(f"DROP TABLE {table}")

        print(json.dumps(loads(load, int(count))))


main()
