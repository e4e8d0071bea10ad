"""INSERT INTO a topic that is done once: VALUES, and a SELECT over tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kafka_clients as clients
import pytest

from refusals import refusal
from velostream.devtools.broker.process import BrokerProcess, free_port

if TYPE_CHECKING:
    from pathlib import Path

    from kafka_clients import Consume, Produce, Topics
    from tests.conftest import WaitUntil

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark


def test_rows_are_written_once_and_counted(database: Instance, topic: Topics, consume: Consume) -> None:
    name = topic(2)
    done = database.sql(
        f"INSERT INTO kafka://{name} (id, who, amount)"
        " VALUES (1, 'ann', 12.50), (2, 'bob', 7.255), (3, NULL, -1)"
        ' WITH ("key" = "id")'
    )
    assert done.message == f"3 records written to kafka://{name}"
    found = sorted(consume(name), key=lambda record: record.key)
    assert [(record.key, record.value) for record in found] == [
        (b"1", b'{"id":1,"who":"ann","amount":12.500}'),
        (b"2", b'{"id":2,"who":"bob","amount":7.255}'),
        (b"3", b'{"id":3,"who":null,"amount":-1.000}'),
    ]
    assert database.jobs() == [] or all(name not in job.name for job in database.jobs())
    done = database.sql(f"INSERT INTO kafka://{name} (id) VALUES (4)")
    assert done.message == f"1 record written to kafka://{name}"
    assert len(consume(name)) == 4


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ("(1, DATE '2026-05-01'), (2, NULL)", ['{"a":1,"b":"2026-05-01"}', '{"a":2,"b":null}']),
        ("(true, 1.5D), (false, 2.0D)", ['{"a":true,"b":1.5}', '{"a":false,"b":2.0}']),
        ("(1 + 1, upper('x'))", ['{"a":2,"b":"X"}']),
        (
            "(9223372036854775807, 'it''s'), (-1, 'é')",
            ['{"a":9223372036854775807,"b":"it\'s"}', '{"a":-1,"b":"é"}'],
        ),
        ("(array(1, 2), named_struct('x', 1))", ['{"a":[1,2],"b":{"x":1}}']),
    ],
)
def test_values_of_all_kinds(
    database: Instance, topic: Topics, consume: Consume, values: str, written: list[str]
) -> None:
    name = topic()
    database.sql(f"INSERT INTO kafka://{name}(a, b) VALUES {values}")
    assert [(record.value or b"").decode() for record in consume(name)] == written


def test_parameters_stand_for_values(database: Instance, topic: Topics, consume: Consume) -> None:
    name = topic()
    database.sql(f"INSERT INTO kafka://{name} (id, who) VALUES (?, ?), (?, 'x')", [1, "ann", 2])
    database.sql(f"INSERT INTO kafka://{name} (id, who) SELECT :id, :who", {"id": 3, "who": "cho"})
    assert [tuple(record.json.values()) for record in consume(name)] == [(1, "ann"), (2, "x"), (3, "cho")]


def test_columns_are_those_of_the_records_that_are_there(
    database: Instance, topic: Topics, produce: Produce, consume: Consume
) -> None:
    name = topic()
    with refusal("sql", name):
        database.sql(f"INSERT INTO kafka://{name} VALUES (1, 'ann')")
    produce(name, [{"id": 1, "who": "ann"}])
    database.sql(f"INSERT INTO kafka://{name} VALUES (2, 'bob')")
    assert [record.json for record in consume(name)] == [{"id": 1, "who": "ann"}, {"id": 2, "who": "bob"}]
    with refusal("sql", why="3 values for 2 columns"):
        database.sql(f"INSERT INTO kafka://{name} VALUES (2, 'bob', 1)")


def test_declared_columns_give_names_and_types(database: Instance, topic: Topics, consume: Consume) -> None:
    name = topic()
    declared = '"schema" = "id BIGINT, amount DECIMAL(10,2)"'
    database.sql(f"INSERT INTO kafka://{name} VALUES (1, 7) WITH ({declared})")
    assert [record.value for record in consume(name)] == [b'{"id":1,"amount":7.00}']
    with refusal("sql", "amount"):
        database.sql(f"INSERT INTO kafka://{name} VALUES (1, 'much') WITH ({declared})")


def test_formats_and_headers(database: Instance, topic: Topics, consume: Consume) -> None:
    rows, texts, headed = topic(), topic(), topic()
    database.sql(f'INSERT INTO kafka://{rows} (id, who) VALUES (1, \'a,b\') WITH ("format" = "csv")')
    assert [record.value for record in consume(rows)] == [b'1,"a,b"']
    database.sql(f'INSERT INTO kafka://{texts} WITH ("format" = "raw") (value) VALUES (\'hello\')')
    assert [record.value for record in consume(texts)] == [b"hello"]
    database.sql(f"INSERT INTO kafka://{headed} SELECT 1 AS id, SET_HEADER('trace', 't1')")
    (record,) = consume(headed)
    assert (record.value, record.headers) == (b'{"id":1}', (("trace", b"t1"),))


def test_a_table_is_written_as_it_is_now(
    database: Instance, topic: Topics, consume: Consume, wait_until: WaitUntil
) -> None:
    once, followed = topic(), topic()
    database.sql(f"CREATE TABLE of_{once} (id BIGINT PRIMARY KEY, who STRING, n BIGINT)")
    database.sql(f"INSERT INTO of_{once} VALUES (1, 'ann', 1), (2, 'ann', 2), (3, 'bob', 3)")
    done = database.sql(f"INSERT INTO kafka://{once} SELECT id, who FROM of_{once} WHERE id < 3")
    assert done.message is not None
    assert done.message.startswith(f"2 records written to kafka://{once}")
    assert sorted((r.key, r.value) for r in consume(once)) == [
        (b"1", b'{"id":1,"who":"ann"}'),
        (b"2", b'{"id":2,"who":"ann"}'),
    ]
    database.sql(f"INSERT INTO kafka://{once} SELECT who, SUM(n) AS total FROM of_{once} GROUP BY who")
    assert sorted((r.key or b"") for r in consume(once)) == [b"1", b"2", b"ann", b"bob"]
    database.sql(f"INSERT INTO kafka://{followed} SELECT id FROM of_{once} EMIT CHANGES")
    database.sql(f"INSERT INTO of_{once} VALUES (4, 'cho', 4)")
    wait_until(lambda: len(consume(followed)) == 4)
    assert len(consume(once)) == 4


def test_a_missing_topic(
    database: Instance, broker: BrokerProcess, topic: Topics, consume: Consume, tmp_path: Path
) -> None:
    name = topic(0)
    with refusal("sink.missing", name):
        database.sql(f"INSERT INTO kafka://{name} (id) VALUES (1)")
    database.sql(f'INSERT INTO kafka://{name} (id) VALUES (1) WITH ("topic.create.if.missing" = "true")')
    assert [record.json for record in consume(name)] == [{"id": 1}]


def test_brokers_that_create_topics_do(database: Instance, tmp_path: Path) -> None:
    willing = BrokerProcess(
        tmp_path / "broker",
        free_port(),
        settings={"auto.create.topics.enable": "true", "num.partitions": "3"},
    )
    willing.start()
    try:
        database.sql(f"INSERT INTO kafka://{willing.address}/made (id) VALUES (1), (2)")
        assert sorted(record.json["id"] for record in clients.consume(willing.address, "made")) == [1, 2]
    finally:
        willing.kill()


def test_all_rows_or_none(database: Instance, topic: Topics, consume: Consume) -> None:
    name = topic()
    with refusal("sink.config", name):
        database.sql(
            f"INSERT INTO kafka://{name} SELECT 1 AS id, 'x' AS t UNION ALL SELECT 2, repeat('x', 5000)"
            ' WITH ("max.request.size" = "1000")'
        )
    assert consume(name) == []


def test_a_transaction_if_that_is_asked_for(database: Instance, topic: Topics, consume: Consume) -> None:
    name = topic(2)
    for number in range(2):
        database.sql(f'INSERT INTO kafka://{name} (id) VALUES ({number}) WITH ("delivery" = "exactly_once")')
    assert sorted(record.json["id"] for record in consume(name)) == [0, 1]


def test_other_sinks_are_written_once_too(database: Instance, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    database.sql(f"INSERT INTO file://{out} (id, who) VALUES (1, 'ann')")
    database.sql(f"INSERT INTO file://{out} SELECT 2 AS id, 'bob' AS who")
    assert out.read_text() == "id,who\n1,ann\n2,bob\n"
