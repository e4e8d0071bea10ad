"""Commits in a loop until it is killed; every acknowledged commit is told on stdout.

Run as: crash_writer.py folder keyed|rows first-batch seed [step number]
Batch n upserts (or adds) rows whose values derive from n, so that a reader can tell what must be there.
Snapshots are written in the background all the time. With a step (see STEPS) the process kills itself when
a snapshot has come there for the given time; otherwise somebody else kills it.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from velostream.model.changes import Commit
from velostream.model.tables import TableSpec
from velostream.serving.durable import snapshots
from velostream.serving.durable import table_files as journal
from velostream.serving.durable.log import Log
from velostream.serving.table.store import TableStore

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


STEPS: dict[str, tuple[Any, str]] = {
    "file made": (snapshots, "encode"),
    "half written": (os, "fdatasync"),
    "written": (os, "fsync"),
    "renamed": (snapshots, "sync_folder"),
    "snapshots and log trimmed": (Log, "trim"),
    "old file removed": (Path, "unlink"),
}
"""Where a snapshot that is written in the background may be: the call before which the process dies."""


def die_at(step: str, number: int) -> None:
    owner, name = STEPS[step]
    original = getattr(owner, name)
    left = [number]

    def instead(*arguments: Any, **named: Any) -> Any:
        if threading.current_thread().name == "table-snapshot":
            left[0] -= 1
            if left[0] <= 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(owner, name, instead)


def main() -> None:
    folder, kind, first, seed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    rng = random.Random(seed)
    journal.SNAPSHOT_BYTES = 100_000
    snapshots.SYNC_BYTES = 1_000
    if len(sys.argv) > 5:
        die_at(sys.argv[5], int(sys.argv[6]))
    store = TableStore(folder)
    options = {"changes.keep.versions": "0", "changes.keep.bytes": "0"}
    spec = TableSpec(kind, SCHEMA, ("symbol",) if kind == "keyed" else (), options)
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
        if len(sys.argv) == 5 and rng.random() < 0.05:
            table.checkpoint()
        number += 1


if __name__ == "__main__":
    main()
