"""Topics without records, topics that are missing, brokers that are away: what creation does meanwhile."""

from __future__ import annotations

import json
import threading

import kafka_clients as clients
import pytest
from kafka_clients import make_topic
from prometheus_client import CollectorRegistry

from refusals import refusal
from velostream.devtools.broker.process import BrokerProcess, free_port
from velostream.errors import SourceEmptyError, SourceNetworkError
from velostream.runtime.instance import open_instance
from velostream.runtime.metrics import Figures

pytestmark = pytest.mark.spark


def samples(database):
    registry = CollectorRegistry()
    registry.register(Figures(database))
    found = [sample for family in registry.collect() for sample in family.samples]
    return [sample for sample in found if sample.name == "velostream_connection_attempts_total"]


def attempts(database, statement):
    """How often a statement has tried, by outcome."""
    return {
        sample.labels["outcome"]: sample.value
        for sample in samples(database)
        if sample.labels["statement"] == statement
    }


def labels(database):
    return {sample.labels["statement"] for sample in samples(database)}


def tries(folder, job, code):
    """What the log tells of each attempt that failed: how it went on."""
    lines = map(json.loads, (folder / "logs" / "velostream.log").read_text().splitlines())
    return [
        line["then"]
        for line in lines
        if line["event"] == "attempt" and (line["job"], line["code"]) == (job, code) and line["reason"]
    ]


def test_a_topic_is_made_and_its_first_record_waited_for(spark, tmp_path, broker, topic, produce, wait_until):
    name = topic(0)
    source = f"kafka://{broker.address}/{name}"
    options = '"topic.create.if.missing" = "true", "topic.partitions" = "3"'
    with open_instance(tmp_path / "data") as database:
        made = database.sql(f"CREATE TABLE orders AS SELECT * FROM {source} WITH ({options})")
        assert made.message.startswith('table "orders" created, and waits: kafka topic')
        # A stream begins at the end of the topic as of now: its first record is one that came later.
        database.sql(
            f"CREATE STREAM copies AS SELECT id FROM {source} WITH (\"sink\" = 'file://{tmp_path}/out.jsonl')"
        )
        database.sql("CREATE TABLE counted AS SELECT COUNT(*) AS n FROM orders")
        wait_until(lambda: {str(job.state) for job in database.jobs()} == {"waiting"})
        (told,) = {job.reason for job in database.jobs() if job.name == "orders"}
        assert told == f'kafka topic "{name}" holds no record yet to tell its columns from'
        with pytest.raises(SourceEmptyError, match="orders"):
            database.table("orders")
        assert database.wait_idle(30)
        assert attempts(database, "orders")["source.empty"] >= 1
    with open_instance(tmp_path / "data") as database:
        wait_until(lambda: {str(job.state) for job in database.jobs()} == {"waiting"})
        produce(name, [("a", {"id": 1}), ("b", {"id": 2})])
        wait_until(lambda: {str(job.state) for job in database.jobs()} == {"running"}, 60)
        assert database.wait_idle(60)
        assert sorted(row.id for row in database.table("orders").rows()) == [1, 2]
        wait_until(lambda: database.sql("SELECT n FROM counted").rows() == [(2,)])
        written = (tmp_path / "out.jsonl").read_text().splitlines()
        assert sorted(json.loads(line)["id"] for line in written) == [1, 2]
        assert attempts(database, "orders")["ok"] >= 1
    with open_instance(tmp_path / "data") as database:
        assert database.wait_idle(60)
        assert len(database.table("orders")) == 2


def test_a_waiting_job_whose_first_record_does_not_fit_fails_with_the_reason(
    spark, tmp_path, broker, topic, produce, wait_until
):
    name = topic()
    with open_instance(tmp_path / "data") as database:
        database.sql(f"CREATE TABLE t AS SELECT amount FROM kafka://{broker.address}/{name}")
        produce(name, [("a", {"id": 1})])
        wait_until(lambda: database.job("t").state == "failed", 60)
        assert 'unknown column "amount"' in (database.job("t").info.reason or "")
        database.sql("DROP TABLE t")
        assert database.jobs() == []


def test_a_broker_that_comes_later_is_waited_for(spark, tmp_path, wait_until):
    later = BrokerProcess(tmp_path / "broker", free_port())
    statement = (
        f"CREATE TABLE t AS SELECT * FROM kafka://{later.address}/orders "
        'WITH ("topic.wait.timeout" = "3m", "topic.retry.interval" = "200ms", '
        '"topic.retry.strategy" = "fixed")'
    )
    with open_instance(tmp_path / "data") as database:
        creating = threading.Thread(target=database.sql, args=(statement,))
        creating.start()
        wait_until(lambda: attempts(database, "t").get("source.network", 0) >= 1, 60)
        later.start()
        try:
            make_topic(later.address, "orders", 1)
            clients.produce(later.address, "orders", [("a", {"id": 1})])
            creating.join(120)
            assert [row.id for row in database.table("t").rows()] == [1]
            assert attempts(database, "t")["ok"] >= 1
            assert tries(tmp_path / "data", "t", "source.network")[0].startswith("trying again for")
        finally:
            later.kill()


def test_attempts_of_what_was_not_created_are_logged_and_counted(spark, tmp_path, broker, topic):
    waits = 'WITH ("topic.wait.timeout" = "1s", "topic.retry.interval" = "100ms")'
    with open_instance(tmp_path / "data") as database:
        with pytest.raises(SourceNetworkError):
            database.sql(f"CREATE TABLE away AS SELECT * FROM kafka://127.0.0.1:1/x {waits}")
        with refusal("source.missing", "never"):
            database.sql(f"CREATE TABLE t AS SELECT * FROM kafka://{broker.address}/never {waits}")
        database.sql("CREATE TABLE h (id INT)")
        with refusal("sink.missing", "never"):
            database.sql(f"INSERT INTO kafka://{broker.address}/never SELECT * FROM h {waits}")
        assert attempts(database, "away")["source.network"] >= 1
        assert attempts(database, "t")["source.missing"] >= 2
        told = tries(tmp_path / "data", "t", "source.missing")
        assert len(told) == attempts(database, "t")["source.missing"]
        assert told[0].startswith("trying again for")
        assert told[-1] == "no longer waited for"
        (job,) = {each for each in labels(database) if each.startswith("insert-never")}
        assert len(tries(tmp_path / "data", job, "sink.missing")) == attempts(database, job)["sink.missing"]
