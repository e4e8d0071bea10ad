"""Formats as they come through a topic."""

from __future__ import annotations

import io
import json
import struct
from decimal import Decimal

import fastavro
import pytest
from kafka_clients import Sent

from formats.schema_registry import SchemaRegistry, running

pytestmark = pytest.mark.spark
AMOUNT = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
V1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": AMOUNT}],
}
V2 = {**V1, "fields": [*V1["fields"], {"name": "note", "type": ["null", "string"], "default": None}]}


def found(database, sql):
    return sorted(database.sql(sql).rows(), key=str)


def avro(number, schema, row):
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\x00" + struct.pack(">I", number) + out.getvalue()


def test_avro_with_a_registry_and_two_schemas(database, topic, produce, made):
    registry = SchemaRegistry()
    with running(registry) as url:
        name = topic()
        first = registry.add(f"{name}-value", V1)
        produce(name, [("a", avro(first, V1, {"id": 1, "amount": Decimal("12.30")}))])
        made(name, "SELECT * FROM {source}", format="avro", schema_registry_url=url)
        assert found(database, f"SELECT id, amount FROM {name}") == [(1, Decimal("12.30"))]
        second = registry.add(f"{name}-value", V2)
        produce(name, [("b", avro(second, V2, {"id": 2, "amount": Decimal("0.01"), "note": "x"}))])
        produce(name, [("c", avro(999, V1, {"id": 3, "amount": Decimal(1)})), ("a", None)])
        assert database.wait_idle(60)
        assert found(database, f"SELECT id, amount FROM {name}") == [(2, Decimal("0.01"))]
        ((reason, raw),) = database.sql(f"SELECT reason, raw FROM dead_letters WHERE job = '{name}'").rows()
        assert "999" in reason
        assert raw[:5] == b"\x00\x00\x00\x03\xe7"


def test_csv_and_raw(database, topic, produce, made):
    name = topic()
    produce(name, [("a", "1,x,2.50"), ("b", "2,y,3.75")])
    made(
        name, "SELECT id, price FROM {source}", format="csv", schema="id BIGINT, s STRING, price DECIMAL(9,2)"
    )
    assert found(database, f"SELECT * FROM {name}") == [(1, Decimal("2.50")), (2, Decimal("3.75"))]
    raw = topic()
    produce(raw, [("k", b"\x00\xff"), (None, None)])
    made(raw, "SELECT key, value, partition, offset FROM {source}", format="raw", changelog="append")
    assert found(database, f"SELECT * FROM {raw}") == [("k", b"\x00\xff", 0, 0), (None, None, 0, 1)]


def test_raw_is_text_where_it_is_text_and_bytes_where_that_is_declared(
    database, topic, produce, made, broker
):
    text = topic(1, {"retention.ms": "-1"})
    produce(text, [Sent(b"caf\xc3\xa9", key=b"k", timestamp=1_700_000_000_123)])
    made(text, "SELECT key, value FROM {source}", format="raw", changelog="append")
    assert found(database, f"SELECT * FROM {text}") == [("k", "café")]
    database.sql(
        f"CREATE SOURCE {text}_bytes (key BINARY, value BINARY, timestamp BIGINT) "
        f'FROM kafka://{broker.address}/{text} WITH ("format" = "raw")'
    )
    database.sql(f'CREATE TABLE {text}_b AS SELECT * FROM {text}_bytes WITH ("changelog" = "append")')
    assert database.wait_idle(60)
    assert found(database, f"SELECT * FROM {text}_b") == [(b"k", b"caf\xc3\xa9", 1_700_000_000_123)]
    produce(text, [("k2", b"\xff"), (b"\xfe", b"fine")])
    assert database.wait_idle(60)
    assert found(database, f"SELECT * FROM {text}") == [("k", "café")]
    letters = found(database, f"SELECT reason FROM dead_letters WHERE job = '{text}'")
    assert [reason.partition(" (")[0] for (reason,) in letters] == [
        "not valid UTF-8",
        "the key: not valid UTF-8",
    ]
    assert all("declared as BINARY" in reason for (reason,) in letters)


def change(op, before, after):
    return json.dumps({"payload": {"op": op, "before": before, "after": after, "ts_ms": 1}})


def test_envelopes_of_debezium_are_changes(database, topic, produce, made):
    name, groups = topic(), topic(0)
    produce(
        name,
        [
            ("1", change("r", None, {"id": 1, "city": "Bonn"})),
            ("2", change("c", None, {"id": 2, "city": "Bonn"})),
            ("3", change("c", None, {"id": 3, "city": "Ulm"})),
        ],
    )
    made(name, "SELECT id, city FROM {source}", format="debezium")
    database.sql(f"CREATE TABLE {groups} AS SELECT city, COUNT(*) AS n FROM {name} GROUP BY city")
    assert database.wait_idle(60)
    assert found(database, f"SELECT * FROM {groups}") == [("Bonn", 2), ("Ulm", 1)]
    produce(
        name,
        [
            ("1", change("u", {"id": 1, "city": "Bonn"}, {"id": 1, "city": "Ulm"})),
            ("2", change("d", {"id": 2, "city": "Bonn"}, None)),
            ("2", None),
        ],
    )
    assert database.wait_idle(60)
    assert found(database, f"SELECT * FROM {name}") == [(1, "Ulm"), (3, "Ulm")]
    assert found(database, f"SELECT * FROM {groups}") == [("Ulm", 2)]


def test_groups_over_envelopes_follow_them(database, topic, produce, made):
    name = topic()
    produce(name, [("1", change("c", None, {"id": 1, "n": 5})), ("2", change("c", None, {"id": 2, "n": 7}))])
    made(name, "SELECT COUNT(*) AS c, SUM(n) AS s FROM {source}", format="debezium")
    produce(name, [("1", change("u", {"id": 1, "n": 5}, {"id": 1, "n": 6})), ("2", change("d", None, None))])
    assert database.wait_idle(60)
    assert found(database, f"SELECT * FROM {name}") == [(1, 6)]
