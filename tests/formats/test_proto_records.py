"""Protobuf records through a registry and from files, and damaged in every way."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refusal
from velostream.formats.decoder import FormatSettings, decoder_for
from velostream.formats.protobuf.files import compiled, descriptor_set, message_class
from velostream.formats.protobuf.records import ProtobufRows, columns_of, message_indexes
from velostream.formats.schemas.wire import framed

MONEY = 'syntax = "proto3"; package dep; message Money { int64 cents = 1; }'
TRADE = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/duration.proto";
import "dep/money.proto";
enum Side { BUY = 0; SELL = 1; }
message Header { string trace = 1; }
message Trade {
  int64 id = 1;
  string symbol = 2;
  google.protobuf.Timestamp at = 3;
  optional int32 maybe = 4;
  repeated double factors = 5;
  map<string, int64> tags = 6;
  Side side = 7;
  oneof pick { string text = 8; int64 number = 9; }
  uint64 big = 10;
  google.protobuf.StringValue wrapped = 11;
  dep.Money money = 12;
  message Part { int32 size = 1; }
  Part part = 13;
  bytes raw = 14;
  repeated Part parts = 15;
  google.protobuf.Duration took = 16;
  uint32 small = 17;
  bool on = 18;
}
"""
NEWER = TRADE.replace("bool on = 18;", "string venue = 19;")
SIMPLE = """
syntax = "proto3";
message Simple { int64 id = 1; optional string s = 2; repeated sint32 n = 3; uint64 u = 4; double d = 5; }
"""
USED = {"dep/money.proto": MONEY}
REFERENCE = {"name": "dep/money.proto", "subject": "money", "version": 1}


@pytest.fixture(scope="module")
def trades():
    return compiled("trade.proto", TRADE, USED, "shop.Trade")


@pytest.fixture(scope="module")
def simple():
    return compiled("simple.proto", SIMPLE, {}, None)


def full(schema, **changes):
    kind = message_class(schema)
    message = kind(
        id=-5,
        symbol="é",
        factors=[0.5, 1],
        tags={"a": 1},
        side=1,
        number=0,
        big=2**64 - 1,
        raw=b"\xff",
        small=2**32 - 1,
        on=True,
    )
    message.at.seconds, message.at.nanos = 1, 500_000_999
    message.wrapped.value = ""
    message.money.cents = 7
    message.part.SetInParent()
    message.parts.add(size=3)
    message.took.seconds = 90
    for name, value in changes.items():
        setattr(message, name, value)
    return message.SerializeToString()


def decoded(schema, payload, columns=None):
    columns = columns or columns_of(schema)
    values = ProtobufRows(list(columns), schema, None).opened()(payload)
    return pa.table(
        [pa.array([v], f.type) for v, f in zip(values, columns, strict=True)], schema=columns
    ).to_pylist()[0]


def test_every_kind_of_field(trades):
    row = decoded(trades, full(trades))
    assert row == {
        "id": -5,
        "symbol": "é",
        "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC),
        "maybe": None,
        "factors": [0.5, 1.0],
        "tags": [("a", 1)],
        "side": "SELL",
        "text": None,
        "number": 0,
        "big": Decimal(2**64 - 1),
        "wrapped": "",
        "money": {"cents": 7},
        "part": {"size": 0},
        "raw": b"\xff",
        "parts": [{"size": 3}],
        "took": "90s",
        "small": 2**32 - 1,
        "on": True,
    }
    nothing = decoded(trades, b"")
    assert nothing["id"] == 0
    assert nothing["side"] == "BUY"
    assert [nothing[name] for name in ("at", "maybe", "text", "number", "wrapped", "money")] == [None] * 6
    assert decoded(trades, full(trades, side=9))["side"] == "9"


@settings(max_examples=200, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "id": st.integers(-(2**63), 2**63 - 1),
            "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
            "n": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4),
            "u": st.integers(0, 2**64 - 1),
            "d": st.floats(allow_nan=False),
        }
    ),
)
def test_values_are_what_was_written(simple, row):
    payload = message_class(simple)(**{k: v for k, v in row.items() if v is not None}).SerializeToString()
    assert decoded(simple, payload) == row | {"u": Decimal(row["u"])}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=100))
def test_noise_is_refused_or_read_and_never_breaks(simple, raw):
    with contextlib.suppress(ValueError):
        ProtobufRows(list(columns_of(simple)), simple, None).opened()(raw)
    with contextlib.suppress(ValueError):
        message_indexes(raw)


def frame_of(spark, records):
    table = pa.table(
        {"record": pa.array(records, pa.binary()), "_offset": pa.array(range(len(records)), pa.int64())}
    )
    return spark.createDataFrame(table)


@pytest.mark.spark
def test_through_a_registry(spark, registry, trades):
    registry.add("money", MONEY, "PROTOBUF")
    old = registry.add("trades-value", TRADE, "PROTOBUF", [REFERENCE])
    new = registry.add("trades-value", NEWER, "PROTOBUF", [REFERENCE])
    other = registry.add("other-value", SIMPLE, "PROTOBUF")
    ours = decoder_for(
        "protobuf", FormatSettings(registry_url=registry.url, subject="trades-value", message="shop.Trade")
    )
    columns = ours.columns([])
    assert columns.names[-1] == "venue"
    newer = compiled("newer.proto", NEWER, USED, "shop.Trade")
    at = b"\x02\x02"  # one index: the second message of the file
    written = message_class(newer)(id=9, venue="else").SerializeToString()
    records = [framed(old, at + full(trades)), framed(new, at + written), None]
    bad = {
        b"": "too few",
        b"\x05abcd\0": "first byte is 5",
        framed(77, at): "schema id 77",
        framed(new, b""): "header ends early",
        framed(new, b"\0" + written): "shop.Header",
        framed(new, b"\x02\x20" + written): "no message 16",
        framed(new, at + b"\x0a"): "not a message",
        framed(new, at + b"\x12\x01\xff"): "not a message",
        framed(other, b"\0"): "schema id",
        framed(new, at + b"\x1a\x02\x10\xff"): "not a message",
    }
    wide = ours.widen(records[:1], columns)
    assert wide.names[-1] == "on"
    fields = list(wide)
    reasons = ours.reasons([*records[:2], *bad], fields)
    assert reasons[:2] == [None, None]
    for reason, word in zip(reasons[2:], bad.values(), strict=True):
        assert word in reason
    careful = (
        ours.frame(frame_of(spark, [*records, *bad]), fields, ["_offset"], careful=True)
        .toArrow()
        .sort_by("_offset")
    )
    assert careful["_bad"].to_pylist() == [None, None, None, *reasons[2:]]
    fast = (
        ours.frame(frame_of(spark, records), fields, ["_offset"], careful=False).toArrow().sort_by("_offset")
    )
    rows = fast.to_pylist()
    assert [row["id"] for row in rows] == [-5, 9, None]
    assert [row["venue"] for row in rows] == ["", "else", None]
    assert rows[0]["on"] is True
    assert rows[0]["tags"] == [("a", 1)]
    with pytest.raises(Exception, match="VELOSTREAM_BAD_ROW"):
        ours.frame(frame_of(spark, [framed(77, at)]), fields, careful=False).toArrow()


def test_files_and_descriptor_sets(tmp_path, trades):
    (tmp_path / "dep").mkdir()
    (tmp_path / "dep" / "money.proto").write_text(MONEY)
    (tmp_path / "trade.proto").write_text(TRADE)
    (tmp_path / "trade.desc").write_bytes(trades.files)
    for name in ("trade.proto", "trade.desc"):
        ours = decoder_for("protobuf", FormatSettings(schema_file=str(tmp_path / name), message="shop.Trade"))
        assert ours.columns([]) == columns_of(trades)
        assert ours.reasons([full(trades), b"\x0a"], list(ours.columns([])))[0] is None
    first = decoder_for("protobuf", FormatSettings(schema_file=str(tmp_path / "trade.proto")))
    assert first.columns([]).names == ["trace"]
    assert len(descriptor_set(trades.files).file) == 5


def test_places_of_messages(trades):
    assert trades.indexes_of("shop.Trade.Part") == [1, 0]
    assert trades.message_at([1, 0]) == "shop.Trade.Part"
    assert message_indexes(b"\0rest") == ([0], b"rest")
    assert message_indexes(b"\x04\x02\x00rest") == ([1, 0], b"rest")
    with pytest.raises(ValueError, match="no message"):
        trades.message_at([7])


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("message X {", "does not compile"),
        ('syntax = "proto3"; import "nope.proto"; message A {}', "does not compile"),
        ('syntax = "proto3"; import "../../etc/passwd"; message A {}', "does not compile"),
        ('syntax = "proto3"; enum E { A = 0; }', "no message"),
        ('syntax = "proto3"; message A { A a = 1; }', "holds itself"),
    ],
)
def test_what_is_no_schema_is_told(tmp_path, text, word):
    path = tmp_path / "bad.proto"
    path.write_text(text)
    with refusal("source.config", why=word):
        decoder_for("protobuf", FormatSettings(schema_file=str(path))).columns([])
    with refusal("source.config", "../evil.proto"):
        compiled("x.proto", SIMPLE, {"../evil.proto": ""}, None)
    path.with_suffix(".desc").write_bytes(b"\xff\xff")
    with refusal("source.config", why="descriptors"):
        decoder_for("protobuf", FormatSettings(schema_file=str(path.with_suffix(".desc")))).columns([])
