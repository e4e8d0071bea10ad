"""The rows and questions that every contender gets."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

STATUSES = ("active", "pending", "completed", "cancelled")
ACCOUNTS = 1000
BATCH = 100_000
"""Rows per record batch handed over when loading."""

SCHEMA = pa.schema(
    [
        ("txn", pa.string()),
        ("id", pa.int64()),
        ("account_id", pa.string()),
        ("amount", pa.decimal128(18, 2)),
        ("status", pa.string()),
        ("category", pa.string()),
    ]
)


def key(number: int) -> str:
    return f"txn_{number:08d}"


def transactions(ids: np.ndarray, *, shift: int = 0) -> pa.Table:
    """The rows with these ids; another `shift` gives the same keys other amounts and statuses."""
    # Cents are at most a million: the low half of a 128-bit decimal, the high half zero.
    halves = np.zeros(2 * len(ids), dtype=np.int64)
    halves[::2] = (137 * (ids + shift) + 50_000) % 1_000_000
    amount = pa.Array.from_buffers(pa.decimal128(18, 2), len(ids), [None, pa.py_buffer(halves)])
    columns = [
        _numbered("txn_", ids, 8),
        pa.array(ids),
        _numbered("ACC", ids % ACCOUNTS, 6),
        amount,
        pa.array(STATUSES).take(pa.array((ids + shift) % 4)),
        _numbered("CAT_", ids % 10, 1),
    ]
    return pa.table(columns, schema=SCHEMA)


def _numbered(prefix: str, numbers: np.ndarray, digits: int) -> pa.Array:
    text = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), digits, "0")
    return pc.binary_join_element_wise(prefix, text, "")


def batches(rows: int) -> list[pa.Table]:
    """All rows, as they arrive."""
    return [transactions(np.arange(first, min(first + BATCH, rows))) for first in range(0, rows, BATCH)]


def changed(rows: int, count: int, round_number: int) -> pa.Table:
    """`count` rows that exist, spread over the table, with other amounts and statuses."""
    step = max(1, rows // count)
    return transactions((np.arange(count) * step + round_number) % rows, shift=round_number + 1)


def scalar_questions(count: int = 1000) -> list[tuple[str, str]]:
    """Aggregates with an equality on a random constant."""
    rng = random.Random(1)
    kinds = ("COUNT(*)", "SUM(amount)", "MAX(amount)", "MIN(id)", "COUNT(category)")
    return [
        (rng.choice(kinds), f"account_id = 'ACC{number:06d}'")
        for number in rng.sample(range(ACCOUNTS), min(count, ACCOUNTS))
    ]


def column_questions(count: int = 1000) -> list[tuple[str, str]]:
    """A column of the rows of one account, about a hundred at 100,000 rows."""
    rng = random.Random(2)
    return [
        (rng.choice(("id", "amount", "status")), f"account_id = 'ACC{number:06d}'")
        for number in rng.sample(range(ACCOUNTS), min(count, ACCOUNTS))
    ]


def random_keys(rows: int, count: int, seed: int = 3) -> list[str]:
    """Keys that exist, as texts of their own: none is the object that a table holds."""
    rng = np.random.default_rng(seed)
    return [key(number) for number in rng.integers(0, rows, count).tolist()]
