"""kill -9 of an application that reads and writes over HTTP in every way, while servers come and go.

At rest every row that a server listed, sent or was told to have been taken is here once, and every row that
we wrote is there once.
"""

from __future__ import annotations

import json
import socket
import threading
import urllib.request
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from restart.lives import Runner
from web_server import Events, Reply, Request, Web, as_json

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

PLACES = {
    "changes received, not in their log": 12,
    "changes logged, not acknowledged": 12,
    "changes committed, their log not told": 6,
    "spooled, not announced": 6,
    "table computed, not logged": 12,
    "table logged, not published": 12,
    "sink written, not recorded": 4,
    "sink recorded": 4,
}
APP = """
CREATE TABLE listed AS SELECT id, name FROM {listed}
  WITH ("key" = "id", "poll.interval" = "50ms", "records" = "rows");
CREATE TABLE names AS SELECT name, COUNT(*) AS n FROM listed GROUP BY name;
CREATE SOURCE sent (id BIGINT, name STRING) FROM {sent} WITH ("format" = "sse");
CREATE TABLE events AS SELECT id, name FROM sent;
CREATE TABLE answers AS SELECT id, name FROM {answers} WITH ("changelog" = "append", "records" = "rows",
  "poll.interval" = "50ms", "page.mode" = "cursor", "page.cursor" = "next");
CREATE SOURCE hooks (id BIGINT, name STRING) FROM {hook} WITH ("webhook" = "true", "dedupe.id" = "id");
CREATE TABLE posted AS SELECT id, name FROM hooks;
INSERT INTO {inbox} SELECT id, name FROM posted EMIT CHANGES WITH ("batch.size" = "3");
"""


class World:
    """Servers, an application, and what happens to both."""

    def __init__(self, folder: Path, web: Web, rng: random.Random, wait_until: WaitUntil) -> None:
        folder.mkdir()
        self._folder, self._web, self._rng, self._wait = folder, web, rng, wait_until
        self._deaths: list[str] = []
        self._failing = 0
        self._next = self._taken = 0
        self.listed: dict[int, str] = {}
        self.answered: list[dict[str, Any]] = [self._row()]
        self.sent: list[dict[str, Any]] = []
        self.posted: list[dict[str, Any]] = []
        self.inbox: dict[str, list[dict[str, Any]]] = {}
        self._events = Events()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._hook = f"http://127.0.0.1:{free.getsockname()[1]}/hook"
        self._app = folder / "app.sql"
        self._app.write_text(
            APP.format(
                listed=web.serve("/listed", self._unless_failing(self._list)),
                answers=web.serve("/answers", self._unless_failing(self._answer)),
                sent=web.serve("/events", self._events.reply),
                inbox=web.serve("/inbox", self._unless_failing(self._take)),
                hook=self._hook,
            )
        )
        self.list()

    # --- the servers --------------------------------------------------------------------------------------

    def _unless_failing(self, reply: Callable[[Request], Reply]) -> Callable[[Request], Reply]:
        def answer(request: Request) -> Reply:
            if self._failing > 0:
                self._failing -= 1
                whole = reply(request) if self._rng.random() < 0.5 else None
                # What was asked has happened, and nobody is told; or it has not happened.
                if whole is None:
                    return Reply(b"", 503, {"Retry-After": "0"})
                return Reply(raw=lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Le"))
            return reply(request)

        return answer

    def _list(self, request: Request) -> Reply:
        found = [{"id": number, "name": name} for number, name in sorted(self.listed.items())]
        tag = f'"{hash(json.dumps(found))}"'
        if request.headers.get("if-none-match") == tag:
            return Reply(status=304)
        return as_json({"rows": found}, ETag=tag)

    def _answer(self, request: Request) -> Reply:
        first = int(request.query.get("cursor", 0))
        rows = list(self.answered)
        more = first + 3 < len(rows)
        return as_json({"rows": rows[first : first + 3], "next": first + 3 if more else None})

    def _take(self, request: Request) -> Reply:
        self.inbox.setdefault(request.headers["idempotency-key"], json.loads(request.body))
        return as_json({}, 201)

    # --- what happens -------------------------------------------------------------------------------------

    def _row(self) -> dict[str, Any]:
        self._next += 1
        return {"id": self._next, "name": self._rng.choice(["a", "b", "c", "d"])}

    def list(self) -> None:
        for _ in range(self._rng.randint(1, 6)):
            row = self._row()
            self.listed[row["id"]] = row["name"]
        for number in list(self.listed):
            if self._rng.random() < 0.2:
                self.listed[number] = self._rng.choice(["a", "b", "c"])
            elif self._rng.random() < 0.1 and len(self.listed) > 1:
                del self.listed[number]

    def change(self) -> None:
        for _ in range(self._rng.randint(1, 8)):
            kind = self._rng.choice(["list", "answer", "event", "hang up", "post", "post", "fail"])
            if kind == "list":
                self.list()
            elif kind == "answer":
                self.answered += [self._row() for _ in range(self._rng.randint(1, 5))]
            elif kind == "event":
                self.sent.append(self._row())
                self._events.send(json.dumps(self.sent[-1]))
            elif kind == "hang up":
                self._events.hang_up()
            elif kind == "fail":
                self._failing = self._rng.randint(1, 4)
            else:
                self._post()

    def _post(self) -> None:
        """A sender posts some rows; those that nobody took are posted again at the next time."""
        self.posted += [self._row() for _ in range(self._rng.randint(1, 3))]
        self.deliver()

    def deliver(self) -> bool:
        """Post everything that may not have been taken, some of it twice; whether all has been taken."""
        # A sender knows what was acknowledged, and repeats itself at times.
        first = max(0, self._taken - self._rng.randint(0, 2))
        body = json.dumps(self.posted[first:]).encode()
        request = urllib.request.Request(
            self._hook, body, {"Content-Type": "application/json"}, method="POST"
        )
        count = len(self.posted)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                told = json.load(answer)
        except (OSError, HTTPException, ValueError):
            return False
        assert told["accepted"] + told["duplicates"] == count - first
        self._taken = count
        return True

    def live(self) -> None:
        """One life of the application, with its end."""
        runner = Runner(self._folder / "data", self._app, None)
        if self._rng.random() < 0.15:
            self._deaths.append("while it starts")
            threading.Event().wait(self._rng.random() * 8)
            runner.kill()
            return
        runner.ready()
        if self._rng.random() < 0.7:
            place = f"{(name := self._rng.choice(sorted(PLACES)))} {self._rng.randint(1, PLACES[name])}"
            runner.ask(f"die {place}")
            self._deaths.append(place)
        else:
            self._deaths.append("any moment")
        for _ in range(self._rng.randint(1, 4)):
            self.change()
            if runner.process.poll() is not None:
                break
        if self._rng.random() < 0.5:
            runner.ask("idle", 200)
        runner.kill()

    def check(self) -> None:
        """The last life: everything is right."""
        self._failing = 0
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        try:
            self._wait(self.deliver)
            self._wait(lambda: self._compare(runner), 90)
        except BaseException:
            print(self._deaths, runner.ask("jobs"))
            raise
        finally:
            runner.tell("quit")
            runner.ended()

    def _compare(self, runner: Runner) -> bool:
        folder = self._folder / "dump"
        folder.mkdir(exist_ok=True)
        runner.ask(f"dump {folder}")
        there = {path.stem: pq.read_table(path).to_pylist() for path in folder.glob("*.parquet")}
        listed = [{"id": number, "name": name} for number, name in self.listed.items()]
        names: dict[str, int] = {}
        for row in listed:
            names[row["name"]] = names.get(row["name"], 0) + 1
        wanted = {
            "listed": listed,
            "names": [{"name": name, "n": count} for name, count in names.items()],
            "events": self.sent,
            "answers": self.answered,
            "posted": self.posted,
        }
        sent = [row for part in list(self.inbox.values()) for row in part]
        for name, rows in wanted.items():
            assert _sorted(there.get(name, [])) == _sorted(rows), name
        assert _sorted(sent) == _sorted(self.posted), "inbox"
        return True


def _sorted(rows: list[dict[str, Any]]) -> list[list[tuple[str, Any]]]:
    return sorted(sorted(row.items()) for row in rows)


def test_nothing_is_lost_or_doubled(
    tmp_path: Path,
    web: Web,
    rng: random.Random,
    rounds: Callable[[int, int], int],
    wait_until: WaitUntil,
) -> None:
    world = World(tmp_path / "world", web, rng, wait_until)
    for _ in range(rounds(3, 40)):
        world.live()
    world.check()
