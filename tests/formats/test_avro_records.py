"""Avro records against fastavro, through a registry, and damaged in every way."""

from __future__ import annotations

import contextlib
import io
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refusal
from velostream.errors import SourceAuthError, SourceConfigError, SourceError, SourceNetworkError
from velostream.formats.avro.records import AvroRows
from velostream.formats.avro.single_records import record_reader
from velostream.formats.avro.types import arrow_columns, parse_avro
from velostream.formats.columns.python_dataframes import decoded
from velostream.formats.decoder import FormatSettings, decoder_for
from velostream.formats.schemas.registry_client import Registry
from velostream.formats.schemas.wire import framed

TRADE = {
    "type": "record",
    "name": "Trade",
    "namespace": "shop.v1",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "symbol", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
NEWER = {**TRADE, "fields": [*TRADE["fields"], {"name": "venue", "type": "string", "default": "main"}]}
WIDE = {
    "type": "record",
    "name": "Wide",
    "fields": [
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "b", "type": "boolean"},
        {"name": "y", "type": "bytes"},
        {"name": "s", "type": "string"},
        {"name": "x", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "u", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "z",
            "type": [
                "null",
                {
                    "type": "fixed",
                    "name": "Big",
                    "size": 16,
                    "logicalType": "decimal",
                    "precision": 38,
                    "scale": 5,
                },
            ],
        },
        {"name": "a", "type": {"type": "array", "items": ["null", "long"]}},
        {"name": "m", "type": {"type": "map", "values": "string"}},
        {
            "name": "n",
            "type": {
                "type": "record",
                "name": "In",
                "fields": [{"name": "q", "type": "int"}, {"name": "again", "type": ["null", "Four"]}],
            },
        },
        {"name": "two", "type": ["null", "int", "string"]},
        {"name": "num", "type": ["int", "long"]},
    ],
}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = st.fixed_dictionaries(
    {
        "i": st.integers(-(2**31), 2**31 - 1),
        "l": st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False),
        "d": st.floats(allow_nan=False),
        "b": st.booleans(),
        "y": st.binary(max_size=20),
        "s": st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        "x": st.binary(min_size=4, max_size=4),
        "day": st.dates(date(1600, 1, 1), date(3000, 1, 1)),
        "us": st.integers(-(10**16), 10**16).map(lambda n: EPOCH + timedelta(microseconds=n)),
        "u": st.uuids(),
        "z": st.none() | st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-5")),
        "a": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=5),
        "m": st.dictionaries(st.text("abc", max_size=3), st.text("xyz", max_size=3), max_size=3),
        "n": st.fixed_dictionaries({"q": st.integers(0, 9), "again": st.none() | st.just(b"four")}),
        "two": st.none() | st.integers(0, 9) | st.just("t"),
        "num": st.integers(-5, 5) | st.integers(2**40, 2**41),
    }
)


def written(schema, row):
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def expected(row):
    two = row["two"]
    return row | {
        "u": str(row["u"]),
        "m": sorted(row["m"].items()),
        "two": None
        if two is None
        else {
            "member0": two if isinstance(two, int) else None,
            "member1": two if isinstance(two, str) else None,
        },
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_values_are_what_was_written(rows):
    schema = parse_avro(json.dumps(WIDE))
    columns = arrow_columns(schema)
    read = record_reader(schema, schema, columns.names)
    values = [read(written(WIDE, row)) for row in rows]
    table = pa.table(
        [pa.array([v[n] for v in values], f.type) for n, f in enumerate(columns)], schema=columns
    )
    found = [row | {"m": sorted(row["m"])} for row in table.to_pylist()]
    assert found == [expected(row) for row in rows]


@settings(max_examples=200, deadline=None)
@given(ROWS, st.data())
def test_a_record_that_ends_early_or_late_is_refused(row, data):
    schema = parse_avro(json.dumps(WIDE))
    read = record_reader(schema, schema, arrow_columns(schema).names)
    raw = written(WIDE, row)
    with pytest.raises(ValueError):
        read(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(ValueError, match="follow"):
        read(raw + b"\0")


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused_or_read_and_never_breaks(raw):
    schema = parse_avro(json.dumps(WIDE))
    read = record_reader(schema, schema, arrow_columns(schema).names)
    with contextlib.suppress(ValueError):
        read(raw)


@pytest.mark.parametrize(
    ("writer", "reader", "given", "wanted"),
    [
        ("int", "long", 5, 5),
        ("int", "double", 5, 5.0),
        ("long", "float", 5, 5.0),
        ("string", "bytes", "x", b"x"),
        ("bytes", "string", b"x", "x"),
        ("int", ["null", "long"], 5, 5),
        (["null", "int"], ["null", "long"], None, None),
        (["null", "int"], "int", 5, 5),
        ("int", ["string", "int"], 5, {"member1": 5}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, [1, 2], [1, 2]),
    ],
)
def test_evolution(writer, reader, given, wanted):
    def schema(kind):
        return {
            "type": "record",
            "name": "R",
            "fields": [{"name": "gone", "type": "string"}, {"name": "v", "type": kind}],
        }

    new = schema(reader)
    new["fields"] = [{"name": "d", "type": "int", "default": 7}, *new["fields"][1:]]
    ours = parse_avro(json.dumps(schema(writer)))
    theirs = parse_avro(json.dumps(new))
    read = record_reader(ours, theirs, ["v", "d"])
    assert read(written(schema(writer), {"gone": "x", "v": given})) == [wanted, 7]


def test_aliases_enums_and_defaults():
    def schema(fields):
        return {"type": "record", "name": "R", "fields": fields}

    old = schema(
        [
            {"name": "a", "type": "int"},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"]}},
        ]
    )
    new = schema(
        [
            {"name": "b", "aliases": ["a"], "type": "long"},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "Z"], "default": "Z"}},
            {"name": "y", "type": "bytes", "default": "\u00ff"},
            {
                "name": "p",
                "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
                "default": "\u0001",
            },
            {"name": "no", "type": "int"},
        ]
    )
    read = record_reader(parse_avro(json.dumps(old)), parse_avro(json.dumps(new)), ["b", "e", "y", "p", "no"])
    assert read(written(old, {"a": 3, "e": "B"})) == [3, "Z", b"\xff", Decimal("0.01"), None]


@pytest.mark.parametrize(
    "bomb",
    [
        {"type": "array", "items": {"type": "record", "name": "Nothing", "fields": []}},
        {"type": "map", "values": "int"},
        "string",
        "bytes",
    ],
)
def test_a_few_bytes_do_not_ask_for_billions(bomb):
    schema = parse_avro(json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": bomb}]}))
    read = record_reader(schema, schema, ["v"])
    with pytest.raises(ValueError, match="ends early"):
        read(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")


def test_a_decimal_with_more_digits_than_its_type_is_refused():
    schema = parse_avro(json.dumps({"type": "record", "name": "R", "fields": [TRADE["fields"][2]]}))
    read = record_reader(schema, schema, ["price"])
    with pytest.raises(ValueError, match="18 digits"):
        read(b"\x10\x7f" + b"\xff" * 7)
    assert read(b"\x02\x05") == [Decimal("0.05")]


def test_records_that_hold_themselves_are_passed_over():
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "n", "type": node}, {"name": "v", "type": "int"}],
    }
    ours = parse_avro(json.dumps(schema))
    theirs = parse_avro(json.dumps({"type": "record", "name": "R", "fields": [{"name": "v", "type": "int"}]}))
    read = record_reader(ours, theirs, ["v"])
    assert read(written(schema, {"n": {"next": {"next": None}}, "v": 4})) == [4]
    with refusal("source.config", "Node"):
        arrow_columns(ours)


FLAT = {**WIDE, "fields": [f for f in WIDE["fields"] if f["name"] not in ("a", "m", "two", "num", "u")]}


@settings(max_examples=200, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=20), st.data())
def test_a_batch_at_once_is_what_its_records_are(rows, data):
    schema = parse_avro(json.dumps(FLAT))
    columns = arrow_columns(schema)
    ours = AvroRows(list(columns), schema, {7: schema})
    names = [f["name"] for f in FLAT["fields"]]
    records = [framed(7, written(FLAT, {name: row[name] for name in names})) for row in rows]
    found = ours.batches()(pa.array([b"x", *records], pa.binary())[1:])
    alone, bad = decoded(records, list(columns), ours.types, ours.opened())
    assert bad == [None] * len(rows)
    assert found is not None
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in alone]
    # Whatever is done to a record, the batch is not taken at once unless the record can be read alone.
    place = data.draw(st.integers(0, len(records) - 1))
    raw = bytearray(records[place])
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(raw)))
    for damaged in (bytes(raw), bytes(raw[:cut]), bytes(raw) + b"\0"):
        others = [*records[:place], damaged, *records[place + 1 :]]
        again = ours.batches()(pa.array(others, pa.binary()))
        alone, bad = decoded(others, list(columns), ours.types, ours.opened())
        if again is not None:
            assert bad == [None] * len(others)
            assert [repr(column.to_pylist()) for column in again] == [
                repr(column.to_pylist()) for column in alone
            ]


def test_older_records_at_once():
    new, old = parse_avro(json.dumps(NEWER)), parse_avro(json.dumps(TRADE))
    ours = AvroRows(list(arrow_columns(new)), new, {1: old})
    records = [framed(1, written(TRADE, trade(n, note=None if n % 2 else f"n{n}"))) for n in range(10)]
    found = ours.batches()(pa.array(records, pa.binary()))
    alone, _ = decoded(records, list(arrow_columns(new)), ours.types, ours.opened())
    assert [column.to_pylist() for column in found] == [column.to_pylist() for column in alone]
    assert ours.batches()(pa.array([*records, framed(2, b"")], pa.binary())) is None


def trade(number, **further):
    return {
        "id": number,
        "symbol": f"S{number}",
        "price": Decimal(number) / 100,
        "at": EPOCH + timedelta(milliseconds=number),
        "side": "SELL",
        "note": None,
        **further,
    }


def decoder(registry, **more):
    return decoder_for("avro", FormatSettings(registry_url=registry.url, subject="trades-value", **more))


def frame_of(spark, records):
    table = pa.table(
        {"record": pa.array(records, pa.binary()), "_offset": pa.array(range(len(records)), pa.int64())}
    )
    return spark.createDataFrame(table)


@pytest.mark.spark
def test_several_writers_in_one_topic(spark, registry):
    old = registry.add("trades-value", TRADE)
    records = [framed(old, written(TRADE, trade(n))) for n in range(3)]
    ours = decoder(registry)
    columns = ours.columns(records)
    assert columns.field("price").type == pa.decimal128(18, 2)
    assert columns.field("at").type == pa.timestamp("us", tz="UTC")
    new = registry.add("trades-value", NEWER)
    records += [framed(new, written(NEWER, trade(3, venue="else"))), None]
    later = decoder(registry)
    columns = later.columns([])
    assert columns.names[-1] == "venue"
    # The first attempt knows the newest schema only; the careful one asks for the others.
    with pytest.raises(Exception, match=r"VELOSTREAM_BAD_ROW.*schema id 1"):
        later.frame(frame_of(spark, records), list(columns), careful=False).toArrow()
    careful = later.frame(frame_of(spark, records), list(columns), ["_offset"], careful=True).toArrow()
    assert careful["_bad"].null_count == 5
    found = (
        later.frame(frame_of(spark, records), list(columns), ["_offset"], careful=False).toArrow().to_pylist()
    )
    found = sorted(found, key=lambda row: row["_offset"])
    assert [row["id"] for row in found] == [0, 1, 2, 3, None]
    assert [row["venue"] for row in found] == ["main", "main", "main", "else", None]
    assert found[2]["price"] == Decimal("0.02")
    assert found[2]["at"] == EPOCH + timedelta(milliseconds=2)


@pytest.mark.spark
def test_bad_records_are_marked_with_their_reason(spark, registry):
    number = registry.add("trades-value", TRADE)
    good = framed(number, written(TRADE, trade(1)))
    odd = registry.add(
        "odd-value", {"type": "record", "name": "Trade", "fields": [{"name": "id", "type": "string"}]}
    )
    bad = {
        b"": "too few",
        b"\x01" + good[1:]: "first byte is 1",
        framed(999, good[5:]): "schema id 999",
        good[:-1]: "ends early",
        good + b"x": "follow",
        framed(odd, b"\x02x"): "cannot be read as",
        good[:7] + b"\x02\xff" + good[10:]: "UTF-8",
    }
    records = [good, *bad]
    ours = decoder(registry)
    fields = list(ours.columns(records))
    reasons = ours.reasons(records, fields)
    careful = (
        ours.frame(frame_of(spark, records), fields, ["_offset"], careful=True).toArrow().sort_by("_offset")
    )
    assert reasons == careful["_bad"].to_pylist()
    assert reasons[0] is None
    for reason, word in zip(reasons[1:], bad.values(), strict=True):
        assert word in reason
    for record in bad:
        with pytest.raises(Exception, match="VELOSTREAM_BAD_ROW"):
            ours.frame(frame_of(spark, [record]), fields, careful=False).toArrow()


@pytest.mark.spark
def test_schema_file_and_declared_columns(spark, tmp_path):
    path = tmp_path / "trade.avsc"
    path.write_text(json.dumps(TRADE))
    ours = decoder_for("avro", FormatSettings(schema_file=str(path)))
    assert ours.columns([]).names == [f["name"] for f in TRADE["fields"]]
    records = [written(TRADE, trade(n)) for n in (1, 250)]
    wider = [
        pa.field("id", pa.decimal128(20, 0)),
        pa.field("price", pa.decimal128(20, 4)),
        pa.field("new", pa.int64()),
    ]
    rows = ours.frame(frame_of(spark, records), wider, careful=False).toArrow().to_pylist()
    assert sorted(row["price"] for row in rows) == [Decimal("0.0100"), Decimal("2.5000")]
    narrow = [pa.field("price", pa.decimal128(18, 1))]
    assert ours.reasons(records, narrow)[0].startswith('column "price"')
    assert ours.reasons(records, narrow)[1] is None
    with refusal("source.config", "id", "TIMESTAMP"):
        ours.frame(frame_of(spark, records), [pa.field("id", pa.timestamp("us", tz="UTC"))], careful=False)


def test_columns_that_the_newest_schema_dropped_are_still_read(registry):
    registry.level = "NONE"
    old = registry.add("trades-value", TRADE)
    registry.add("trades-value", {**TRADE, "fields": TRADE["fields"][:2]})
    ours = decoder(registry)
    assert ours.columns([]).names == ["id", "symbol"]
    record = framed(old, written(TRADE, trade(5)))
    wide = ours.widen([record], ours.columns([]))
    assert wide.field("price").type == pa.decimal128(18, 2)
    assert ours.reasons([record], list(wide)) == [None]


def test_schemas_that_refer_to_others(registry):
    inner = {"type": "record", "name": "shop.Money", "fields": [{"name": "cents", "type": "long"}]}
    registry.add("money", inner)
    outer = {"type": "record", "name": "R", "fields": [{"name": "m", "type": "shop.Money"}]}
    number = registry.add(
        "trades-value", outer, references=[{"name": "shop.Money", "subject": "money", "version": 1}]
    )
    ours = decoder(registry)
    assert ours.columns([]).field("m").type == pa.struct([("cents", pa.int64())])
    assert ours.reasons([framed(number, b"\x0a")], list(ours.columns([]))) == [None]


def test_a_registry_that_does_not_answer_is_no_fault_of_the_record(registry):
    number = registry.add("trades-value", TRADE)
    record = framed(number, written(TRADE, trade(1)))
    for failing, error in ((503, SourceNetworkError), (401, SourceAuthError), (302, SourceConfigError)):
        registry.failing = failing
        with pytest.raises(error):
            decoder(registry).columns([record])
    registry.failing = None
    registry.garbage = b"<html>"
    with refusal("source.config", registry.url, why="answer"):
        decoder(registry).columns([record])
    registry.garbage = b'"' + b"x" * (9 * 1024 * 1024) + b'"'
    with refusal("source.config", registry.url, "8 MB"):
        decoder(registry).columns([record])
    nowhere = FormatSettings(registry_url="http://127.0.0.1:1", subject="trades-value")
    with refusal("source.network", "http://127.0.0.1:1"):
        decoder_for("avro", nowhere).columns([record])
    assert SourceNetworkError.retryable


def test_credentials_are_sent_and_never_shown(registry):
    registry.add("trades-value", TRADE)
    registry.credentials = ("me", "s3cret/")
    url = registry.url.replace("http://", "http://me:s3cret%2F@")
    assert Registry(url).latest("trades-value").id == 1
    with pytest.raises(SourceError) as caught:
        Registry(url.replace("s3cret", "wr0ng")).latest("trades-value")
    assert "wr0ng" not in str(caught.value)
    assert "s3cret" not in repr(Registry(url))


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/", "http://", "localhost:8081", "http://a b/", "http://x:y/"]
)
def test_only_http_addresses(url):
    with pytest.raises(SourceConfigError):
        Registry(url)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '"int"',
        '{"type": "record"}',
        '{"type": "record", "name": "R", "fields": [{"name": "x", "type": "what"}]}',
    ],
)
def test_what_is_no_schema_is_told(tmp_path, text):
    path = tmp_path / "bad.avsc"
    path.write_text(text)
    with pytest.raises(SourceConfigError):
        decoder_for("avro", FormatSettings(schema_file=str(path))).columns([])


def test_settings_are_asked_for(tmp_path):
    with refusal("source.config", "Avro"):
        decoder_for("avro")
    with refusal("source.missing", "none.avsc"):
        decoder_for("avro", FormatSettings(schema_file=str(tmp_path / "none.avsc"))).columns([])
