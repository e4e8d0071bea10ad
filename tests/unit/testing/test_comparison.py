"""What a case expects beside what is there."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.testing import cases as model
from velostream.testing import parse_cases
from velostream.testing.cells import moment, split_cells, text_of, value_of
from velostream.testing.comparison import letters_differ, rows_differ

SCHEMA = pa.schema([("who", pa.string()), ("total", pa.decimal128(10, 2)), ("x", pa.float64())])
ACTUAL = pa.table(
    {
        "who": ["ann", "bob", "bob", None],
        "total": pa.array([Decimal("12.50"), Decimal(7), Decimal(7), None], pa.decimal128(10, 2)),
        "x": [0.1 + 0.2, 1.0, 1.0, float("nan")],
    },
    SCHEMA,
)


def rows(text: str) -> model.Rows:
    (case,) = parse_cases("case c\nexpect t\n" + text, "c.velotest").cases
    (step,) = case.steps
    assert isinstance(step, model.ExpectRows)
    assert step.rows is not None
    return step.rows


def test_order_does_not_matter_and_equal_rows_count():
    expected = rows(
        "  who | total | x\n  null | null | NaN\n  bob | 7 | 1\n  ann | 12.5 | 0.3\n  bob | 7.00 | 1.0\n"
    )
    assert rows_differ(expected, ACTUAL, "t") is None
    once = rows("  who | total | x\n  null | null | NaN\n  bob | 7 | 1\n  ann | 12.5 | 0.3\n")
    assert rows_differ(once, ACTUAL, "t") is not None


def test_only_the_columns_that_are_named_are_compared():
    assert rows_differ(rows("  who\n  ann\n  bob\n  bob\n  null\n"), ACTUAL, "t") is None
    assert rows_differ(rows("  total\n  12.50\n  7.00\n  7.00\n  null\n"), ACTUAL, "t") is None


def test_a_difference_stands_beside_what_was_expected():
    expected = rows("  who | total\n  ann | 12.50\n  bob | 8.00\n  bob | 7.00\n  eve | 1.00\n  zoe | 2.00\n")
    actual = ACTUAL.slice(0, 3)
    assert rows_differ(expected, actual, "t") == (
        "    expected       actual\n"
        "    who | total    who | total\n"
        "    ann | 12.50    ann | 12.50\n"
        "    bob |  7.00    bob |  7.00\n"
        "  ! bob |  8.00    bob |  7.00\n"
        "  < eve |  1.00        (missing)\n"
        "  < zoe |  2.00        (missing)"
    )


def test_rows_that_nobody_expected():
    assert rows_differ(None, ACTUAL.slice(0, 1).select(["who"]), "t") == (
        "    expected    actual\n    who         who\n  >             ann    (not expected)"
    )


def test_changes_have_a_sign():
    actual = pa.table({"who": ["ann", "bob"], "_weight": pa.array([-1, 2], pa.int64())})
    assert rows_differ(rows("    who\n  - ann\n  + bob\n  bob\n"), actual, "t", signed=True) is None
    assert rows_differ(rows("    who\n  + ann\n  + bob\n  + bob\n"), actual, "t", signed=True) == (
        "    expected    actual\n"
        "      who         who\n"
        "    + bob       + bob\n"
        "    + bob       + bob\n"
        "  ! + ann       - ann"
    )


def test_an_unknown_column_and_a_cell_that_is_no_value():
    with refusal("case", "whoo") as raised:
        rows_differ(rows("  whoo\n  ann\n"), ACTUAL, "t")
    assert raised.value.hint == 'did you mean "who"?'
    with refusal("case", "total", "much", at="much"):
        rows_differ(rows("  total\n  much\n"), ACTUAL, "t")


def test_dead_letters_are_described_one_by_one():
    letters = [
        {"reason": "divide by zero", "job": "a", "raw": b"1 | 0"},
        {"reason": "divide by zero or so", "job": "b", "raw": b"2"},
    ]
    both = rows("  reason | job\n  zero | b\n  zero | a\n")
    assert letters_differ(both, letters) is None
    assert letters_differ(rows("  reason\n  zero\n  or so\n"), letters) is None
    assert letters_differ(rows("  reason\n  or so\n  zero\n"), letters) is None
    assert letters_differ(rows("  reason\n  zero\n"), letters) is not None
    told = letters_differ(rows("  reason | raw\n  zero | 2\n  late | 3\n"), letters)
    assert told is not None
    assert "expected, but there is none:  late | 3" in told
    assert "there, but not expected:      divide by zero  (job a, row: 1 | 0)" in told


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", pa.int32(), 1),
        ("-0.10", pa.decimal128(38, 10), Decimal("-0.1000000000")),
        ("9" * 28 + ".5", pa.decimal128(38, 1), Decimal("9" * 28 + ".5")),
        ("12:00", pa.timestamp("us", tz="UTC"), datetime(2026, 1, 1, 12, tzinfo=UTC)),
        ("12:00:00.5", pa.timestamp("us", tz="UTC"), datetime(2026, 1, 1, 12, 0, 0, 500_000, tzinfo=UTC)),
        (
            "2026-02-01 00:30:00+01:00",
            pa.timestamp("us", tz="UTC"),
            datetime(2026, 1, 31, 23, 30, tzinfo=UTC),
        ),
        ("12:00", pa.timestamp("us"), datetime(2026, 1, 1, 12)),
        ("12:00", pa.string(), "12:00"),
        ("[1, null]", pa.list_(pa.int64()), [1, None]),
        ('{"x": 0.10}', pa.struct([("x", pa.decimal128(5, 2))]), {"x": Decimal("0.1")}),
    ],
)
def test_cells_are_values_of_their_column(text: str, kind: pa.DataType, value: Any):
    assert value_of(text, kind) == value


@pytest.mark.parametrize("value", ["", " a", "null", "a|b", "it's", "- x", "+ y", "plain", "-x", "-1", "a'b"])
def test_texts_are_written_as_a_case_reads_them(value: str):
    assert split_cells(text_of(value)) == (value,)


def test_times_are_written_short():
    assert text_of(moment("12:00:05")) == "12:00:05"
    assert text_of(moment("2026-01-02 00:00:00.000001")) == "2026-01-02 00:00:00.000001"
