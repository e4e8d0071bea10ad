"""Streams and INSERTs into files: one statement writes to a file, and each row stands there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from velostream.errors import DuplicateNameError

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
    with pytest.raises(DuplicateNameError, match='"s1" writes to the same file'):
        database.sql(f"CREATE STREAM s2 AS SELECT a FROM file://{tmp_path}/2.csv WITH ('sink' = '{target}')")
    with pytest.raises(DuplicateNameError, match='"s1" writes to the same file'):
        database.sql(f"INSERT INTO {target} SELECT a FROM file://{tmp_path}/2.csv")
    assert (tmp_path / "out.csv").read_text() == "a\n1\n"
    assert [job.name for job in database.jobs()] == ["s1"]
    database.sql("DROP STREAM s1")
    database.sql(f"CREATE STREAM s2 AS SELECT a FROM file://{tmp_path}/2.csv WITH ('sink' = '{target}')")
    assert (tmp_path / "out.csv").read_text() == "a\n1\n2\n"
