"""What can be said about the format of keys, and why a key is bad."""

from __future__ import annotations

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.kafka.read.decoder import Message, MessageDecoder
from velostream.connectors.kafka.read.source import KafkaSource

STRUCT = pa.struct([("id", pa.int64()), ("region", pa.string())])


def decoder(declared: pa.Schema | None = None, **properties: str) -> MessageDecoder:
    said = {name.replace("_", "."): value for name, value in properties.items()}
    return MessageDecoder(KafkaOptions.model_validate({"topic": "t", **said}), declared)


def test_columns_are_the_key_and_the_fields_of_the_value():
    sample = [Message(b'{"id":1,"region":"eu"}', b'{"n":1}'), Message(None, b'{"n":2}'), Message(b"{", None)]
    assert decoder(key_format="json").columns(sample) == pa.schema([("key", STRUCT), ("n", pa.int64())])
    assert decoder().columns(sample) == pa.schema([("n", pa.int64())])
    assert decoder(key_format="json").columns([Message(None, b'{"n":1}')]) is None
    assert decoder(key_format="raw").columns(sample).field("key").type == pa.string()
    raw = decoder(key_format="json", format="raw").columns(sample)
    assert raw.names == ["key", "value", "timestamp", "partition", "offset"]
    assert raw.field("key").type == STRUCT


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"id":1,"region":"eu"}', None),
        (b"{", "not JSON"),
        (b"", "empty"),
        (b"\xff", "not valid UTF-8"),
        (b'{"id":1},"n":2', "not JSON: Extra data"),
        (b'{"id":1}}', "not JSON: Extra data"),
        (b'{"id":"x"}', 'column "key"'),
    ],
)
def test_why_a_json_key_is_bad(record, reason):
    schema = pa.schema([("key", STRUCT), ("n", pa.int64())])
    (found,) = decoder(schema, key_format="json").reasons([Message(record, b'{"n":1}')], list(schema))
    assert (found is None) if reason is None else found.startswith("the key: ") and reason in found


def test_a_record_without_a_key_or_a_value_is_asked_for_the_other():
    schema = pa.schema([("key", STRUCT), ("n", pa.int64())])
    messages = [Message(None, b'{"n":"x"}'), Message(b"{", None), Message(b"{}", None), Message(None, b"{}")]
    value, key, *none = decoder(schema, key_format="json").reasons(messages, list(schema))
    assert 'column "n"' in value
    assert key.startswith("the key: ")
    assert none == [None, None]


def test_keys_and_values_widen():
    schema = pa.schema([("key", STRUCT), ("n", pa.int64())])
    wider = decoder(key_format="json").widen([Message(b'{"id":1.5}', b'{"n":0.25,"more":true}')], schema)
    assert wider.names == ["key", "n", "more"]
    assert wider.field("key").type.field("id").type == pa.decimal128(20, 1)
    assert decoder(key_format="json").widen([Message(b'{"id":2}', b'{"n":3}')], schema) is None


@pytest.mark.parametrize(
    ("said", "declared", "message"),
    [
        ({"key_format": "json"}, pa.schema([("n", pa.int64())]), 'no column "key" is declared'),
        ({"key_format": "debezium"}, None, "keys are no envelopes"),
        ({"key_format": "avro"}, None, "needs a schema registry"),
        ({"key_format": "raw"}, pa.schema([("key", pa.int64())]), "STRING or BINARY, not BIGINT"),
        ({"key_format": "csv"}, pa.schema([("key", pa.string())]), "a STRUCT, not STRING"),
    ],
)
def test_what_does_not_fit_is_refused(said, declared, message):
    with refusal("source.config", why=message):
        decoder(declared, **said)


def test_a_value_with_a_field_of_that_name_is_refused():
    with refusal("source.config", "key", "key.format", why="values"):
        decoder(key_format="json").columns([Message(b"1", b'{"Key":1}')])


def test_a_source_says_so_when_it_is_opened(tmp_path):
    options = KafkaOptions.model_validate({"topic": "t", "key.format": "json"})
    context = SourceContext(tmp_path, pa.schema([("n", pa.int64())]), declared=True)
    with refusal("source.config", "key", "key.format", why="no column") as raised:
        KafkaSource(options, context)
    assert "sink.key.format" in (raised.value.hint or "")
