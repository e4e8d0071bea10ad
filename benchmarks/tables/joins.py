"""A stream joined to a table, of few rows or of many: `python -m benchmarks.tables.joins ROWS`.

Batches of 100,000 rows with 10,000 different keys, whatever the table's size: what a batch costs must follow
the batch. The condition needs the table's columns and leaves few rows, so that the join is what is measured.
Prints the figures as one line of JSON.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from pathlib import Path
from statistics import median

import velostream
from benchmarks.measure import timed
from benchmarks.tables.workload import batches, key

ROWS_PER_BATCH = 100_000
KEYS_PER_BATCH = 10_000
BATCHES = 8
_WARM_FROM = 3


def write_batch(path: Path, rows: int, rng: random.Random) -> None:
    """A file of the stream, which appears as a whole."""
    keys = [key(number) for number in rng.sample(range(rows), KEYS_PER_BATCH)]
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as out:
        out.write("txn,quantity\n")
        out.writelines(f"{keys[n % KEYS_PER_BATCH]},{rng.randrange(100)}\n" for n in range(ROWS_PER_BATCH))
    partial.replace(path)


def main() -> None:
    """Load the table, then let the batches come one by one."""
    rows, rng = int(sys.argv[1]), random.Random(7)
    runs: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as text, velostream.connect(f"{text}/data") as db:
        folder = Path(text) / "stream"
        folder.mkdir()
        db.sql(
            "CREATE TABLE accounts (txn STRING PRIMARY KEY, id BIGINT, account_id STRING,"
            " amount DECIMAL(18,2), status STRING, category STRING)"
        )
        for batch in batches(rows):
            db.table("accounts").insert(batch)
        write_batch(folder / "0.csv", rows, rng)
        db.sql(
            "CREATE TABLE joined AS SELECT s.txn, s.quantity * t.amount AS total "
            f"FROM file://{folder}/*.csv s JOIN accounts t ON s.txn = t.txn "
            "WHERE s.quantity * t.amount > 985000 "
            'WITH ("file.debounce" = "10ms")'
        )
        assert db.wait_idle(600)
        for number in range(1, BATCHES):
            write_batch(folder / f"{number}.csv", rows, rng)
            runs.append({})
            with timed(runs[-1], "batch"):
                assert db.wait_idle(600)
        job = next(job for job in db.jobs() if job.name == "joined")
        assert job.stats.rows_looked_up == BATCHES * KEYS_PER_BATCH, job
    warm = runs[_WARM_FROM:]
    print(json.dumps({"wall": median(r["batch"] for r in warm), "cpu": median(r["batch cpu"] for r in warm)}))


if __name__ == "__main__":
    main()
