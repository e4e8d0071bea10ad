"""Types there and back, and what is known of functions."""

from __future__ import annotations

import pyarrow as pa
import pytest

from velostream.errors import VelostreamError
from velostream.sql import is_aggregate, is_deterministic, parse_columns, spark_ddl


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("int", pa.int32()),
        ("BIGINT", pa.int64()),
        ("decimal", pa.decimal128(10, 0)),
        ("decimal(12)", pa.decimal128(12, 0)),
        ("DECIMAL(38, 18)", pa.decimal128(38, 18)),
        ("string", pa.string()),
        ("varchar(20)", pa.string()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("date", pa.date32()),
        ("boolean", pa.bool_()),
        ("double", pa.float64()),
        ("binary", pa.binary()),
        ("array<int>", pa.list_(pa.int32())),
        ("map<string, double>", pa.map_(pa.string(), pa.float64())),
        ("struct<a: int, b: array<string>>", pa.struct([("a", pa.int32()), ("b", pa.list_(pa.string()))])),
    ],
)
def test_types_there_and_back(text: str, kind: pa.DataType) -> None:
    (column,) = parse_columns(f"c {text}")
    assert column.type == kind
    (again,) = parse_columns(f"c {spark_ddl(kind)}")
    assert again.type == kind


@pytest.mark.parametrize("text", ["a", "a int,", "a nonsense", "a decimal(50)", "a int; b int", "1 int", ""])
def test_columns_that_are_none(text: str) -> None:
    with pytest.raises(VelostreamError):
        parse_columns(text)


def test_kinds_of_functions() -> None:
    assert is_aggregate("sum")
    assert is_aggregate("COUNT")
    assert is_aggregate("approx_count_distinct")
    assert not is_aggregate("upper")
    assert not is_aggregate("grouping_id")
    assert is_deterministic("upper")
    for name in ("rand", "uuid", "now", "current_timestamp", "somebodys_udf"):
        assert not is_deterministic(name)
