"""Commits in a loop until it is killed; every acknowledged commit is told on stdout.

Run as: crash_writer.py folder keyed|rows first-batch seed
Batch n upserts (or adds) rows whose values derive from n, so that a reader can tell what must be there.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from velostream.model.changes import Commit
from velostream.model.tables import TableSpec
from velostream.serving.store import TableStore

SCHEMA = pa.schema(
    [
        pa.field("symbol", pa.string()),
        pa.field("price", pa.decimal128(18, 2)),
        pa.field("volume", pa.int64()),
    ]
)


def batch_rows(number: int) -> pa.Table:
    rows = [
        {"symbol": f"k{(number * 3 + each) % 40}", "price": Decimal(f"{number}.{each:02d}"), "volume": number}
        for each in range(5)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def commit(number: int) -> Commit:
    return Commit("job", number, {"trades": {"0": number}}, datetime(2024, 5, 1, tzinfo=UTC))


def main() -> None:
    folder, kind, first, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    store = TableStore(folder)
    spec = TableSpec(kind, SCHEMA, ("symbol",) if kind == "keyed" else ())
    table = store.open(kind) if kind in store.names() else store.create(spec)
    number = first
    while True:
        if kind == "keyed":
            table.commit_keyed(batch_rows(number), None, commit(number))
        elif number % 3 == 0:
            table.commit_rows(batch_rows(number - 1), pa.array([-1] * 5), commit(number))
        else:
            table.commit_rows(batch_rows(number), None, commit(number))
        print(number, flush=True)
        if rng.random() < 0.05:
            table.checkpoint()
        number += 1


if __name__ == "__main__":
    main()
