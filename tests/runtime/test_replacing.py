"""CREATE OR REPLACE keeps what it replaces until the new one is there, also when everything goes wrong."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from moments import Moments

import velostream
from refusals import refusal
from velostream.errors import (
    CycleError,
    DataDirError,
    SourceDataError,
    SourceMissingError,
    VelostreamError,
)
from velostream.runtime.catalog import file as catalog_file
from velostream.runtime.instance import open_instance
from velostream.runtime.jobs.jobs import Jobs
from velostream.runtime.statements.executor import Executor
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark
QUICK = "WITH ('file.debounce' = '20ms')"


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.csv"
    path.write_text("id,v\n1,10\n2,20\n")
    return path


@pytest.fixture
def database(spark, tmp_path: Path) -> Iterator[Instance]:
    with open_instance(tmp_path / "data") as opened:
        yield opened


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


def check_old(database: Instance, numbers: Path) -> None:
    """The old table is there with its job, takes in what is new, and nothing else is left."""
    before = len(database.table("t"))
    append(numbers, f"{before + 1},{before + 1}0\n")
    assert database.wait_idle(60)
    assert sorted(database.table("t").rows()) == [(n, n * 10) for n in range(1, before + 2)]
    assert [job.name for job in database.jobs()] == ["t"]
    assert [path.name for path in (database.directory.root / "jobs").iterdir()] == [database.job("t").id]
    assert sorted(path.name for path in database.directory.tables.iterdir()) == ["dead_letters", "t"]


def test_a_replacement_that_cannot_be_made_changes_nothing(database, numbers, tmp_path):
    database.sql(f"CREATE TABLE t AS SELECT id, v FROM file://{numbers} {QUICK}")
    bad = tmp_path / "bad.csv"
    bad.write_text("id,v\n1,x\n")
    wrong: list[tuple[str, type[VelostreamError]]] = [
        (f"SELECT * FROM file://{tmp_path}/absent.csv", SourceMissingError),
        (f"SELECT nothing FROM file://{numbers}", VelostreamError),
        (f"SELECT CAST(v AS INT) AS v FROM file://{bad} WITH ('on.error' = 'fail')", SourceDataError),
        ("SELECT id FROM t", CycleError),
    ]
    for query, error in wrong:
        with pytest.raises(error):
            database.sql(f"CREATE OR REPLACE TABLE t AS {query}")
        check_old(database, numbers)


def test_a_full_disk_at_the_moment_of_replacing_changes_nothing(database, numbers, monkeypatch):
    database.sql(f"CREATE TABLE t AS SELECT id, v FROM file://{numbers} {QUICK}")

    def full(*_: Any) -> None:
        raise DataDirError("catalog.json cannot be written: no space left on device")

    for new in (f"AS SELECT v FROM file://{numbers} {QUICK}", "(a BIGINT)"):
        with monkeypatch.context() as patched:
            patched.setattr(catalog_file, "replace_file", full)
            with refusal("data_dir", "catalog.json"):
                database.sql(f"CREATE OR REPLACE TABLE t {new}")
        check_old(database, numbers)


def test_the_old_table_is_served_and_kept_up_to_date_while_the_new_one_loads(
    database, numbers, tmp_path, monkeypatch
):
    database.sql(f"CREATE TABLE t AS SELECT id, v FROM file://{numbers} {QUICK}")
    held = database.table("t")
    load = Executor.await_loaded
    seen = []

    def loading(executor: Executor, job: Any) -> None:
        load(executor, job)
        append(numbers, "3,30\n")
        assert database.wait_idle(60)
        seen.append(sorted(database.sql("SELECT * FROM t").rows()))
        assert [(other.name, other.id != job.id) for other in database.jobs()] == [("t", True), ("t", False)]
        assert database.job("t").id != job.id
        assert database.table("t") is held

    with monkeypatch.context() as patched:
        patched.setattr(Executor, "await_loaded", loading)
        message = database.sql(f"CREATE OR REPLACE TABLE t AS SELECT v FROM file://{numbers} {QUICK}").message
    assert message == 'table "t" replaced'
    assert seen == [[(1, 10), (2, 20), (3, 30)]]
    assert sorted(database.table("t").rows()) == [(10,), (20,), (30,)]
    append(numbers, "4,40\n")
    assert database.wait_idle(60)
    assert database.sql("SELECT SUM(v) FROM t").rows() == [(100,)]
    with refusal("closed", "t", why="replaced"):
        held.insert([(1, 1)])


def test_columns_that_widen_while_the_new_table_loads(database, numbers, tmp_path, opened):
    database.sql(f"CREATE TABLE t AS SELECT id, v FROM file://{numbers} {QUICK}")
    wide = tmp_path / "wide.csv"
    wide.write_text("a\n" + "1\n" * 30_000 + "2.25\n")
    database.sql(f"CREATE OR REPLACE TABLE t AS SELECT SUM(a) AS s FROM file://{wide} {QUICK}")
    assert [float(row.s) for row in database.table("t").rows()] == [30_002.25]
    database.close()
    again = opened(tmp_path / "data")
    assert [float(row.s) for row in again.table("t").rows()] == [30_002.25]


def test_stopping_the_job_of_the_new_table_keeps_the_old_one(database, numbers, tmp_path, wait_until):
    database.sql(f"CREATE TABLE t AS SELECT id, v FROM file://{numbers} {QUICK}")
    errors: list[str] = []

    def replace() -> None:
        try:
            # A row per minute: it does not load while the test runs.
            database.sql("CREATE OR REPLACE TABLE t AS SELECT * FROM datagen://trades?rows_per_second=0.01")
        except VelostreamError as exc:
            errors.append(exc.message)

    thread = threading.Thread(target=replace)
    thread.start()
    wait_until(lambda: len(database.jobs()) == 2)
    draft = next(job.id for job in database.jobs() if job.id != database.job("t").id)
    with refusal("sql.duplicate_name", "t", why="being changed"):
        database.sql("CREATE OR REPLACE TABLE t (a BIGINT)")
    wait_until(lambda: database.job(draft).state == "running")
    database.sql(f"STOP JOB `{draft}`")
    thread.join(30)
    assert errors == ['table "t" stays as it was: the new one was stopped before it had loaded']
    check_old(database, numbers)


def test_anything_replaces_anything(database, numbers):
    database.sql("CREATE TABLE t (a BIGINT PRIMARY KEY); INSERT INTO t VALUES (1)")
    database.sql("CREATE OR REPLACE TABLE t (b STRING); INSERT INTO t VALUES ('x')")
    assert list(database.table("t").rows()) == [("x",)]
    database.sql(f"CREATE OR REPLACE TABLE t AS SELECT id FROM file://{numbers} {QUICK}")
    assert len(database.table("t")) == 2
    database.sql(f"CREATE OR REPLACE VIEW t AS SELECT v FROM file://{numbers}")
    assert sorted(database.sql("SELECT * FROM t").rows()) == [(10,), (20,)]
    assert database.jobs() == []
    assert [path.name for path in database.directory.tables.iterdir()] == ["dead_letters"]
    database.sql(f"CREATE OR REPLACE SOURCE t (id BIGINT, v BIGINT) FROM file://{numbers}")
    assert len(database.sql("SELECT * FROM t")) == 2
    database.sql(f"CREATE OR REPLACE TABLE T AS SELECT id FROM file://{numbers} {QUICK}")
    assert database.sql("SELECT COUNT(*) FROM t").rows() == [(2,)]
    database.sql("DROP TABLE t")
    assert [path.name for path in database.directory.tables.iterdir()] == ["dead_letters"]


def test_a_stream_writes_on_until_its_replacement_can_be_opened(database, numbers, tmp_path):
    out = tmp_path / "out.jsonl"

    def stream(query: str, **more: str) -> str:
        given = {"sink": f"file://{out}", "file.debounce": "20ms", **more}
        pairs = ", ".join(f"'{key}' = '{value}'" for key, value in given.items())
        return f"CREATE OR REPLACE STREAM s AS {query} WITH ({pairs})"

    database.sql(stream(f"SELECT id FROM file://{numbers}"))
    job = database.job("s").id
    with pytest.raises(SourceMissingError):
        database.sql(stream(f"SELECT v FROM file://{tmp_path}/absent.csv"))
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    with refusal("sink", f"{blocked}"):
        database.sql(stream(f"SELECT v FROM file://{numbers}", sink=f"file://{blocked}/x.parquet"))
    append(numbers, "3,30\n")
    assert database.wait_idle(60)
    assert (database.job("s").id, database.job("s").state) == (job, "running")
    assert out.read_text() == '{"id":1}\n{"id":2}\n{"id":3}\n'
    database.sql(stream(f"SELECT v FROM file://{numbers}"))
    assert out.read_text() == '{"id":1}\n{"id":2}\n{"id":3}\n{"v":10}\n{"v":20}\n{"v":30}\n'
    assert [entry.name for entry in (database.directory.root / "jobs").iterdir()] == [database.job("s").id]


def test_killed_at_any_moment_it_is_the_old_table_or_the_new_one(
    database, numbers, tmp_path, opened, monkeypatch
):
    database.sql(f"CREATE TABLE t AS SELECT id, v FROM file://{numbers} {QUICK}")
    assert database.wait_idle(60)
    moments = Moments(database.directory.root, tmp_path / "copies")
    with monkeypatch.context() as patched:
        moments.around(patched, catalog_file, "replace_file")
        moments.around(patched, TableStore, "create")
        moments.around(patched, TableStore, "publish")
        moments.around(patched, TableStore, "drop")
        moments.around(patched, Executor, "await_loaded")
        moments.around(patched, Jobs, "remove")
        database.sql(f"CREATE OR REPLACE TABLE t AS SELECT SUM(v) AS s FROM file://{numbers} {QUICK}")
    database.close()
    append(numbers, "3,30\n")
    found = []
    for name in moments.names:
        again = opened(tmp_path / "copies" / name)
        assert again.wait_idle(60)
        rows = sorted(tuple(row) for row in again.table("t").rows())
        assert rows in ([(1, 10), (2, 20), (3, 30)], [(60,)]), name
        assert [path.name for path in (again.directory.root / "jobs").iterdir()] == [again.job("t").id], name
        assert len(list(again.directory.tables.iterdir())) == 2, name
        again.close()
        with velostream.runtime.instance.Instance(again.settings, read_only=True) as reader:
            assert sorted(tuple(row) for row in reader.sql("SELECT * FROM t").rows()) == rows, name
        found.append(len(rows))
    # First the old one, from one moment on the new one.
    assert found == sorted(found, reverse=True)
    assert set(found) == {3, 1}
