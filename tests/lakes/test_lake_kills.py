"""kill -9 of an application that writes to tables of Delta Lake and Iceberg, by key and by appending.

At rest a table that is written by key equals the one it is written from, and one that is appended to has
every row once.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from lakehouses import DeltaFolder, IcebergFolder

from restart.lives import Runner

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from lakehouses import Lakehouse
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

PLACES = {
    "step of a lake intended, not written": 8,
    "step of a lake written": 8,
    "committed to the lake of Delta, not synced": 4,
    "files of Iceberg's lake written, not committed": 4,
    "committed to Iceberg's lake, nobody told": 4,
    "sink written, not recorded": 8,
    "sink recorded": 8,
}
APP = """
CREATE SOURCE events (id BIGINT, name STRING, amount DECIMAL(9, 2)) FROM file://{file};
CREATE TABLE totals AS SELECT name, COUNT(*) AS n, SUM(amount) AS total FROM events GROUP BY name;
CREATE TABLE large AS SELECT name, n, total FROM totals WHERE total > 0;
INSERT INTO {delta_large} SELECT * FROM large EMIT CHANGES;
INSERT INTO {iceberg_large} SELECT * FROM large EMIT CHANGES WITH ("table.create.if.missing" = "true");
INSERT INTO {delta_log} SELECT id, name, amount FROM events;
INSERT INTO {iceberg_log} SELECT id, name, amount FROM events WITH ("table.create.if.missing" = "true");
"""


class World:
    """A file that grows, an application, and what happens to both."""

    def __init__(self, folder: Path, rng: random.Random, wait_until: WaitUntil) -> None:
        folder.mkdir()
        self._folder, self._rng, self._wait = folder, rng, wait_until
        self._lakes: dict[str, Lakehouse] = {"delta": DeltaFolder(folder), "iceberg": IcebergFolder(folder)}
        self._rows: list[tuple[Any, ...]] = []
        self._deaths: list[str] = []
        self._file = folder / "events.jsonl"
        self._app = folder / "app.sql"
        places = {f"{kind}_{name}": lake.uri(name) for kind, lake in self._lakes.items() for name in NAMES}
        self._app.write_text(APP.format(file=self._file, **places))
        self.grow()

    def grow(self) -> None:
        from decimal import Decimal

        with self._file.open("a") as file:
            for _ in range(self._rng.randint(1, 5)):
                row = (len(self._rows), self._rng.choice("abcdef"), Decimal(self._rng.randint(-9, 12)) / 4)
                self._rows.append(row)
                file.write(json.dumps({"id": row[0], "name": row[1], "amount": float(row[2])}) + "\n")

    def others_write(self) -> None:
        """A writer that knows nothing of us commits to the table too."""
        table = self._folder / "log"
        if (table / "_delta_log").exists():
            schema = DeltaFolder(self._folder).read("log").schema
            write_deltalake(str(table), schema.empty_table(), mode="append")

    def live(self) -> None:
        """One life of the application, with its end."""
        runner = Runner(self._folder / "data", self._app, None)
        if self._rng.random() < 0.15:
            self._deaths.append("while it starts")
            threading.Event().wait(self._rng.random() * 8)
            runner.kill()
            return
        runner.ready()
        if self._rng.random() < 0.8:
            place = f"{(name := self._rng.choice(sorted(PLACES)))} {self._rng.randint(1, PLACES[name])}"
            runner.ask(f"die {place}")
            self._deaths.append(place)
        else:
            self._deaths.append("any moment")
        for _ in range(self._rng.randint(2, 5)):
            self.grow()
            self.others_write()
            if not runner.ask("jobs"):
                break
        if self._rng.random() < 0.5:
            runner.ask("idle", 200)
        runner.kill()

    def check(self) -> None:
        """The last life: everything is right."""
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        try:
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
        totals: dict[str, list[Any]] = {}
        for _, name, amount in self._rows:
            total = totals.setdefault(name, [0, 0])
            totals[name] = [total[0] + 1, total[1] + amount]
        large = Counter((name, n, total) for name, (n, total) in totals.items() if total > 0)
        there = pq.read_table(folder / "large.parquet").to_pylist()
        assert Counter(tuple(row.values()) for row in there) == large
        for kind, lake in self._lakes.items():
            assert lake.rows("large") == large, kind
            assert lake.rows("log") == Counter(self._rows), kind
        return True


NAMES = ("large", "log")


def test_nothing_is_lost_or_doubled(
    tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int], wait_until: WaitUntil
) -> None:
    world = World(tmp_path / "world", rng, wait_until)
    for _ in range(rounds(3, 40)):
        world.live()
    world.check()
