"""SELECT over sources: all rows, in their widest types, for as long as somebody reads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from decimal import Decimal
from pathlib import Path

import pytest

from refusals import refusal
from velostream.errors import ClosedError
from velostream.model.jobs import JobState

pytestmark = pytest.mark.spark


@pytest.fixture
def late_fraction(tmp_path: Path) -> Path:
    """Whole numbers, and one that is not, beyond what discovery looks at."""
    path = tmp_path / "numbers.csv"
    rows = "".join(f"{number},xxxxxxxx\n" for number in range(200_000) if number != 60_000)
    path.write_text(f"a,b\n{rows}1.5,x\n")
    return path


def test_a_column_that_widens_beyond_the_sample(database, late_fraction):
    total = sum(range(200_000)) - 60_000 + Decimal("1.5")
    assert database.sql(f"SELECT count(*) AS n, sum(a) AS s FROM file://{late_fraction}").rows() == [
        (200_000, total)
    ]
    found = database.sql(f"SELECT a FROM file://{late_fraction}").arrow()
    assert found.num_rows == 200_000
    assert sum(found.column("a").to_pylist()) == total


def test_rows_already_handed_over_widen_with_the_rest(database, tmp_path, wait_until):
    path = tmp_path / "grows.csv"
    path.write_text("a\n1\n")
    with database.stream(f"SELECT a FROM file://{path} WITH ('file.debounce' = '50ms')") as live:
        batches = live.batches()
        assert next(batches)[0].column("a").to_pylist() == [1]
        with path.open("a") as out:
            out.write("2.5\n")
        assert next(batches)[0].column("a").to_pylist() == [Decimal("2.5")]
        with path.open("a") as out:
            out.write("3\n")
        assert next(batches)[0].column("a").to_pylist() == [Decimal("3.0")]


def test_a_file_that_is_not_there_is_said(database, tmp_path):
    with (
        refusal("source.missing", f"{tmp_path}/no.csv"),
        database.stream(f"SELECT * FROM file://{tmp_path}/no.csv"),
    ):
        pass


def test_closing_the_database_ends_selects(opened, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a\n1\n")
    database = opened(tmp_path / "data")
    with database.stream(f"SELECT a FROM file://{path}") as live:
        batches = live.batches()
        assert len(list((tmp_path / "data" / "tmp").glob("select-*"))) == 1
        next(batches)
        closing = threading.Thread(target=database.close)
        closing.start()
        with refusal("closed", why="database"):
            list(batches)
        closing.join(30)
        assert live.job.state is JobState.STOPPED
        with refusal("closed", why="database"):
            live.everything()
    assert not list((tmp_path / "data" / "tmp").glob("select-*"))


PROGRAM = """
import subprocess, sys, velostream
password = "pä ss:\\\\wörd=😀#"
with velostream.connect(sys.argv[1], conf={"spark.hadoop.my.password": password}) as database:
    found = database.spark().sparkContext._jsc.hadoopConfiguration().get("my.password")
    assert found == password, found
    commands = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True).stdout
    java = [command for command in commands.splitlines() if "deploy." + "SparkSubmit" in command]
    assert java
    assert not any("my.password" in command for command in java)
"""


def test_secret_settings_do_not_stand_in_the_command(tmp_path):
    source = Path(__file__).parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(source), "PYTHONUTF8": "1"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "data")],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "data" / "tmp").glob("**/*.properties"))


FOLLOWED = {
    "rows": ("SELECT id, v * 2 AS w FROM {t} WHERE v > 1", [(1, 3), (2, 4)], [(1, 18), (2, 4)], [(2, 4)]),
    "groups": (
        "SELECT g, SUM(v) AS s FROM {t} GROUP BY g",
        [("a", 1.5), ("b", 2)],
        [("a", 9), ("b", 2)],
        [("b", 2)],
    ),
    "top": ("SELECT g, v FROM {t} ORDER BY v DESC LIMIT 1", [("b", 2)], [("a", 9)], [("b", 2)]),
    "join": (
        "SELECT x.id, y.v FROM {t} x JOIN {t} y USING (id) WHERE y.v <> 5",
        [(1, 1.5), (2, 2)],
        [(1, 9), (2, 2)],
        [(2, 2)],
    ),
    "multiset": ("SELECT g FROM {t} ORDER BY g", [("a",), ("b",)], [("a",), ("b",)], [("b",)]),
}


@pytest.mark.parametrize("kind", FOLLOWED)
def test_tables_are_followed(database, kind, wait_until):
    query, *expected = FOLLOWED[kind]
    t = f"followed_{kind}"
    database.sql(f"CREATE TABLE {t} (id INT PRIMARY KEY, g STRING, v DECIMAL(10,2))")
    database.sql(f"INSERT INTO {t} VALUES (1, 'a', 1.5), (2, 'b', 2)")
    changes = [
        f"INSERT OR REPLACE INTO {t} VALUES (1, 'a', 9)",
        f"DELETE FROM {t} WHERE id = 1",
        f"INSERT INTO {t} VALUES (3, 'z', 5)",
    ]
    held: Counter[tuple] = Counter()
    seen: list[list[tuple]] = []

    def follow(live) -> None:
        with suppress(ClosedError):
            for added, removed in live:
                held.subtract(() if removed is None else zip(*removed.to_pydict().values(), strict=True))
                held.update(zip(*added.to_pydict().values(), strict=True))
                assert min(held.values(), default=0) >= 0
                seen.append(sorted(held.elements()))

    with database.stream(f"{query.format(t=t)} EMIT CHANGES") as live:
        reader = threading.Thread(target=follow, args=(live,), daemon=True)
        reader.start()
        for rows, change in zip(expected, changes, strict=True):
            wait_until(lambda rows=rows: seen and seen[-1] == rows)
            assert sorted(map(tuple, database.sql(query.format(t=t)))) == rows
            database.sql(change)
    reader.join(30)
    assert not reader.is_alive()
    now, once = (database.sql(query.format(t=t) + emit).rows() for emit in (" EMIT CHANGES", ""))
    assert sorted(now) == sorted(once)
