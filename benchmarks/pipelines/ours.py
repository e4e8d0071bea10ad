"""Velostream. Usage: python -m benchmarks.pipelines.ours BROKERS TOPIC QUERY ROWS"""

from __future__ import annotations

import json
import sys
import tempfile

import velostream
from benchmarks.measure import loads
from benchmarks.pipelines.workload import COLUMNS, QUERIES, symbols


def main() -> None:
    brokers, topic, name, rows = sys.argv[1:5]
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        db.sql(
            f'CREATE SOURCE trades ({COLUMNS}) FROM kafka://{brokers}/{topic} WITH ("changelog" = "append")'
        )
        db.create_table("symbols", [{"symbol": s, "sector": c} for s, c in symbols()], key="symbol")

        def load(number: int) -> None:
            table = f"load_{number}"
            db.sql(f"CREATE TABLE {table} AS {QUERIES[name].format(source='trades')}")
            assert db.wait_idle(600)
            if name != "filter":
                assert sum(db.table(table).column_values("trades")) == int(rows)
            db.sql(f"DROP TABLE {table}")

        print(json.dumps(loads(load)))


main()
