"""Windows over events out of order, with restarts, beside DuckDB over the same events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from stepped import in_duckdb, stepped

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from velostream.runtime.database import Database

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
AGGREGATES = "COUNT(*) AS c, SUM(n) AS s, MIN(n) AS low, MAX(n) AS high, AVG(n) AS mean"

WINDOWS = {
    "tumbling": (
        "TUMBLING(INTERVAL '1' MINUTE)",
        "SELECT *, time_bucket(INTERVAL '1 minute', ts) AS w0, w0 + INTERVAL '1 minute' AS w1 FROM events",
    ),
    "sliding": (
        "SLIDING(INTERVAL '3' MINUTE, INTERVAL '1' MINUTE)",
        "SELECT *, time_bucket(INTERVAL '1 minute', ts) - i * INTERVAL '1 minute' AS w0, "
        "w0 + INTERVAL '3 minutes' AS w1 FROM events, range(3) r(i)",
    ),
    "uneven": (
        "SLIDING(INTERVAL '150' SECOND, INTERVAL '1' MINUTE)",
        "SELECT *, time_bucket(INTERVAL '1 minute', ts) - i * INTERVAL '1 minute' AS w0, "
        "w0 + INTERVAL '150 seconds' AS w1 FROM events, range(3) r(i) WHERE ts < w1",
    ),
    "session": (
        "SESSION(INTERVAL '40' SECOND)",
        "SELECT *, min(ts) OVER w AS w0, max(ts) OVER w + INTERVAL '40 seconds' AS w1 FROM ("
        " SELECT *, sum(CASE WHEN ts - before <= INTERVAL '40 seconds' THEN 0 ELSE 1 END)"
        "  OVER (PARTITION BY k ORDER BY ts, id ROWS UNBOUNDED PRECEDING) AS number FROM ("
        # Both in one order, also of rows at the same time.
        "  SELECT *, lag(ts) OVER (PARTITION BY k ORDER BY ts, id) AS before FROM ("
        "   SELECT *, row_number() OVER () AS id FROM events)))"
        " WINDOW w AS (PARTITION BY k, number)",
    ),
}


def truth(kind: str, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The result over all events, by DuckDB."""
    connection = in_duckdb(events=events)
    sql = f"SELECT k, {AGGREGATES}, w0, w1 FROM ({WINDOWS[kind][1]}) GROUP BY k, w0, w1"
    return sorted(connection.execute(sql).fetchall(), key=repr)


def events(rng: random.Random, minute: float, disorder: float) -> list[tuple[Any, ...]]:
    """Some events about a time, up to `disorder` minutes earlier."""
    return [
        (
            rng.choice(["a", "b", "c", None]),
            rng.randrange(-50, 50),
            # Whole seconds, many of them on bounds.
            NOON + timedelta(seconds=round((minute - rng.random() * disorder) * 60 / 10) * 10),
        )
        for _ in range(rng.randrange(8))
    ]


def rows(database: Database, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(table).rows()), key=repr)


def _holds(database: Database, whole: list[tuple[Any, ...]]) -> bool:
    found = rows(database, "w")
    state = [(row.state, row.reason, row.late_rows) for row in database.sql("SHOW JOBS").rows()]
    letters = [row.reason for row in database.table("dead_letters").rows()]
    assert (set(found) - set(whole), set(whole) - set(found)) == (set(), set()), (state, letters)
    return True


@pytest.mark.parametrize("emit", ["FINAL", "CHANGES"])
@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_are_what_duckdb_says(kind, emit, opened, tmp_path: Path, rng, rounds, wait_until):
    for number in range(rounds(1, 12)):
        partitions = rng.randrange(1, 4)
        name = f"{kind}{emit}{number}".lower()
        steps = stepped(name, partitions)
        folder = tmp_path / name
        database = opened(folder)
        disorder = rng.choice([0.5, 2.0, 4.0])
        # Event times are rounded by up to five seconds either way.
        delay = int(disorder * 60_000) + 10_000
        database.sql(
            f"CREATE TABLE w AS SELECT k, {AGGREGATES}, window_start, window_end FROM stepped://{name} "
            f"WINDOW {WINDOWS[kind][0]} GROUP BY k EMIT {emit} "
            f'WITH ("event.time.column" = "ts", "max_out_of_orderness_ms" = "{delay}")'
        )
        given: list[tuple[Any, ...]] = []
        for step in range(rng.randrange(3, 9)):
            batch = {str(part): events(rng, step * 1.5, disorder) for part in range(partitions)}
            given += [row for more in batch.values() for row in more]
            steps.give(batch)
            assert database.wait_idle(60)
            if emit == "CHANGES":
                _holds(database, truth(kind, given))
            else:
                shown = rows(database, "w")
                assert set(shown) <= set(truth(kind, given)), "a window is shown before it is whole"
            if rng.random() < 0.4:
                database.close()
                database = opened(folder)
        steps.over = True
        assert database.wait_idle(60)
        whole = truth(kind, given)
        wait_until(partial(_holds, database, whole))
        assert len(database.table("dead_letters")) == 0
        database.close()
