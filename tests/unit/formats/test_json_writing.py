"""JSON written column by column is what is written row by row."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from velostream.formats.json.text import json_value
from velostream.formats.json.writer import json_bytes, json_lines

if TYPE_CHECKING:
    import random

TEXTS = ("AAPL", "", 'a "quote"', "back\\slash", "line\nend", "tab\t", "Ü€😀", "\x7f", "\x00", None)
START = datetime(1, 1, 1)


def column(kind: pa.DataType, rng: random.Random, count: int) -> pa.Array:
    makers = {
        pa.int64(): lambda: rng.choice([0, -1, 2**63 - 1, -(2**63), None]),
        pa.string(): lambda: rng.choice(TEXTS),
        pa.large_string(): lambda: rng.choice(TEXTS),
        pa.bool_(): lambda: rng.choice([True, False, None]),
        pa.float64(): lambda: rng.choice([0.1, 1.0, 1e300, float("nan"), float("inf"), None]),
        pa.decimal128(18, 2): lambda: rng.choice([Decimal(rng.randint(-(10**17), 10**17)).scaleb(-2), None]),
        pa.decimal128(38, 12): lambda: rng.choice(
            [Decimal(rng.randint(-9, 9)).scaleb(-12), Decimal(5), None]
        ),
        pa.date32(): lambda: rng.choice([date(1, 1, 1), date(9999, 12, 31), date(2026, 2, 3), None]),
        pa.timestamp("us", "UTC"): lambda: (
            START + timedelta(microseconds=rng.randrange(3 * 10**17))
        ).replace(tzinfo=UTC),
        pa.timestamp("us"): lambda: START + timedelta(seconds=rng.randrange(3 * 10**11)),
        pa.binary(): lambda: rng.choice([b"", b"\xff\x00", None]),
        pa.list_(pa.int64()): lambda: rng.choice([[], [1, None], None]),
        pa.struct([("a", pa.string())]): lambda: rng.choice([{"a": 'x"'}, None]),
    }
    return pa.array([makers[kind]() for _ in range(count)], kind)


@pytest.mark.parametrize("as_text", [False, True])
def test_columns_and_rows_agree(rng: random.Random, as_text: bool) -> None:
    kinds = [
        pa.int64(),
        pa.string(),
        pa.large_string(),
        pa.bool_(),
        pa.float64(),
        pa.decimal128(18, 2),
        pa.decimal128(38, 12),
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.binary(),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.string())]),
    ]
    rows = pa.table([column(kind, rng, 300) for kind in kinds], [f'c"{n}' for n in range(len(kinds))])
    for part in (
        rows,
        rows.slice(7, 100),
        pa.concat_tables([rows.slice(250), rows.slice(0, 3)]),
        rows.slice(0, 0),
    ):
        lines = [json_value(row, as_text) for row in part.to_pylist()]
        assert list(json_lines(part, as_text)) == lines
        assert list(json_bytes(part, as_text)) == [line.encode() for line in lines]
