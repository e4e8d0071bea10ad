"""CREATE OR REPLACE of what others are built on: all of it is new in one moment, or nothing is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from moments import Moments

from refusals import refusal
from velostream.errors import VelostreamError
from velostream.runtime.catalog import file as catalog_file
from velostream.runtime.instance import Instance, open_instance
from velostream.runtime.jobs.jobs import Jobs
from velostream.runtime.statements.executor import Executor
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
QUICK = "WITH ('file.debounce' = '20ms')"
NAMES = ("t", "sums", "top")


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.csv"
    path.write_text("id,g,v\n1,a,10\n2,b,20\n3,a,30\n")
    return path


@pytest.fixture
def database(spark, tmp_path: Path, numbers: Path) -> Iterator[Instance]:
    with open_instance(tmp_path / "data") as opened:
        opened.sql(made(numbers, "v"))
        assert opened.wait_idle(60)
        yield opened


def table(numbers: Path, value: str) -> str:
    return f"TABLE t AS SELECT id, g, {value} AS v FROM file://{numbers} {QUICK}"


def made(numbers: Path, value: str) -> str:
    return f"""
    CREATE {table(numbers, value)};
    CREATE TABLE sums AS SELECT g, SUM(v) AS s FROM t GROUP BY g;
    CREATE VIEW large AS SELECT g, s FROM sums WHERE s > 20;
    CREATE TABLE top AS SELECT t.id, large.s FROM t JOIN large ON t.g = large.g;
    """


def contents(database: Instance) -> dict[str, list[tuple[Any, ...]]]:
    return {name: sorted(tuple(row) for row in database.table(name).rows()) for name in NAMES}


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def check_whole(database: Instance) -> None:
    """Nothing is left but the tables and jobs that there are."""
    jobs = {database.job(name).id for name in NAMES}
    assert {job.id for job in database.jobs()} == jobs
    assert {path.name for path in (database.directory.root / "jobs").iterdir()} == jobs
    tables = {path.name.partition("@")[0] for path in database.directory.tables.iterdir()}
    assert tables == {"dead_letters", *NAMES}
    assert len(list(database.directory.tables.iterdir())) == len(NAMES) + 1


def test_everything_equals_the_same_sql_from_scratch(database, numbers, tmp_path, opened):
    old = contents(database)
    assert old["sums"] == [("a", 40), ("b", 20)]
    plan = [row[0] for row in database.sql(f"EXPLAIN CREATE OR REPLACE {table(numbers, 'v * 2')}").rows()]
    assert [line.split(";")[0] for line in plan if line.startswith(("replaced", "rebuilt"))] == [
        f'replaced: table "t" from file://{numbers}',
        'rebuilt: table "sums" from t',
        'rebuilt: view "large" from sums',
        'rebuilt: table "top" from t, sums',
    ]
    assert any("now 3 rows" in line for line in plan)
    assert contents(database) == old
    told = database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}").message
    assert told == 'table "t" replaced, and with it "sums", "large", "top"'
    append(numbers, "4,b,40\n")
    assert database.wait_idle(60)
    check_whole(database)
    scratch = opened(tmp_path / "scratch")
    scratch.sql(made(numbers, "v * 2"))
    assert scratch.wait_idle(60)
    assert contents(database) == contents(scratch)
    assert contents(scratch)["sums"] == [("a", 80), ("b", 120)]
    database.close()
    again = opened(tmp_path / "data")
    append(numbers, "5,b,1\n")
    assert again.wait_idle(60)
    assert scratch.wait_idle(60)
    assert contents(again) == contents(scratch)
    check_whole(again)


def test_the_old_ones_answer_until_all_are_new(database, numbers, monkeypatch):
    load, seen, old = Executor.await_loaded, [], contents(database)

    def loading(executor: Executor, job: Any) -> None:
        load(executor, job)
        seen.append(contents(database))
        for statement in (
            "DROP TABLE top",
            f"CREATE OR REPLACE {table(numbers, 'v')}",
            "CREATE OR REPLACE TABLE top AS SELECT id FROM t",
            "CREATE TABLE more AS SELECT * FROM sums",
            "ALTER TABLE sums RENAME TO totals",
        ):
            with refusal("sql.duplicate_name", why="being changed"):
                database.sql(statement)

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "await_loaded", loading)
        database.sql(f"CREATE OR REPLACE {table(numbers, 'v + 1')}")
    assert seen == [old] * 3
    assert contents(database)["sums"] == [("a", 42), ("b", 21)]
    check_whole(database)


def test_what_cannot_be_built_leaves_everything(database, numbers, tmp_path):
    database.sql("ALTER TABLE sums SET ('on.error' = 'fail')")
    assert database.wait_idle(60)
    old = contents(database)
    wrong = [
        ("TABLE t AS SELECT id, g FROM", "sums", "v"),
        ("TABLE t AS SELECT id, g AS h, v FROM", "sums", "g"),
        ("TABLE t AS SELECT id, g, CONCAT('x', v) AS v FROM", "sums", None),
    ]
    for query, dependent, column in wrong:
        with pytest.raises(VelostreamError) as caught:
            database.sql(f"CREATE OR REPLACE {query} file://{numbers} {QUICK}")
        told = str(caught.value)
        assert f'"{dependent}"' in told, told
        assert column is None or f'"{column}"' in told, told
        assert contents(database) == old
        check_whole(database)
    with pytest.raises(VelostreamError):
        database.sql(f"CREATE OR REPLACE TABLE t AS SELECT id, g, v FROM file://{tmp_path}/absent.csv")
    with refusal("sql.cycle", "t"):
        database.sql("CREATE OR REPLACE TABLE t AS SELECT id, 'a' AS g, s AS v FROM top")
    append(numbers, "4,a,1\n")
    assert database.wait_idle(60)
    assert contents(database)["sums"] == [("a", 41), ("b", 20)]


def test_killed_at_any_moment_all_are_old_or_all_are_new(
    database, numbers, tmp_path, opened, monkeypatch, rng, rounds
):
    moments = Moments(database.directory.root, tmp_path / "copies")
    with monkeypatch.context() as patched:
        moments.around(patched, catalog_file, "replace_file")
        moments.around(patched, TableStore, "publish_all")
        moments.around(patched, TableStore, "drop")
        moments.around(patched, Executor, "await_loaded")
        moments.around(patched, Jobs, "remove")
        database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}")
    database.close()
    append(numbers, "4,b,40\n")
    old, new = [("a", 40), ("b", 60)], [("a", 80), ("b", 120)]
    found = []
    first, *between, last = moments.names
    few = sorted(rng.sample(between, min(rounds(4, len(between)), len(between))), key=between.index)
    for name in (first, *few, last):
        with Instance(
            database.settings.model_copy(update={"data_dir": tmp_path / "copies" / name}), read_only=True
        ) as reader:
            before = reader.sql("SELECT * FROM sums ORDER BY g").rows()
        again = opened(tmp_path / "copies" / name)
        assert again.wait_idle(60)
        rows = contents(again)
        assert rows["sums"] in (old, new), name
        ids = [1, 2, 3, 4]
        sums = dict(rows["sums"])
        assert rows["t"] == [(i, g, v * (1 if rows["sums"] == old else 2)) for i, g, v in TRUE], name
        assert rows["top"] == [(i, sums[g]) for i, (_, g, _) in zip(ids, TRUE, strict=True)], name
        assert tuple(before[0]) == rows["sums"][0], name
        check_whole(again)
        again.close()
        found.append(rows["sums"] == new)
    # First all old, from one moment on all new.
    assert found == sorted(found)
    assert set(found) == {False, True}


TRUE = [(1, "a", 10), (2, "b", 20), (3, "a", 30), (4, "b", 40)]


def test_sinks_are_refused_until_they_are_dropped(database, numbers, tmp_path):
    out = tmp_path / "out.jsonl"
    database.sql(f"CREATE STREAM written AS SELECT g FROM t WITH ('sink' = 'file://{out}')")
    with refusal("sql.duplicate_name", "written", "t"):
        database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}")
    database.sql("DROP STREAM written")
    database.sql(f"INSERT INTO file://{tmp_path}/more.jsonl SELECT g FROM t EMIT CHANGES")
    with refusal("sql.duplicate_name", "t") as caught:
        database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}")
    assert caught.value.hint is not None
    drop = caught.value.hint.split(" first")[0]
    assert drop.startswith("DROP JOB ")
    with refusal("sql", "sums"):
        database.sql(f"DROP JOB {database.job('sums').id}")
    database.sql(drop)
    database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}")
    assert contents(database)["sums"] == [("a", 80), ("b", 40)]
    check_whole(database)


def test_a_source_and_a_join_to_it(database, numbers, tmp_path):
    orders = tmp_path / "orders.csv"
    orders.write_text("g,n\na,1\nb,2\n")
    database.sql(f"CREATE SOURCE o (g STRING, n INT) FROM file://{orders} {QUICK}")
    database.sql("CREATE TABLE joined AS SELECT o.n, sums.s FROM o JOIN sums ON o.g = sums.g")
    assert database.wait_idle(60)
    database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}")
    assert sorted(tuple(row) for row in database.table("joined").rows()) == [(1, 80), (2, 40)]
    other = tmp_path / "other.csv"
    other.write_text("g,n\na,7\n")
    told = database.sql(f"CREATE OR REPLACE SOURCE o (g STRING, n INT) FROM file://{other} {QUICK}").message
    assert told == 'source "o" replaced, and with it "joined"'
    assert sorted(tuple(row) for row in database.table("joined").rows()) == [(7, 80)]


def test_paused_jobs_stay_paused(database, numbers, wait_until):
    database.sql("PAUSE JOB top")
    database.sql(f"CREATE OR REPLACE {table(numbers, 'v * 2')}")
    wait_until(lambda: database.job("top").state == "paused")
    assert contents(database)["top"] == [(1, 80), (2, 40), (3, 80)]
    append(numbers, "4,b,40\n")
    assert database.wait_idle(60)
    assert len(database.table("top")) == 3
    database.sql("RESUME JOB top")
    wait_until(lambda: len(database.table("top")) == 4)


def test_closing_while_it_is_built_keeps_the_old_ones(database, numbers, tmp_path, opened, wait_until):
    old = contents(database)
    told: list[str] = []

    def replace() -> None:
        query = "SELECT 1 AS id, 'a' AS g, CAST(price AS INT) AS v FROM datagen://trades?rows_per_second=0.01"
        try:
            told.append(database.sql(f"CREATE OR REPLACE TABLE t AS {query}").message)
        except VelostreamError as exc:
            told.append(exc.message)

    thread = threading.Thread(target=replace)
    thread.start()
    wait_until(lambda: len(database.jobs()) == 4)
    database.close()
    thread.join(60)
    assert len(told) == 1
    again = opened(tmp_path / "data")
    assert again.wait_idle(60)
    assert contents(again) == old
    check_whole(again)
