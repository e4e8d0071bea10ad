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

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.sampled(3)

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


def rows(database: Instance, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(table).rows()), key=repr)


def _holds(database: Instance, whole: list[tuple[Any, ...]]) -> bool:
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


CALLED = {
    "tumbling": "window(ts, '1 minute')",
    "sliding": "window(ts, '3 minutes', '1 minute')",
    "uneven": "HOP(ts, INTERVAL '1' MINUTE, INTERVAL '150' SECOND)",
    "session": "session_window(ts, '40 seconds')",
}
BOUNDS = {
    "uneven": "HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '150' SECOND) AS w0, "
    "HOP_END(ts, INTERVAL '1' MINUTE, INTERVAL '150' SECOND) AS w1",
    "session": "session_window.start AS w0, session_window.end AS w1",
}


RELATIONS = {
    "tumbling": "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE)",
    "sliding": "HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)",
    "uneven": "HOP(DATA => TABLE e, TIMECOL => DESCRIPTOR(ts), SLIDE => 1m, SIZE => INTERVAL '150' SECOND)",
    "session": "SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '40' SECOND)",
}


def over_table(kind: str, form: str) -> str:
    """A SELECT of the windows of table e, with the time as a column of its own."""
    if form == "called":
        bounds = BOUNDS.get(kind, "window.start AS w0, window.end AS w1")
        return f"SELECT k, {AGGREGATES}, {bounds} FROM e GROUP BY k, {CALLED[kind]}"
    head = f"SELECT k, {AGGREGATES}, window_start AS w0, window_end AS w1"
    if form == "relation":
        return f"{head} FROM TABLE({RELATIONS[kind]}) GROUP BY k, window_start, window_end"
    return f"{head} FROM e WINDOW {WINDOWS[kind][0].replace('(', '(ts, ', 1)} GROUP BY k"


def changed(rng: random.Random, held: dict[int, tuple[Any, ...]], database: Instance) -> None:
    """Rows of any time come, change and go; `held` is what is left, by id."""
    table = database.table("e")
    far = rng.choice([NOON, datetime(1969, 12, 31, 23, 59, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)])
    fresh = {}
    for _ in range(rng.randrange(1, 8)):
        seconds = rng.randrange(-30, 30) * 10
        at = None if rng.random() < 0.1 else far + timedelta(seconds=seconds)
        fresh[rng.randrange(24)] = (rng.choice(["a", "b", None]), rng.randrange(-50, 50), at)
    gone = [each for each in held if each not in fresh and rng.random() < 0.25]
    table.upsert([{"id": key, "k": k, "n": n, "ts": ts} for key, (k, n, ts) in fresh.items()])
    if gone:
        table.delete(gone)
    held.update(fresh)
    for each in gone:
        del held[each]


def test_windows_over_a_table_are_what_duckdb_says_of_its_rows(opened, tmp_path: Path, rng, rounds):
    for number in range(rounds(1, 12)):
        database = opened(tmp_path / str(number))
        database.sql("CREATE TABLE e (id INT PRIMARY KEY, k STRING, n INT, ts TIMESTAMP)")
        queries = {kind: over_table(kind, rng.choice(["clause", "called", "relation"])) for kind in WINDOWS}
        for kind, query in queries.items():
            database.sql(f"CREATE TABLE {kind} AS {query}")
        held: dict[int, tuple[Any, ...]] = {}
        for _ in range(rounds(4, 8)):
            changed(rng, held, database)
            assert database.wait_idle(60)
            for kind, query in queries.items():
                whole = truth(kind, [row for row in held.values() if row[2] is not None])
                assert rows(database, kind) == whole, (kind, query)
        for kind, query in queries.items():
            whole = truth(kind, [row for row in held.values() if row[2] is not None])
            assert sorted(map(tuple, database.sql(query).rows()), key=repr) == whole, query
        assert len(database.table("dead_letters")) == 0
        database.close()
