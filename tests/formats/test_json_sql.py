"""JSON that Spark writes in real-time mode has the bytes that Velostream writes otherwise."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.formats.encoder import RawEncoder
from velostream.formats.json.spark_writer import json_object, plain_text, small_letters
from velostream.formats.json.writer import json_bytes
from velostream.spark.dataframes import arrow_frame
from velostream.sql.types import quote

if TYPE_CHECKING:
    import random

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

_TEXTS = [
    "",
    "plain",
    'quo"te',
    "back\\slash",
    "\\u001F",
    "\\\x1f\\\\\x0b",
    "".join(map(chr, range(0x80))),
    "\u2028é中😀\u0085",
    "line\r\nend\ttab\b\f",
    "</script>'",
]
_MOMENTS = [
    datetime(2026, 1, 5, 10, 0, 0, tzinfo=UTC),
    datetime(2026, 1, 5, 10, 0, 0, 500_000, tzinfo=UTC),
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    datetime(9999, 12, 31, 23, 59, 59, 1, tzinfo=UTC),
    datetime(1582, 10, 4, 1, 2, 3, tzinfo=UTC),
]
_KINDS: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False],
    pa.int8(): [-128, 0, 127],
    pa.int32(): [-(2**31), 7],
    pa.int64(): [-(2**63), 0, 2**63 - 1],
    pa.string(): _TEXTS,
    pa.decimal128(10, 2): [Decimal("0.00"), Decimal("-12345678.90"), Decimal("1.10")],
    pa.decimal128(38, 18): [Decimal("0E-18"), Decimal("1E-18"), Decimal("12345678901234567890.123456789")],
    pa.decimal128(38, 0): [Decimal(10**37), Decimal(-1)],
    pa.date32(): [date(1, 1, 1), date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us", tz="UTC"): _MOMENTS,
    pa.timestamp("us"): [moment.replace(tzinfo=None) for moment in _MOMENTS],
    pa.binary(): [b"", b"\x00\xff", bytes(range(256))],
}


def _written(spark: SparkSession, rows: pa.Table, *, decimals_as_text: bool = False) -> list[bytes]:
    text = json_object(list(rows.schema), decimals_as_text)
    frame = arrow_frame(spark, rows).selectExpr(f"{text} AS value")
    found = frame.selectExpr(f"CAST({small_letters('value')} AS BINARY) AS value").toArrow()
    return found.column(0).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("kind", _KINDS, ids=str)
def test_the_same_bytes(spark: SparkSession, rng: random.Random, kind: pa.DataType) -> None:
    values = _KINDS[kind]
    nested = pa.struct([("a b", kind), ("in", pa.list_(kind))])
    columns = []
    for form in (kind, pa.list_(kind), nested, pa.list_(nested)):
        drawn = [*values, None] if form == kind else [None]
        drawn += [_drawn(rng, form, [*values, None]) for _ in range(30 - len(drawn))]
        columns.append(pa.array(drawn, form))
    rows = pa.table(columns, names=['na"me`', "list", "nested", "nested list"])
    for as_text in {False, pa.types.is_decimal(kind)}:
        found = _written(spark, rows, decimals_as_text=as_text)
        for written, expected in zip(found, json_bytes(rows, as_text), strict=True):
            assert written == expected


def _drawn(rng: random.Random, kind: pa.DataType, values: list[Any]) -> Any:
    if rng.random() < 0.1:
        return None
    if pa.types.is_list(kind):
        return [_drawn(rng, kind.value_type, values) for _ in range(rng.randrange(3))]
    if pa.types.is_struct(kind):
        return {field.name: _drawn(rng, field.type, values) for field in kind}
    return rng.choice(values)


def test_keys_are_the_plain_text(spark: SparkSession) -> None:
    for kind, values in _KINDS.items():
        if pa.types.is_timestamp(kind):
            continue
        rows = pa.table({"k": pa.array([*values, None], kind)})
        text = plain_text(quote("k"), rows.schema.field(0))
        found = arrow_frame(spark, rows).selectExpr(f"{text} AS k").toArrow().column(0).to_pylist()
        assert found == RawEncoder().records(rows), kind


@pytest.mark.parametrize(
    "kind",
    [pa.float32(), pa.float64(), pa.map_(pa.string(), pa.int64()), pa.duration("us"), pa.list_(pa.float64())],
)
def test_what_spark_writes_otherwise_is_refused(kind: pa.DataType) -> None:
    with refusal("sql.unsupported", "c"):
        json_object([pa.field("c", kind)])
    if not pa.types.is_list(kind):
        with refusal("sql.unsupported", "k"):
            plain_text("`k`", pa.field("k", kind))


def test_no_columns_are_an_empty_object() -> None:
    assert json_object([]) == "'{}'"
