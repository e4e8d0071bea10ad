"""Rows that the serving tests share."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa

from velostream.model.changes import Commit

TRADES = pa.schema(
    [
        pa.field("symbol", pa.string()),
        pa.field("price", pa.decimal128(18, 2)),
        pa.field("volume", pa.int64()),
    ]
)


def commit(batch: int, checkpoint: str = "job") -> Commit:
    at = datetime(2024, 5, 1, 12, 0, 0, batch, tzinfo=UTC)
    return Commit(checkpoint, batch, {"trades": {"0": batch}}, at)


def trades(*rows: tuple[str | None, str | None, int | None]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    prices = pa.array(columns[1], pa.string()).cast(TRADES.field("price").type)
    return pa.table(
        [pa.array(columns[0], pa.string()), prices, pa.array(columns[2], pa.int64())], schema=TRADES
    )
