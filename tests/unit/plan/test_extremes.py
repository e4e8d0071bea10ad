"""Merging MIN and MAX of two batches in Spark's order, for every type that Arrow can compare."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from sqlglot import exp

from velostream.model.columns import GROUP_ROWS
from velostream.plan.groups.aggregates import Accumulator, Aggregate, Finish, Merge
from velostream.plan.groups.merge import merge
from velostream.plan.plans import GroupsPlan

NAN = float("nan")


def merged(old: list[object], new: list[object], kind: pa.DataType, how: Merge) -> list[object]:
    call = exp.Max(this=exp.column("x"))
    aggregate = Aggregate("__v1", call, Finish.SAME, (Accumulator("__m1", call, how),))
    plan = GroupsPlan("", "", "", "", ("k",), (aggregate,), (), None, having=False, grouped=True)
    stored, batch = (
        pa.table(
            {
                "k": pa.array(range(len(values)), pa.int64()),
                GROUP_ROWS: pa.array([1] * len(values), pa.int64()),
                "__m1": pa.array(values, kind),
            }
        )
        for values in (old, new)
    )
    return merge(plan, stored, batch).column("__m1").to_pylist()


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        (pa.int64(), -5, 3),
        (pa.string(), "a", "ä"),
        (pa.binary(), b"", b"\x00"),
        (pa.bool_(), False, True),
        (pa.decimal128(38, 10), Decimal("-1.0000000001"), Decimal("1.0000000000")),
        (pa.date32(), date(1969, 12, 31), date(1970, 1, 1)),
        (pa.timestamp("us", tz="UTC"), datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)),
        (pa.float64(), -1e308, 1e308),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_the_greater_and_the_lesser_survive(kind, low, high):
    old, new = [low, high, low, None, low, None], [high, low, low, low, None, None]
    assert merged(old, new, kind, Merge.MAX) == [high, high, low, low, low, None]
    assert merged(old, new, kind, Merge.MIN) == [low, low, low, low, low, None]


def test_nan_is_greater_than_any_number():
    assert repr(merged([1.0, NAN, None], [NAN, 1.0, NAN], pa.float64(), Merge.MAX)) == "[nan, nan, nan]"
    assert merged([1.0, NAN], [NAN, 1.0], pa.float64(), Merge.MIN) == [1.0, 1.0]
