"""Velostream over a bucket: everything into a table, and one new object among many.

Usage: buckets ADDRESS load FORMAT ROWS | buckets ADDRESS notice OBJECTS NEW POLL, the address as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from statistics import median
from typing import TYPE_CHECKING, Any

import velostream
from benchmarks.connectors.objects import (
    BUCKET,
    COLUMNS,
    QUERY,
    Address,
    listing_seconds,
    put_one,
    summed_up,
)
from benchmarks.measure import loads, timed

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream import Database

_WAIT = 1_800.0


def said(address: Address, **more: str) -> str:
    """The properties of a statement; keys by reference, which are put into the environment."""
    os.environ["BENCH_KEY"], os.environ["BENCH_SECRET"] = address.key, address.secret
    given = {
        "endpoint": address.endpoint,
        "access.key.id": "${env:BENCH_KEY}",
        "secret.access.key": "${env:BENCH_SECRET}",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return ", ".join(f"\"{name}\" = '{value}'" for name, value in given.items())


def load(db: Database, address: Address, form: str, rows: str) -> dict[str, Any]:
    """A table of all objects of a format."""
    columns = "" if form == "parquet" else f" ({COLUMNS})"
    # Later tables are not disturbed by earlier ones that list again.
    more = said(address, poll_interval="1h")
    db.sql(f"CREATE SOURCE trades{columns} FROM s3://{BUCKET}/{form}/*.{form} WITH ({more})")

    def once(number: int) -> None:
        db.sql(f"CREATE TABLE load_{number} AS {QUERY}")
        while db.table(f"load_{number}").scalar("SUM(trades)") != int(rows):
            time.sleep(0.01)

    figures = loads(once)
    return {**figures, "result": summed_up(db.sql("SELECT * FROM load_4").arrow())}


def notice(db: Database, address: Address, objects: str, new: str, poll: str) -> dict[str, Any]:
    """The seconds from the put of one more object until its row can be read."""
    count = int(objects)
    figures: dict[str, Any] = {"bare listing": median(listing_seconds(address, count) for _ in range(3))}
    with timed(figures, "first load"):
        more = said(address, poll_interval=poll)
        db.sql(f"CREATE TABLE small AS SELECT id, name FROM s3://{BUCKET}/small/**/*.csv WITH ({more})")
        table = db.table("small")
        deadline = time.monotonic() + _WAIT
        while len(table) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(table) == count
    waits = []
    for number in range(count, count + int(new)):
        put_one(address, number)
        began = time.monotonic()
        while len(table) <= number:
            assert time.monotonic() < began + _WAIT
            time.sleep(0.002)
        waits.append(time.monotonic() - began)
    return {**figures, "median": median(waits), "longest": max(waits), "waits": waits}


FIGURES: dict[str, Callable[..., dict[str, Any]]] = {"load": load, "notice": notice}


def main() -> None:
    address, figure, rest = Address(**json.loads(sys.argv[1])), sys.argv[2], sys.argv[3:]
    with (
        tempfile.TemporaryDirectory(prefix="velostream-bench-", ignore_cleanup_errors=True) as folder,
        velostream.connect(folder) as db,
    ):
        db.spark()
        print(json.dumps(FIGURES[figure](db, address, *rest)))


if __name__ == "__main__":
    main()
