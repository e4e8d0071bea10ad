"""The same load as a Velostream table. Usage: python -m benchmarks.ours FILE PRICE_TYPE"""

from __future__ import annotations

import json
import sys
import tempfile

import velostream
from benchmarks.data import COLUMNS, query
from benchmarks.measure import timed


def main() -> None:
    path, price = sys.argv[1:3]
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        db.sql(f"CREATE SOURCE trades ({COLUMNS.format(price=price)}) FROM file://{path}")
        for name in ("cold", "warm"):
            with timed(figures, name):
                db.sql(f"CREATE TABLE {name} AS {query('trades')}")
                assert len(db.table(name)) == 10_000
    print(json.dumps(figures))


main()
