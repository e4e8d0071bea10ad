"""A Python program attached to a running `velo run`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

import velostream
from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream import Database

pytestmark = pytest.mark.spark

APPLICATION = """
CREATE TABLE totals AS SELECT name, SUM(n) AS n FROM 'file://{folder}/*.csv'
WITH ("file.debounce" = "0ms", "file.poll.interval" = "20ms") GROUP BY name;
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where `velo run` reads files and keeps a table."""
    folder = tmp_path_factory.mktemp("attached")
    (folder / "a.csv").write_text("name,n\na,1\nb,2\na,3\n")
    (folder / "app.sql").write_text(APPLICATION.format(folder=folder))
    command = [sys.executable, "-m", "velostream", "run", "app.sql", "--data-dir", "data"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        while not (folder / "data" / "catalog.json").exists():
            assert running.poll() is None, running.stderr.read()
        # Its narration must not fill the pipe.
        reader = threading.Thread(target=running.stderr.read, daemon=True)
        reader.start()
        yield folder
        running.send_signal(signal.SIGINT)
        running.wait(60)
        reader.join(60)


@pytest.fixture
def db(folder: Path) -> Iterator[Database]:
    with velostream.connect(folder / "data") as database:
        yield database


def test_tables_and_jobs(db: Database, folder: Path) -> None:
    db.wait_until(lambda: [job.state for job in db.jobs()] == ["running"], 120)
    totals = db.table("totals").wait_for("name = 'b'", 60)
    assert (totals.get("a"), totals.key) == (("a", 4), ("name",))
    (job,) = db.jobs()
    assert (job.name, job.reason, job.stats.records_in) == ("totals", None, 3)
    assert db.job("totals").started_at == job.started_at
    assert db.job(job.id).statement == job.statement
    assert db.wait_idle(60)
    assert "duckdb" in db.explain("SELECT name, COUNT(*) FROM totals GROUP BY name")
    with refusal("table", "totals"):
        totals.insert({"name": "c", "n": 1})


def test_a_stream_over_there(db: Database, folder: Path) -> None:
    with db.stream("SELECT name, n FROM totals WHERE n > 1 EMIT CHANGES") as live:
        assert live.schema is not None
        assert live.schema.names == ["name", "n"]
        changes = iter(live)
        added, _ = next(changes)
        assert sorted(added.column("name").to_pylist()) == ["a", "b"]
        (folder / "b.csv").write_text("name,n\nb,5\n")
        added, removed = next(changes)
        assert added.to_pylist() == [{"name": "b", "n": 7}]
        assert removed is not None
        assert removed.to_pylist() == [{"name": "b", "n": 2}]


def test_a_stream_ends_from_another_thread(db: Database) -> None:
    with db.stream("SELECT name FROM totals EMIT CHANGES") as live:
        seen: list[object] = []
        reader = threading.Thread(target=lambda: seen.extend(live))
        reader.start()
        db.wait_until(lambda: seen)
        live.close()
        reader.join(30)
        assert not reader.is_alive()
    with refusal("sql.unknown_name", "nam", at="nam"), db.stream("SELECT nam FROM totals"):
        pass


def test_reading_only(folder: Path) -> None:
    with velostream.connect(folder / "data", read_only=True) as db:
        assert db.table("totals").wait_for("name = 'a'").get("a").n == 4
        with refusal("table", why="read-only"):
            db.sql("PAUSE JOB totals")
