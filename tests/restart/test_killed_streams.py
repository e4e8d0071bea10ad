"""kill -9 between the commits of kept rows, what is forgotten and the result: no row is lost or doubled."""

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
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
DISORDER, REACH = 5, 4
Event = tuple[str, int, datetime]


class Streams:
    """Two files that grow, a little out of order; of a key, no two rows of a file are of the same time."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._rng = rng
        self._second = 0
        self.files = [folder / "left.jsonl", folder / "right.jsonl"]
        self.events: list[dict[tuple[str, datetime], Event]] = [{}, {}]
        self.grow()

    def grow(self) -> None:
        self._second += self._rng.randrange(4)
        for side, file in enumerate(self.files):
            for _ in range(self._rng.randrange(1, 4)):
                seconds = self._second - self._rng.randrange(DISORDER + 1)
                self._append(side, file, self._rng.choice("ab"), NOON + timedelta(seconds=seconds))

    def end(self) -> None:
        """Rows of which none is joined, so late that all others are final."""
        for side, file in enumerate(self.files):
            self._append(side, file, "lr"[side], NOON + timedelta(days=1))

    def _append(self, side: int, file: Path, key: str, at: datetime) -> None:
        if (key, at) in self.events[side]:
            return
        number = len(self.events[side])
        self.events[side][key, at] = (key, number, at)
        with file.open("a") as stream:
            stream.write(f'{{"k": "{key}", "n": {number}, "ts": "{at.isoformat()}"}}\n')

    def pairs(self) -> Counter[tuple[int, int]]:
        left, right = (list(each.values()) for each in self.events)
        near = timedelta(seconds=REACH)
        return Counter((a[1], b[1]) for a in left for b in right if a[0] == b[0] and abs(a[2] - b[2]) <= near)

    def lonely(self) -> Counter[tuple[int, None]]:
        met = {one for one, _ in self.pairs()}
        return Counter((a[1], None) for a in self.events[0].values() if a[1] not in met and a[0] != "l")

    def last(self) -> Counter[tuple[int, int]]:
        found: Counter[tuple[int, int]] = Counter()
        for key, number, at in self.events[0].values():
            earlier = [b for b in self.events[1].values() if b[0] == key and b[2] <= at]
            if earlier:
                found[number, max(earlier, key=lambda b: b[2])[1]] += 1
        return found

    def moving(self) -> Counter[tuple[int, int, int | None]]:
        """Of each row of the first file the sum with the two rows before it, and the row after it."""
        found: Counter[tuple[int, int, int | None]] = Counter()
        for key in {key for key, _ in self.events[0]}:
            numbers = [number for _, number, _ in sorted(self._of(key), key=lambda event: event[2])]
            for place, number in enumerate(numbers):
                after = numbers[place + 1] if place + 1 < len(numbers) else None
                found[number, sum(numbers[max(place - 2, 0) : place + 1]), after] += 1
        return found

    def _of(self, key: str) -> list[Event]:
        return [event for event in self.events[0].values() if event[0] == key]


OVER = "OVER (PARTITION BY k ORDER BY ts {})"
MOVING = (
    f"SELECT n, SUM(n) {OVER.format('ROWS 2 PRECEDING')} AS total, LEAD(n) {OVER.format('')} AS after FROM l"
)


@pytest.mark.timeout(3600)
def test_joins_and_frames_of_streams_survive_kills(spark, tmp_path, rng, rounds):
    streams = Streams(tmp_path, rng)
    settings = load(None, data_dir=tmp_path / "data")
    clock = tmp_path / "clock"
    clock.write_text(NOON.isoformat())
    with Instance(settings, clock=lambda: NOON) as database:
        for name, file in zip(("l", "r"), streams.files, strict=True):
            database.sql(
                f"CREATE SOURCE {name} (k STRING, n INT, ts TIMESTAMP) FROM file://{file} WITH "
                f'("event.time.column" = "ts", "max_out_of_orderness_ms" = "{DISORDER * 1000}", '
                '"file.debounce" = "20ms")'
            )
        near = f"l.k = r.k WITHIN INTERVAL '{REACH}' SECOND"
        database.sql(f"CREATE TABLE pairs AS SELECT l.n, r.n AS m FROM l l JOIN r r ON {near}")
        database.sql(
            f"CREATE TABLE final AS SELECT l.n, r.n AS m FROM l l LEFT JOIN r r ON {near} EMIT FINAL"
        )
        asof = "l.k = r.k AND l.ts >= r.ts"
        database.sql(f"CREATE TABLE last AS SELECT l.n, r.n AS m FROM l l ASOF JOIN r r ON {asof}")
        database.sql(f"CREATE TABLE moving AS {MOVING} EMIT CHANGES")
        database.sql(f"CREATE TABLE settled AS {MOVING} EMIT FINAL")
        assert database.wait_idle(120)
    killed = 0
    for _ in range(rounds(1, 25)):
        place = (rng.choice(["before", "after"]), str(rng.randint(1, rounds(6, 20))))
        command = [sys.executable, str(RUNNER), str(settings.data_dir), str(clock), *place]
        killed += killed_while(command, streams.grow, lambda: rng.uniform(0.1, 1))
    assert killed
    streams.end()
    with Instance(settings, clock=lambda: NOON) as database:
        assert database.wait_idle(120), database.jobs()
        names = ("pairs", "final", "last", "moving", "settled")
        found = {name: Counter(map(tuple, database.table(name).rows())) for name in names}
        assert found["pairs"] == streams.pairs()
        assert found["final"] == streams.pairs() + streams.lonely()
        assert found["last"] == streams.last()
        moving = streams.moving()
        assert found["moving"] == moving
        # What comes after the last row of a key is never known.
        assert found["settled"] == Counter(
            {row: times for row, times in moving.items() if row[2] is not None}
        )
        assert len(database.table("dead_letters")) == 0
