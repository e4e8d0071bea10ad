"""A query that does not end by itself can be left, stopped, dropped and closed."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def test_closing_ends_a_select_on_spark(
    opened: Callable[[Path], Instance], tmp_path: Path, wait_until
) -> None:
    database = opened(tmp_path / "data")
    database.create_table("t", [{"s": f"a{number}"} for number in range(3000)])
    endless = "SELECT COUNT(*) FROM t a, t b, t c WHERE soundex(concat(a.s, b.s, c.s)) = 'x'"
    with ThreadPoolExecutor() as others:
        asked = others.submit(database.sql, endless)
        wait_until(lambda: database.tasks()[1], 60)
        assert database.sql("SELECT COUNT(*) FROM t").scalar() == 3000
        database.close()
        with refusal("closed", why="database"):
            asked.result(30)


PROGRAM = r"""
import pathlib, sys, time, velostream
from velostream.runtime.instance import open_instance
folder = pathlib.Path(sys.argv[1])
source = folder / "rows.csv"
source.write_text("s\nab\n")
database = open_instance(folder / "data")
quick = "WITH ('file.debounce' = '0ms', 'file.poll.interval' = '20ms')"
# Java tries two to the power of the text's length ways before it says no, and does not listen meanwhile.
hostile = r"rlike(s, '^((a+)+)+\\1b$')"
for name in ("stopped", "dropped", "closed"):
    database.sql(f"CREATE TABLE {name} AS SELECT {hostile} AS r FROM file://{source} {quick}")
with source.open("a") as out:
    out.write("a" * 40 + "\n")
database.wait_until(lambda: not any(job.idle for job in database.jobs_by_name))
began = time.monotonic()
assert database.sql("SELECT COUNT(*) FROM stopped").scalar() == 1
print(database.sql("STOP JOB stopped").message)
print(database.sql("DROP TABLE dropped").message)
database.close()
assert time.monotonic() - began < 200, time.monotonic() - began
print("closed")
"""


@pytest.mark.soak
def test_a_regex_without_end_in_kept_tables(tmp_path: Path) -> None:
    """In a process of its own: nothing but the end of Java ends the regex."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "closed"
