"""Tables and streams over topics of a real broker."""

from __future__ import annotations

import json
from decimal import Decimal

import pyarrow as pa
import pytest
from kafka_clients import Sent, make_topic

from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.connectors.kafka.client.cluster import Cluster
from velostream.connectors.kafka.client.ranges import Part
from velostream.connectors.kafka.options import KafkaOptions
from velostream.connectors.kafka.read.source import KafkaSource
from velostream.errors import SourceMissingError
from velostream.runtime.instance import open_instance
from velostream.spark.jars.class_path import load_jars

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


@pytest.fixture
def uri(broker):
    return lambda topic: f"kafka://{broker.address}/{topic}"


def rows(database, sql):
    return sorted(database.sql(sql).rows(), key=str)


def settle(database):
    assert database.wait_idle(60), database.jobs()


def make_again(broker, name, partitions, wait_until):
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([name])[name].result()

    def made() -> bool:
        try:
            admin.create_topics([NewTopic(name, partitions, 1)])[name].result()
        except KafkaException as exc:
            # The old one is still being deleted.
            if exc.args[0].name() != "TOPIC_ALREADY_EXISTS":
                raise
            return False
        return True

    wait_until(made)


def trade(number, **more):
    return {"id": number, "symbol": f"S{number % 3}", "price": 100.25 + number, **more}


def test_groups_over_a_topic_follow_it(database, topic, produce, uri):
    name = topic(2)
    produce(name, [(f"k{n}", trade(n)) for n in range(30)])
    database.sql(
        f"CREATE TABLE {name} AS SELECT symbol, COUNT(*) AS n, SUM(price) AS total FROM {uri(name)}"
        " GROUP BY symbol"
    )
    settle(database)
    expected = {f"S{s}": [Decimal("100.25") + n for n in range(30) if n % 3 == s] for s in range(3)}
    assert rows(database, f"SELECT * FROM {name}") == [(s, len(p), sum(p)) for s, p in expected.items()]
    produce(name, [("k1", trade(1))])
    settle(database)
    assert database.table(name).get("S1") == ("S1", 11, sum(expected["S1"]) + Decimal("101.25"))


def test_a_plain_select_keeps_the_last_record_of_each_key(database, topic, produce, uri):
    name = topic(2)
    produce(name, [("a", trade(1)), ("b", trade(2)), ("a", trade(3)), (None, trade(4)), (None, trade(4))])
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM {uri(name)}")
    settle(database)
    table = database.table(name)
    assert [row.id for row in (table.get("a"), table.get("b"))] == [3, 2]
    assert sorted(row.id for row in table.rows()) == [2, 3, 4, 4]
    produce(name, [("a", None), ("b", trade(5)), ("c", trade(6)), ("c", None), ("d", None), ("d", trade(7))])
    settle(database)
    assert table.get("a") is None
    assert sorted(row.id for row in table.rows()) == [4, 4, 5, 7]
    assert rows(database, "SELECT * FROM dead_letters") == []


def test_a_record_that_no_longer_passes_the_filter_leaves(database, topic, produce, uri):
    name = topic()
    produce(name, [("a", trade(1)), ("b", trade(2)), ("c", trade(0, symbol="x"))])
    database.sql(f"CREATE TABLE {name} AS SELECT id, 10 / id AS tenth FROM {uri(name)} WHERE id > 0")
    settle(database)
    assert sorted(row.id for row in database.table(name).rows()) == [1, 2]
    produce(name, [("a", trade(0)), ("b", trade(3))])
    settle(database)
    assert sorted(row.id for row in database.table(name).rows()) == [3]
    assert rows(database, "SELECT * FROM dead_letters") == []


def test_a_key_of_its_own_and_tombstones(database, topic, produce, uri):
    name = topic(2)
    produce(name, [("a", trade(1)), ("b", trade(2))])
    database.sql(f'CREATE TABLE {name} AS SELECT id, symbol FROM {uri(name)} WITH ("key" = "id")')
    settle(database)
    assert database.table(name).get(2) == (2, "S2")
    produce(name, [("b", trade(9)), ("a", None)])
    settle(database)
    assert rows(database, f"SELECT id FROM {name}") == [(9,)]


def test_groups_with_upsert_take_old_records_back(database, topic, produce, uri):
    name = topic(2)
    produce(name, [("a", trade(1)), ("b", trade(1)), ("c", trade(2))])
    database.sql(
        f"CREATE TABLE {name} AS SELECT symbol, COUNT(*) AS n, MAX(price) AS top FROM {uri(name)} "
        'GROUP BY symbol WITH ("changelog" = "upsert")'
    )
    settle(database)
    assert rows(database, f"SELECT symbol, n FROM {name}") == [("S1", 2), ("S2", 1)]
    produce(name, [("a", trade(2)), ("c", None)])
    settle(database)
    assert rows(database, f"SELECT symbol, n, top FROM {name}") == [
        ("S1", 1, Decimal("101.25")),
        ("S2", 1, Decimal("102.25")),
    ]


def test_aggregates_that_need_all_rows_keep_them(database, topic, produce, uri):
    name = topic()
    produce(name, [trade(n % 5) for n in range(20)])
    database.sql(
        f"CREATE TABLE {name} AS SELECT symbol, COUNT(DISTINCT id) AS ids FROM {uri(name)} GROUP BY symbol"
    )
    settle(database)
    assert rows(database, f"SELECT * FROM {name}") == [("S0", 2), ("S1", 2), ("S2", 1)]
    produce(name, [trade(8), trade(2)])
    settle(database)
    assert rows(database, f"SELECT * FROM {name}") == [("S0", 2), ("S1", 2), ("S2", 2)]


def test_system_columns_and_headers(database, topic, produce, uri):
    name = topic(1, {"retention.ms": "-1"})
    produce(
        name,
        [
            Sent(trade(1), key="a", headers={"trace": "t1", "x": b"\xff"}, timestamp=1_700_000_000_123),
            Sent(trade(2), key=b"\xff\x00"),
        ],
    )
    database.sql(
        f"CREATE TABLE {name} AS SELECT id, _key, _topic, _partition, _offset, _timestamp, "
        f"HEADER('trace') AS trace, HAS_HEADER('x') AS x, HEADER_KEYS() AS names FROM {uri(name)} "
        'WITH ("changelog" = "append")'
    )
    settle(database)
    first, second = sorted(database.table(name).rows())
    assert first[:5] == (1, "a", name, "0", 0)
    assert first[5].isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first[6:] == ("t1", True, ["trace", "x"])
    assert second[1:5] == ("\\xff00", name, "0", 1)
    assert second[6:] == (None, False, [])


def test_bad_records_are_dead_letters_and_the_job_goes_on(database, topic, produce, uri):
    name = topic()
    bad = [b"not json", b"", b'{"id": "x", "symbol": "S1", "price": 1.5}', b'{"id": 1}\xff', b"[1]", None]
    produce(name, [trade(1), *bad, trade(2)])
    database.sql(
        f"CREATE SOURCE {name}_s (id BIGINT, symbol STRING, price DECIMAL(10,2)) FROM {uri(name)}"
        ' WITH ("changelog" = "append")'
    )
    database.sql(f"CREATE TABLE {name} AS SELECT id, price FROM {name}_s")
    settle(database)
    assert sorted(row.id for row in database.table(name).rows()) == [1, 2]
    letters = database.sql(
        f"SELECT partition, offset, raw, reason FROM dead_letters WHERE job = '{name}' ORDER BY offset"
    ).rows()
    assert [(row[0], int(row[1]), row[2]) for row in letters] == [
        (f"{name}/0", n + 1, raw or b"") for n, raw in enumerate(bad)
    ]
    assert all(row[3] for row in letters)
    produce(name, [trade(3)])
    settle(database)
    assert len(database.table(name)) == 3


def test_records_of_ten_megabytes(database, topic, produce, uri):
    name = topic(1, {"max.message.bytes": "12000000"})
    large = "x" * 10_000_000
    sizes = {"message.max.bytes": 12_000_000}
    produce(name, [{"id": 1, "note": large}, large, {"id": 2, "note": "small"}], sizes)
    properties = '"changelog" = "append", "schema" = "id BIGINT, note STRING"'
    database.sql(f"CREATE TABLE {name} AS SELECT id, length(note) AS n FROM {uri(name)} WITH ({properties})")
    settle(database)
    assert rows(database, f"SELECT * FROM {name}") == [(1, 10_000_000), (2, 5)]
    ((offset, raw),) = rows(database, f"SELECT offset, raw FROM dead_letters WHERE job = '{name}'")
    assert (offset, raw == large.encode()) == ("1", True)


def test_a_field_that_appears_later_widens_the_table(database, topic, produce, uri):
    name = topic()
    produce(name, [("a", {"id": 1, "price": 1.5})])
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM {uri(name)}")
    settle(database)
    produce(name, [("b", b'{"id": 2, "price": 12345678901234567.25, "note": "new"}')])
    produce(name, [("c", b'{"id": 3, "price": 1234567890123456789.12345}')])
    settle(database)
    found = database.sql(f"SELECT id, price, note FROM {name} ORDER BY id").rows()
    assert [row[0] for row in found] == [1, 2, 3]
    assert found[1][1:] == (Decimal("12345678901234567.25"), "new")
    assert found[2][1] == Decimal("1234567890123456789.12345")
    assert rows(database, f"SELECT * FROM dead_letters WHERE job = '{name}'") == []


def test_a_field_within_a_field_may_appear_later(database, topic, produce, uri):
    name = topic()
    produce(name, [("a", {"id": 1, "at": {"city": "Ulm", "geo": {"lat": 1}}})])
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM {uri(name)}")
    settle(database)
    later = {"id": 2, "at": {"city": "Bonn", "geo": {"lat": 2, "lon": 7}}}
    produce(name, [("b", later), ("c", {"id": 3, "at": None}), ("d", {"id": 4, "at": {"zip": "53111"}})])
    settle(database)
    found = rows(database, f"SELECT id, at.city, at.zip, at.geo.lat, at.geo.lon FROM {name}")
    assert sorted(found) == [
        (1, "Ulm", None, 1, None),
        (2, "Bonn", None, 2, 7),
        (3, None, None, None, None),
        (4, None, "53111", None, None),
    ]
    assert rows(database, f"SELECT * FROM dead_letters WHERE job = '{name}'") == []


def test_a_missing_topic_is_explained_and_can_be_made(database, topic, uri, produce):
    name = topic(0)
    near = topic()
    with pytest.raises(SourceMissingError) as failed:
        database.sql(f"CREATE TABLE {name} AS SELECT * FROM {uri(near + 'x')}")
    told = str(failed.value)
    assert f'kafka topic "{near}x" does not exist' in told
    assert "1. create it:         velo topic create" in told
    assert "2. wait for it:" in told
    assert f'4. did you mean "{near}"?' in told
    database.sql(
        f"CREATE TABLE {name} (id BIGINT) AS SELECT CAST(id AS BIGINT) FROM {uri(name)} "
        'WITH ("topic.create.if.missing" = "true", "topic.partitions" = "3", "schema" = "id BIGINT")'
    )
    settle(database)
    produce(name, [("a", {"id": 1})])
    settle(database)
    assert len(database.table(name)) == 1


def test_brokers_that_do_not_answer(database):
    with refusal("source.network", "127.0.0.1:1"):
        database.sql("CREATE TABLE nowhere AS SELECT * FROM kafka://127.0.0.1:1/x")


def test_where_to_begin(database, topic, produce, uri):
    name = topic(2, {"retention.ms": "-1"})
    produce(name, [Sent(trade(n), partition=n % 2, timestamp=1_700_000_000_000 + n) for n in range(10)])
    offsets = json.dumps({name: {"0": 3, "1": -1}})
    create = f'CREATE TABLE {name}_{{0}} AS SELECT id FROM {uri(name)} WITH ("changelog" = "append", {{1}})'
    ways = {
        "offsets": (f"'starting.offsets' = '{offsets}'", [6, 8]),
        "time": ("'starting.timestamp' = '2023-11-14T22:13:20.007Z'", [7, 8, 9]),
        "latest": ("'auto.offset.reset' = 'LATEST'", []),
        "odd": ("'auto.offset.reset' = 'whenever'", list(range(10))),
    }
    for way, (said, _) in ways.items():
        database.sql(create.format(way, said))
    settle(database)
    for way, (_, expected) in ways.items():
        assert rows(database, f"SELECT id FROM {name}_{way}") == [(n,) for n in expected], way
    with refusal("source.config", "starting.offsets"):
        database.sql(create.format("bad", "'starting.offsets' = '{\"other\": {\"0\": 1}}'"))


def test_several_topics_and_patterns(database, topic, produce, uri):
    one, other = topic(), topic()
    produce(one, [trade(1)])
    produce(other, [trade(2)])
    database.sql(
        f"CREATE TABLE {one}_two AS SELECT id, _topic FROM '{uri(f'{one},{other}')}'"
        ' WITH ("changelog" = "append")'
    )
    settle(database)
    assert rows(database, f"SELECT * FROM {one}_two") == [(1, one), (2, other)]


def test_a_topic_that_matches_later_is_read_too(database, topic, produce, uri, broker, wait_until):
    stem = topic(0)
    make_topic(broker.address, f"{stem}-a", 1)
    produce(f"{stem}-a", [trade(1)])
    database.sql(
        f'CREATE TABLE {stem} AS SELECT id, _topic FROM {uri(f"{stem}-*")} WITH ("changelog" = "append")'
    )
    settle(database)
    make_topic(broker.address, f"{stem}-b", 1)
    produce(f"{stem}-b", [trade(2)])
    wait_until(lambda: len(database.table(stem)) == 2)
    assert rows(database, f"SELECT * FROM {stem}") == [(1, f"{stem}-a"), (2, f"{stem}-b")]


def test_only_what_is_committed_is_read(database, topic, produce, uri, broker):
    from confluent_kafka import Producer

    name = topic()
    produce(name, [trade(0)])
    database.sql(f'CREATE TABLE {name} AS SELECT id FROM {uri(name)} WITH ("changelog" = "append")')
    producer = Producer({"bootstrap.servers": broker.address, "transactional.id": name})
    producer.init_transactions(30)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction), start=1):
        producer.begin_transaction()
        producer.produce(name, json.dumps(trade(number)))
        producer.flush()
        settle(database)
        assert len(database.table(name)) == 1
        end(30)
    settle(database)
    assert rows(database, f"SELECT id FROM {name}") == [(0,), (2,)]
    assert rows(database, f"SELECT * FROM dead_letters WHERE job = '{name}'") == []


def test_a_compacted_topic(database, topic, produce, uri, broker, wait_until):
    name = topic(
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "100",
            "delete.retention.ms": "0",
        },
    )
    for step in range(4):
        produce(
            name, [(f"k{n}", trade(n + 100 * step)) for n in range(5)] + [("gone", trade(1)), ("gone", None)]
        )
    cluster = Cluster(KafkaOptions.model_validate({"bootstrap.servers": broker.address, "topic": name}))

    def compacted() -> bool:
        produce(name, [("k0", trade(300))])
        part = Part(name, 0)
        end = cluster.latest([part])[part]
        return len(cluster.records({part: (0, end)}, 1000)) < 12

    wait_until(compacted, 60)
    database.sql(f"CREATE TABLE {name} AS SELECT id FROM {uri(name)}")
    settle(database)
    assert sorted(row.id for row in database.table(name).rows()) == [300, 301, 302, 303, 304]


def test_a_batch_takes_no_more_than_it_may(database, topic, produce, uri):
    name = topic(2)
    produce(name, [(f"k{n}", trade(n)) for n in range(50)])
    database.sql(
        f'CREATE TABLE {name} AS SELECT COUNT(*) AS n FROM {uri(name)} WITH ("max.rows.per.batch" = "20")'
    )
    settle(database)
    assert database.sql(f"SELECT n FROM {name}").rows() == [(50,)]
    (job,) = [job for job in database.jobs() if job.name == name]
    assert job.stats.batches >= 3


def test_partitions_are_counted(database, topic, produce, uri):
    name = topic(2)
    produce(name, [Sent(trade(n), partition=n % 3 % 2) for n in range(9)])
    database.sql(f"CREATE TABLE {name} AS SELECT COUNT(*) AS n FROM {uri(name)}")
    settle(database)
    stats = database.job(name).stats
    assert [(p.partition, p.records, p.lag) for p in stats.partitions] == [
        (f"{name}/0", 6, 0),
        (f"{name}/1", 3, 0),
    ]
    assert stats.lag == 0
    assert all(part.latency_ms > 0 for part in stats.partitions)
    (shown,) = [row for row in database.sql("SHOW JOBS").arrow().to_pylist() if row["name"] == name]
    assert (shown["lag"], [part["records"] for part in shown["partitions"]]) == (0, [6, 3])


@pytest.mark.parametrize(
    ("properties", "count", "tasks"),
    [
        ("", 6000, 3),
        # So few that one task has them sooner than three.
        ("", 600, 1),
        ('"partitions" = "1"', 600, 1),
        ('"partitions" = "6"', 600, 6),
        ('"partition.strategy" = "sticky", "partitions" = "6"', 600, 3),
        ('"partition.strategy" = "round_robin", "partitions" = "4"', 600, 4),
    ],
    ids=["smart", "handful", "fewer", "more", "sticky", "round_robin"],
)
def test_rows_are_worked_on_side_by_side(database, topic, produce, uri, properties, count, tasks):
    name = topic(3)
    produce(name, [Sent(trade(n), partition=n % 3) for n in range(count)])
    given = ", ".join(filter(None, ['"auto.offset.reset" = "earliest"', properties]))
    sql = f"SELECT id, spark_partition_id() AS task FROM {uri(name)} WITH ({given})"
    found = database.sql(sql).rows()
    assert sorted(row.id for row in found) == list(range(count))
    assert len({row.task for row in found}) == tasks


@pytest.mark.parametrize("strategy", ["smart", "sticky", "hash", "round_robin"])
def test_the_last_record_of_a_key_counts_wherever_it_is_computed(database, topic, produce, uri, strategy):
    name = topic(3)
    produce(name, [(f"k{n % 10}", trade(n)) for n in range(200)])
    produce(name, [("k3", None)])
    database.sql(
        f"CREATE TABLE {name} AS SELECT * FROM {uri(name)} "
        f'WITH ("partition.strategy" = "{strategy}", "partitions" = "4")'
    )
    settle(database)
    assert sorted(row.id for row in database.table(name).rows()) == [n for n in range(190, 200) if n != 193]


def test_offsets_are_committed_under_the_group(database, topic, produce, uri, broker):
    from confluent_kafka import Consumer, TopicPartition

    name = topic()
    produce(name, [trade(n) for n in range(7)])
    database.sql(
        f'CREATE TABLE {name} AS SELECT COUNT(*) AS n FROM {uri(name)} WITH ("group.id" = "{name}-g")'
    )
    settle(database)
    consumer = Consumer({"bootstrap.servers": broker.address, "group.id": f"{name}-g"})
    (found,) = consumer.committed([TopicPartition(name, 0)], timeout=20)
    consumer.close()
    assert found.offset == 7


def test_a_restart_goes_on_where_it_was(spark, tmp_path, topic, produce, uri):
    name = topic(2)
    produce(name, [(f"k{n}", trade(n)) for n in range(20)])
    with open_instance(tmp_path / "data") as first:
        first.sql(f"CREATE TABLE c AS SELECT symbol, COUNT(*) AS n FROM {uri(name)} GROUP BY symbol")
        first.sql(f"CREATE TABLE l AS SELECT * FROM {uri(name)}")
        settle(first)
    produce(name, [(f"k{n}", trade(n)) for n in range(15, 25)])
    with open_instance(tmp_path / "data") as again:
        settle(again)
        assert sum(row.n for row in again.table("c").rows()) == 30
        assert sorted(row.id for row in again.table("l").rows()) == list(range(25))


def test_what_retention_deletes_is_said_and_a_topic_that_is_made_again_is_read_anew(
    spark, tmp_path, topic, produce, uri, broker, wait_until
):
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    name = topic()
    admin = AdminClient({"bootstrap.servers": broker.address})
    produce(name, [trade(n) for n in range(5)])
    with open_instance(tmp_path / "data") as first:
        first.sql(f'CREATE TABLE c AS SELECT id FROM {uri(name)} WITH ("changelog" = "append")')
        settle(first)
    produce(name, [trade(n) for n in range(5, 9)])
    cluster = Cluster(KafkaOptions.model_validate({"bootstrap.servers": broker.address, "topic": name}))
    admin.delete_records([TopicPartition(name, 0, 7)])[TopicPartition(name, 0, 7)].result()
    assert cluster.earliest([Part(name, 0)]) == {Part(name, 0): 7}
    with open_instance(tmp_path / "data") as again:
        settle(again)
        assert rows(again, "SELECT id FROM c") == [(n,) for n in (0, 1, 2, 3, 4, 7, 8)]
        ((reason, offset),) = again.sql("SELECT reason, offset FROM dead_letters").rows()
        assert "deleted by the broker before it was read" in reason
        assert offset == "5-6"
    make_again(broker, name, 2, wait_until)
    produce(name, [Sent(trade(100 + n), partition=n % 2) for n in range(3)])
    with open_instance(tmp_path / "data") as third:
        settle(third)
        assert [row[0] for row in third.sql("SELECT id FROM c WHERE id >= 100 ORDER BY id").rows()] == [
            100,
            101,
            102,
        ]
        assert len(third.table("c")) == 10


def test_what_was_fetched_of_a_topic_is_not_taken_for_one_that_is_made_again(
    spark, tmp_path, topic, produce, broker, wait_until
):
    load_jars(spark, "kafka")
    name = topic()
    produce(name, [trade(n) for n in range(50)])
    options = KafkaOptions.model_validate({"bootstrap.servers": broker.address, "topic": name})
    declared = pa.schema([pa.field("id", pa.int64())])
    source = KafkaSource(options, SourceContext(tmp_path, declared, declared=True, most_rows=10))

    def read(start):
        end = source.latest(start)
        return end, sorted(row.id for row in source.frame(spark, start, end, ["id"]).collect())

    # Spark's consumer fetches all fifty, and keeps those that were not asked for.
    end, found = read(None)
    assert found == list(range(10))
    make_again(broker, name, 1, wait_until)
    produce(name, [trade(1000 + n) for n in range(50)])
    # What Spark says when a topic has gone makes the source look at its topics at once.
    assert source.explained("org.apache.kafka.common.errors.UnknownTopicOrPartitionException") is not None
    for first in (1000, 1010):
        end, found = read(end)
        assert found == list(range(first, first + 10))
    source.close()


def test_a_new_partition_is_read_from_its_beginning(database, topic, produce, uri, broker, wait_until):
    from confluent_kafka.admin import AdminClient, NewPartitions

    name = topic()
    produce(name, [trade(1)])
    database.sql(f'CREATE TABLE {name} AS SELECT id FROM {uri(name)} WITH ("changelog" = "append")')
    settle(database)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_partitions([NewPartitions(name, 2)])[name].result()
    produce(name, [Sent(trade(2), partition=1)])
    wait_until(lambda: len(database.table(name)) == 2)


def test_a_stream_begins_at_the_end(database, topic, produce, uri):
    name = topic()
    produce(name, [trade(1)])
    with database.stream(f"SELECT id FROM {uri(name)}") as live:
        produce(name, [trade(2)])
        added, _ = next(live.batches())
        assert added.to_pylist() == [{"id": 2}]


def test_a_stream_is_joined_to_a_table(database, topic, produce, uri):
    name = topic()
    database.sql(f"CREATE TABLE {name}_names (symbol STRING PRIMARY KEY, title STRING)")
    database.sql(f"INSERT INTO {name}_names VALUES ('S1', 'one'), ('S2', 'two')")
    produce(name, [trade(n) for n in range(6)])
    database.sql(
        f"CREATE TABLE {name} AS SELECT t.id, n.title FROM {uri(name)} t"
        f" JOIN {name}_names n ON n.symbol = t.symbol"
    )
    settle(database)
    assert rows(database, f"SELECT * FROM {name}") == [(1, "one"), (2, "two"), (4, "one"), (5, "two")]
