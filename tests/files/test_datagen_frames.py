"""Spark makes the same rows up as Python does."""

from __future__ import annotations

import pyarrow as pa
import pytest

from velostream.connectors.base import SourceContext
from velostream.connectors.datagen.generators import NAMES
from velostream.connectors.datagen.options import DatagenOptions
from velostream.connectors.datagen.source import DatagenSource

pytestmark = pytest.mark.spark

DECLARED = pa.schema(
    [
        ("id", pa.int32()),
        ("small", pa.int8()),
        ("d", pa.decimal128(5, 3)),
        ("w", pa.decimal128(38, 0)),
        ("f", pa.float64()),
        ("g", pa.float32()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("name", pa.string()),
    ]
)


@pytest.mark.parametrize("name", [*NAMES, "declared"])
def test_frame_and_read_agree(spark, tmp_path, name):
    schema = DECLARED if name == "declared" else None
    context = SourceContext(tmp_path, schema=schema, declared=schema is not None)
    source = DatagenSource(DatagenOptions(generator=name, rows=10**12, seed=7, rows_per_second=3), context)
    system = ["_timestamp", "_partition", "_offset", "_position"]
    columns = [*source.discover().names, *system]
    for start, end in ((0, 500), (10**10, 10**10 + 100)):
        frame = source.frame(spark, {"rows": start}, {"rows": end}, columns)
        read = pa.Table.from_batches(list(source.read("rows", start, end))).select(columns)
        found = frame.toArrow()
        assert found.to_pylist() == read.to_pylist()
        assert found.schema.types == read.schema.types
