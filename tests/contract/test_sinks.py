"""The contract of sinks, kept by files, the console and the sinks of the test kit."""

from __future__ import annotations

import csv
import json
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink
from velostream.model.uri import Uri
from velostream.testing.connector import CaseSink, written_files
from velostream.testing.contract import COLUMNS, Place, Row, SinkContract

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.connectors.base import Sink


class Files(Place):
    """A file that grows, or a folder of Parquet files."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._target = folder / name
        self._settings = Settings(data_dir=folder / "data")

    def open(self, *, resumed: bool = False) -> Sink:
        context = SinkContext(self._folder / "state", COLUMNS, job="contract", resumed=resumed)
        properties = {"format": "parquet"} if not self._target.suffix else {}
        return open_sink(Uri(f"file://{self._target}"), properties, self._settings, context)

    def there(self) -> Counter[Row]:
        if not self._target.suffix:
            found = [
                row for path in self._target.glob("*.parquet") for row in pq.read_table(path).to_pylist()
            ]
        elif self._target.suffix == ".csv":
            found = list(csv.DictReader(self._target.read_text().splitlines()))
        else:
            found = [json.loads(line) for line in self._target.read_text().splitlines()]
        return Counter((int(row["id"]), row["name"]) for row in found)


class Screen(Place):
    """Standard output."""

    def __init__(self, folder: Path, captured: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._captured = captured

    def open(self, *, resumed: bool = False) -> Sink:
        context = SinkContext(self._folder / "state", COLUMNS, resumed=resumed)
        settings = Settings(data_dir=self._folder / "data")
        return open_sink(Uri("console://"), {"format": "json"}, settings, context)

    def there(self) -> Counter[Row]:
        lines = [json.loads(line) for line in self._captured.readouterr().out.splitlines()]
        return Counter((line["id"], line["name"]) for line in lines)


class Looked(Place):
    """A sink that a case looks into."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "written"

    def open(self, *, resumed: bool = False) -> Sink:
        return CaseSink(self._folder)

    def there(self) -> Counter[Row]:
        tables = [pa.ipc.open_file(path).read_all() for path in written_files(self._folder)]
        return Counter((row["id"], row["name"]) for table in tables for row in table.to_pylist())


class TestFiles(SinkContract):
    @pytest.fixture(params=["rows.jsonl", "rows.csv", "rows"])
    def place(self, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
        return Files(tmp_path, request.param)


class TestConsole(SinkContract):
    @pytest.fixture
    def place(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
        return Screen(tmp_path, capsys)


class TestCases(SinkContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return Looked(tmp_path)
