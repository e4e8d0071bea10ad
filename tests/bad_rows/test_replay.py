"""REPLAY DEAD LETTERS: rows that work by now are in the result once, and their letters are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.runtime.metrics import Figures
from velostream.runtime.socket.client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def letters(database, job: str, columns: str = "kind, partition, offset, raw, reason") -> list[tuple]:
    found = database.sql(f"SELECT {columns} FROM dead_letters WHERE job = '{job}'").rows()
    return sorted((tuple(row) for row in found), key=repr)


def replayed(database, job: str, where: str = "true") -> tuple:
    (row,) = database.sql(f"REPLAY DEAD LETTERS WHERE job = '{job}' AND {where}").rows()
    return tuple(row)[:4]


FITS = "element_at(map_from_arrays(array(a, b), array({0}, {0})), a)"
"""Fails where a and b are equal, until Spark is told that the last of equal keys wins."""


@pytest.fixture(autouse=True)
def strict(database) -> Iterator[None]:
    yield
    database.spark().conf.set("spark.sql.mapKeyDedupPolicy", "EXCEPTION")


def mend(database, job: str) -> None:
    """Have rows that failed work, in a job that is opened again."""
    database.spark().conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    database.sql(f"PAUSE JOB {job}")
    database.sql(f"RESUME JOB {job}")


def refuse(database, name: str, *refused: int, reopened: str = "") -> None:
    """Make a function that refuses some numbers, and open a job again with it."""

    def check(value: int) -> int:
        if value in refused:
            raise ValueError(f"{value} is refused")
        return value

    database.udf(check, name=name)
    if reopened:
        database.sql(f"PAUSE JOB {reopened}")
        database.sql(f"RESUME JOB {reopened}")


def test_rows_that_work_by_now_are_taken_once(database, tmp_path, wait_until):
    path = tmp_path / "rows.csv"
    path.write_text("n,a,b,z\n1,1,2,1\n2,1,1,1\n3,1,2,1\n4,1,1,1\n5,1,2,0\n")
    database.sql(f"CREATE TABLE picked AS SELECT {FITS.format('n')} AS n FROM file://{path} WHERE 1 / z > 0")
    kept = letters(database, "picked")
    assert [row[:4] for row in kept] == [
        ("compute", str(path), "16", b"2,1,1,1"),
        ("compute", str(path), "32", b"4,1,1,1"),
        ("compute", str(path), "40", b"5,1,2,0"),
    ]
    assert replayed(database, "picked") == ("picked", 3, 0, 3)
    mend(database, "picked")
    assert replayed(database, "picked", "offset = '16'") == ("picked", 1, 1, 0)
    assert sorted(database.table("picked").snapshot()["n"].to_pylist()) == [1, 2, 3]
    assert replayed(database, "picked") == ("picked", 2, 1, 1)
    assert replayed(database, "picked") == ("picked", 1, 0, 1)
    assert sorted(database.table("picked").snapshot()["n"].to_pylist()) == [1, 2, 3, 4]
    assert [row[2] for row in letters(database, "picked")] == ["40"]
    assert database.sql("REPLAY DEAD LETTERS WHERE job = 'no such'").rows() == []
    # What is taken back at the source is taken back, also what came by a replay.
    path.write_text("n,a,b,z\n1,1,2,1\n3,1,2,1\n4,1,1,1\n6,1,2,1\n")
    wait_until(lambda: sorted(database.table("picked").snapshot()["n"].to_pylist()) == [1, 3, 4, 6])


def test_an_older_row_does_not_replace_a_newer_one_of_its_key(database, tmp_path):
    path = tmp_path / "keys.csv"
    path.write_text("k,v,a,b\nx,1,1,1\ny,3,1,1\nx,2,1,2\n")
    fits = FITS.format("v")
    database.sql(f"CREATE TABLE by_key (k STRING PRIMARY KEY, v INT) AS SELECT k, {fits} FROM file://{path}")
    assert sorted(row[3] for row in letters(database, "by_key")) == [b"x,1,1,1", b"y,3,1,1"]
    mend(database, "by_key")
    assert replayed(database, "by_key") == ("by_key", 2, 2, 0)
    assert {row.k: row.v for row in database.table("by_key").rows()} == {"x": 2, "y": 3}


def test_groups_take_rows_in(database, tmp_path):
    path = tmp_path / "groups.csv"
    path.write_text("g,n,a,b\nx,1,1,2\nx,2,1,1\ny,5,1,1\nx,2,1,2\n")
    fits = FITS.format("n")
    columns = f"g, SUM({fits}) AS s, COUNT(DISTINCT n) AS d"
    database.sql(f"CREATE TABLE grouped AS SELECT {columns} FROM file://{path} GROUP BY g")
    assert len(letters(database, "grouped")) == 2
    mend(database, "grouped")
    assert replayed(database, "grouped") == ("grouped", 2, 2, 0)
    assert sorted(tuple(row) for row in database.table("grouped").rows()) == [("x", 5, 2), ("y", 5, 1)]


def test_streams_into_sinks_and_joins(database, tmp_path):
    path, output = tmp_path / "stream.csv", tmp_path / "out.jsonl"
    path.write_text("n,a,b\n1,1,2\n2,1,1\n")
    fits = FITS.format("n")
    database.sql(
        f'CREATE STREAM out_s AS SELECT {fits} AS n FROM file://{path} WITH ("sink" = "file://{output}")'
    )
    assert output.read_text() == '{"n":1}\n'
    mend(database, "out_s")
    assert replayed(database, "out_s") == ("out_s", 1, 1, 0)
    assert output.read_text() == '{"n":1}\n{"n":2}\n'
    database.create_table("names", [{"n": 1, "name": "one", "z": 0}], key="n")
    database.sql(
        f"CREATE TABLE joined AS SELECT s.n, 1 / t.z AS r FROM file://{path} s JOIN names t ON s.n = t.n"
    )
    with refusal("job.replay", why="joined"):
        database.sql("REPLAY DEAD LETTERS WHERE job = 'joined'")


def test_what_another_statement_has_read_anew_is_not_taken_twice(database, tmp_path):
    path = tmp_path / "divided.csv"
    path.write_text("n\n1\n0\n2\n")
    database.sql(f"CREATE TABLE divided AS SELECT 10 / n AS r FROM file://{path}")
    assert [row[:4] for row in letters(database, "divided")] == [("compute", str(path), "4", b"0")]
    assert replayed(database, "divided") == ("divided", 1, 0, 1)
    database.sql(f"CREATE OR REPLACE TABLE divided AS SELECT try_divide(10, n) AS r FROM file://{path}")
    assert replayed(database, "divided") == ("divided", 1, 1, 0)
    assert letters(database, "divided") == []
    assert sorted(database.table("divided").snapshot()["r"].to_pylist(), key=str) == [10, 5, None]


def test_a_record_that_was_edited_away_is_gone(database, tmp_path, wait_until):
    path = tmp_path / "edited.csv"
    path.write_text("n\n1\nx\n2\n")
    database.sql(f"CREATE SOURCE edited_in (n INT) FROM file://{path}")
    database.sql("CREATE TABLE edited AS SELECT n FROM edited_in")
    assert [row[:4] for row in letters(database, "edited")] == [("decode", str(path), "4", b"x")]
    assert replayed(database, "edited") == ("edited", 1, 0, 1)
    path.write_text("n\n1\n7\n2\n")
    wait_until(lambda: sorted(database.table("edited").snapshot()["n"].to_pylist()) == [1, 2, 7])
    with refusal("job.replay", why="gone") as error:
        database.sql("REPLAY DEAD LETTERS WHERE job = 'edited'")
    assert "retention" in (error.value.hint or "")
    assert len(letters(database, "edited")) == 1


def test_rows_of_tables_follow_their_tables(database):
    database.create_table("base", [{"id": 1, "n": 5}, {"id": 2, "n": 0}, {"id": 3, "n": 0}], key="id")
    database.sql("CREATE TABLE above AS SELECT id, 10 / n AS r FROM base")
    assert [row[0] for row in letters(database, "above")] == ["compute", "compute"]
    assert replayed(database, "above") == ("above", 2, 0, 2)
    database.sql("UPDATE base SET n = 2 WHERE id = 2")
    database.wait_idle()
    assert replayed(database, "above") == ("above", 2, 1, 1)
    assert [row.id for row in sorted(database.table("above").rows())] == [1, 2]
    assert database.sql("SELECT SUM(r) FROM above").scalar() == 7


def test_rows_that_age_are_tried_where_they_are_kept(database, tmp_path):
    refuse(database, "picky_live", 4)
    path = tmp_path / "live.csv"
    path.write_text("n,ts\n3,2026-01-01 00:00:00\n4,2026-01-01 00:00:00\n")
    database.sql(
        "CREATE TABLE living AS SELECT COUNT(*) AS c, SUM(picky_live(n)) AS s "
        f"FROM file://{path} WHERE ts > now() - INTERVAL 36500 DAYS"
    )
    assert [row[0] for row in letters(database, "living")] == ["compute"]
    refuse(database, "picky_live", reopened="living")
    assert replayed(database, "living") == ("living", 1, 1, 0)
    assert [tuple(row) for row in database.table("living").rows()] == [(2, 7)]


def test_why_letters_cannot_be_tried(database, tmp_path):
    path = tmp_path / "why.csv"
    path.write_text("n\n1\n0\n")
    database.sql(f"CREATE TABLE whys AS SELECT 10 / n AS r FROM file://{path}")
    database.sql("PAUSE JOB whys")
    with refusal("job", "whys") as error:
        database.replay_dead_letters("job = ?", ["whys"])
    assert error.value.hint == "start it first: RESUME JOB whys"
    with refusal("job", "whys"):
        list(
            Client(database.directory.root).answers(
                "REPLAY DEAD LETTERS WHERE job = 'whys'", None, follow=False
            )
        )
    shown = database.sql("SHOW JOBS").arrow().to_pylist()
    assert [row["dead_letters"] for row in shown if row["name"] == "whys"] == [1]
    told = {
        (metric.name, sample.labels.get("kind")): sample.value
        for metric in Figures(database).collect()
        for sample in metric.samples
        if sample.labels.get("job") == "whys"
    }
    assert told["velostream_dead_letters", "compute"] == 1
    assert told["velostream_dead_letters_kept", "compute"] == 1
    database.sql("DROP TABLE whys")
    with refusal("job.replay", "whys"):
        database.sql("REPLAY DEAD LETTERS WHERE job = 'whys'")
    database.sql("DELETE FROM dead_letters WHERE job = 'whys'")
    assert letters(database, "whys") == []


WINDOWS = {
    "tumbling": "TUMBLING(10s)",
    "session": "SESSION(3s)",
}
ROWS = """ts,k,v,a,b
2026-01-01T00:00:01Z,x,1,1,2
2026-01-01T00:00:02Z,x,2,1,1
2026-01-01T00:00:11Z,x,3,1,2
2026-01-01T00:00:12Z,x,4,1,1
"""


@pytest.mark.parametrize("kind", WINDOWS)
def test_windows_that_are_open_take_what_works_by_now(database, tmp_path, kind):
    """A row that no window takes any more stays a letter, which says so."""
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    name = f"windowed_{kind}"
    database.sql(
        f"CREATE SOURCE {name}_s FROM file://{path} "
        'WITH ("event.time.column" = "ts", "max_out_of_orderness_ms" = "0")'
    )
    database.sql(
        f"CREATE TABLE {name} AS SELECT k, window_start, COUNT(*) AS n, SUM({FITS.format('v')}) AS total "
        f"FROM {name}_s WINDOW {WINDOWS[kind]} GROUP BY k EMIT CHANGES"
    )

    def found() -> list[tuple]:
        return [
            tuple(row) for row in database.sql(f"SELECT n, total FROM {name} ORDER BY window_start").rows()
        ]

    assert found() == [(1, 1), (1, 3)]
    assert [row[3][:20] for row in letters(database, name)] == [
        b"2026-01-01T00:00:02Z",
        b"2026-01-01T00:00:12Z",
    ]
    mend(database, name)
    assert replayed(database, name) == (name, 2, 1, 1)
    (letter,) = letters(database, name, "raw, reason")
    assert letter[0].startswith(b"2026-01-01T00:00:02Z")
    assert letter[1].startswith("late: its window had closed, the watermark was 2026-01-01 00:00:1")
    assert found() == [(1, 1), (2, 7)]
    # What comes later is taken as ever, and closes the window.
    with path.open("a") as stream:
        stream.write("2026-01-01T00:00:13Z,x,5,1,2\n2026-01-01T00:00:30Z,x,6,1,2\n")
    assert database.wait_idle(60)
    assert [row[0] for row in found()] == [1, 3, 1]
    assert replayed(database, name)[2:] == (0, 1)
