"""Velostream over a database: loads, changes, their latency, an idle job, and a sink."""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from benchmarks.databases.servers import KINDS
from benchmarks.measure import loads, percentile, processor_seconds, timed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from velostream import Database

_POLL = 0.002


@contextmanager
def database() -> Iterator[Database]:
    import velostream

    with (
        TemporaryDirectory(prefix="velostream-bench-", ignore_cleanup_errors=True) as folder,
        velostream.connect(Path(folder) / "data") as db,
    ):
        yield db


def await_(condition: Callable[[], bool], seconds: float = 600.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not become true")
        time.sleep(_POLL)


def load(uri: str, rows: int, readers: int) -> dict[str, float]:
    """A table of everything that is there."""
    with database() as db:

        def once(number: int) -> None:
            db.sql(f'CREATE TABLE t{number} AS SELECT * FROM {uri} WITH ("parallel.readers" = "{readers}")')
            assert len(db.table(f"t{number}")) == rows

        return loads(once)


def changes(kind: str, server: list[str], count: int) -> dict[str, float]:
    """A backlog of changes, into a table that had stopped."""
    orders = KINDS[kind](*server)
    found: dict[str, float] = {}
    with database() as db:
        db.sql(f'CREATE TABLE orders AS SELECT * FROM {orders.uri}?table=orders WITH ("cdc" = "true")')
        table = db.table("orders")
        for name in ("cold", "warm"):
            db.sql(f"PAUSE JOB {db.jobs()[0].id}")
            orders.change(count)
            expected = orders.checksum()
            with timed(found, name):
                db.sql(f"RESUME JOB {db.jobs()[0].id}")
                await_(lambda: (len(table), str(table.scalar("SUM(amount)"))) == expected)  # noqa: B023
    return found


def latency(kind: str, server: list[str], rate: int, seconds: int) -> dict[str, float]:
    """From the commit of a change until it can be read, while many are made."""
    orders = KINDS[kind](*server)
    with database() as db:
        db.sql(f'CREATE TABLE orders AS SELECT * FROM {orders.uri}?table=orders WITH ("cdc" = "true")')
        table = db.table("orders")
        stop = threading.Event()
        marks: dict[int, float] = {}
        writer = threading.Thread(target=orders.steadily, args=(rate, stop, marks), daemon=True)
        writer.start()
        waits: list[float] = []
        least = table.scalar("MIN(id)")
        began, seen = time.monotonic(), 0
        while (now := time.monotonic()) < began + seconds:
            row: Any = table.get(least)
            number = int(row.customer)
            if number != seen:
                seen = number
                # The first third is for Java to compile.
                if now - began > seconds / 3 and number in marks:
                    waits.append(time.monotonic() - marks[number])
            time.sleep(_POLL)
        stop.set()
        writer.join()
    return {
        "p50": percentile(waits, 0.5),
        "p99": percentile(waits, 0.99),
        "changes": len(waits),
        "made": float(len(marks)),
    }


def idle(uri: str, seconds: int) -> dict[str, float]:
    """The share of a core that a table takes which follows a database where nothing happens."""
    with database() as db:
        db.sql(f'CREATE TABLE orders AS SELECT * FROM {uri} WITH ("cdc" = "true")')
        time.sleep(seconds / 2)
        began, cpu = time.monotonic(), processor_seconds()
        time.sleep(seconds)
        with_job = (processor_seconds() - cpu) / (time.monotonic() - began)
        db.sql(f"PAUSE JOB {db.jobs()[0].id}")
        time.sleep(seconds / 2)
        began, cpu = time.monotonic(), processor_seconds()
        time.sleep(seconds)
        without = (processor_seconds() - cpu) / (time.monotonic() - began)
    return {"with the job": with_job, "without": without, "job": with_job - without}


def sink(uri: str, rows: int) -> dict[str, float]:
    """Rows of a table into a table of the database."""
    import pyarrow as pa

    data = pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "name": pa.array([f"customer {n}" for n in range(rows)]),
            "amount": pa.array(range(rows), pa.int64()).cast(pa.decimal128(21, 0)).cast(pa.decimal128(15, 2)),
        }
    )
    with database() as db:
        db.create_table("given", data, key="id")

        def once(number: int) -> None:
            answer = db.sql(
                f'INSERT INTO {uri}_{number} SELECT * FROM given WITH ("table.create.if.missing" = "true")'
            )
            assert answer is not None

        return loads(once)


def main() -> None:
    """`python -m benchmarks.databases.ours figure arguments`, the arguments as JSON."""
    figure, arguments = sys.argv[1], json.loads(sys.argv[2])
    figures = {"load": load, "changes": changes, "latency": latency, "idle": idle, "sink": sink}
    print(json.dumps(figures[figure](**arguments)))


if __name__ == "__main__":
    main()
