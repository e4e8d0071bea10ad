"""Keys with a format of their own."""

from __future__ import annotations

import io
import json
import struct

import fastavro
import pytest

from formats.schema_registry import SchemaRegistry, running
from velostream.formats.protobuf.files import compiled, message_class
from velostream.formats.schemas.wire import framed

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
ORDER_KEY = {
    "type": "record",
    "name": "OrderKey",
    "fields": [{"name": "id", "type": "long"}, {"name": "region", "type": "string"}],
}

LATER_KEY = {**ORDER_KEY, "fields": [*ORDER_KEY["fields"], {"name": "shop", "type": "string", "default": ""}]}


PROTO_KEY = """
syntax = "proto3";
message OrderKey { int64 id = 1; string region = 2; }
"""


def found(database, sql):
    return sorted((tuple(row) for row in database.sql(sql).rows()), key=str)


def letters(database, job):
    rows = found(database, f"SELECT reason, raw, offset FROM dead_letters WHERE job = '{job}'")
    return sorted(rows, key=lambda row: int(row[2]))


def avro(number, schema, value):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return b"\x00" + struct.pack(">I", number) + out.getvalue()


def key(**fields):
    return json.dumps(fields, separators=(",", ":"))


def test_json_keys_of_several_fields(database, topic, produce, made):
    name = topic()
    first = key(id=1, region="eu")
    produce(name, [(first, {"n": 1}), (key(id=2, region="us"), {"n": 2}), (None, {"n": 3})])
    made(name, "SELECT *, _key AS text FROM {source}", key_format="json")
    assert found(database, f"SELECT key.id, key.region, n, text FROM {name}") == [
        (1, "eu", 1, first),
        (2, "us", 2, key(id=2, region="us")),
        (None, None, 3, None),
    ]
    assert found(database, f"SELECT key IS NULL, n FROM {name} WHERE n = 3") == [(True, 3)]
    # No text, and one that would be more than one value within an object.
    produce(name, [(b"\xff", {"n": 4}), ('{"id":5,"region":"x"},"n":1', {"n": 5}), (first, None)])
    assert database.wait_idle(60)
    assert found(database, f"SELECT key.id, n FROM {name}") == [(2, 2), (None, 3)]
    (no_text, *_), (no_value, raw, _) = letters(database, name)
    assert no_text.startswith("the key: not valid UTF-8")
    assert no_value.startswith("the key: not JSON")
    assert raw == b'{"n":5}'


def test_keys_that_are_plain_values_and_groups_by_them(database, topic, produce, made):
    name = topic()
    produce(name, [("7", {"n": 1}), ("7", {"n": 2}), ("8", {"n": 5}), ('"x"', {"n": 9})])
    made(
        name,
        "SELECT key, SUM(n) AS total FROM {source} GROUP BY key",
        key_format="json",
        schema="key BIGINT, n BIGINT",
    )
    assert found(database, f"SELECT * FROM {name}") == [(7, 3), (8, 5)]
    ((reason, raw, _),) = letters(database, name)
    assert reason.startswith("the key: ")
    assert raw == b'{"n":9}'


def test_a_key_that_is_not_used_is_not_looked_at(database, topic, produce, made):
    name = topic()
    produce(name, [("no json", {"n": 1}), ("{}", {"n": 2})])
    made(
        name,
        "SELECT SUM(n) AS total FROM {source}",
        key_format="json",
        schema="key STRUCT<id: BIGINT>, n BIGINT",
    )
    assert found(database, f"SELECT * FROM {name}") == [(3,)]
    assert letters(database, name) == []


def test_avro_keys_of_a_registry(database, topic, produce, made):
    """Values stay JSON; a key whose schema is registered late is taken in by a replay."""
    registry = SchemaRegistry()
    with running(registry) as url:
        name = topic()
        number = registry.add(f"{name}-key", ORDER_KEY)
        keys = [
            avro(number, ORDER_KEY, {"id": 1, "region": "eu"}),
            avro(number + 1, LATER_KEY, {"id": 2, "region": "us", "shop": "s"}),
            avro(number, ORDER_KEY, {"id": 3, "region": "us"})[:-1],
        ]
        produce(name, [(each, {"n": n}) for n, each in enumerate(keys, start=1)])
        made(
            name,
            "SELECT key.id AS id, key.region AS region, n FROM {source}",
            key_format="avro",
            schema_registry_url=url,
            changelog="append",
        )
        assert found(database, f"SELECT * FROM {name}") == [(1, "eu", 1)]
        (unknown, raw, _), (early, _, _) = letters(database, name)
        assert unknown.startswith(f"the key: schema id {number + 1} is not known")
        assert raw == b'{"n":2}'
        assert early == "the key: the record ends early"
        assert registry.add(f"{name}-key", LATER_KEY) == number + 1
        (done,) = database.sql(f"REPLAY DEAD LETTERS WHERE job = '{name}'").rows()
        assert (done.tried, done.taken, done.left) == (2, 1, 1)
        assert found(database, f"SELECT * FROM {name}") == [(1, "eu", 1), (2, "us", 2)]
        assert [reason for reason, _, _ in letters(database, name)] == ["the key: the record ends early"]


def test_avro_keys_that_are_plain_values(database, topic, produce, made):
    registry = SchemaRegistry()
    with running(registry) as url:
        name = topic()
        number = registry.add(f"{name}-key", '"long"')
        produce(name, [(avro(number, "long", 41), {"n": 1}), (avro(number, "long", 42), {"n": 2})])
        made(name, "SELECT * FROM {source}", key_format="avro", schema_registry_url=url)
        assert found(database, f"SELECT key, n FROM {name}") == [(41, 1), (42, 2)]


def test_text_and_csv_keys(database, topic, produce, made):
    text, rows = topic(), topic()
    produce(text, [("a", {"n": 1}), (b"\xff\x00", {"n": 2}), (None, {"n": 3})])
    made(text, "SELECT * FROM {source}", key_format="raw", changelog="append")
    assert found(database, f"SELECT key, n FROM {text}") == [("a", 1), (None, 3)]
    ((reason, raw, _),) = letters(database, text)
    assert reason.startswith("the key: not valid UTF-8")
    assert raw == b'{"n":2}'
    produce(rows, [("1,eu", b"x"), ("2,us,more", b"y"), (None, b"z")])
    made(
        rows,
        "SELECT key.id AS id, key.region AS region, CAST(value AS STRING) AS v FROM {source}",
        format="raw",
        key_format="csv",
        schema="key STRUCT<id: BIGINT, region: STRING>, value BINARY",
        changelog="append",
    )
    assert found(database, f"SELECT * FROM {rows}") == [(1, "eu", "x"), (None, None, "z")]
    ((reason, _, _),) = letters(database, rows)
    assert reason == "the key: 3 fields where 2 are expected"


def test_protobuf_keys_of_a_registry(database, topic, produce, made):
    registry = SchemaRegistry()
    with running(registry) as url:
        name = topic()
        number = registry.add(f"{name}-key", PROTO_KEY, "PROTOBUF")
        order = message_class(compiled("key.proto", PROTO_KEY, {}, "OrderKey"))
        keys = [framed(number, b"\0" + order(id=n, region="eu").SerializeToString()) for n in (1, 2)]
        produce(name, [(each, {"n": n}) for n, each in enumerate([*keys, keys[0][:-1], None], start=1)])
        made(
            name,
            "SELECT key.id AS id, key.region AS region, n FROM {source}",
            key_format="protobuf",
            schema_registry_url=url,
            changelog="append",
        )
        assert found(database, f"SELECT * FROM {name}") == [(1, "eu", 1), (2, "eu", 2), (None, None, 4)]
        ((reason, raw, _),) = letters(database, name)
        assert reason.startswith("the key: not a message")
        assert raw == b'{"n":3}'


def test_a_key_that_gets_a_field_later(database, topic, produce, made):
    """The table widens as it does for fields of values, and keeps what it has."""
    name = topic()
    produce(name, [(key(id=1), {"n": 1}), (key(id=2), {"n": 2})])
    made(name, "SELECT * FROM {source}", key_format="json", changelog="append")
    assert found(database, f"SELECT key.id, n FROM {name}") == [(1, 1), (2, 2)]
    produce(name, [(key(id=3, region="eu"), {"n": 3}), (key(id=2**40), {"n": 4})])
    assert database.wait_idle(60)
    assert found(database, f"SELECT key.id, key.region, n FROM {name}") == [
        (1, None, 1),
        (2**40, None, 4),
        (2, None, 2),
        (3, "eu", 3),
    ]
    assert letters(database, name) == []
