"""Writing to Kafka: what stands in the topic, and what is told when it cannot be written."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from kafka_clients import Sent

from refusals import refusal
from velostream.errors import (
    SinkMissingError,
)
from velostream.model.jobs import JobState

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kafka_clients import Consume, Produce, Received, Topics
    from tests.conftest import WaitUntil

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

TRADES = """id,symbol,price,at
1,AAPL,150.25,2026-01-05 10:00:00
2,MSFT,99.50,2026-01-05 10:00:01.5
3,AAPL,151.00,2026-01-05 10:00:02
"""


@pytest.fixture
def trades(tmp_path: Path) -> Path:
    path = tmp_path / "trades.csv"
    path.write_text(TRADES)
    return path


@pytest.fixture
def written(consume: Consume, wait_until: WaitUntil) -> Callable[[str, int], list[Received]]:
    """`written(topic, count)`: what is in the topic once there are so many records, and no more."""

    def read(topic: str, count: int) -> list[Received]:
        wait_until(lambda: len(consume(topic)) >= count, 30)
        found = consume(topic)
        assert len(found) == count, found
        return found

    return read


@pytest.fixture
def table(database: Instance, request: pytest.FixtureRequest) -> Any:
    """A table of this test's own, filled by hand."""
    name = request.node.name.removeprefix("test_").replace("[", "_").removesuffix("]")
    database.sql(f"CREATE TABLE {name} (k STRING PRIMARY KEY, v DECIMAL(10,2))")
    return database.table(name)


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_rows_of_a_file(database: Instance, topic: Topics, written, trades: Path, delivery: str) -> None:
    name = topic(3)
    database.sql(
        f"INSERT INTO kafka://{name} SELECT id, symbol, price, at FROM file://{trades} "
        f'WITH ("key" = "symbol", "delivery" = "{delivery}")'
    )
    found = written(name, 3)
    assert {record.value for record in found} == {
        b'{"id":1,"symbol":"AAPL","price":150.25,"at":"2026-01-05T10:00:00Z"}',
        b'{"id":2,"symbol":"MSFT","price":99.50,"at":"2026-01-05T10:00:01.500000Z"}',
        b'{"id":3,"symbol":"AAPL","price":151.00,"at":"2026-01-05T10:00:02Z"}',
    }
    apple = [record for record in found if record.key == b"AAPL"]
    assert [record.json["id"] for record in apple] == [1, 3]
    assert len({record.partition for record in apple}) == 1
    with trades.open("a") as out:
        out.write("4,AAPL,1.00,2026-01-05 10:00:03\n")
    assert sorted(record.json["id"] for record in written(name, 4)) == [1, 2, 3, 4]


def test_keys_fall_where_java_puts_them(database: Instance, topic: Topics, written, tmp_path: Path) -> None:
    """Partitions of murmur2 over 6, as Java's DefaultPartitioner gives them."""
    name = topic(6)
    path = tmp_path / "keys.csv"
    path.write_text("k\n" + "".join(f"key-{n}\n" for n in range(20)))
    database.sql(f'INSERT INTO kafka://{name} SELECT k FROM file://{path} WITH ("key" = "k")')
    assert {r.key.decode(): r.partition for r in written(name, 20) if r.key} == {
        f"key-{n}": _murmur2(f"key-{n}".encode()) % 6 for n in range(20)
    }


def test_a_stream_with_options(database: Instance, topic: Topics, written, trades: Path) -> None:
    name = topic(1, {"retention.ms": "-1"})  # its records say that they are months old
    database.sql(
        f"CREATE STREAM with_options AS SELECT id, symbol, price, at FROM file://{trades} "
        f'WITH ("sink" = "kafka://{name}", "key" = "symbol,id", "decimal.format" = "string", '
        '"timestamp.column" = "at", "compression.type" = "zstd", "linger" = "1ms", "partitioner" = "fnv1a")'
    )
    first = written(name, 3)[0]
    assert (first.key, first.json["price"]) == (b'{"symbol":"AAPL","id":1}', "150.25")
    assert first.timestamp == int(datetime(2026, 1, 5, 10, tzinfo=UTC).timestamp() * 1000)


def test_other_formats(database: Instance, topic: Topics, written, trades: Path) -> None:
    rows, texts, keys = topic(1), topic(1), topic(1)
    database.sql(
        f'INSERT INTO kafka://{rows} WITH ("format" = "csv") SELECT id, symbol, price FROM file://{trades}'
    )
    assert written(rows, 3)[0].value == b"1,AAPL,150.25"
    database.sql(f'INSERT INTO kafka://{texts} WITH ("format" = "raw") SELECT symbol FROM file://{trades}')
    assert [(r.key, r.value) for r in written(texts, 3)][:2] == [(None, b"AAPL"), (None, b"MSFT")]
    database.sql(
        f"INSERT INTO kafka://{keys} SELECT id FROM file://{trades} "
        'WITH ("key" = "id", "key.format" = "json")'
    )
    assert written(keys, 3)[0].key == b'{"id":1}'
    with refusal("sink.config", "raw", "id", "symbol"):
        database.sql(
            f'INSERT INTO kafka://{topic(1)} WITH ("format" = "raw") SELECT id, symbol FROM file://{trades}'
        )


def test_headers_are_set(database: Instance, topic: Topics, written, trades: Path) -> None:
    name = topic(1)
    database.sql(
        f"INSERT INTO kafka://{name} SELECT id, SET_HEADER('trace', concat('t', id)), "
        "SET_HEADER('n', id) AS n, SET_HEADER('gone', 1), REMOVE_HEADER('gone'), SET_HEADER('none', NULL) "
        f"FROM file://{trades}"
    )
    first = written(name, 3)[0]
    assert first.json == {"id": 1, "n": 1}
    assert first.headers == (("trace", b"t1"), ("n", b"1"), ("none", None))
    with refusal("sql.unsupported", "SET_HEADER"):
        database.sql(
            f"INSERT INTO kafka://{topic(1)} SELECT CASE WHEN id > 1 THEN SET_HEADER('a', 1) END AS a "
            f"FROM file://{trades}"
        )


def test_incoming_headers_go_on(database: Instance, topic: Topics, produce: Produce, written) -> None:
    """From topic to topic: headers are changed, and the others stay."""
    source, name = topic(1), topic(1)
    database.sql(
        f"CREATE STREAM forwarded AS SELECT n, SET_HEADER('b', n), REMOVE_HEADER('c') FROM kafka://{source} "
        f'WITH ("sink" = "kafka://{name}", "schema" = "n BIGINT", "auto.offset.reset" = "earliest", '
        '"delivery" = "exactly_once")'
    )
    produce(source, [Sent({"n": 1}, headers={"a": "x", "b": "y", "c": "z"}), Sent({"n": 2})])
    assert [(record.json, record.headers) for record in written(name, 2)] == [
        ({"n": 1}, (("a", b"x"), ("b", b"1"))),
        ({"n": 2}, (("b", b"2"),)),
    ]


def test_avro_comes_back(database: Instance, topic: Topics, written, trades: Path, tmp_path: Path) -> None:
    name = topic(1)
    schema = tmp_path / "trade.avsc"
    fields = [{"name": "id", "type": "long"}, {"name": "symbol", "type": ["null", "string"]}]
    schema.write_text(json.dumps({"type": "record", "name": "trade", "fields": fields}))
    said = f'"format" = "avro", "schema.file" = "{schema}"'
    database.sql(f"INSERT INTO kafka://{name} WITH ({said}) SELECT id, symbol FROM file://{trades}")
    written(name, 3)
    database.sql(f"CREATE TABLE from_avro AS SELECT id, symbol FROM kafka://{name} WITH ({said})")
    database.wait_idle(30)
    assert sorted(map(tuple, database.table("from_avro").rows())) == [(1, "AAPL"), (2, "MSFT"), (3, "AAPL")]


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_changes_of_a_table(database: Instance, table, topic: Topics, written, delivery: str) -> None:
    """An update is one record, a delete is a tombstone; the key is the table's."""
    name, stream = topic(1), f"changes_{delivery}"
    database.sql(
        f"CREATE STREAM {stream} AS SELECT k, v FROM {table.name} EMIT CHANGES "
        f'WITH ("sink" = "kafka://{name}", "delivery" = "{delivery}")'
    )
    table.insert([("a", Decimal("1.00")), ("b", Decimal("2.00"))])
    written(name, 2)
    table.update("a", v=Decimal("1.50"))
    written(name, 3)
    table.delete(["b"])
    found = [(record.key, record.value) for record in written(name, 4)]
    assert sorted(found[:2]) == [(b"a", b'{"k":"a","v":1.00}'), (b"b", b'{"k":"b","v":2.00}')]
    assert found[2:] == [(b"a", b'{"k":"a","v":1.50}'), (b"b", None)]
    database.sql(f"DROP STREAM {stream}")


def test_what_comes_and_goes_within_a_step(database: Instance, table, topic: Topics, written) -> None:
    name = topic(1)
    table.insert([{"k": "a", "v": Decimal("1.00")}])
    database.sql(f"INSERT INTO kafka://{name} SELECT * FROM {table.name} EMIT CHANGES")
    written(name, 1)
    job = next(each.id for each in database.jobs() if each.kind == "insert" and name in each.statement)
    database.sql(f"PAUSE JOB {job}")
    table.insert([{"k": "b", "v": Decimal("2.00")}])
    table.delete(["b"])
    table.update("a", v=Decimal("3.00"))
    table.update("a", v=Decimal("4.00"))
    database.sql(f"RESUME JOB {job}")
    last = written(name, 2)[-1]
    assert (last.key, json.loads(last.value)["v"]) == (b"a", 4.00)


def test_changes_of_rows_without_their_key(database: Instance, table, topic: Topics, written) -> None:
    name = topic(1)
    table.insert([("a", Decimal("1.00"))])
    database.sql(f"CREATE STREAM keyless AS SELECT v FROM {table.name} WITH ('sink' = 'kafka://{name}')")
    written(name, 1)
    table.delete(["a"])
    job = database.job("keyless")
    assert job.wait(lambda j: j.state is JobState.FAILED, 30)
    assert "a row was retracted" in job.info.reason
    assert "select the key of the table" in job.error.hint
    database.sql("DROP STREAM keyless")


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_groups(database: Instance, topic: Topics, written, trades: Path, delivery: str) -> None:
    """A new version of a group's row whenever it changed, under the group's key."""
    name = topic(1)
    database.sql(
        f"INSERT INTO kafka://{name} SELECT symbol, COUNT(*) AS n, SUM(price) AS total FROM file://{trades} "
        f'GROUP BY symbol EMIT CHANGES WITH ("delivery" = "{delivery}", "file.debounce" = "20ms")'
    )
    assert {(r.key, r.value) for r in written(name, 2)} == {
        (b"AAPL", b'{"symbol":"AAPL","n":2,"total":301.25}'),
        (b"MSFT", b'{"symbol":"MSFT","n":1,"total":99.50}'),
    }
    with trades.open("a") as out:
        out.write("4,AAPL,1.00,2026-01-05 10:00:03\n")
    assert written(name, 3)[2].json == {"symbol": "AAPL", "n": 3, "total": 302.25}
    lines = trades.read_text().splitlines(keepends=True)
    other = trades.with_suffix(".new")
    other.write_text("".join(line for line in lines if "MSFT" not in line))
    other.replace(trades)
    assert [(r.key, r.value) for r in written(name, 4)][3] == (b"MSFT", None)


def test_a_missing_topic(database: Instance, topic: Topics, written, trades: Path, caplog) -> None:
    name = topic(0)
    statement = f"INSERT INTO kafka://{name} SELECT id FROM file://{trades}"
    with refusal("sink.missing", name) as error:
        database.sql(statement)
    assert "topic.create.if.missing" in str(error.value)
    with pytest.raises(SinkMissingError):
        database.sql(f'{statement} WITH ("topic.wait.timeout" = "300ms", "topic.retry.interval" = "100ms")')
    database.sql(f'{statement} WITH ("topic.create.if.missing" = "true", "topic.partitions" = "2")')
    assert sorted(record.json["id"] for record in written(name, 3)) == [1, 2, 3]


def test_what_cannot_be_meant(database: Instance, topic: Topics, trades: Path) -> None:
    name = topic(1)
    with refusal("sql.unknown_name", "symbl", "key") as error:
        database.sql(f'INSERT INTO kafka://{name} SELECT symbol FROM file://{trades} WITH ("key" = "symbl")')
    assert 'did you mean "symbol"?' in str(error.value)
    with refusal("sink.config", "other"):
        database.sql(
            f"CREATE STREAM two AS SELECT symbol FROM file://{trades} WITH ('sink' = 'kafka://{name},other')"
        )
    with refusal("sink.config", "acks"):
        database.sql(
            f"INSERT INTO kafka://{name} SELECT symbol FROM file://{trades} "
            'WITH ("delivery" = "exactly_once", "acks" = "1")'
        )
    with refusal("sink.network", "127.0.0.1:1"):
        database.sql(f"INSERT INTO kafka://127.0.0.1:1/{name} SELECT symbol FROM file://{trades}")
    with refusal("sql.unsupported", "console://"):
        database.sql(
            f'INSERT INTO console:// SELECT symbol FROM file://{trades} WITH ("delivery" = "exactly_once")'
        )


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_a_record_that_is_too_large_is_set_aside(
    database: Instance, topic: Topics, written, tmp_path: Path, delivery: str
) -> None:
    """Larger than the topic takes, though not than we would send."""
    name = topic(1, {"max.message.bytes": "2000"})
    path = tmp_path / "texts.jsonl"
    texts = ["short", "x" * 5_000, "also short"]
    path.write_text("".join(json.dumps({"t": text}) + "\n" for text in texts))
    database.sql(f'INSERT INTO kafka://{name} SELECT t FROM file://{path} WITH ("delivery" = "{delivery}")')
    assert [record.json["t"] for record in written(name, 2)] == ["short", "also short"]
    letters = database.sql(f"SELECT reason, raw FROM dead_letters WHERE source = 'kafka://{name}'").rows()
    assert len(letters) == 1
    assert "2000 may be written" in letters[0].reason
    assert bytes(letters[0].raw).startswith(b'{"t":"xxx')


def test_a_compacted_topic_wants_keys(database: Instance, topic: Topics, trades: Path) -> None:
    name = topic(1, {"cleanup.policy": "compact"})
    with refusal("sink.config", name) as error:
        database.sql(f"INSERT INTO kafka://{name} SELECT id FROM file://{trades}")
    assert "give the rows a key" in str(error.value)


def _murmur2(data: bytes) -> int:
    """As org.apache.kafka.common.utils.Utils.murmur2, made positive."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    rest = data[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h ^= h >> 13
    h = h * m & mask
    h ^= h >> 15
    return h & 0x7FFFFFFF
