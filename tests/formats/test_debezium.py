"""Debezium's envelopes as upserts and deletes, and as weighted rows."""

from __future__ import annotations

import base64
import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest

from refusals import refusal
from velostream.formats.decoder import FormatSettings, decoder_for
from velostream.formats.schemas.wire import framed

FIELDS = [pa.field("id", pa.int64()), pa.field("name", pa.string()), pa.field("due", pa.decimal128(10, 2))]
ROW = [
    {"field": "id", "type": "int64"},
    {"field": "name", "type": "string"},
    {
        "field": "due",
        "type": "bytes",
        "name": "org.apache.kafka.connect.data.Decimal",
        "parameters": {"scale": "2", "connect.decimal.precision": "10"},
    },
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date"},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    {"field": "zoned", "type": "string", "name": "io.debezium.time.ZonedTimestamp"},
    {"field": "raw", "type": "bytes"},
    {"field": "free", "type": "struct", "name": "io.debezium.data.VariableScaleDecimal", "fields": []},
]
SCHEMA = {
    "type": "struct",
    "fields": [
        {"field": "before", "type": "struct", "fields": ROW, "optional": True},
        {"field": "after", "type": "struct", "fields": ROW, "optional": True},
        {"field": "op", "type": "string"},
    ],
}


def envelope(op, before=None, after=None, wrapped=False):
    payload = {"before": before, "after": after, "op": op, "ts_ms": 1, "source": {"table": "t"}}
    return json.dumps({"schema": None, "payload": payload} if wrapped else payload).encode()


def row(number, name="x", due="1.50"):
    return {"id": number, "name": name, "due": due}


def frame_of(spark, records):
    table = pa.table(
        {"record": pa.array(records, pa.binary()), "_offset": pa.array(range(len(records)), pa.int64())}
    )
    return spark.createDataFrame(table)


RECORDS = [
    envelope("r", after=row(1)),
    envelope("c", after=row(2), wrapped=True),
    envelope("u", row(1), row(1, "y", "2.25")),
    envelope("d", row(2)),
    None,
    envelope("m"),
]


@pytest.mark.spark
def test_as_upserts_and_deletes(spark):
    ours = decoder_for("debezium")
    for careful in (True, False):
        found = (
            ours.frame(frame_of(spark, RECORDS), FIELDS, ["_offset"], careful=careful)
            .toArrow()
            .sort_by("_offset")
        )
        assert found["id"].to_pylist() == [1, 2, 1, 2, None, None]
        assert found["name"].to_pylist() == ["x", "x", "y", "x", None, None]
        assert found["due"].to_pylist()[2] == Decimal("2.25")
        assert found["_deleted"].to_pylist() == [False, False, False, True, None, None]


BAD = {
    b"{}": "no envelope",
    b"x": "not JSON",
    b"[]": "not a JSON object",
    envelope("t"): "truncated",
    envelope("c"): "without the row after",
    envelope("?", after=row(1)): "no operation",
    envelope("c", after=row("one")): 'column "id"',
    envelope("c", after=row(1, due="1.505")): 'column "due"',
    envelope("c", after=[1]): "no object",
    b"\xff": "UTF-8",
}


@pytest.mark.spark
def test_bad_envelopes(spark):
    ours = decoder_for("debezium")
    reasons = ours.reasons(list(BAD), FIELDS)
    for reason, word in zip(reasons, BAD.values(), strict=True):
        assert word.replace("no envelope", "not an envelope") in reason
    records = [*BAD, RECORDS[0]]
    found = (
        ours.frame(frame_of(spark, records), FIELDS, ["_offset"], careful=True).toArrow().sort_by("_offset")
    )
    assert found["_bad"].to_pylist() == [*reasons, None]
    with pytest.raises(Exception, match="VELOSTREAM_BAD_ROW"):
        ours.frame(frame_of(spark, [envelope("t")]), FIELDS, careful=False).toArrow()


def test_types_of_connect():
    cents = base64.b64encode((-150).to_bytes(2, "big", signed=True)).decode()
    after = {
        "id": 1,
        "name": "x",
        "due": cents,
        "day": 1,
        "at": 1_000_001,
        "zoned": "2026-01-01T00:00:00.5Z",
        "raw": "AAE=",
        "free": {"scale": 3, "value": cents},
    }
    record = json.dumps({"schema": SCHEMA, "payload": {"before": None, "after": after, "op": "c"}}).encode()
    ours = decoder_for("debezium")
    columns = ours.columns([record])
    assert columns.field("due").type == pa.decimal128(10, 2)
    assert columns.field("at").type == pa.timestamp("us", tz="UTC")
    assert columns.field("raw").type == pa.binary()
    assert ours.reasons([record], list(columns)) == [None]
    found = ours.envelopes(list(columns)).opened()(record).after
    assert found["due"] == Decimal("-1.50")
    assert found["day"] == date(1970, 1, 2)
    assert found["at"] == datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC)
    assert found["zoned"] == datetime(2026, 1, 1, 0, 0, 0, 500_000, tzinfo=UTC)
    assert found["raw"] == b"\0\1"
    assert found["free"] == "-0.150"


def test_columns_are_seen_in_both_images_and_widen():
    ours = decoder_for("debezium")
    schema = ours.columns([envelope("d", {"id": 1}), envelope("c", after={"id": 2, "n": 1.5}), b"no"])
    assert schema.names == ["id", "n"]
    wide = ours.widen([envelope("c", after={"id": 2, "more": True})], schema)
    assert wide.names == ["id", "n", "more"]
    assert ours.columns([b"no"]) is None


@pytest.mark.spark
def test_avro(spark, registry):
    value = {
        "type": "record",
        "name": "Value",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "due", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
            {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
        ],
    }
    schema = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", value], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "op", "type": "string"},
        ],
    }
    number = registry.add("t-value", schema)
    ours = decoder_for("debezium", FormatSettings(registry_url=registry.url, subject="t-value"))

    def record(**parts):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), parts)
        return framed(number, stream.getvalue())

    one = {"id": 1, "due": Decimal("1.25"), "at": 2_000_000}
    records = [record(op="c", before=None, after=one), record(op="d", before=one, after=None), b"x"]
    columns = list(ours.columns(records))
    assert [f.type for f in columns] == [pa.int64(), pa.decimal128(10, 2), pa.timestamp("us", tz="UTC")]
    found = (
        ours.frame(frame_of(spark, records), columns, ["_offset"], careful=True).toArrow().sort_by("_offset")
    )
    assert found["_deleted"].to_pylist() == [False, True, None]
    assert found["at"].to_pylist()[1] == datetime(1970, 1, 1, 0, 0, 2, tzinfo=UTC)
    assert [bad is None for bad in found["_bad"].to_pylist()] == [True, True, False]
    other = registry.add(
        "else-value", {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    )
    assert other
    with refusal("source.config", "R", why="envelope"):
        decoder_for("debezium", FormatSettings(registry_url=registry.url, subject="else-value")).columns([])
