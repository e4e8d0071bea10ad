"""Sums of decimals that are computed from integers equal Python's and Spark's own."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from velostream.plan.groups.sums import with_integer_sums

if TYPE_CHECKING:
    import random

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_every_precision_and_scale(spark: SparkSession, rng: random.Random) -> None:
    """The largest values of each type, positive and negative, nulls, and a filter."""
    kinds = [pa.decimal128(p, s) for p in (8, 9, 13, 18, 19) for s in sorted({0, 1, 2, 8, 9, p}) if s <= p]
    rows = 300
    columns: dict[str, list[Decimal | None]] = {}
    for number, kind in enumerate(kinds):
        largest = 10**kind.precision - 1
        drawn = [
            rng.choice((largest, -largest, rng.randint(-largest, largest), rng.randint(-99, 99), 0, None))
            for _ in range(rows)
        ]
        columns[f"c{number}"] = [
            None if d is None else Decimal(max(-largest, min(largest, d))).scaleb(-kind.scale) for d in drawn
        ]
    groups = [rng.randrange(5) for _ in range(rows)]
    arrays = {name: pa.array(v, k) for (name, v), k in zip(columns.items(), kinds, strict=True)}
    spark.createDataFrame(pa.table({"g": groups, **arrays})).createOrReplaceTempView("integer_sums")
    sums = [f"SUM({name}) AS s_{name}, SUM({name}) FILTER(WHERE g < 3) AS f_{name}" for name in columns]
    plain = f"SELECT g AS g, {', '.join(sums)} FROM integer_sums GROUP BY g"
    theirs = spark.sql(plain).toArrow()
    mine_sql = with_integer_sums(plain, {f.name: f.type for f in theirs.schema})
    assert mine_sql.count("SHIFTRIGHT") == 2 * sum(8 < k.precision <= 18 and k.scale <= 8 for k in kinds)
    mine = spark.sql(mine_sql).toArrow()
    assert mine.schema.types == theirs.schema.types
    assert mine.sort_by("g").to_pylist() == theirs.sort_by("g").to_pylist()
    for row in mine.to_pylist():
        for name, values in columns.items():
            group = [v for g, v in zip(groups, values, strict=True) if g == row["g"] and v is not None]
            assert row[f"s_{name}"] == (sum(group) if group else None)
            assert row[f"f_{name}"] == (sum(group) if group and row["g"] < 3 else None)


def test_what_is_no_sum_of_decimals_stays_as_it_was() -> None:
    sql = "SELECT g AS g, COUNT(*) AS n, SUM(d) AS s, MAX(p) AS m FROM t GROUP BY g"
    types = {"g": pa.string(), "n": pa.int64(), "s": pa.float64(), "m": pa.decimal128(28, 2)}
    assert with_integer_sums(sql, types) is sql
