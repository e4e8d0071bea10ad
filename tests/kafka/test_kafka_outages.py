"""A broker that goes away: tables stay readable, jobs say so, and go on without losing or doubling a row."""

from __future__ import annotations

import threading

import kafka_clients as clients
import pytest
from confluent_kafka.admin import AdminClient
from prometheus_client import CollectorRegistry

from velostream.model.jobs import JobState
from velostream.runtime.instance import open_instance
from velostream.runtime.metrics import Figures
from velostream.runtime.socket.client import Client

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def trades(first, count):
    return [(f"k{n % 7}", {"id": n, "symbol": f"S{n % 3}"}) for n in range(first, first + count)]


def test_a_broker_that_is_away_costs_nothing_but_time(spark, tmp_path, own_broker, wait_until):
    clients.make_topic(own_broker.address, "t", 2)
    clients.produce(own_broker.address, "t", trades(0, 100))
    with open_instance(tmp_path / "data") as database:
        source = f"kafka://{own_broker.address}/t"
        database.sql(f"CREATE TABLE c AS SELECT symbol, COUNT(*) AS n FROM {source} GROUP BY symbol")
        database.sql(f"CREATE TABLE l AS SELECT id FROM {source}")
        database.sql("CREATE TABLE d AS SELECT SUM(n) AS n FROM c")
        database.sql("CREATE TABLE dd AS SELECT n + 1 AS n FROM d")
        assert database.wait_idle(60)
        assert {row.health for row in database.sql("SHOW TABLES").rows()} == {"healthy"}
        own_broker.kill()
        wait_until(lambda: {job.state for job in database.jobs()} == {JobState.DEGRADED}, 60)
        assert all("cannot be reached" in (job.reason or "") for job in database.jobs())
        away = f'kafka at "{own_broker.address}" cannot be reached: no '
        for table in "cl":
            stats = database.table(table).stats()
            assert (stats.health, (stats.health_reason or "").startswith(away)) == ("disconnected", True)
        # What is made of them is there, and may be behind.
        below = database.table("d").stats()
        assert below.health == "degraded"
        assert (below.health_reason or "").startswith(f'table "c" is disconnected: {away}')
        wait_until(lambda: 'table "d" is degraded' in database.table("dd").stats().health_reason)
        told = {row.name: (row.health, row.reason) for row in Client(tmp_path / "data").sql("SHOW TABLES")}
        assert {name: health for name, (health, _) in told.items() if health != "healthy"} == {
            "c": "disconnected",
            "l": "disconnected",
            "d": "degraded",
            "dd": "degraded",
        }
        assert told["c"][1].startswith(away)
        registry = CollectorRegistry()
        registry.register(Figures(database))
        labels = {"table": "c", "velostream_table_health": "disconnected"}
        assert registry.get_sample_value("velostream_table_health", labels) == 1.0
        assert sum(row.n for row in database.table("c").rows()) == 100
        assert len(database.table("l")) == 7
        own_broker.start()
        clients.produce(own_broker.address, "t", trades(100, 50))
        wait_until(lambda: sum(row.n for row in database.table("c").rows()) == 150, 90)
        wait_until(lambda: {row.id for row in database.table("l").rows()} == set(range(143, 150)), 90)
        wait_until(lambda: {job.state for job in database.jobs()} == {JobState.RUNNING}, 30)
        wait_until(lambda: {row.health for row in database.sql("SHOW TABLES").rows()} == {"healthy"})


def test_a_broker_that_comes_and_goes_under_load(spark, tmp_path, own_broker, wait_until, rng, rounds):
    clients.make_topic(own_broker.address, "t", 3)
    total = 0
    with open_instance(tmp_path / "data") as database:
        database.sql(
            "CREATE TABLE c AS SELECT symbol, COUNT(*) AS n, SUM(id) AS s "
            f"FROM kafka://{own_broker.address}/t "
            'GROUP BY symbol WITH ("schema" = "id BIGINT, symbol STRING")'
        )
        for _ in range(rounds(2, 10)):
            count = rng.randint(2000, 20000)
            writer = threading.Thread(
                target=clients.produce, args=(own_broker.address, "t", trades(total, count))
            )
            writer.start()
            total += count
            some = rng.random() * total / 2
            wait_until(lambda some=some: sum(row.n for row in database.table("c").rows()) > some, 60)
            own_broker.kill()
            own_broker.start()
            writer.join(60)
            assert not writer.is_alive()
        wait_until(lambda: sum(row.n for row in database.table("c").rows()) >= total, 120)
        assert database.wait_idle(60)
        assert sum(row.n for row in database.table("c").rows()) == total
        assert sum(row.s for row in database.table("c").rows()) == total * (total - 1) // 2


def test_a_start_without_a_broker_waits_for_it(spark, tmp_path, own_broker, wait_until):
    clients.make_topic(own_broker.address, "t", 1)
    clients.produce(own_broker.address, "t", trades(0, 10))
    with open_instance(tmp_path / "data") as database:
        database.sql(f"CREATE TABLE c AS SELECT COUNT(*) AS n FROM kafka://{own_broker.address}/t")
        assert database.wait_idle(60)
    own_broker.kill()
    with open_instance(tmp_path / "data") as database:
        wait_until(lambda: database.jobs()[0].state is JobState.DEGRADED, 60)
        assert database.sql("SELECT n FROM c").rows() == [(10,)]
        own_broker.start()
        clients.produce(own_broker.address, "t", trades(10, 5))
        wait_until(lambda: database.sql("SELECT n FROM c").rows() == [(15,)], 90)
        job = database.job("c")
        assert job.stats.attempts == 1 + sum(job.errors_by_code.values())
        assert job.errors_by_code.keys() == {"source.network"}
        assert job.stats.successes == 1


def test_a_topic_that_is_deleted_is_waited_for(database, topic, produce, broker, wait_until):
    name = topic(1)
    produce(name, trades(0, 3))
    database.sql(f"CREATE TABLE {name} AS SELECT id FROM kafka://{name}")
    assert database.wait_idle(60)
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([name])[name].result()
    wait_until(lambda: database.job(name).state is JobState.DEGRADED, 60)
    wait_until(lambda: database.table(name).stats().health == "disconnected")
    assert f'kafka topic "{name}" does not exist' in database.table(name).stats().health_reason
    clients.make_topic(broker.address, name, 1)
    produce(name, trades(3, 3))
    wait_until(lambda: len(database.table(name)) == 6, 90)
