"""A query that does not end by itself can be left, stopped, dropped and closed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from velostream.errors import VelostreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from velostream.runtime.database import Database

pytestmark = pytest.mark.spark

HOSTILE = "rlike(s, '^(([a-z])+.)+(?=[A-Z])[A-Z]([a-z])+$')"
"""Java tries two to the power of the text's length ways before it says no. DuckDB does not look ahead."""


def test_a_regex_without_end_in_a_kept_table(
    opened: Callable[[Path], Database], tmp_path: Path, wait_until
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("s\nab\n")
    database = opened(tmp_path / "data")
    quick = "WITH ('file.debounce' = '0ms', 'file.poll.interval' = '20ms')"
    for name in ("stopped", "dropped", "closed"):
        database.sql(f"CREATE TABLE {name} AS SELECT {HOSTILE} AS r FROM file://{source} {quick}")
    with source.open("a") as out:
        out.write("a" * 60 + "\n")
    wait_until(lambda: all(not job.idle for job in database.jobs_by_name))
    with ThreadPoolExecutor() as others:
        asked = others.submit(database.sql, "SELECT COUNT(*) FROM stopped")
        assert asked.result(30).scalar() == 1
        began = time.monotonic()
        assert "stop" in str(others.submit(database.sql, "STOP JOB stopped").result(60).message)
        assert "dropped" in str(others.submit(database.sql, "DROP TABLE dropped").result(60).message)
        assert time.monotonic() - began < 90
    database.close()


def test_a_regex_without_end_in_a_select(opened: Callable[[Path], Database], tmp_path: Path) -> None:
    database = opened(tmp_path / "data")
    database.create_table("t", [{"s": "a" * 60}])
    with ThreadPoolExecutor() as others:
        asked = others.submit(database.sql, f"SELECT {HOSTILE} FROM t")
        assert others.submit(database.sql, "SELECT COUNT(*) FROM t").result(30).scalar() == 1
        database.close()
        with pytest.raises(VelostreamError):
            asked.result(60)
