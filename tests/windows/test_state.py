"""What a job remembers: it is forgotten when it has done its work, and nobody downstream hears of that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from stepped import stepped

from refusals import refusal
from velostream.model.columns import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stepped import Steps

    from velostream.runtime.instance import Instance

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
WITH = '"event.time.column" = "ts"'


@pytest.fixture
def database(clocked, tmp_path: Path) -> Instance:
    return clocked(tmp_path / "data")


def event(key: str, n: int, seconds: float) -> tuple[Any, ...]:
    return key, n, NOON + timedelta(seconds=seconds)


def take(database: Instance, steps: Steps, *rows: tuple[Any, ...]) -> None:
    steps.give({"0": list(rows)})
    assert database.wait_idle(60)


def changes(steps: Steps) -> Iterator[tuple[Any, ...]]:
    """What was written since the last call: sign and values."""
    for rows in steps.written:
        for row in rows.to_pylist():
            sign = "-" if row.pop(WEIGHT, 1) < 0 else "+"
            yield sign, *row.values()
    steps.written.clear()


def state_rows(database: Instance, name: str) -> int | None:
    return database.job(name).stats.state_rows


def letters(database: Instance) -> list[str]:
    return [row.reason[:4] for row in database.table("dead_letters").rows()]


def test_windows_that_have_closed_leave_what_is_kept_for_a_sink(clocked, tmp_path, wait_until):
    database, steps, out = clocked(tmp_path / "data"), stepped("w_final"), stepped("w_out")
    database.sql(
        "CREATE STREAM s AS SELECT k, SUM(n) AS total FROM stepped://w_final WINDOW TUMBLING(1m) GROUP BY k "
        f"HAVING SUM(n) < 100 WITH ({WITH}, \"sink\" = 'stepped://w_out')"
    )
    take(database, steps, event("a", 1, 0), event("b", 2, 0), event("c", 500, 0))
    take(database, steps, event("a", 3, 60), event("b", 4, 60))
    take(database, steps, event("a", 5, 120))
    assert sorted(changes(out)) == [("+", "a", 1), ("+", "a", 3), ("+", "b", 2), ("+", "b", 4)]
    # The one of the window that is open, and those of the one that closed last.
    wait_until(lambda: state_rows(database, "s") == 3)
    database.close()
    database = clocked(tmp_path / "data")
    take(database, steps, event("a", 7, 0), event("b", 1, 180))
    assert list(changes(out)) == [("+", "a", 5)]
    assert letters(database) == ["late"]
    take(database, steps, event("b", 1, 181))
    wait_until(lambda: state_rows(database, "s") == 1)
    assert list(changes(out)) == []


@pytest.mark.parametrize(
    ("window", "kept", "expected"),
    [
        (
            "TUMBLING(1m)",
            8,
            [("a", 2, 0), ("b", 1, 0), ("a", 2, 60), ("b", 1, 60)],
        ),
        (
            "SESSION(20s)",
            4,
            [("a", 2, 0), ("b", 1, 2), ("a", 2, 60), ("b", 1, 62)],
        ),
    ],
)
def test_rows_that_windows_are_computed_from_leave_when_these_have_closed(
    database, wait_until, window, kept, expected
):
    """COUNT(DISTINCT …) over a source that may not have its rows any more."""
    name = f"rows_{window.split('(')[0].lower()}"
    steps = stepped(name)
    steps.rereadable = False
    database.sql(
        f"CREATE TABLE {name} AS SELECT k, COUNT(DISTINCT n) AS c, window_start FROM stepped://{name} "
        f"WINDOW {window} GROUP BY k WITH ({WITH})"
    )
    for start in (0, 60, 120):
        take(database, steps, event("a", 1, start), event("a", 1, start + 1), event("b", start, start + 2))
        take(database, steps, event("a", 2, start + 3))
    table = database.table(name)
    rows = [(r.k, r.c, (r.window_start - NOON).total_seconds()) for r in table.rows()]
    assert sorted(rows) == sorted(expected)
    # Of 12 rows those of windows that are open, or closed a moment ago, are kept.
    wait_until(lambda: state_rows(database, name) == len(table.version_object.physical()) + kept)


def test_groups_that_nothing_touches_leave_what_is_kept_for_a_sink(database, clock, wait_until):
    steps, out = stepped("g_ttl"), stepped("g_out")
    database.sql(
        "CREATE STREAM g AS SELECT k, SUM(n) AS s FROM stepped://g_ttl GROUP BY k "
        "WITH (\"state.ttl\" = '1h', \"key\" = 'k', \"sink\" = 'stepped://g_out')"
    )
    take(database, steps, event("a", 5, 0), event("b", 7, 0))
    wait_until(lambda: state_rows(database, "g") == 2)
    clock.forward(hours=1)
    wait_until(lambda: state_rows(database, "g") == 0)
    take(database, steps, event("b", 1, 0))
    assert sorted(changes(out)) == [("+", "a", 5), ("+", "b", 1), ("+", "b", 7)]


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE TABLE t AS SELECT k FROM stepped://refused", "nothing to forget"),
        ("CREATE TABLE t AS SELECT COUNT(*) AS c FROM stepped://refused", "nothing to forget"),
        ("CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM o GROUP BY k", "can be retracted"),
    ],
)
def test_a_ttl_that_makes_no_sense_is_refused(database, sql, why):
    stepped("refused")
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, k STRING)")
    with refusal("sql.property", "state.ttl", why=why):
        database.sql(f'{sql} WITH ("state.ttl" = "1h")')
    with refusal("sql.property", "state.ttl", why="longer than nothing"):
        database.sql(f'{sql} WITH ("state.ttl" = "0s")')
    assert database.catalog.get("t") is None


def test_jobs_tell_what_they_remember(database, wait_until):
    steps = stepped("figures")
    database.sql("CREATE TABLE f AS SELECT k, COUNT(*) AS c FROM stepped://figures GROUP BY k")
    database.sql("CREATE TABLE r AS SELECT k, n FROM stepped://figures")
    take(database, steps, event("a", 1, 0), event("b", 2, 0))

    def shown(name: str) -> tuple[Any, ...]:
        row = next(each for each in database.sql("SHOW JOBS").rows() if each.name == name)
        return row.state_rows, row.state_bytes, row.state_growth

    wait_until(lambda: shown("f")[0] == 2)
    assert shown("f")[1] > 0
    assert shown("r")[:2] == (0, 0)
    wait_until(lambda: (shown("f")[2] or 0) > 0)
