"""Rows that we hold, as Spark sees them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from velostream.spark.dataframes import arrow_frame

SCHEMA = pa.schema([("x", pa.int64())])


@pytest.mark.spark
@pytest.mark.parametrize("sizes", [(0, 1), (2, 0, 3), (0, 0, 0, 0, 0, 1), (1, 1, 1), (0, 0)])
def test_empty_batches_lose_no_rows(spark, sizes: tuple[int, ...]) -> None:
    batches = [pa.record_batch([pa.array(range(size), pa.int64())], schema=SCHEMA) for size in sizes]
    assert arrow_frame(spark, pa.Table.from_batches(batches, SCHEMA)).count() == sum(sizes)
