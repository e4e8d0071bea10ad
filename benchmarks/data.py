"""The data: trades as in the seed documents, the same for the same seed."""

from __future__ import annotations

import csv
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "trade_id STRING, user_id STRING, symbol STRING, quantity BIGINT, price {price}, ts TIMESTAMP"


def write_trades(path: Path, rows: int, seed: int = 7) -> None:
    """A CSV of trades with a header; 10,000 users."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        file.write("trade_id,user_id,symbol,quantity,price,ts\n")
        for number in range(rows):
            price = rng.randrange(100, 100_000)
            file.write(
                f"T{number:08d},U{rng.randrange(10_000)},SYM{rng.randrange(100)},{rng.randrange(1, 1000)},"
                f"{price // 100}.{price % 100:02d},2026-01-01T00:{number // 60 % 60:02d}:{number % 60:02d}Z\n"
            )


def write_objects(trades: Path, path: Path) -> None:
    """The same trades, one JSON object per line."""
    with trades.open(encoding="utf-8", newline="") as rows, path.open("w", encoding="utf-8") as file:
        for row in csv.DictReader(rows):
            numbers = f'"quantity":{row["quantity"]},"price":{row["price"]}'
            texts = ",".join(f'"{name}":"{row[name]}"' for name in ("trade_id", "user_id", "symbol", "ts"))
            file.write(f"{{{texts},{numbers}}}\n")


def query(source: str) -> str:
    """The aggregate that both sides compute."""
    return (
        "SELECT user_id, COUNT(*) AS trades, SUM(quantity) AS quantity, SUM(price) AS total, "
        "AVG(price) AS average "
        f"FROM {source} GROUP BY user_id"
    )
