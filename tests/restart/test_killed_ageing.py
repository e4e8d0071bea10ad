"""kill -9 while rows come and go by the clock: what is left is what the clock and the file say."""

from __future__ import annotations

import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from lives import killed_while

from velostream.config import load
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    import random

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]
RUNNER = Path(__file__).with_name("ageing_runner.py")
HOUR = timedelta(hours=1)


class World:
    """A file of events and a clock, both changed at random."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self.now = datetime(2026, 5, 1, 12, tzinfo=UTC)
        self.clock, self.file = folder / "clock", folder / "events.csv"
        self.events = [(n, "ab"[n % 2], self.now - timedelta(minutes=n)) for n in range(5)]
        self.forward(0)
        self._write()

    def forward(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        new = self.clock.with_suffix(".new")
        new.write_text(self.now.isoformat())
        new.replace(self.clock)

    def change(self) -> None:
        self.forward(self._rng.randint(1, 15))
        number = self.events[-1][0] + 1
        self.events.append(
            (number, self._rng.choice("abc"), self.now + timedelta(minutes=self._rng.randint(-70, 20)))
        )
        if self._rng.random() < 0.3:
            del self.events[self._rng.randrange(len(self.events) - 1)]
        self._write()

    def _write(self) -> None:
        lines = [f"{number},{kind},{at:%Y-%m-%d %H:%M:%S}\n" for number, kind, at in self.events]
        new = self.file.with_suffix(".new")
        new.write_text("".join(["id,kind,ts\n", *lines]))
        new.replace(self.file)

    def kept(self) -> list[int]:
        return [number for number, _, at in self.events if self.now - HOUR < at]

    def latest(self) -> set[tuple[str, datetime]]:
        kinds = {kind for _, kind, _ in self.events}
        newest = {(kind, max(at for _, other, at in self.events if other == kind)) for kind in kinds}
        return {(kind, at) for kind, at in newest if self.now - HOUR < at}

    def live(self) -> list[tuple[int, str]]:
        return [(number, kind) for number, kind, at in self.events if self.now - HOUR < at <= self.now]


@pytest.mark.timeout(3600)
def test_live_rows_survive_kills(spark, tmp_path, rng, rounds, wait_until):
    world = World(tmp_path, rng)
    settings = load(None, data_dir=tmp_path / "data")
    source = f"file://{world.file}"
    window = "WHERE ts BETWEEN now() - INTERVAL 1 HOUR + INTERVAL 1 SECOND AND now()"
    debounce = 'WITH ("file.debounce" = "20ms")'
    with Instance(settings, clock=lambda: world.now) as database:
        database.sql(f"CREATE TABLE rows AS SELECT id, kind FROM {source} {window} {debounce}")
        counted = f"SELECT kind, COUNT(*) AS c FROM {source} {window} GROUP BY kind"
        database.sql(f"CREATE TABLE counts AS {counted} {debounce}")
        retained = '"retention" = "1h", "event.time.column" = "ts"'
        database.sql(
            f'CREATE TABLE kept AS SELECT id, ts FROM {source} WITH ("file.debounce" = "20ms", {retained})'
        )
        database.sql(
            f"CREATE TABLE latest AS SELECT kind, MAX(ts) AS ts FROM {source} GROUP BY kind "
            f'WITH ("file.debounce" = "20ms", {retained})'
        )
        database.sql("CREATE TABLE above AS SELECT c, COUNT(*) AS kinds FROM counts GROUP BY c")
        assert database.wait_idle(120)
    killed = 0
    for _ in range(rounds(2, 20)):
        place = (rng.choice(["before", "after"]), str(rng.randint(1, 8)))
        command = [sys.executable, str(RUNNER), str(settings.data_dir), str(world.clock), *place]
        killed += killed_while(command, world.change, lambda: rng.uniform(0.1, 2))
    assert killed
    with Instance(settings, clock=lambda: world.now) as database:
        assert database.wait_idle(120), database.jobs()
        world.change()
        assert database.wait_idle(120), database.jobs()
        assert Counter(map(tuple, database.table("rows").rows())) == Counter(world.live())
        # Retention is not a job's, so nothing tells that it is done.
        wait_until(lambda: sorted(row["id"] for row in database.table("kept").rows()) == world.kept())
        wait_until(lambda: {tuple(row) for row in database.table("latest").rows()} == world.latest())
        counts = Counter(kind for _, kind in world.live())
        assert {tuple(row) for row in database.table("counts").rows()} == set(counts.items())
        assert {tuple(row) for row in database.table("above").rows()} == set(Counter(counts.values()).items())
