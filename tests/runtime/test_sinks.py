"""Streams and INSERTs into files: one statement writes to a file, and each row stands there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.errors import LaggingReaderError
from velostream.model.jobs import JobState
from velostream.serving.memory.table import MemoryTable

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("spelling", ["out.csv", "folder/../out.csv", "link.csv", "hard.csv"])
def test_a_file_that_another_statement_writes_is_refused(opened, tmp_path: Path, spelling):
    database = opened(tmp_path / "data")
    (tmp_path / "folder").mkdir()
    for number in (1, 2):
        (tmp_path / f"{number}.csv").write_text(f"a\n{number}\n")
    (tmp_path / "link.csv").symlink_to(tmp_path / "out.csv")
    database.sql(
        f"CREATE STREAM s1 AS SELECT a FROM file://{tmp_path}/1.csv WITH ('sink' = 'file://{tmp_path}/out.csv')"
    )
    (tmp_path / "hard.csv").hardlink_to(tmp_path / "out.csv")
    target = f"file://{tmp_path}/{spelling}"
    with refusal("sql.duplicate_name", "s1"):
        database.sql(f"CREATE STREAM s2 AS SELECT a FROM file://{tmp_path}/2.csv WITH ('sink' = '{target}')")
    with refusal("sql.duplicate_name", "s1"):
        database.sql(f"INSERT INTO {target} SELECT a FROM file://{tmp_path}/2.csv")
    assert (tmp_path / "out.csv").read_text() == "a\n1\n"
    assert [job.name for job in database.jobs()] == ["s1"]
    database.sql("DROP STREAM s1")
    database.sql(f"CREATE STREAM s2 AS SELECT a FROM file://{tmp_path}/2.csv WITH ('sink' = '{target}')")
    assert (tmp_path / "out.csv").read_text() == "a\n1\n2\n"


def test_a_stream_that_fell_behind_its_table_says_what_to_do(opened, tmp_path: Path, monkeypatch):
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE base (k INT PRIMARY KEY, v INT)")
    database.sql("INSERT INTO base VALUES (1, 1)")
    database.sql(f"CREATE STREAM late AS SELECT k, v FROM base WITH ('sink' = 'file://{tmp_path}/out.jsonl')")
    job = database.job("late")
    job.wait(lambda j: j.stats.batches > 0, 30)

    def gone(*_: object, **__: object) -> None:
        raise LaggingReaderError("the log no longer reaches back")

    monkeypatch.setattr(MemoryTable, "changes_between", gone)
    database.sql("INSERT INTO base VALUES (2, 2)")
    assert job.wait(lambda j: j.state is JobState.FAILED, 30)
    assert "the log no longer reaches back" in job.info.reason
    assert "CREATE OR REPLACE" in job.error.hint
    assert (tmp_path / "out.jsonl").read_text() == '{"k":1,"v":1}\n'
