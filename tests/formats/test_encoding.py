"""What encoders write, decoders read: the same rows."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refusals import refusal
from velostream.errors import ConfigError
from velostream.formats.columns.python_dataframes import decoded
from velostream.formats.decoder import FormatSettings, decoder_for
from velostream.formats.encoder import encoder_for
from velostream.formats.protobuf.writer import proto_of
from velostream.formats.schemas.wire import unframed

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("due", pa.decimal128(38, 9)),
        ("at", pa.timestamp("us", tz="UTC")),
        ("day", pa.date32()),
        ("on", pa.bool_()),
        ("rate", pa.float64()),
        ("raw", pa.binary()),
        ("tags", pa.map_(pa.string(), pa.int64())),
        ("inner", pa.struct([("x", pa.int32()), ("m", pa.map_(pa.string(), pa.string()))])),
        ("many", pa.list_(pa.struct([("y", pa.string())]))),
    ]
)
ROWS = [
    {
        "id": -(2**63),
        "name": "é,\"'\n",
        "due": Decimal("-12345678901234567890123456789.123456789"),
        "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "day": date(1600, 2, 29),
        "on": False,
        "rate": 0.1,
        "raw": b"\0\xff",
        "tags": [("a", 1), ("b", -1)],
        "inner": {"x": 0, "m": [("k", "v")]},
        "many": [{"y": "1"}, {"y": None}],
    },
    dict.fromkeys(SCHEMA.names),
]


def table(rows=ROWS, schema=SCHEMA):
    return pa.Table.from_pylist(rows, schema=schema)


def read_back(form, settings_, records):
    ours = decoder_for(form, settings_)
    columns = ours.columns(list(records))
    rows = ours.row_decoder(list(columns))
    arrays, bad = decoded(records, list(columns), rows.types, rows.opened())
    assert bad == [None] * len(records)
    return pa.table(arrays, schema=columns)


def test_avro_through_a_registry(registry):
    where = FormatSettings(registry_url=registry.url, subject="out-value")
    records = encoder_for("avro", SCHEMA, where).records(table())
    assert {unframed(record).schema for record in records} == {1}
    found = read_back("avro", where, records)
    assert found.to_pylist() == ROWS
    assert found.schema.field("due").type == SCHEMA.field("due").type
    again = encoder_for("avro", SCHEMA, where).records(table())
    assert again == records
    wider = pa.schema([*SCHEMA, ("more", pa.string())])
    assert unframed(encoder_for("avro", wider, where).records(table(schema=wider))[0]).schema == 2


def test_avro_with_a_schema_file(tmp_path):
    path = tmp_path / "s.avsc"
    fields = [
        {"name": "id", "type": "long"},
        {"name": "name", "type": "string"},
        {"name": "more", "type": "int", "default": 3},
    ]
    path.write_text(json.dumps({"type": "record", "name": "R", "fields": fields}))
    where = FormatSettings(schema_file=str(path))
    small = pa.schema(list(SCHEMA)[:2])
    rows = [{"id": 1, "name": "x"}]
    assert read_back(
        "avro", where, encoder_for("avro", small, where).records(table(rows, small))
    ).to_pylist() == [{"id": 1, "name": "x", "more": 3}]
    with pytest.raises(ValueError):
        encoder_for("avro", small, where).records(table([{"id": 1, "name": None}], small))
    with refusal("config", "due"):
        encoder_for("avro", pa.schema(list(SCHEMA)[:3]), where)
    with refusal("config", "name"):
        encoder_for("avro", pa.schema(list(SCHEMA)[:1]), where)


def test_an_incompatible_schema_is_refused(registry):
    where = FormatSettings(registry_url=registry.url, subject="out-value")
    registry.add("out-value", {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]})
    registry.compatible = lambda old, new: False
    with refusal("source.config", registry.url, why="incompatible"):
        encoder_for("avro", SCHEMA, where)


def test_protobuf_through_a_registry(registry):
    where = FormatSettings(registry_url=registry.url, subject="out-value")
    records = encoder_for("protobuf", SCHEMA, where).records(table())
    assert records[1] == b"\0\0\0\0\x01\0"
    found = read_back("protobuf", where, records).to_pylist()
    texts = {"due": "-12345678901234567890123456789.123456789", "day": "1600-02-29"}
    # A list or map that is null is an empty one to Protobuf.
    assert found == [ROWS[0] | texts, ROWS[1] | {"tags": [], "many": []}]


def test_protobuf_with_a_schema_file(tmp_path, registry):
    path = tmp_path / "s.proto"
    path.write_text(
        'syntax = "proto3"; import "google/protobuf/wrappers.proto"; message A {} enum E { X = 0; Y = 1; } '
        "message B { int64 id = 1; E name = 2; google.protobuf.DoubleValue rate = 3; }"
    )
    where = FormatSettings(schema_file=str(path), message="B", registry_url=registry.url, subject="b")
    schema = pa.schema([("id", pa.int64()), ("name", pa.string()), ("rate", pa.float64())])
    rows = [{"id": 1, "name": "Y", "rate": 0.5}]
    records = encoder_for("protobuf", schema, where).records(table(rows, schema))
    assert records[0][5:7] == b"\x02\x02"
    assert read_back("protobuf", where, records).to_pylist() == rows
    with pytest.raises(ValueError, match="not a symbol"):
        encoder_for("protobuf", schema, where).records(table([rows[0] | {"name": "Z"}], schema))
    with refusal("config", "due", "B"):
        encoder_for("protobuf", SCHEMA, where)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "id": st.none() | st.integers(-(2**63), 2**63 - 1),
                "name": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
                "due": st.none() | st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}E-9")),
                "rate": st.none() | st.floats(allow_nan=False),
            }
        ),
        min_size=1,
        max_size=4,
    )
)
def test_avro_of_any_rows(tmp_path_factory, rows):
    from velostream.formats.avro.writer import avro_of

    schema = pa.schema([SCHEMA.field(name) for name in ("id", "name", "due", "rate")])
    path = tmp_path_factory.mktemp("avro") / "s.avsc"
    path.write_text(json.dumps(avro_of(schema, "row")))
    records = encoder_for("avro", schema).records(table(rows, schema))
    assert read_back("avro", FormatSettings(schema_file=str(path)), records).to_pylist() == rows


def test_texts():
    schema = pa.schema([("a", pa.string()), ("d", pa.decimal128(20, 2))])
    rows = table([{"a": 'x,"y"', "d": Decimal("123456789012345678.10")}, {"a": None, "d": None}], schema)
    assert encoder_for("json", schema).records(rows) == [
        b'{"a":"x,\\"y\\"","d":123456789012345678.10}',
        b'{"a":null,"d":null}',
    ]
    assert b'"123456789012345678.10"' in encoder_for("json", schema, decimals_as_text=True).records(rows)[0]
    assert encoder_for("csv", schema).records(rows) == [b'"x,""y""",123456789012345678.10', b","]
    one = rows.select(["d"])
    assert encoder_for("raw", one.schema).records(one) == [b"123456789012345678.10", None]
    with refusal("config", "raw"):
        encoder_for("raw", schema)
    with refusal("config", "debezium"):
        encoder_for("debezium", schema)


@pytest.mark.parametrize("form", ["avro", "protobuf"])
@pytest.mark.parametrize(
    "column", [("a b", pa.string()), ("t", pa.time64("us")), ("m", pa.map_(pa.float64(), pa.string()))]
)
def test_columns_that_a_format_cannot_hold(form, column):
    with pytest.raises(ConfigError):
        encoder_for(form, pa.schema([column]))


def test_a_list_with_null_is_no_message():
    schema = pa.schema([("l", pa.list_(pa.int64()))])
    with pytest.raises(ValueError, match="cannot hold null"):
        encoder_for("protobuf", schema).records(table([{"l": [1, None]}], schema))
    assert "repeated int64 l = 1;" in proto_of(schema, "Row")
