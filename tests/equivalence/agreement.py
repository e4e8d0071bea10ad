"""Tables with awkward values, and queries over them that both engines must answer alike."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

NAN = float("nan")
INF = float("inf")


def values() -> pa.Table:
    """Every scalar type with its edges, nulls included; `k` groups the rows, `n` numbers them."""
    columns = {
        "n": pa.array(range(12), pa.int32()),
        "k": pa.array(["a", "b", "a", None, "b", "c", "a", None, "é", "Z", "z", ""], pa.string()),
        "flag": pa.array([True, False, None] * 4, pa.bool_()),
        "tiny": pa.array([1, -128, 127, None, 0, 5, 6, 7, 8, 9, -3, 11], pa.int8()),
        "small": pa.array([1, -32768, 32767, None, 0, 5, 6, 7, 8, 9, -3, 11], pa.int16()),
        "i": pa.array([1, -2147483648, 2147483647, None, 0, 5, -7, 7, 8, 9, -3, 11], pa.int32()),
        "j": pa.array([10, -(2**63), 2**63 - 1, None, 0, 2**53 + 1, -7, 7, 8, 9, -3, 11], pa.int64()),
        "d": pa.array([1.5, -0.0, 0.0, None, NAN, INF, -INF, 1e308, 5e-324, NAN, 0.1, -2.5], pa.float64()),
        "f": pa.array([1.5, -0.0, 0.0, None, NAN, INF, -INF, 1e30, 1e-30, NAN, 0.1, -2.5], pa.float32()),
        "money": pa.array(
            [
                Decimal(text) if text is not None else None
                for text in (
                    *("1.00", "-1.00", "99999999999999.99", None, "0.00", "0.01"),
                    *("12345.67", "-0.01", "2.50", "3.33", "7.77", "100.10"),
                )
            ],
            pa.decimal128(18, 2),
        ),
        "fine": pa.array(
            [
                Decimal(text) if text is not None else None
                for text in (
                    *("1.0000", "0.0001", "-0.0001", None, "99999.9999", "-99999.9999"),
                    *("0.5000", "1.5000", "2.5000", "-0.5000", "-1.5000", "0.1235"),
                )
            ],
            pa.decimal128(9, 4),
        ),
        "huge": pa.array(
            [
                Decimal(text) if text is not None else None
                for text in (
                    *("1.0000000000", "-1.0000000000", "9999999999999999999999999999.9999999999", None),
                    *("0", "1e-10", "12.5", "-12.5", "3", "4", "5", "6"),
                )
            ],
            pa.decimal128(38, 10),
        ),
        "s": pa.array(
            [
                "apple",
                "Banana",
                "",
                None,
                " padded ",
                "100%",
                "a_b",
                "日本語",
                "straße",
                "🤦 face",
                "APPLE",
                "app",
            ],
            pa.string(),
        ),
        "word": pa.array(
            ["apple", "Banana", "", None, " padded ", "100%", "a_b", "x", "y", "zz", "APPLE", "app"],
            pa.string(),
        ),
        "day": pa.array(
            [
                *(date(2024, 1, 31), date(2024, 2, 29), date(1970, 1, 1), None, date(1969, 12, 31)),
                *(date(2023, 12, 31), date(2024, 12, 30), date(1900, 3, 1), date(2100, 2, 28)),
                *(date(2024, 1, 1), date(2024, 6, 15), date(2000, 2, 29)),
            ],
            pa.date32(),
        ),
        "at": pa.array(
            [
                datetime(2024, 1, 31, 23, 59, 59, 999999, tzinfo=UTC),
                datetime(2024, 2, 29, 12, 30, 15, tzinfo=UTC),
                datetime(1970, 1, 1, tzinfo=UTC),
                None,
                datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
                datetime(2023, 12, 31, 0, 0, 1, tzinfo=UTC),
                datetime(2024, 12, 30, 6, 7, 8, 90, tzinfo=UTC),
                datetime(1900, 3, 1, 1, 2, 3, tzinfo=UTC),
                datetime(2100, 2, 28, 23, 0, tzinfo=UTC),
                datetime(2024, 1, 1, tzinfo=UTC),
                datetime(2024, 6, 15, 10, 20, 30, 400000, tzinfo=UTC),
                datetime(2000, 2, 29, tzinfo=UTC),
            ],
            pa.timestamp("us", tz="UTC"),
        ),
        "MixedCase": pa.array(range(0, 24, 2), pa.int64()),
    }
    return pa.table(columns)


def labels() -> pa.Table:
    """A small table to join with; a key twice, a null key, and keys that are not in `values`."""
    return pa.table(
        {
            "k": pa.array(["a", "b", "b", None, "missing", "Z"], pa.string()),
            "label": pa.array(["first", "second", "third", "nothing", "lost", None], pa.string()),
            "rate": pa.array(
                [Decimal("0.10"), Decimal("0.25"), None, Decimal("1.00"), Decimal("2.00"), None]
            ),
            "x": pa.array([0.0, NAN, -0.0, 1.5, None, 2.0], pa.float64()),
            "j": pa.array([10, 7, 8, None, 9, 2**63 - 1], pa.int64()),
        }
    ).cast(
        pa.schema(
            [
                pa.field("k", pa.string()),
                pa.field("label", pa.string()),
                pa.field("rate", pa.decimal128(5, 2)),
                pa.field("x", pa.float64()),
                pa.field("j", pa.int64()),
            ]
        )
    )


def nested() -> pa.Table:
    """Types that only pass through."""
    return pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
            "point": pa.array(
                [{"x": 1, "y": "a"}, None, {"x": None, "y": None}],
                pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.string())]),
            ),
            "raw": pa.array([b"\x00\xff", b"", None], pa.binary()),
        }
    )


def lines(name: str) -> list[str]:
    """The queries of a file, one per line; a line that starts with -- is a comment."""
    text = (Path(__file__).parent.parent / "serving" / "agreement" / f"{name}.sql").read_text(
        encoding="utf-8"
    )
    return [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("--")]
