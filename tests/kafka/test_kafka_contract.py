"""The contracts of sources and sinks, kept by Kafka topics."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import load_needed, open_sink, open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS, Place, Row, SinkContract, SourceContract, World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from kafka_clients import Consume, Produce, Topics
    from pyspark.sql import SparkSession

    from velostream.connectors.base import Sink, Source
    from velostream.devtools.broker.process import BrokerProcess

pytestmark = pytest.mark.spark


class Records(World):
    """A topic."""

    def __init__(self, spark: SparkSession, address: str, topic: str, produce: Produce, folder: Path) -> None:
        self._spark = spark
        self._address = address
        self._topic = topic
        self._produce = produce
        self._folder = folder

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        topic = "there-is-none" if missing else self._topic
        ref = SourceRef("__source_1", Uri(f"kafka://{self._address}/{topic}"))
        source = open_source(
            ref,
            Settings(data_dir=self._folder / "data"),
            self._folder / "spool",
            known=None,
            once=False,
            table=True,
            resumed=resumed,
        )
        load_needed(self._spark, [source])
        return source

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        self._produce(self._topic, [json.dumps({"id": id_, "name": name}) for id_, name in rows])
        return rows

    def give_bad(self) -> bytes | None:
        self._produce(self._topic, [b"no JSON"])
        return b"no JSON"


class TestRecords(SourceContract):
    @pytest.fixture
    def world(
        self,
        spark: SparkSession,
        broker: BrokerProcess,
        topic: Topics,
        produce: Produce,
        tmp_path: Path,
    ) -> World:
        return Records(spark, broker.address, topic(1), produce, tmp_path)


class Written(Place):
    """A topic, written at least once or in transactions."""

    def __init__(self, address: str, topic: str, consume: Consume, folder: Path, delivery: str) -> None:
        self._address = address
        self._topic = topic
        self._consume = consume
        self._folder = folder
        self._delivery = delivery

    def open(self, *, resumed: bool = False) -> Sink:
        context = SinkContext(self._folder / "state", COLUMNS, ("id",), job="contract", resumed=resumed)
        settings = Settings(data_dir=self._folder / "data")
        properties = {"delivery": self._delivery}
        return open_sink(Uri(f"kafka://{self._address}/{self._topic}"), properties, settings, context)

    def there(self) -> Counter[Row]:
        values = [json.loads(record.value) for record in self._consume(self._topic)]
        return Counter((value["id"], value["name"]) for value in values)


class TestWritten(SinkContract):
    @pytest.fixture(params=["at_least_once", "exactly_once"])
    def place(
        self,
        broker: BrokerProcess,
        topic: Topics,
        consume: Consume,
        tmp_path: Path,
        request: pytest.FixtureRequest,
    ) -> Place:
        return Written(broker.address, topic(1), consume, tmp_path, request.param)
