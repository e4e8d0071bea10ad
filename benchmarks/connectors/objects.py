"""The objects that are read: trades in a bucket of a real store on the loopback, and small ones."""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from benchmarks.data import query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

BUCKET = "shop"
COLUMNS = "trade_id STRING, user_id STRING, symbol STRING, quantity BIGINT, price DECIMAL(18,2), ts TIMESTAMP"
QUERY = query("trades")
"""Its result has every row of every object in it, so that equal results tell equal rows."""
FORMATS = ("csv", "jsonl", "parquet")
_ROW_BYTES = {"csv": 58, "jsonl": 117, "parquet": 19}
"""About how many bytes a row takes, to make objects of a wanted size."""
_NAMES = [column.split()[0] for column in COLUMNS.split(", ")]
_TIMES = [f"2026-01-01T00:{minute:02d}:{second:02d}Z" for minute in range(60) for second in range(60)]
_WRITERS = 8
_PER_FOLDER = 1_000


@dataclass(frozen=True)
class Address:
    """A store and who asks, as both contenders get it."""

    endpoint: str
    key: str
    secret: str

    def store(self) -> fs.S3FileSystem:
        """A client that writes a small object with one request."""
        return fs.S3FileSystem(
            access_key=self.key,
            secret_key=self.secret,
            endpoint_override=self.endpoint.partition("://")[2],
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
            allow_delayed_open=True,
        )


@contextmanager
def running(folder: Path) -> Iterator[Address]:
    """The object store of the tests, which `scripts/objectstore` builds."""
    servers: Any = importlib.import_module("tests.object_store")

    class Store(servers.S3):  # type: ignore[misc]
        def command(self, found: Path) -> Sequence[str]:
            # The tests keep what the store says of objects beside them; listings are faster with attributes.
            line = super().command(found)
            place = line.index("--sidecar")
            return [*line[:place], *line[place + 2 :]] if _has_attributes(folder) else line

    with servers.running(folder, Store) as server:
        address = Address(server.endpoint, servers.KEY, servers.SECRET)
        address.store().create_dir(BUCKET)
        yield address


def _has_attributes(folder: Path) -> bool:
    try:
        os.setxattr(folder, "user.velostream", b"")
    except OSError:
        return False
    return True


def put_trades(address: Address, form: str, objects: int, size: int) -> dict[str, float]:
    """Objects of about this many bytes, under a prefix that is named after the format."""
    rows = size // _ROW_BYTES[form]
    keys = [f"{form}/{number:05d}.{form}" for number in range(objects)]
    total = _put(address, keys, lambda number: _content(number, rows, form))
    return {"objects": objects, "bytes": total, "rows": objects * rows}


def small_key(number: int) -> str:
    """Where a small object is: a thousand to a folder, as of days or hours."""
    return f"small/{number // _PER_FOLDER:04d}/{number:06d}.csv"


def small_content(number: int) -> bytes:
    """One row."""
    return b"id,name\n%d,name of %d\n" % (number, number)


def put_small(address: Address, objects: int) -> None:
    """Many objects of a row each."""
    _put(address, [small_key(number) for number in range(objects)], small_content)


def _put(address: Address, keys: Sequence[str], content: Callable[[int], bytes]) -> int:
    store = address.store()

    def put(number: int) -> int:
        data = content(number)
        with store.open_output_stream(f"{BUCKET}/{keys[number]}", compression=None) as out:
            out.write(data)
        return len(data)

    with ThreadPoolExecutor(_WRITERS) as pool:
        return sum(pool.map(put, range(len(keys))))


def _content(number: int, rows: int, form: str) -> bytes:
    """The trades of an object: other ones in each, the same for the same number."""
    rng = np.random.default_rng(number)
    names = [f"T{n:09d}" for n in range(number * rows, (number + 1) * rows)]
    users = [f"U{n}" for n in rng.integers(0, 10_000, rows).tolist()]
    symbols = [f"SYM{n}" for n in rng.integers(0, 100, rows).tolist()]
    quantities = rng.integers(1, 1_000, rows).tolist()
    prices = [f"{n // 100}.{n % 100:02d}" for n in rng.integers(100, 100_000, rows).tolist()]
    times = [_TIMES[n % len(_TIMES)] for n in range(rows)]
    if form == "parquet":
        return _parquet(dict(zip(_NAMES, (names, users, symbols, quantities, prices, times), strict=True)))
    each = zip(names, users, symbols, quantities, prices, times, strict=True)
    if form == "csv":
        lines = [",".join(_NAMES), *(f"{n},{u},{s},{q},{p},{t}" for n, u, s, q, p, t in each)]
    else:
        lines = [
            f'{{"trade_id":"{n}","user_id":"{u}","symbol":"{s}","quantity":{q},"price":{p},"ts":"{t}"}}'
            for n, u, s, q, p, t in each
        ]
    return ("\n".join(lines) + "\n").encode()


def _parquet(columns: dict[str, list[Any]]) -> bytes:
    typed = {name: pa.array(values) for name, values in columns.items()}
    typed["price"] = typed["price"].cast(pa.decimal128(18, 2))
    typed["ts"] = typed["ts"].cast(pa.timestamp("us", "UTC"))
    out = io.BytesIO()
    pq.write_table(pa.table(typed), out)
    return out.getvalue()


def put_one(address: Address, number: int) -> None:
    """One more small object."""
    with address.store().open_output_stream(f"{BUCKET}/{small_key(number)}", compression=None) as out:
        out.write(small_content(number))


def listing_seconds(address: Address, objects: int) -> float:
    """How long it takes to list the small objects, by Arrow alone."""
    store, began = address.store(), time.perf_counter()
    found = store.get_file_info(fs.FileSelector(f"{BUCKET}/small", recursive=True))
    seconds = time.perf_counter() - began
    assert sum(info.type == fs.FileType.File for info in found) >= objects
    return seconds


def summed_up(result: pa.Table) -> str:
    """A digest of a result's columns and values, whatever the order of its rows."""
    rows = sorted(zip(*(map(str, column.to_pylist()) for column in result.columns), strict=True))
    return hashlib.sha256(repr((result.column_names, rows)).encode()).hexdigest()
