"""The contracts of sources and sinks, kept by connectors of one's own: numbered, by tasks, own positions."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import stations

from velostream.connectors import tasks
from velostream.testing.contract import Place, Row, SinkContract, SourceContract, World, sink_of, source_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from velostream.connectors import Sink, Source

pytestmark = pytest.mark.spark


class Folder(World):
    """Records of two stations, in turn."""

    def __init__(self, folder: Path, how: str, *, decodes: bool = True) -> None:
        self._folder, self._how, self._decodes = folder, how, decodes
        self._count = 0
        (folder / "records").mkdir()

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        place = self._folder / ("nowhere" if missing else "records")
        return source_of(f"stations://{place}", self._folder, {"how": self._how}, resumed=resumed)

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        for id_, name in rows:
            self._send({"id": id_, "name": name})
        return rows

    def give_bad(self) -> bytes | None:
        if not self._decodes:
            return None
        self._send("{not JSON")
        return b"{not JSON"

    def _send(self, record: object) -> None:
        # One station first: what is told of the order of rows is within a partition.
        self._count += 1
        stations.add(self._folder / "records", "north" if self._count != 2 else "east", record)


class TestNumbered(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return Folder(tmp_path, "rows")


class TestByTasks(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
        monkeypatch.setattr(tasks, "FEW_ROWS", 0)
        return Folder(tmp_path, "tasks")


class TestPositionsOfItsOwn(SourceContract):
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return Folder(tmp_path, "bytes", decodes=False)


class Copied(Place):
    """Files of JSON lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def open(self, *, resumed: bool = False) -> Sink:
        return sink_of(f"stations://{self._folder / 'copies'}", self._folder, resumed=resumed)

    def there(self) -> Counter[Row]:
        lines = [
            json.loads(line)
            for path in (self._folder / "copies").glob("*.json")
            for line in path.read_text().splitlines()
        ]
        return Counter((line["id"], line["name"]) for line in lines)


class TestAtLeastOnce(SinkContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Copied(tmp_path)
