"""The contracts of sources and sinks, for resources, answers, events, deliveries, and for what we post."""

from __future__ import annotations

import json
import socket
import urllib.request
from abc import abstractmethod
from collections import Counter
from typing import TYPE_CHECKING, ClassVar

import pytest

from velostream.config import Settings
from velostream.connectors.base import SinkContext
from velostream.engine.opening.connect import open_sink, open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri
from velostream.testing.contract import COLUMNS, Place, Row, SinkContract, SourceContract, World
from web_server import Events, Reply, Request, Web, as_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream.connectors.base import Sink, Source

pytestmark = pytest.mark.spark


def record(row: Row) -> dict[str, object]:
    return {"id": row[0], "name": row[1]}


class OverHttp(World):
    """A world behind an address."""

    properties: ClassVar[Mapping[str, str]] = {}

    def __init__(self, web: Web, folder: Path, wait_until: WaitUntil) -> None:
        self.uri = web.uri("/rows")
        self._missing = web.uri("/nowhere")
        self._folder, self._wait_until = folder, wait_until
        self._opened: Source | None = None
        self._begun = False

    def open(self, *, resumed: bool = False, missing: bool = False) -> Source:
        opened = open_source(
            SourceRef("__source_1", Uri(self._missing if missing else self.uri), self.properties),
            Settings(data_dir=self._folder / "data"),
            self._folder / "spool",
            known=COLUMNS if resumed else None,
            once=False,
            table=True,
            owner="job",
            resumed=resumed,
        )
        close = opened.close

        def closed() -> None:
            self._opened = None
            close()

        opened.close = closed  # type: ignore[method-assign]
        if not missing:
            self._opened = opened
            self.arrived()
            if self._begun:
                opened.discover()
        return opened

    def arrived(self) -> None:
        """Return once what the server has sent by itself is there."""

    def change(self, make: Callable[[], None]) -> None:
        """Change what the server has. Only a request can tell that: an open source is asked until it has."""
        before = self._opened.latest(None) if self._opened is not None else None
        make()
        if self._opened is not None:
            self._wait_until(lambda: self._opened is not None and self._opened.latest(None) != before)

    def give(self, rows: Sequence[Row]) -> Sequence[Row]:
        self._begun = True
        self.change(lambda: self.add([record(row) for row in rows]))
        return rows

    def give_bad(self) -> bytes | None:
        self.change(lambda: self.add([{"id": "seven", "name": "x"}]))
        return b'{"id": "seven", "name": "x"}'

    @abstractmethod
    def add(self, records: Sequence[object]) -> None:
        """Let the server have more records."""


class Listed(OverHttp):
    """A resource that lists its rows."""

    properties: ClassVar[Mapping[str, str]] = {"records": "data.rows", "poll.interval": "20ms"}

    def __init__(self, web: Web, folder: Path, wait_until: WaitUntil) -> None:
        super().__init__(web, folder, wait_until)
        self._rows: list[object] = []
        web.serve("/rows", lambda _: as_json({"data": {"rows": self._rows}}))

    def add(self, records: Sequence[object]) -> None:
        self._rows += records

    def retract(self, row: Row) -> None:
        self.change(lambda: self._rows.remove(record(row)))


class Answered(OverHttp):
    """A resource whose answers have new rows, page after page."""

    properties: ClassVar[Mapping[str, str]] = {
        "changelog": "append",
        "poll.interval": "20ms",
        "records": "rows",
        "page.mode": "cursor",
        "page.cursor": "next",
    }

    def __init__(self, web: Web, folder: Path, wait_until: WaitUntil) -> None:
        super().__init__(web, folder, wait_until)
        self._rows: list[object] = []
        web.serve("/rows", self._page)

    def _page(self, request: Request) -> Reply:
        first = int(request.query.get("cursor", 0))
        more = first + 2 < len(self._rows)
        return as_json({"rows": self._rows[first : first + 2], "next": first + 2 if more else None})

    def add(self, records: Sequence[object]) -> None:
        self._rows += records


class Streamed(OverHttp):
    """A stream of events."""

    properties: ClassVar[Mapping[str, str]] = {"format": "sse"}

    def __init__(self, web: Web, folder: Path, wait_until: WaitUntil) -> None:
        super().__init__(web, folder, wait_until)
        self._events = Events()
        self._sent = 0
        web.serve("/rows", self._events.reply)

    def arrived(self) -> None:
        self._wait_until(lambda: self._opened is None or self._opened.latest(None)["changes"] >= self._sent)

    def change(self, make: Callable[[], None]) -> None:
        make()
        self.arrived()

    def add(self, records: Sequence[object]) -> None:
        for each in records:
            self._events.send(json.dumps(each))
        self._sent += len(records)


class Posted(OverHttp):
    """What is posted to us."""

    gaps: ClassVar[Mapping[str, str]] = {
        "test_a_missing_one_is_named": "where we listen ourselves, nothing can be missing",
    }
    properties: ClassVar[Mapping[str, str]] = {"webhook": "true"}

    def __init__(self, web: Web, folder: Path, wait_until: WaitUntil) -> None:
        super().__init__(web, folder, wait_until)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.uri = f"http://127.0.0.1:{free.getsockname()[1]}/hook"
        self._unsent: list[object] = []

    def arrived(self) -> None:
        """Rows that came when nobody listened are posted again when somebody does, as senders do."""
        assert self._opened is not None
        self._opened.latest(None)
        unsent, self._unsent = self._unsent, []
        self.add(unsent)

    def change(self, make: Callable[[], None]) -> None:
        make()

    def add(self, records: Sequence[object]) -> None:
        if self._opened is None:
            self._unsent += records
            return
        for each in records:
            request = urllib.request.Request(self.uri, json.dumps(each).encode(), method="POST")
            request.add_header("Content-Type", "application/json")
            with urllib.request.urlopen(request, timeout=20) as answer:
                assert json.load(answer) == {"accepted": 1, "duplicates": 0}


@pytest.mark.parametrize("kind", [Listed, Answered, Streamed, Posted])
class TestSources(SourceContract):
    @pytest.fixture
    def world(self, web: Web, tmp_path: Path, wait_until: WaitUntil, kind: type[OverHttp]) -> World:
        return kind(web, tmp_path, wait_until)


class Api(Place):
    """A server that takes rows, and knows the keys of the requests that it has seen."""

    def __init__(self, web: Web, folder: Path, form: str) -> None:
        self._folder, self._form = folder, form
        self._taken: dict[str, list[dict[str, object]]] = {}
        self._uri = web.serve("/in", self._take)

    def _take(self, request: Request) -> Reply:
        lines = request.body.splitlines() if self._form == "jsonl" else [request.body]
        parsed = [json.loads(line) for line in lines]
        self._taken.setdefault(
            request.headers["idempotency-key"], parsed if self._form == "jsonl" else parsed[0]
        )
        return as_json({"taken": True}, 201)

    def open(self, *, resumed: bool = False) -> Sink:
        context = SinkContext(self._folder / "state", COLUMNS, job="contract", resumed=resumed)
        settings = Settings(data_dir=self._folder / "data")
        return open_sink(Uri(self._uri), {"format": self._form, "batch.size": "2"}, settings, context)

    def there(self) -> Counter[Row]:
        return Counter((row["id"], row["name"]) for rows in self._taken.values() for row in rows)


class TestApi(SinkContract):
    @pytest.fixture(params=["json", "jsonl"])
    def place(self, web: Web, tmp_path: Path, request: pytest.FixtureRequest) -> Place:
        return Api(web, tmp_path, request.param)
