"""kill -9 at any moment loses nothing and doubles nothing, in no table and in no sink."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from lives import Runner
from runner import PLACES

from velostream.runtime.instance import Instance, open_instance

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

APP = """
CREATE TABLE copied AS SELECT * FROM file://{edited} WITH ("file.debounce" = "20ms");
CREATE TABLE sums AS SELECT grp, COUNT(*) AS c, SUM(v) AS s, MAX(v) AS m FROM file://{edited} GROUP BY grp
  WITH ("file.debounce" = "20ms");
CREATE TABLE keyed AS SELECT id, grp, v FROM file://{edited} WITH ("key" = "id", "file.debounce" = "20ms");
CREATE TABLE derived AS SELECT c, COUNT(*) AS k FROM sums GROUP BY c;
CREATE TABLE logged AS SELECT id, v FROM file://{log} WITH ("file.debounce" = "20ms");
INSERT INTO file://{out}/rows.csv SELECT id, v FROM file://{log} WITH ("file.debounce" = "20ms");
INSERT INTO file://{out}/rows.jsonl SELECT id, v FROM file://{log} WITH ("file.debounce" = "20ms");
INSERT INTO file://{out}/rows.parquet SELECT id, v FROM file://{log} WITH ("file.debounce" = "20ms");
CREATE TABLE hand (id BIGINT PRIMARY KEY, v STRING);
INSERT INTO hand VALUES (1, 'once');
"""


class Feeder:
    """Two files: one that is edited in every way, and one that only grows and has bad rows."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self.edited, self.log = folder / "edited.csv", folder / "log.csv"
        self.rows: dict[int, tuple[str, str]] = {}
        self.logged: list[tuple[int, str]] = []
        self.bad: list[str] = []
        self._next = 0
        self._rewrite()
        self.log.write_text("id,v\n")
        # Something to tell the columns from, before anything is edited or removed.
        self._grow()
        self._append_log(3)

    def feed(self) -> None:
        """One change of each file."""
        self._rng.choice([self._grow, self._grow, self._edit, self._remove])()
        self._append_log(self._rng.randint(0, 4))

    def _row(self) -> tuple[int, tuple[str, str]]:
        self._next += 1
        return self._next, (
            self._rng.choice("abc"),
            f"{self._rng.randrange(1000)}.{self._rng.randrange(100):02d}",
        )

    def _grow(self) -> None:
        new = dict(self._row() for _ in range(self._rng.randint(1, 5)))
        with self.edited.open("a") as out:
            out.writelines(f"{number},{grp},{v}\n" for number, (grp, v) in new.items())
        self.rows |= new

    def _edit(self) -> None:
        for number in self._rng.sample(sorted(self.rows), min(2, len(self.rows))):
            self.rows[number] = self._row()[1]
        self._rewrite()

    def _remove(self) -> None:
        # One row stays: a file without any tells no columns to an application that is still being created.
        for number in self._rng.sample(sorted(self.rows), min(2, len(self.rows) - 1)):
            del self.rows[number]
        self._rewrite()

    def _rewrite(self) -> None:
        text = "id,grp,v\n" + "".join(f"{n},{grp},{v}\n" for n, (grp, v) in self.rows.items())
        other = self.edited.with_suffix(".new")
        other.write_text(text)
        other.replace(self.edited)

    def _append_log(self, count: int) -> None:
        with self.log.open("a") as out:
            for _ in range(count):
                number, (_, v) = self._row()
                if self.logged and self._rng.random() < 0.15:
                    self.bad.append(f"{number},bad,{v}")
                    out.write(f"{self.bad[-1]}\n")
                else:
                    self.logged.append((number, v))
                    out.write(f"{number},{v}\n")


@pytest.fixture
def setting(tmp_path: Path, rng) -> Iterator[tuple[Feeder, Path, Path, Path]]:
    feeder = Feeder(tmp_path, rng)
    app, out = tmp_path / "app.sql", tmp_path / "out"
    app.write_text(APP.format(edited=feeder.edited, log=feeder.log, out=out))
    return feeder, tmp_path / "data", app, out


def live(runner: Runner, feeder: Feeder, rng: random.Random, limit: float) -> bool:
    """Feed until the runner dies at its place or the time is up, then kill it; whether it died by itself."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        feeder.feed()
        if rng.random() < 0.1:
            runner.tell("snapshot")
        try:
            runner.process.wait(rng.uniform(0.01, 0.4))
        except subprocess.TimeoutExpired:
            continue
        runner.ended()
        return True
    runner.kill()
    return False


def check(database: Instance, feeder: Feeder, out: Path) -> None:
    from decimal import Decimal

    groups: dict[str, list[Decimal]] = {}
    for grp, v in feeder.rows.values():
        groups.setdefault(grp, []).append(Decimal(v))
    rows = {(number, grp, Decimal(v)) for number, (grp, v) in feeder.rows.items()}
    logged = Counter((number, Decimal(v)) for number, v in feeder.logged)
    assert Counter(map(tuple, database.table("copied").rows())) == Counter(rows)
    assert Counter(map(tuple, database.table("keyed").rows())) == Counter(rows)
    sums = {(grp, len(values), sum(values), max(values)) for grp, values in groups.items()}
    assert set(map(tuple, database.table("sums").rows())) == sums
    counts = Counter(len(values) for values in groups.values())
    assert set(map(tuple, database.table("derived").rows())) == set(counts.items())
    assert Counter(map(tuple, database.table("logged").rows())) == logged
    assert [tuple(row) for row in database.table("hand").rows()] == [(1, "once")]
    text = (out / "rows.csv").read_text().splitlines()
    assert text[0] == "id,v"
    assert Counter((int(i), Decimal(v)) for i, v in (line.split(",") for line in text[1:])) == logged
    lines = [json.loads(line, parse_float=Decimal) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert Counter((row["id"], Decimal(row["v"])) for row in lines) == logged
    parts = pq.read_table(out / "rows.parquet").to_pylist()
    assert Counter((row["id"], row["v"]) for row in parts) == logged
    letters = database.sql("SELECT job, raw FROM dead_letters").rows()
    jobs = {job.name for job in database.jobs() if job.name == "logged" or job.name.startswith("insert")}
    assert len(jobs) == 4
    assert Counter((row.job, bytes(row.raw).decode()) for row in letters) == Counter(
        (job, raw) for job in jobs for raw in feeder.bad
    )


@pytest.mark.timeout(7200)
def test_nothing_is_lost_or_doubled(spark, setting, rng, rounds):
    """Seeded kills: some at a random moment, some at a chosen place in the code."""
    feeder, data, app, out = setting
    places = sorted(PLACES)
    rng.shuffle(places)
    # The catalogue is written while statements are new: later lives hardly touch it.
    places.sort(key=lambda name: "catalogue" not in name)
    count = rounds(2, 26)
    deaths: list[str] = []
    for number in range(count):
        kill = None
        if number % 2 == 0:
            name = places[(number // 2) % len(places)]
            kill = f"{name} {rng.randint(1, PLACES[name])}"
        runner = Runner(data, app, kill)
        there = live(runner, feeder, rng, rng.uniform(4, 20) if kill is None else 60)
        deaths.append(kill if kill and there else "any moment")
    reached = [death for death in deaths if death != "any moment"]
    assert len(reached) >= len(range(0, count, 2)) // 2, deaths
    with open_instance(data) as database:
        from velostream.runtime.statements.application import Application

        Application(database, database.check(app.read_text(), "app.sql")).start()
        feeder.feed()
        assert database.wait_idle(180), (deaths, database.jobs())
        assert not [job for job in database.jobs() if job.state != "running"], (deaths, database.jobs())
        check(database, feeder, out)


def test_a_dead_jvm_is_told_clearly(setting, wait_until):
    """Spark dies alone: the jobs say so, nothing hangs, and the next start goes on."""
    _, data, app, _ = setting
    runner = Runner(data, app, None)
    runner.ready()
    os.kill(int(runner.ask("java")), signal.SIGKILL)

    def told() -> dict[str, list[str]]:
        return json.loads(runner.ask("jobs"))

    wait_until(lambda: all(state == "failed" for state, _ in told().values()), 60)
    assert all("spark" in reason.lower() for _, reason in told().values()), told()
    assert runner.ask("quit") == "closed"
    runner.ended()
