"""Few file descriptors, a clock that jumps, millions of rows."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from velostream.config import load
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

FEW_FILES = r"""
import pathlib, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (256, int(sys.argv[2])))
import velostream
folder = pathlib.Path(sys.argv[1])
source = folder / "rows.csv"
source.write_text("id,v\n" + "".join(f"{n},{n % 7}\n" for n in range(1000)))
with velostream.connect(folder / "data") as database:
    for number in range(3):
        database.sql(f"CREATE TABLE t{number} AS SELECT id, v FROM file://{source}")
    database.sql("CREATE TABLE sums AS SELECT v, SUM(id) AS s FROM t0 GROUP BY v")
    for number in range(60):
        database.create_table(f"by_hand{number}", [{"id": number}])
    with source.open("a") as out:
        out.write("1000,6\n")
    assert database.wait_idle(120), database.jobs()
    print(database.sql("SELECT SUM(s) FROM sums").scalar(), database.table("t2").count())
"""


def few_files(folder: Path, most: int) -> subprocess.CompletedProcess[str]:
    """With 256 files open at once, and the right to ask for `most`, as Java does for itself."""
    command = [sys.executable, "-c", FEW_FILES, str(folder), str(most)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def test_few_file_descriptors_are_enough(tmp_path: Path) -> None:
    done = few_files(tmp_path, 4096)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(sum(range(1001))), "1001"]


def test_too_few_file_descriptors_for_spark_are_told(tmp_path: Path) -> None:
    done = few_files(tmp_path, 256)
    assert done.returncode != 0
    assert "Spark does not start: this process may open 256 files" in done.stderr
    assert "ulimit -n 4096" in done.stderr


class JumpingClock:
    """Each time it is asked it is up to a year before or after the time that it is, until it is set right."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self.right = False

    def __call__(self) -> datetime:
        with self._lock:
            off = timedelta(days=0 if self.right else self._rng.uniform(-365, 365))
        return datetime.now(UTC) + off


def test_a_clock_that_jumps(tmp_path: Path, rng: random.Random, rounds: Callable[[int, int], int]) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,v\n0,0\n")
    clock = JumpingClock(rng)
    total, count = 0, 1
    for _ in range(rounds(2, 10)):
        with Instance(load(None, data_dir=tmp_path / "data"), clock=clock) as database:
            database.sql(f"CREATE TABLE IF NOT EXISTS t AS SELECT id, v FROM file://{source}")
            database.sql("CREATE TABLE IF NOT EXISTS sums AS SELECT v, SUM(id) AS s FROM t GROUP BY v")
            database.sql("CREATE TABLE IF NOT EXISTS seen (id BIGINT, at TIMESTAMP, PRIMARY KEY (id))")
            database.sql(
                "CREATE TABLE IF NOT EXISTS recent AS SELECT id FROM seen WHERE at > now() - INTERVAL 1 DAY"
            )
            for _ in range(rounds(3, 20)):
                with source.open("a") as out:
                    out.write(f"{count},{count % 3}\n")
                database.table("seen").insert([{"id": count, "at": datetime.now(UTC)}])
                total, count = total + count, count + 1
                assert database.wait_idle(60), database.jobs()
            assert database.sql("SELECT SUM(s) FROM sums").scalar() == total
            assert database.table("t").count() == database.table("seen").count() + 1 == count
            assert {str(job.state) for job in database.jobs()} <= {"running", "degraded"}
    clock.right = True
    with Instance(load(None, data_dir=tmp_path / "data"), clock=clock) as database:
        database.table("seen").insert([{"id": count, "at": datetime.now(UTC)}])
        assert database.wait_idle(60)
        # A clock that is put back brings nothing back: rows go by its latest time.
        assert database.table("seen").count() == count


@pytest.mark.soak
def test_millions_of_rows(tmp_path: Path) -> None:
    count = 5_000_000
    source = tmp_path / "rows.csv"
    with source.open("w") as out:
        out.write("id,grp,v\n")
        out.writelines(f"{n},{n % 1000},{n % 97}\n" for n in range(count))
    with Instance(load(None, data_dir=tmp_path / "data")) as database:
        database.sql(f"CREATE TABLE t AS SELECT id, grp, v FROM file://{source}")
        database.sql("CREATE TABLE sums AS SELECT grp, SUM(v) AS s, COUNT(*) AS n FROM t GROUP BY grp")
        assert database.wait_idle(600), database.jobs()
        assert database.sql("SELECT SUM(n), SUM(s) FROM sums").rows() == [
            (count, sum(n % 97 for n in range(count)))
        ]
        with source.open("a") as out:
            out.write(f"{count},0,1\n")
        assert database.wait_idle(600)
        assert database.table("t").count() == count + 1
    with Instance(load(None, data_dir=tmp_path / "data")) as database:
        assert database.wait_idle(600)
        assert database.sql("SELECT SUM(n) FROM sums").scalar() == count + 1
