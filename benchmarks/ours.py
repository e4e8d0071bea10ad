"""The same load as a Velostream table. Usage: ours.py FILE PRICE_TYPE"""

from __future__ import annotations

import json
import sys
import tempfile
import time

from benchmarks_path import here

here()
import velostream  # noqa: E402
from benchmarks.data import COLUMNS, query  # noqa: E402


def main() -> None:
    path, price = sys.argv[1:3]
    figures = {}
    with tempfile.TemporaryDirectory() as folder, velostream.connect(folder) as db:
        db.spark()
        db.sql(f"CREATE SOURCE trades ({COLUMNS.format(price=price)}) FROM file://{path}")
        for name in ("cold", "warm"):
            started = time.perf_counter()
            db.sql(f"CREATE TABLE {name} AS {query('trades')}")
            assert len(db.table(name)) == 10_000
            figures[name] = time.perf_counter() - started
    print(json.dumps(figures))


main()
