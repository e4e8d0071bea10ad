"""CSV records and records as they are."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.formats.csv.text import CsvDialect
from velostream.formats.decoder import FormatSettings, decoder_for

FIELDS = [pa.field("a", pa.string()), pa.field("n", pa.int64()), pa.field("d", pa.decimal128(18, 2))]
GOOD = {
    b"x,1,2.50": ("x", 1, Decimal("2.50")),
    b"x,1,2.50\r\n": ("x", 1, Decimal("2.50")),
    b'"a, ""b""",,': ('a, "b"', None, None),
    b",,": (None, None, None),
    "é漢😀,7,0.10".encode(): ("é漢😀", 7, Decimal("0.10")),
}
BAD = [b"", b"\n", b"x", b"x,1,2.50,y", b"x,one,2.50", b"x,1,2.505", b"\xff,1,2.50", b"x,1,1e-9", b"x,1.5,1"]


def frame_of(spark, records):
    table = pa.table(
        {"record": pa.array(records, pa.binary()), "_offset": pa.array(range(len(records)), pa.int64())}
    )
    return spark.createDataFrame(table)


def csv(**more):
    return decoder_for("csv", FormatSettings(names=["a", "n", "d"], **more))


@pytest.mark.spark
def test_csv(spark):
    records = [*GOOD, None, *BAD]
    careful = (
        csv().frame(frame_of(spark, records), FIELDS, ["_offset"], careful=True).toArrow().sort_by("_offset")
    )
    assert [bad is not None for bad in careful["_bad"].to_pylist()] == [False] * (len(GOOD) + 1) + [
        True
    ] * len(BAD)
    rows = [tuple(row[name] for name in ("a", "n", "d")) for row in careful.to_pylist()]
    assert rows[: len(GOOD) + 1] == [*GOOD.values(), (None, None, None)]
    fast = (
        csv()
        .frame(frame_of(spark, [*GOOD, None]), FIELDS, ["_offset"], careful=False)
        .toArrow()
        .sort_by("_offset")
    )
    assert (
        fast.to_pylist()
        == [{k: v for k, v in row.items() if k != "_bad"} for row in careful.to_pylist()][: len(GOOD) + 1]
    )
    for record in BAD:
        with pytest.raises(Exception, match=r"MALFORMED_RECORD|VELOSTREAM_BAD_ROW"):
            csv().frame(frame_of(spark, [record]), FIELDS, careful=False).selectExpr("count(*)").toArrow()


def test_csv_reasons_and_columns():
    assert csv().reasons([*GOOD], FIELDS) == [None] * len(GOOD)
    assert None not in csv().reasons(BAD, FIELDS)
    ours = decoder_for("csv", FormatSettings(dialect=CsvDialect(delimiter="|", null="NA", header=False)))
    schema = ours.columns([b"1|x|NA", b"2|y|1.5", b"\xff", b"3|z"])
    assert schema == pa.schema([("_c0", pa.int64()), ("_c1", pa.string()), ("_c2", pa.decimal128(18, 1))])
    assert ours.widen([b"1.25|x|NA"], schema).field("_c0").type == pa.decimal128(21, 2)
    assert ours.widen([b"1|x|NA", b"1|2|3|4", b"\xff"], schema) is None
    assert ours.columns([]) is None


@pytest.mark.spark
def test_raw(spark):
    at = datetime(2026, 1, 1, tzinfo=UTC)
    table = pa.table(
        {
            "record": pa.array([b"\xff", b"text", None], pa.binary()),
            "_key": pa.array([b"k", None, b"\xfe"], pa.binary()),
            "_timestamp": pa.array([at] * 3, pa.timestamp("us", tz="UTC")),
            "_partition": pa.array([0, 1, 2], pa.int32()),
            "_offset": pa.array([5, 6, 7], pa.int64()),
        }
    )
    ours = decoder_for("raw")
    assert ours.columns([b"text"]).field("value").type == pa.string()
    assert ours.columns([b"text", b"\xff"]).field("value").type == pa.binary()
    columns = [
        field.with_type(pa.binary()) if field.name in ("key", "value") else field
        for field in ours.columns([])
    ]
    for careful in (True, False):
        rows = (
            ours.frame(spark.createDataFrame(table), columns, ["_offset"], careful=careful)
            .toArrow()
            .sort_by("_offset")
            .to_pylist()
        )
        assert [row["value"] for row in rows] == [b"\xff", b"text", None]
        assert [row["key"] for row in rows] == [b"k", None, b"\xfe"]
        assert [(row["timestamp"], row["partition"], row["offset"]) for row in rows] == [
            (at, 0, 5),
            (at, 1, 6),
            (at, 2, 7),
        ]
    millis = [pa.field("timestamp", pa.int64())]
    numbers = ours.frame(spark.createDataFrame(table), millis, careful=False).toArrow()
    assert numbers["timestamp"].to_pylist() == [int(at.timestamp() * 1000)] * 3
    text = [pa.field("value", pa.string())]
    marked = (
        ours.frame(spark.createDataFrame(table), text, ["_offset"], careful=True).toArrow().sort_by("_offset")
    )
    assert [bad is None for bad in marked["_bad"].to_pylist()] == [False, True, True]
    assert [reason is None for reason in ours.reasons([b"\xff", b"text"], text)] == [False, True]
    with pytest.raises(Exception, match="INVALID_UTF8"):
        ours.frame(spark.createDataFrame(table), text, careful=False).toArrow()


def test_an_unknown_format_is_told():
    with refusal("source.config", "jsom"):
        decoder_for("jsom")
