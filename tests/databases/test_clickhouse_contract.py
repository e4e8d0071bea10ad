"""The contracts of sources and sinks, kept by tables of ClickHouse."""

from __future__ import annotations

import itertools
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
from velostream.testing.contract.sinks import batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.conftest import WaitUntil
    from warehouses import Warehouse

    from velostream.connectors.base import Sink, Source

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def _quoted(text: str | None) -> str:
    return "NULL" if text is None else "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class Polled(World):
    """A table that is polled by a number that grows, so that equal rows are two."""

    def __init__(self, warehouse: Warehouse, folder: Path, wait_until: WaitUntil) -> None:
        self._warehouse, self._folder, self._wait_until = warehouse, folder, wait_until
        self._numbers = itertools.count()
        self._opened: Source | None = None
        warehouse.run(
            "CREATE TABLE @rows (id Int64, name Nullable(String), number UInt64) "
            "ENGINE = MergeTree ORDER BY id"
        )

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        uri = Uri(self._warehouse.uri("nowhere" if missing else "rows"))
        properties = {"poll.interval": "20ms", "incremental.column": "number"}
        self._opened = open_source(
            SourceRef("__source_1", uri, properties),
            Settings(data_dir=self._folder / "data"),
            self._folder / "spool",
            known=None,
            once=False,
            table=True,
            owner="job",
            resumed=resumed,
        )
        opened, close = self._opened, self._opened.close

        def closed() -> None:
            self._opened = None
            close()

        opened.close = closed  # type: ignore[method-assign]
        return opened

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        values = ", ".join(f"({id_}, {_quoted(name)}, {next(self._numbers)})" for id_, name in rows)
        self._insert(f"VALUES {values}")
        return rows

    def _insert(self, what: str) -> None:
        """Insert rows; nobody but a poll can tell that they came, so an open source is asked until it has."""
        before = self._opened.latest(None) if self._opened is not None else None
        self._warehouse.run(f"INSERT INTO @rows {what}")
        if self._opened is not None:
            self._wait_until(lambda: self._opened is not None and self._opened.latest(None) != before)

    def give_bad(self) -> bytes | None:
        number = next(self._numbers)
        self._insert(f"SELECT 7, unhex('ff'), {number}")
        return json.dumps({"id": 7, "name": "\\xff", "number": str(number)}).encode()

    def break_off(self) -> bool:
        self._warehouse.run("DROP TABLE @rows")
        return True


class TestPolled(SourceContract):
    @pytest.fixture
    def world(self, warehouse: Warehouse, tmp_path: Path, wait_until: WaitUntil) -> World:
        return Polled(warehouse, tmp_path, wait_until)


class Written(Place):
    """A table that is appended to, or whose rows are replaced by key."""

    def __init__(self, warehouse: Warehouse, folder: Path, engine: str) -> None:
        self._warehouse, self._folder = warehouse, folder
        self._keyed = "Replacing" in engine
        self._create = "plain" not in engine
        if not self._create:
            warehouse.run("CREATE TABLE @rows (id Int64, name String) ENGINE = MergeTree ORDER BY id")

    def open(self, *, resumed: bool = False) -> Sink:
        key = ("id",) if self._keyed else ()
        context = SinkContext(
            self._folder / "state", COLUMNS, key, unique=self._keyed, job="contract", resumed=resumed
        )
        settings = Settings(data_dir=self._folder / "data")
        made = {"table.create.if.missing": "true"} if self._create else {}
        return open_sink(Uri(self._warehouse.uri("rows")), made, settings, context)

    def there(self) -> Counter[Row]:
        final = " FINAL" if self._keyed else ""
        return self._warehouse.rows(f"SELECT id, name FROM @rows{final}")


class TestWritten(SinkContract):
    @pytest.fixture(params=["Replacing", "appended", "plain"])
    def place(self, warehouse: Warehouse, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
        return Written(warehouse, tmp_path, request.param)

    def test_a_crash_between_the_intent_and_the_write(self, place: Place) -> None:
        """What was intended is finished from what was kept, whatever comes next."""
        sink = place.open()
        sink.recover(None)
        intended = sink.intend(0, batch([(1, "a")]))
        assert intended is not None
        sink.close()
        for _ in range(2):
            again = place.open(resumed=True)
            again.recover(None)
            assert again.settle(json.loads(json.dumps(intended)))
            again.close()
        assert set(place.there()) == {(1, "a")}
        if again.delivery == "exactly_once":
            assert place.there() == Counter([(1, "a")])
