"""The rows that both contenders yield: Arrow batches, made from the numbers of their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterator

BATCH = 10_000
COLUMNS = pa.schema(
    [("id", pa.int64()), ("symbol", pa.string()), ("price", pa.float64()), ("quantity", pa.int64())]
)
DDL = "id BIGINT, symbol STRING, price DOUBLE, quantity BIGINT"
WANTED = 7
QUERY = "SELECT id, symbol, price * quantity AS amount FROM {rows} WHERE quantity = " + str(WANTED)
"""Stateless; every row is looked at and one in a hundred passes, so that reading is what is measured."""

_SYMBOLS = pa.array([f"SYM{number % 50:02d}" for number in range(BATCH)])
_PRICES = pa.array(np.arange(BATCH) / 8)
_QUANTITIES = pa.array(np.arange(BATCH) % 100)


def batches(first: int, last: int) -> Iterator[pa.RecordBatch]:
    """The rows with these numbers: only the ids are made anew, as what is to be measured is the reading."""
    for at in range(first, last, BATCH):
        count = min(BATCH, last - at)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(np.arange(at, at + count)),
                _SYMBOLS.slice(0, count),
                _PRICES.slice(0, count),
                _QUANTITIES.slice(0, count),
            ],
            schema=COLUMNS,
        )


def kept(rows: int) -> int:
    """How many of the first rows pass the query."""
    return rows // BATCH * (BATCH // 100)
