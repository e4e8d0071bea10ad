"""Windows of time: when they close, what readers see until then, and what becomes of rows that come later."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from stepped import stepped

from refusals import refusal
from velostream.engine.inputs import feed

if TYPE_CHECKING:
    from pathlib import Path

    from stepped import Steps

    from velostream.runtime.instance import Instance

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
EVERY = "TUMBLING(INTERVAL '1' MINUTE)"


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def event(key: str | None, n: int, seconds: float | None) -> tuple[Any, ...]:
    return key, n, None if seconds is None else at(seconds)


@pytest.fixture
def database(clocked, tmp_path: Path) -> Instance:
    return clocked(tmp_path / "data")


def created(database: Instance, name: str, window: str = EVERY, emit: str = "", **properties: str) -> Steps:
    """A source of one partition, and a table of its windows: key, count, sum and start in seconds."""
    return made(database, name, 1, window, emit, **properties)


def made(
    database: Instance, name: str, partitions: int, window: str = EVERY, emit: str = "", **properties: str
) -> Steps:
    steps = stepped(name, partitions)
    given = {"event.time.column": "ts", **{k.replace("_", "."): v for k, v in properties.items()}}
    told = ", ".join(f'"{key}" = "{value}"' for key, value in given.items())
    database.sql(
        f"CREATE TABLE {name} AS SELECT k, COUNT(*) AS c, SUM(n) AS s, window_start FROM stepped://{name} "
        f"WINDOW {window} GROUP BY k {emit} WITH ({told})"
    )
    return steps


def take(database: Instance, steps: Steps, *rows: tuple[Any, ...], partition: str = "0") -> None:
    steps.give({partition: list(rows)})
    assert database.wait_idle(60)


def seen(database: Instance, name: str) -> list[tuple[Any, ...]]:
    """Key, count, sum and the window's start in seconds after noon."""
    found = [(r.k, r.c, r.s, (r.window_start - NOON).total_seconds()) for r in database.table(name).rows()]
    return sorted(found, key=repr)


def letters(database: Instance, job: str) -> list[str]:
    return [row.reason for row in database.table("dead_letters").rows() if row.job == job]


def job(database: Instance, name: str) -> Any:
    return next(row for row in database.sql("SHOW JOBS").rows() if row.name == name)


def test_a_window_is_shown_when_the_watermark_has_passed_its_end(database):
    steps = created(database, "final")
    take(database, steps, event("a", 1, 0), event("a", 2, 59))
    assert seen(database, "final") == []
    take(database, steps, event("b", 3, 59.999999))
    assert seen(database, "final") == []
    take(database, steps, event("b", 4, 60))
    assert seen(database, "final") == [("a", 2, 3, 0), ("b", 1, 3, 0)]
    assert job(database, "final").watermark == at(60)


def test_a_row_on_the_bound_belongs_to_the_next_window(database):
    steps = created(database, "bound", emit="EMIT CHANGES")
    take(database, steps, event("a", 1, 60), event("a", 2, 59.999999), event("a", 4, 120))
    assert seen(database, "bound") == [("a", 1, 1, 60), ("a", 1, 2, 0), ("a", 1, 4, 120)]


def test_rows_of_one_batch_are_not_late_for_each_other(database):
    steps = created(database, "batch")
    take(database, steps, event("a", 1, 300), event("a", 2, 0))
    assert seen(database, "batch") == [("a", 1, 2, 0)]
    assert letters(database, "batch") == []


def test_late_rows_are_kept_as_dead_letters(database):
    steps = created(database, "late")
    take(database, steps, event("a", 1, 0), event("a", 2, 61))
    take(database, steps, event("a", 5, 30), event("a", 7, 62))
    take(database, steps, event("a", 9, 120))
    assert seen(database, "late") == [("a", 1, 1, 0), ("a", 2, 9, 60)]
    (reason,) = letters(database, "late")
    assert reason.startswith("late: its window had closed, the watermark was 2026-05-01 12:01:01")
    assert job(database, "late").late_rows == 1
    raw = json.loads(next(iter(database.table("dead_letters").rows())).raw)
    assert (raw["k"], raw["n"]) == ("a", 5)


def test_a_row_is_late_when_no_window_takes_it(database):
    steps = created(database, "partly", "SLIDING(INTERVAL '2' MINUTE, INTERVAL '1' MINUTE)")
    take(database, steps, event("a", 1, 0), event("a", 2, 60))
    # Its first window has closed, its second has not.
    take(database, steps, event("a", 4, 59))
    take(database, steps, event("a", 8, 300))
    take(database, steps, event("a", 16, 0), event("a", 32, None))
    assert seen(database, "partly") == [("a", 1, 1, -60), ("a", 1, 2, 60), ("a", 3, 7, 0)]
    assert sorted(reason[:4] for reason in letters(database, "partly")) == ["late", "the "]
    assert job(database, "partly").late_rows == 1


def test_a_row_one_gap_after_the_last_belongs_to_the_session_also_in_another_batch(database):
    steps = created(database, "gap", "SESSION(INTERVAL '30' SECOND)", emit="EMIT CHANGES")
    take(database, steps, event("a", 1, 0), event("a", 2, 30), event("b", 1, 0), event("b", 2, 30.000001))
    take(database, steps, event("a", 4, 60), event("b", 4, 61))
    assert seen(database, "gap") == [("a", 3, 7, 0), ("b", 1, 1, 0), ("b", 1, 2, 30.000001), ("b", 1, 4, 61)]


def test_late_rows_can_be_dropped_and_are_counted(database):
    steps = created(database, "dropped", late_rows="drop")
    take(database, steps, event("a", 1, 0), event("a", 2, 61))
    take(database, steps, event("a", 5, 30), event("b", 5, 30))
    assert seen(database, "dropped") == [("a", 1, 1, 0)]
    assert letters(database, "dropped") == []
    assert job(database, "dropped").late_rows == 2


def test_late_rows_can_correct_their_window(database):
    steps = created(database, "corrected", late_rows="update")
    take(database, steps, event("a", 1, 0), event("a", 2, 61))
    assert seen(database, "corrected") == [("a", 1, 1, 0)]
    take(database, steps, event("a", 5, 30), event("b", 6, 10))
    assert seen(database, "corrected") == [("a", 2, 6, 0), ("b", 1, 6, 0)]
    assert letters(database, "corrected") == []


def test_grace_keeps_a_window_open(database):
    steps = created(database, "graceful", grace="30s")
    take(database, steps, event("a", 1, 0), event("a", 2, 89))
    assert seen(database, "graceful") == []
    take(database, steps, event("a", 4, 59))
    take(database, steps, event("a", 8, 90))
    assert seen(database, "graceful") == [("a", 2, 5, 0)]
    take(database, steps, event("a", 16, 59))
    assert seen(database, "graceful") == [("a", 2, 5, 0)]
    assert len(letters(database, "graceful")) == 1


def test_the_slowest_partition_decides(database):
    steps = made(database, "slowest", 2)
    take(database, steps, event("a", 1, 0), event("a", 2, 300))
    assert seen(database, "slowest") == []
    take(database, steps, event("b", 4, 59), partition="1")
    assert seen(database, "slowest") == []
    take(database, steps, event("b", 8, 61), partition="1")
    assert seen(database, "slowest") == [("a", 1, 1, 0), ("b", 1, 4, 0)]
    assert job(database, "slowest").watermark == at(61)


def test_a_silent_partition_stops_holding_back(database, clock, wait_until):
    steps = made(database, "silent", 2, idle_timeout="30s")
    take(database, steps, event("b", 1, 10), partition="1")
    take(database, steps, event("a", 2, 0), event("a", 4, 200))
    assert seen(database, "silent") == []
    clock.now += timedelta(seconds=29)
    assert database.wait_idle(60)
    assert seen(database, "silent") == []
    clock.now += timedelta(seconds=2)
    wait_until(lambda: seen(database, "silent") == [("a", 1, 2, 0), ("b", 1, 1, 0)])


def test_the_last_window_closes_by_the_clock_when_asked(database, clock, wait_until):
    steps = created(database, "quiet", window_close_timeout="20s")
    take(database, steps, event("a", 1, 0), event("a", 2, 61))
    assert seen(database, "quiet") == [("a", 1, 1, 0)]
    clock.now += timedelta(seconds=21)
    wait_until(lambda: seen(database, "quiet") == [("a", 1, 1, 0), ("a", 1, 2, 60)])
    take(database, steps, event("a", 4, 62), event("a", 8, 120))
    assert len(letters(database, "quiet")) == 1


def test_all_windows_close_when_the_source_has_ended(database, wait_until):
    steps = created(database, "ended")
    take(database, steps, event("a", 1, 0), event("b", 2, 61))
    steps.over = True
    wait_until(lambda: seen(database, "ended") == [("a", 1, 1, 0), ("b", 1, 2, 60)])
    wait_until(lambda: job(database, "ended").state == "finished")


def test_without_a_window_final_waits_for_the_end_of_the_source(database, wait_until):
    steps = stepped("whole")
    database.sql("CREATE TABLE whole AS SELECT k, SUM(n) AS s FROM stepped://whole GROUP BY k EMIT FINAL")
    take(database, steps, event("a", 1, 0), event("b", 2, 61), event("a", 3, 1))
    assert len(database.table("whole")) == 0
    steps.over = True
    wait_until(lambda: sorted(map(tuple, database.table("whole").rows())) == [("a", 4), ("b", 2)])


def test_having_decides_when_a_window_closes(database):
    steps = stepped("having")
    database.sql(
        "CREATE TABLE having AS SELECT k, SUM(n) AS s, window_end FROM stepped://having "
        f'WINDOW {EVERY} GROUP BY k HAVING SUM(n) > 2 WITH ("event.time.column" = "ts")'
    )
    take(database, steps, event("a", 1, 0), event("b", 2, 0), event("c", 9, 0))
    take(database, steps, event("a", 4, 1), event("c", -8, 1))
    take(database, steps, event("a", 1, 60))
    found = [(row.k, row.s, row.window_end) for row in database.table("having").rows()]
    assert found == [("a", 5, at(60))]


def test_rows_without_a_time_are_bad(database):
    steps = created(database, "timeless", emit="EMIT CHANGES")
    take(database, steps, event("a", 1, None), event("a", 2, 0), event(None, 4, 0))
    assert seen(database, "timeless") == [("a", 1, 2, 0), (None, 1, 4, 0)]
    assert letters(database, "timeless") == ["the event time is null"]


def test_a_restart_finds_watermark_and_windows(opened, tmp_path):
    database = opened(tmp_path / "data")
    steps = created(database, "again")
    take(database, steps, event("a", 1, 0), event("a", 2, 30), event("a", 4, 61))
    database.close()
    database = opened(tmp_path / "data")
    take(database, steps, event("a", 8, 59), event("a", 16, 119))
    take(database, steps, event("a", 32, 120))
    assert seen(database, "again") == [("a", 2, 20, 60), ("a", 2, 3, 0)]
    assert len(letters(database, "again")) == 1


@pytest.mark.parametrize(
    "grouping", ["window(ts, '1 minute')", "window(ts, '60 seconds', '1 minute')"], ids=["one", "two"]
)
def test_sparks_own_function_is_a_window(database, grouping, name):
    name = f"{name}_{len(grouping)}"
    steps = stepped(name)
    database.sql(
        f"CREATE TABLE {name} AS SELECT k, window.start AS window_start, COUNT(*) AS c, SUM(n) AS s "
        f"FROM stepped://{name} GROUP BY k, {grouping}"
    )
    take(database, steps, event("a", 1, 0), event("a", 2, 59), event("a", 4, 60))
    assert seen(database, name) == [("a", 2, 3, 0)]


def test_a_stream_joined_to_a_table_has_windows(database):
    steps = stepped("joined")
    database.create_table("groups", [{"k": "a", "team": "red"}, {"k": "b", "team": "red"}], key="k")
    database.sql(
        "CREATE TABLE joined AS SELECT g.team AS k, COUNT(*) AS c, SUM(t.n) AS s, window_start "
        f"FROM stepped://joined t JOIN groups g ON g.k = t.k WINDOW {EVERY} GROUP BY g.team "
        'WITH ("t.event.time.column" = "ts")'
    )
    take(database, steps, event("a", 1, 0), event("b", 2, 59))
    # A row that matches nothing moves the watermark all the same.
    take(database, steps, event("nobody", 4, 60))
    assert seen(database, "joined") == [("red", 2, 3, 0)]


def test_a_filter_does_not_hold_the_watermark_back(database):
    steps = stepped("filtered")
    database.sql(
        f"CREATE TABLE filtered AS SELECT k, COUNT(*) AS c, SUM(n) AS s, window_start "
        f'FROM stepped://filtered WHERE n < 10 WINDOW {EVERY} GROUP BY k WITH ("event.time.column" = "ts")'
    )
    take(database, steps, event("a", 1, 0))
    take(database, steps, event("a", 99, 61))
    assert seen(database, "filtered") == [("a", 1, 1, 0)]


def test_windows_over_a_table_take_corrections(database):
    steps = stepped("below")
    database.sql('CREATE TABLE rows_below AS SELECT n, k, ts FROM stepped://below WITH ("key" = "n")')
    database.sql(
        "CREATE TABLE above AS SELECT k, COUNT(*) AS c, SUM(n) AS s, window_start FROM rows_below "
        "WINDOW TUMBLING(ts, INTERVAL '1' MINUTE) GROUP BY k EMIT CHANGES"
    )
    take(database, steps, event("a", 1, 0), event("a", 2, 10))
    assert database.wait_idle(60)
    assert seen(database, "above") == [("a", 2, 3, 0)]
    take(database, steps, event("b", 2, 70))
    assert database.wait_idle(60)
    assert seen(database, "above") == [("a", 1, 1, 0), ("b", 1, 2, 60)]


def test_closed_windows_are_written_to_a_file_once(database, tmp_path):
    steps = stepped("written")
    out = tmp_path / "out.jsonl"
    database.sql(
        f"INSERT INTO file://{out} SELECT k, SUM(n) AS s FROM stepped://written WINDOW {EVERY} GROUP BY k "
        'WITH ("event.time.column" = "ts")'
    )
    take(database, steps, event("a", 1, 0), event("b", 2, 1))
    take(database, steps, event("a", 4, 61))
    take(database, steps, event("a", 8, 125))
    written = [json.loads(line) for line in out.read_text().splitlines()]
    assert sorted((row["k"], row["s"]) for row in written) == [("a", 1), ("a", 4), ("b", 2)]


def test_changes_are_emitted_no_faster_than_asked(database, wait_until):
    steps = created(database, "paced", emit="EMIT CHANGES EVERY 3 SECONDS")
    table = database.table("paced")
    take(database, steps, event("a", 1, 0))
    began = time.monotonic()
    first = table.version
    for n in range(3):
        steps.give({"0": [event("a", 1, n)]})
    wait_until(lambda: seen(database, "paced") == [("a", 4, 4, 0)])
    # The source gives a step at a time, and each waits for its turn.
    assert table.version == first + 3
    assert time.monotonic() - began > 5


@pytest.mark.parametrize(
    ("length", "zone", "moments", "bounds"),
    [
        (
            "1 MONTH",
            "UTC",
            ["2026-01-31 23:59:59", "2026-02-01 00:00:00", "2026-02-28 12:00:00"],
            [("2026-01-01 00:00", "2026-02-01 00:00", 1), ("2026-02-01 00:00", "2026-03-01 00:00", 2)],
        ),
        (
            "1 QUARTER",
            "Asia/Kolkata",
            ["2026-03-31 18:29:59", "2026-03-31 18:30:00"],
            [("2025-12-31 18:30", "2026-03-31 18:30", 1), ("2026-03-31 18:30", "2026-06-30 18:30", 1)],
        ),
        (
            # Clocks go back on 25 October 2026: that day has 25 hours.
            "1 DAY",
            "Europe/Berlin",
            ["2026-10-24 22:00:00", "2026-10-25 22:59:59", "2026-10-25 23:00:00"],
            [("2026-10-24 22:00", "2026-10-25 23:00", 2), ("2026-10-25 23:00", "2026-10-26 23:00", 1)],
        ),
        (
            # The hour from two to three comes twice.
            "1 HOUR",
            "Europe/Berlin",
            ["2026-10-25 00:30:00", "2026-10-25 01:30:00"],
            [("2026-10-25 00:00", "2026-10-25 01:00", 1), ("2026-10-25 01:00", "2026-10-25 02:00", 1)],
        ),
        (
            # Clocks go forward on 29 March 2026: the last quarter of that day ends an hour early.
            "6 HOURS",
            "Europe/Berlin",
            ["2026-03-28 23:00:00", "2026-03-29 21:59:59"],
            [("2026-03-28 23:00", "2026-03-29 05:00", 1), ("2026-03-29 17:00", "2026-03-29 22:00", 1)],
        ),
    ],
    ids=["month", "quarter", "long day", "hour twice", "short day"],
)
def test_windows_follow_the_calendar(database, length, zone, moments, bounds):
    name = f"calendar_{length}_{zone}".replace(" ", "_").replace("/", "_").lower()
    steps = stepped(name)
    database.sql(
        f"CREATE TABLE {name} AS SELECT window_start, window_end, COUNT(*) AS c FROM stepped://{name} "
        f"WINDOW TUMBLING EVERY {length} EMIT CHANGES "
        f'WITH ("event.time.column" = "ts", "time.zone" = "{zone}")'
    )
    take(database, steps, *(("a", 1, datetime.fromisoformat(f"{moment}+00:00")) for moment in moments))
    found = sorted(database.table(name).rows())
    assert [
        (f"{r.window_start:%Y-%m-%d %H:%M}", f"{r.window_end:%Y-%m-%d %H:%M}", r.c) for r in found
    ] == bounds


def test_explain_tells_of_time(database):
    stepped("told", 2)
    sql = (
        f"CREATE TABLE told AS SELECT k, COUNT(*) AS c FROM stepped://told WINDOW {EVERY} GROUP BY k "
        'WITH ("event.time.column" = "ts", "max_out_of_orderness_ms" = "5000", "grace" = "10s")'
    )
    text = "\n".join(row[0] for row in database.sql(f"EXPLAIN {sql}").rows())
    assert "event time of told: ts" in text
    assert "the latest time of each partition minus 5s; the earliest of these" in text
    assert "without partitions idle for 1m" in text
    assert "close tumbling windows" in text
    assert "a window closes when the watermark has passed its end and 10s more" in text
    assert "emission: final" in text


def test_what_makes_no_sense_is_told(database):
    stepped("wrong")
    base = f"CREATE TABLE wrong AS SELECT k, COUNT(*) AS c FROM stepped://wrong WINDOW {EVERY} GROUP BY k"
    with refusal("sql.property", "tss") as told:
        database.sql(f'{base} WITH ("event.time.column" = "tss")')
    assert 'did you mean "ts"?' in (told.value.hint or "")
    database.create_table("plain", [{"k": 1}])
    with refusal("sql.unsupported", "WINDOW", why="name the column"):
        database.sql(f"CREATE TABLE wrong AS SELECT k, COUNT(*) AS c FROM plain WINDOW {EVERY} GROUP BY k")


def test_windows_over_a_small_table_close_too(database, monkeypatch):
    monkeypatch.setattr(feed, "FEW_ROWS", 1000)
    database.sql("CREATE TABLE e (id BIGINT PRIMARY KEY, k STRING, ts TIMESTAMP)")
    database.sql(
        "CREATE TABLE few AS SELECT k, COUNT(DISTINCT id) AS c, window_start FROM e "
        "WINDOW TUMBLING(ts, INTERVAL '1' MINUTE) GROUP BY k EMIT FINAL"
    )
    database.sql("INSERT INTO e VALUES (1, 'a', TIMESTAMP '2026-05-01 12:00:00')")
    assert database.wait_idle(60)
    database.sql("INSERT INTO e VALUES (2, 'a', TIMESTAMP '2026-05-01 12:00:30')")
    assert database.wait_idle(60)
    database.sql("INSERT INTO e VALUES (3, 'a', TIMESTAMP '2026-05-01 12:01:00')")
    assert database.wait_idle(60)
    assert [(row.k, row.c, row.window_start) for row in database.table("few").rows()] == [("a", 2, NOON)]
