"""Functions over frames of rows, computed without Spark, beside Spark's own."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest
import sqlglot

from velostream.engine.over.window_frames import framed
from velostream.plan.over.calls import OverCall, plain_calls
from velostream.spark.dataframes import arrow_frame, rows_of

if TYPE_CHECKING:
    import random

BY = "OVER (PARTITION BY t.g ORDER BY t.o {})"
FRAMES = [
    "ROWS BETWEEN 9 PRECEDING AND CURRENT ROW",
    "ROWS 3 PRECEDING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "ROWS BETWEEN 2 PRECEDING AND 5 FOLLOWING",
    "ROWS BETWEEN 7 PRECEDING AND 3 PRECEDING",
    "ROWS BETWEEN 1 FOLLOWING AND 4 FOLLOWING",
]
FRAMED = [
    f"{function}({column})"
    for column in ("d", "i", "s")
    for function in ("SUM", "AVG", "MIN", "MAX", "COUNT", "FIRST_VALUE", "LAST")
]
FRAMED += ["COUNT(*)", "COUNT(1)", "COUNT(x)", "FIRST(x)", "LAST_VALUE(name)"]
UNFRAMED = [
    "ROW_NUMBER()",
    "LAG(name)",
    "LAG(d, 3)",
    "LEAD(i)",
    "LEAD(x, 2)",
    "LAG(s, 0)",
    "LAG(i, -2)",
    "FIRST_VALUE(d)",
    "LAST(i)",
]
KEPT = {name: name for name in ("d", "i", "s", "w", "x", "name")}


def table(rng: random.Random) -> tuple[pa.Table, np.ndarray]:
    """Rows in order of their groups: values that are rounded at the half, some null, groups of one row."""
    sizes = [rng.choice([1, 2, 5, 40, 90]) for _ in range(12)]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    count = len(groups)

    def some(pick):
        return [rng.choice([None, pick(), pick(), pick()]) for _ in range(count)]

    cents = some(lambda: rng.choice([rng.randrange(-10_000, 10_000), rng.randrange(10)]))
    columns = {
        "g": pa.array(groups),
        "o": pa.array(range(count)),
        "d": pa.array([None if c is None else Decimal(c).scaleb(-2) for c in cents], pa.decimal128(18, 2)),
        "i": pa.array(some(lambda: rng.choice([rng.randrange(-9, 9), rng.randrange(2**40)])), pa.int64()),
        "s": pa.array(some(lambda: rng.randrange(-(2**15), 2**15)), pa.int16()),
        "w": pa.array(some(lambda: Decimal(rng.randrange(10**28))), pa.decimal128(38, 0)),
        "x": pa.array(some(rng.random), pa.float64()),
        "name": pa.array(some(lambda: rng.choice("abc")), pa.string()),
    }
    whole = pa.table(columns)
    cut = rng.randrange(count)
    return pa.concat_tables([whole.slice(0, cut), whole.slice(cut)]), groups


def calls_of(items: list[str]) -> tuple[OverCall, ...] | None:
    select = sqlglot.parse_one(f"SELECT {', '.join(items)} FROM `v` AS t", dialect="spark")
    return plain_calls(select.selects, "t", KEPT, "g", "o")


@pytest.mark.parametrize("frame", ["", *FRAMES])
def test_the_same_as_spark(spark, rng, frame):
    rows, groups = table(rng)
    functions = FRAMED if frame else UNFRAMED
    items = [f"{function} {BY.format(frame)} AS c{n}" for n, function in enumerate(functions)]
    calls = calls_of(items)
    assert calls is not None
    found = framed(calls, rows, groups)
    assert found is not None
    arrow_frame(spark, rows).createOrReplaceTempView("v")
    expected = rows_of(spark, f"SELECT {', '.join(items)}, o FROM v AS t").sort_by("o")
    for function, mine, theirs in zip(functions, found, expected.columns, strict=False):
        assert mine.type == theirs.type, function
        assert mine.to_pylist() == theirs.to_pylist(), function


@pytest.mark.parametrize("call", ["SUM(w)", "AVG(w)", "SUM(x)", "AVG(x)", "MIN(x)", "MAX(name)", "SUM(name)"])
def test_what_takes_spark(rng, call):
    rows, groups = table(rng)
    calls = calls_of([f"{call} {BY.format(FRAMES[0])}"])
    assert calls is not None
    assert framed(calls, rows, groups) is None


@pytest.mark.parametrize(
    ("call", "values", "kind"),
    [
        ("SUM(i)", [2**62, 2**62], pa.int64()),
        ("SUM(i)", [-(2**63), 0], pa.int64()),
        ("AVG(i)", [2**53, 1], pa.int64()),
        ("SUM(d)", [Decimal(2**62), Decimal(2**62)], pa.decimal128(20, 0)),
        ("AVG(d)", [Decimal(10**15), Decimal(1)], pa.decimal128(18, 0)),
        ("AVG(d)", [Decimal(1), Decimal(2)], pa.decimal128(36, 2)),
    ],
)
def test_numbers_that_are_too_large_are_left_to_spark(call, values, kind):
    name = call[4]
    calls = calls_of([f"{call} {BY.format(FRAMES[0])}"])
    assert calls is not None
    assert framed(calls, pa.table({name: pa.array(values, kind)}), np.zeros(2, dtype=np.int64)) is None


@pytest.mark.parametrize("call", ["MIN(i)", "MAX(i)"])
def test_the_extremes_of_the_type(call):
    calls = calls_of([f"{call} {BY.format(FRAMES[0])}"])
    assert calls is not None
    values = [-(2**63), None, 2**63 - 1]
    found = framed(calls, pa.table({"i": pa.array(values, pa.int64())}), np.zeros(3, dtype=np.int64))
    assert found is not None
    assert found[0].to_pylist() == ([-(2**63)] * 3 if call == "MIN(i)" else [-(2**63), -(2**63), 2**63 - 1])


@pytest.mark.parametrize(
    "item",
    [
        "1 + LAG(i) OVER (PARTITION BY t.g ORDER BY t.o)",
        "LAG(i, 1, 0) OVER (PARTITION BY t.g ORDER BY t.o)",
        "LAG(i + 1) OVER (PARTITION BY t.g ORDER BY t.o)",
        "LAST_VALUE(i) IGNORE NULLS OVER (PARTITION BY t.g ORDER BY t.o)",
        "FIRST_VALUE(i, true) OVER (PARTITION BY t.g ORDER BY t.o)",
        "SUM(i) OVER (PARTITION BY t.g ORDER BY t.o)",
        "SUM(i) OVER (PARTITION BY t.g ORDER BY t.o DESC ROWS 3 PRECEDING)",
        "SUM(i) OVER (PARTITION BY t.g ORDER BY t.o RANGE 3 PRECEDING)",
        "SUM(i) OVER (PARTITION BY t.g, t.s ORDER BY t.o ROWS 3 PRECEDING)",
        "SUM(i) OVER (PARTITION BY t.g ORDER BY t.s, t.o ROWS 3 PRECEDING)",
        "SUM(DISTINCT i) OVER (PARTITION BY t.g ORDER BY t.o ROWS 3 PRECEDING)",
        "COUNT(i, s) OVER (PARTITION BY t.g ORDER BY t.o ROWS 3 PRECEDING)",
        "STDDEV(i) OVER (PARTITION BY t.g ORDER BY t.o ROWS 3 PRECEDING)",
        "NTH_VALUE(i, 2) OVER (PARTITION BY t.g ORDER BY t.o ROWS 3 PRECEDING)",
        "UPPER(name)",
    ],
)
def test_more_than_a_plain_function(item):
    assert calls_of([item]) is None


def test_no_rows():
    calls = calls_of(
        [f"{call} {BY.format(FRAMES[0])}" for call in ("SUM(d)", "AVG(d)", "MIN(i)", "FIRST(i)")]
    )
    assert calls is not None
    rows = pa.table({"d": pa.array([], pa.decimal128(18, 2)), "i": pa.array([], pa.int64())})
    found = framed(calls, rows, np.zeros(0, dtype=np.int64))
    assert found is not None
    assert [len(column) for column in found] == [0, 0, 0, 0]
