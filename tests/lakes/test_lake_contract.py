"""The contract of sinks, kept by tables of Delta Lake and Iceberg, appended to and written by key."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS, Place, Row, SinkContract

if TYPE_CHECKING:
    from lakehouses import Lakehouse

    from velostream.connectors.base import Sink


class LakeTable(Place):
    """A table, with a key or without."""

    def __init__(self, lake: Lakehouse, key: tuple[str, ...]) -> None:
        self._lake, self._key = lake, key

    def open(self, *, resumed: bool = False) -> Sink:
        state = self._lake.folder / "state"
        context = SinkContext(
            state, COLUMNS, self._key, unique=bool(self._key), job="contract", resumed=resumed
        )
        settings = Settings(data_dir=self._lake.folder / "data")
        return open_sink(Uri(self._lake.uri("rows")), dict(self._lake.properties), settings, context)

    def there(self) -> Counter[Row]:
        return Counter((row["id"], row["name"]) for row in self._lake.read("rows").to_pylist())


class TestLakeTables(SinkContract):
    @pytest.fixture(params=[(), ("id",)], ids=["append", "upsert"])
    def place(self, any_lake: Lakehouse, request: pytest.FixtureRequest) -> Place:
        return LakeTable(any_lake, request.param)
