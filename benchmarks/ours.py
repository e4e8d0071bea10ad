"""The same load as a Velostream table. Usage: python -m benchmarks.ours FILE PRICE_TYPE"""

from __future__ import annotations

import json
import sys
import tempfile

import velostream
from benchmarks.data import COLUMNS, query
from benchmarks.measure import loads


def main() -> None:
    path, price = sys.argv[1:3]
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        db.sql(f"CREATE SOURCE trades ({COLUMNS.format(price=price)}) FROM file://{path}")

        def load(number: int) -> None:
            db.sql(f"CREATE TABLE load_{number} AS {query('trades')}")
            assert len(db.table(f"load_{number}")) == 10_000

        print(json.dumps(loads(load)))


main()
