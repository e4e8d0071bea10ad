"""Sums over the last rows from running sums, beside Spark's own."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa

from velostream.plan.over.running_sums import summed, with_running_sums
from velostream.spark.dataframes import arrow_frame, query_schema

if TYPE_CHECKING:
    import random

OVER = "OVER (PARTITION BY k ORDER BY o ROWS BETWEEN 9 PRECEDING AND CURRENT ROW)"
CALLS = [
    "SUM(d)",
    "AVG(d)",
    "COUNT(d)",
    "COUNT(*)",
    "SUM(i)",
    "AVG(i)",
    "SUM(x)",
    "AVG(d + 1)",
    "SUM(w)",
    "AVG(w)",
]
SQL = f"SELECT {', '.join(f'{call} {OVER} AS c{n}' for n, call in enumerate(CALLS))}, t.o FROM `v` AS t"


def rows(rng: random.Random) -> pa.Table:
    """Values that are rounded up, down and at the half, some null, some very large."""
    count = 400
    cents = [rng.choice([None, rng.randrange(-10_000, 10_000), rng.randrange(10)]) for _ in range(count)]
    wide = [rng.choice([None, rng.randrange(10**28)]) for _ in range(count)]
    return pa.table(
        {
            "k": pa.array([rng.choice(["a", "b", None]) for _ in range(count)]),
            "o": pa.array(range(count)),
            "d": pa.array(
                [None if c is None else Decimal(c).scaleb(-2) for c in cents], pa.decimal128(18, 2)
            ),
            "i": pa.array(
                [rng.choice([None, rng.randrange(-9, 9), rng.randrange(2**59)]) for _ in range(count)]
            ),
            "x": pa.array([rng.random() for _ in range(count)]),
            "w": pa.array([None if c is None else Decimal(c) for c in wide], pa.decimal128(38, 0)),
        }
    )


def test_the_same_as_added_up(spark, rng):
    table = rows(rng)
    arrow_frame(spark, table).createOrReplaceTempView("v")
    arguments = list(dict.fromkeys(summed(SQL)))
    found = query_schema(
        spark, f"SELECT {', '.join(f'{a} AS a{n}' for n, a in enumerate(arguments))} FROM v AS t"
    )
    replaced = with_running_sums(SQL, dict(zip(arguments, found.types, strict=True)))
    # Integers, doubles, and what has too many digits, stay as they are.
    assert replaced.count("9 PRECEDING") == sum(
        call in {"SUM(i)", "AVG(i)", "SUM(x)", "SUM(w)", "AVG(w)"} for call in CALLS
    )
    plain, ours = (spark.sql(sql).orderBy("o").toArrow() for sql in (SQL, replaced))
    assert ours.schema.types == plain.schema.types
    assert ours.to_pylist() == plain.to_pylist()


def test_a_running_sum_may_be_larger_than_any_frame(spark):
    most = pa.array([Decimal("9" * 27)] * 40, pa.decimal128(27, 0))
    table = pa.table({"k": ["a"] * 40, "o": list(range(40)), "i": most})
    over = "OVER (PARTITION BY k ORDER BY o ROWS BETWEEN 7 PRECEDING AND CURRENT ROW)"
    sql = f"SELECT SUM(i) {over} AS s, t.o FROM v t"
    arrow_frame(spark, table).createOrReplaceTempView("v")
    replaced = with_running_sums(sql, {"i": pa.decimal128(27, 0)})
    assert replaced != sql
    plain, ours = (spark.sql(each).orderBy("o").toArrow() for each in (sql, replaced))
    assert ours.column("s").to_pylist() == plain.column("s").to_pylist()
