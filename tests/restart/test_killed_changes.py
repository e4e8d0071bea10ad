"""kill -9 while a table and what is built on it is replaced, renamed or widened: all of it is old, or new."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest
from lives import Runner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from random import Random

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

SETUP = (
    "CREATE TABLE hand (id INT PRIMARY KEY, v INT)",
    "INSERT INTO hand VALUES (1, 10), (2, 20)",
    "CREATE TABLE t AS SELECT id, v FROM hand",
    "CREATE TABLE sums AS SELECT SUM(v) AS s FROM t",
)
OLD = {"t": 30, "sums": 30}
CHANGES = {
    "CREATE OR REPLACE TABLE t AS SELECT id, v * 2 AS v FROM hand": (OLD, {"t": 60, "sums": 60}),
    "ALTER TABLE t RENAME TO u": (OLD, {"u": 30, "sums": 30}),
    "ALTER TABLE hand ADD COLUMN n INT DEFAULT 1": (OLD, OLD),
}
PLACES = ("while the catalogue is written", "catalogue written")


def found(runner: Runner, folder: Path) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    for left in folder.iterdir():
        left.unlink()
    assert runner.ask("idle") == "True"
    assert runner.ask(f"dump {folder}") == "done"
    sums = {}
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path)
        name = path.stem
        if name in ("t", "u", "sums"):
            sums[name] = sum(rows["s" if name == "sums" else "v"].to_pylist())
    return sums


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An application, and a data directory with the tables before the change."""
    folder = tmp_path_factory.mktemp("made")
    app, data = folder / "app.sql", folder / "data"
    app.write_text("CREATE VIEW nothing AS SELECT 1 AS a;")
    runner = Runner(data, app, None)
    runner.ready()
    for statement in SETUP:
        assert runner.ask(f"sql {statement}") == "done"
    assert runner.ask("quit") == "closed"
    runner.ended()
    return app, data


@pytest.mark.parametrize("change", CHANGES)
def test_all_is_old_or_all_is_new(
    tmp_path: Path, made: tuple[Path, Path], rng: Random, rounds: Callable[[int, int], int], change: str
) -> None:
    app, before = made
    old, new = CHANGES[change]
    moments = [f"{place} {number}" for place in PLACES for number in range(1, 6)]
    for moment in rng.sample(moments, rounds(1, len(moments))):
        data = tmp_path / moment
        shutil.copytree(before, data, ignore=shutil.ignore_patterns("socket*"))
        survived = _changed(data, app, change, moment)
        runner = Runner(data, app, None)
        runner.ready()
        sums = found(runner, tmp_path / "dump")
        assert sums in ((new,) if survived else (old, new)), moment
        assert runner.ask("quit") == "closed"
        runner.ended()


def _changed(data: Path, app: Path, change: str, place: str) -> bool:
    """One life, in which a statement is run; whether it came to its end, before the kill."""
    runner = Runner(data, app, None)
    runner.ready()
    assert runner.ask("idle") == "True"
    assert runner.ask(f"die {place}") == "done"
    if runner.ask(f"sql {change}") == "":
        runner.ended()
        return False
    runner.kill()
    return True
