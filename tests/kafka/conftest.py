"""A real Kafka broker for the tests, and what they do with it."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import kafka_clients as clients
import pytest

from velostream.connectors.kafka.read import few_records
from velostream.devtools.broker.process import BrokerProcess, free_port
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from kafka_clients import Consume, Produce, Received, Topics

    from velostream.runtime.instance import Instance

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def read_by_driver_or_spark(rng, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests have few records, which the driver reads; in half of the tests Spark does."""
    if rng.random() < 0.5:
        monkeypatch.setattr(few_records, "MOST_RECORDS", 0)


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """The broker that tests share; one that wants to stop it takes `own_broker`."""
    process = BrokerProcess(tmp_path_factory.mktemp("kafka") / "broker", free_port())
    process.start()
    yield process
    process.stop()
    shutil.rmtree(process.folder)


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker of this test's own, which it may stop, kill and start again."""
    process = BrokerProcess(tmp_path / "broker", free_port())
    process.start()
    yield process
    process.kill()


@pytest.fixture(scope="module")
def database(spark, broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """One database for the whole module; its statements find the broker by the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VELOSTREAM_KAFKA_BROKERS", broker.address)
        with open_instance(tmp_path_factory.mktemp("data") / "velostream") as shared:
            yield shared


@pytest.fixture
def topic(broker: BrokerProcess) -> Topics:
    def make(partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        name = f"t{next(_numbers)}"
        if partitions:
            clients.make_topic(broker.address, name, partitions, config)
        return name

    return make


@pytest.fixture
def produce(broker: BrokerProcess) -> Produce:
    def write(topic: str, records: Iterable[Any], settings: Mapping[str, Any] | None = None) -> None:
        clients.produce(broker.address, topic, records, settings)

    return write


@pytest.fixture
def consume(broker: BrokerProcess) -> Consume:
    def read(topic: str, isolation: str = "read_committed") -> list[Received]:
        return clients.consume(broker.address, topic, isolation)

    return read


@pytest.fixture
def made(database: Instance, broker: BrokerProcess) -> Callable[..., str]:
    """Make a table over a topic, and wait until it has taken everything in."""

    def make(topic: str, select: str, **properties: str) -> str:
        said = ", ".join(f"\"{name.replace('_', '.')}\" = '{value}'" for name, value in properties.items())
        query = select.format(source=f"kafka://{broker.address}/{topic}")
        database.sql(f"CREATE TABLE {topic} AS {query} WITH ({said})")
        assert database.wait_idle(60), database.jobs()
        return topic

    return make
