"""OVER over a source out of order, with restarts, beside DuckDB over the same events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from stepped import in_duckdb, stepped

from velostream.engine.outputs.outputs import TableOutput
from velostream.engine.over import kept_rows as over_state
from velostream.model.jobs import JobState

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.sampled(3)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
BY = "PARTITION BY k ORDER BY ts"
SPAN = "INTERVAL 40 SECONDS PRECEDING AND INTERVAL 10 SECONDS FOLLOWING"
QUERIES = {
    "back": f"SUM(n) OVER ({BY} ROWS 3 PRECEDING) AS a, LAG(n, 2) OVER ({BY}) AS b,"
    f" SUM(n) OVER ({BY} ROWS 8 PRECEDING) AS d,"
    f" MAX(n) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING) AS c",
    "ahead": f"LEAD(n) OVER ({BY}) AS a, SUM(n) OVER ({BY} ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING) AS b",
    "running": f"ROW_NUMBER() OVER ({BY}) AS a, SUM(n) OVER ({BY} ROWS UNBOUNDED PRECEDING) AS b,"
    f" FIRST_VALUE(n) OVER ({BY} ROWS 4 PRECEDING) AS c, COUNT(*) OVER (ORDER BY ts ROWS 2 PRECEDING) AS d",
    "peers": f"RANK() OVER ({BY}) AS a, SUM(n) OVER ({BY}) AS b,"
    f" COUNT(*) OVER ({BY} RANGE BETWEEN INTERVAL 30 SECONDS PRECEDING AND CURRENT ROW) AS c",
    "span": f"SUM(n) OVER ({BY} RANGE BETWEEN {SPAN}) AS a",
    "unordered": "RANK() OVER (PARTITION BY k ORDER BY n DESC) AS a, COUNT(*) OVER (PARTITION BY k) AS b",
}
TIES = {"peers", "span", "unordered"}
"""Queries whose answer does not depend on which of two rows of one time is the first."""
SHORT = {"back", "ahead", "peers"}
"""What is tried in a short run."""


@pytest.fixture(autouse=True)
def soon_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests are so small that nothing would be forgotten."""
    monkeypatch.setattr(over_state, "LEAST_ROWS", 0)
    monkeypatch.setattr(over_state, "MOST_CHUNKS", 2)


def truth(kind: str, events: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The result over all events, by DuckDB."""
    connection = in_duckdb(events=events)
    return sorted(connection.execute(f"SELECT k, n, {QUERIES[kind]} FROM events").fetchall(), key=repr)


def events(rng: random.Random, kind: str, minute: float, disorder: float) -> list[tuple[Any, ...]]:
    """Some events about a time, up to `disorder` minutes earlier."""
    found = []
    for _ in range(rng.randrange(8)):
        seconds = round((minute - rng.random() * disorder) * 6) * 10
        unique = 0 if kind in TIES else rng.randrange(10_000_000)
        at = NOON + timedelta(seconds=seconds, microseconds=unique)
        found.append((rng.choice(["a", "b", "c", None]), rng.randrange(-50, 50), at))
    return found


def rows(database: Instance, table: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(table).rows()), key=repr)


def _holds(database: Instance, table: str, whole: list[tuple[Any, ...]]) -> bool:
    found = rows(database, table)
    assert found == whole or len(found) < len(whole)
    return found == whole


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in SHORT else pytest.mark.soak) for kind in QUERIES]
)
def test_rows_are_what_duckdb_says(kind, opened, tmp_path: Path, rng, rounds, wait_until):
    for number in range(rounds(1, 12)):
        partitions = rng.randrange(1, 4)
        name = f"{kind}{number}"
        steps = stepped(name, partitions)
        folder = tmp_path / name
        database = opened(folder)
        disorder = rng.choice([0.1, 0.5, 2.0])
        # Event times are rounded by up to five seconds either way, and made unique within ten.
        delay = int(disorder * 60_000) + 20_000
        emits = ["CHANGES"] if kind == "unordered" else ["CHANGES", "FINAL"]
        for emit in emits:
            database.sql(
                f"CREATE TABLE {emit.lower()} AS SELECT k, n, {QUERIES[kind]} FROM stepped://{name} "
                f"EMIT {emit} "
                f'WITH ("event.time.column" = "ts", "max_out_of_orderness_ms" = "{delay}")'
            )
        given: list[tuple[Any, ...]] = []
        for step in range(rng.randrange(3, rounds(5, 12))):
            batch = {str(part): events(rng, kind, step * 1.0, disorder) for part in range(partitions)}
            given += [row for more in batch.values() for row in more]
            steps.give(batch)
            assert database.wait_idle(60)
            assert rows(database, "changes") == truth(kind, given)
            if "FINAL" in emits:
                early = [row for row in rows(database, "final") if row not in truth(kind, given)]
                assert early == [], "a row is shown before it is final"
            if rng.random() < 0.3:
                database.close()
                database = opened(folder)
        steps.over = True
        assert database.wait_idle(60)
        for emit in emits:
            wait_until(partial(_holds, database, emit.lower(), truth(kind, given)))
        assert len(database.table("dead_letters")) == 0
        database.close()


@pytest.mark.parametrize("emit", ["CHANGES", "FINAL"])
def test_a_crash_between_kept_rows_and_result(emit, opened, tmp_path: Path, monkeypatch, wait_until):
    name = f"crash{emit.lower()}"
    steps = stepped(name)
    folder = tmp_path / name
    database = opened(folder)
    database.sql(
        f"CREATE TABLE t AS SELECT k, n, {QUERIES['back']} FROM stepped://{name} EMIT {emit} "
        'WITH ("event.time.column" = "ts", "max_out_of_orderness_ms" = "10000")'
    )
    given = []
    for step in range(3):
        batch = [("a", step * 10 + n, NOON + timedelta(seconds=step * 30 - n * 3)) for n in range(4)]
        given += batch

        def crash(*_: Any) -> Any:
            raise RuntimeError("the power went")

        with monkeypatch.context() as patch:
            patch.setattr(TableOutput, "rows", crash)
            steps.give({"0": batch})
            (job,) = database.jobs_by_name
            wait_until(lambda job=job: job.state is JobState.FAILED)
        database.close()
        database = opened(folder)
        assert database.wait_idle(60)
    if emit == "CHANGES":
        assert rows(database, "t") == truth("back", given)
    steps.over = True
    wait_until(lambda: rows(database, "t") == truth("back", given))
    database.close()
