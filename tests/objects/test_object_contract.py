"""The contracts of sources and sinks, kept by objects of a bucket."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink, open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS, Place, Row, SinkContract, SourceContract, World

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from object_store import Bucket
    from velostream.connectors.base import Sink, Source

pytestmark = pytest.mark.spark


class Objects(World):
    """Rows in an object each; a row goes with its object."""

    def __init__(self, bucket: Bucket, folder: Path) -> None:
        self._bucket, self._folder = bucket, folder
        self._made: dict[Row, list[str]] = {}
        self._count = 0

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        uri = Uri(self._bucket.uri("nowhere/*.jsonl" if missing else "rows/*.jsonl"))
        return open_source(
            SourceRef("__source_1", uri, {**self._bucket.server.properties, "poll.interval": "20ms"}),
            Settings(data_dir=self._folder / "data"),
            self._folder / "spool",
            known=None,
            once=False,
            table=True,
            owner="job",
            resumed=resumed,
        )

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        for row in rows:
            key = self._put(json.dumps({"id": row[0], "name": row[1]}).encode() + b"\n")
            self._made.setdefault(tuple(row), []).append(key)
        return rows

    def _put(self, content: bytes) -> str:
        self._count += 1
        key = f"rows/{self._count:04d}.jsonl"
        self._bucket.put(key, content)
        return key

    def retract(self, row: Row) -> None:
        self._bucket.delete(self._made[tuple(row)].pop())

    def give_bad(self) -> bytes | None:
        self._put(b'{"id": 7, "name": \n')
        return b'{"id": 7, "name": '


class TestObjects(SourceContract):
    @pytest.fixture
    def world(self, any_bucket: Bucket, tmp_path: Path) -> World:
        return Objects(any_bucket, tmp_path)


class Parts(Place):
    """An object for each batch."""

    def __init__(self, bucket: Bucket, folder: Path, form: str) -> None:
        self._bucket, self._folder, self._form = bucket, folder, form

    def open(self, *, resumed: bool = False) -> Sink:
        context = SinkContext(self._folder / "state", COLUMNS, job="contract", resumed=resumed)
        properties = {**self._bucket.server.properties, "format": self._form}
        settings = Settings(data_dir=self._folder / "data")
        return open_sink(Uri(self._bucket.uri("out/")), properties, settings, context)

    def there(self) -> Counter[Row]:
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.json
        import pyarrow.parquet

        readers = {"csv": pa.csv.read_csv, "jsonl": pa.json.read_json, "parquet": pa.parquet.read_table}
        found: Counter[Row] = Counter()
        for key in self._bucket.keys("out"):
            rows = readers[self._form](pa.BufferReader(self._bucket.get(key))).to_pylist()
            found.update((row["id"], row["name"]) for row in rows)
        return found


class TestParts(SinkContract):
    @pytest.fixture(params=["csv", "jsonl", "parquet"])
    def place(self, any_bucket: Bucket, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
        return Parts(any_bucket, tmp_path, request.param)
