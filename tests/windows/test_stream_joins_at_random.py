"""Joins of streams out of order, with restarts and rows that are forgotten, beside DuckDB."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from stepped import in_duckdb, stepped

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.sampled(3)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
JOINS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "full": "FULL JOIN",
    "asof": "ASOF LEFT JOIN",
}
NEAR = "l.k = r.k AND r.ts BETWEEN l.ts - INTERVAL '{before}' SECOND AND l.ts + INTERVAL '{after}' SECOND"
LAST = "l.k = r.k AND l.ts >= r.ts"
ITEMS = "l.k AS lk, l.n AS ln, l.ts AS lt, r.k AS rk, r.n AS rn, r.ts AS rt"


def truth(join: str, on: str, left: list[Any], right: list[Any]) -> list[tuple[Any, ...]]:
    """The result over all events, by DuckDB."""
    connection = in_duckdb(l=left, r=right)
    return sorted(connection.execute(f"SELECT {ITEMS} FROM l {join} r ON {on}").fetchall(), key=repr)


def events(rng: random.Random, seconds: float, disorder: int, taken: set[Any]) -> list[tuple[Any, ...]]:
    """Some events about a time, up to `disorder` seconds earlier; of a key, no two at the same time."""
    found = []
    for _ in range(rng.randrange(6)):
        key = rng.choice(["a", "b", None])
        at = NOON + timedelta(seconds=round(seconds) - rng.randrange(disorder + 1))
        if (key, at) not in taken:
            taken.add((key, at))
            found.append((key, rng.randrange(100), at))
    return found


def rows(database: Instance) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table("j").rows()), key=repr)


def _holds(database: Instance, whole: list[tuple[Any, ...]]) -> bool:
    return rows(database) == whole


@pytest.mark.parametrize(
    ("kind", "emit"), [("inner", "CHANGES"), ("left", "FINAL"), ("full", "CHANGES"), ("asof", "FINAL")]
)
def test_joins_are_what_duckdb_says(kind, emit, opened, tmp_path: Path, rng, rounds, wait_until):
    for number in range(rounds(1, 8)):
        names = [f"{kind}{emit}{number}{side}".lower() for side in ("left", "right")]
        steps = [stepped(name, rng.randrange(1, 3)) for name in names]
        disorder = rng.choice([2, 10, 30])
        on = LAST if kind == "asof" else NEAR.format(before=rng.randrange(10), after=rng.randrange(10))
        folder = tmp_path / f"{kind}{emit}{number}"
        database = opened(folder)
        for side, name in zip("lr", names, strict=True):
            database.sql(
                f"CREATE SOURCE {side} FROM stepped://{name} WITH "
                f'("event.time.column" = "ts", "max_out_of_orderness_ms" = "{disorder * 1000}")'
            )
        database.sql(f"CREATE TABLE j AS SELECT {ITEMS} FROM l l {JOINS[kind]} r r ON {on} EMIT {emit}")
        given: list[list[Any]] = [[], []]
        taken: list[set[Any]] = [set(), set()]
        for step in range(rng.randrange(3, 7)):
            for side in rng.sample([0, 1], rng.randrange(1, 3)):
                batch = {part: events(rng, step * 8, disorder, taken[side]) for part in steps[side].rows}
                given[side] += [row for more in batch.values() for row in more]
                steps[side].give(batch)
            assert database.wait_idle(60)
            whole = truth(JOINS[kind], on, *given)
            if emit == "CHANGES":
                assert rows(database) == whole
            if rng.random() < 0.4:
                database.close()
                database = opened(folder)
        for each in steps:
            each.over = True
        assert database.wait_idle(60)
        wait_until(partial(_holds, database, truth(JOINS[kind], on, *given)))
        assert len(database.table("dead_letters")) == 0
        database.close()
