"""kill -9 while tables over tables follow changes: at the next start each equals its SQL from scratch."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from lives import Runner

from equivalence.changes import Contents, same_rows
from equivalence.grammar import TABLES, Grammar
from equivalence.truth import SecondOpinion, Truth, differences

if TYPE_CHECKING:
    import random
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from equivalence.changes import Change

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]
PLACES = {
    "table computed, not logged": 25,
    "table logged, not published": 25,
    "before a snapshot": 2,
    "after a snapshot": 2,
}
"""Where to die, and up to which time of coming there."""


class Story:
    """One data directory, tables and queries over them, and every life that they go through."""

    def __init__(self, spark: SparkSession, folder: Path, rng: random.Random, queries: int) -> None:
        self._spark, self._folder, self._rng = spark, folder, rng
        self._contents, grammar = Contents(rng), Grammar(rng)
        self._queries = {f"q{number}": grammar.query() for number in range(queries)}
        self._doubtful: Change | None = None
        self._deaths: list[str] = []
        self._app, self._dump = folder / "app.sql", folder / "dump"
        self._dump.mkdir(parents=True)
        creates = [f"CREATE TABLE {name} ({columns});" for name, columns in TABLES.items()]
        creates += [f"CREATE TABLE {name} AS {sql};" for name, sql in self._queries.items()]
        self._app.write_text("\n".join(creates))

    def live(self, *, placed: bool) -> None:
        """A life: everything is right at its start; then changes until the end."""
        runner = self._started()
        place = f"{(name := self._rng.choice(sorted(PLACES)))} {self._rng.randint(1, PLACES[name])}"
        self._deaths.append(place if placed else "any moment")
        if placed:
            assert runner.ask(f"die {place}") == "done"
        for _ in range(60 if placed else self._rng.randint(1, 12)):
            if not self._changed(runner):
                runner.ended()
                return
        self._doubtful = self._contents.draw()
        runner.tell(f"sql {self._doubtful.sql}")
        try:
            runner.process.wait(self._rng.uniform(0, 0.5))
        except subprocess.TimeoutExpired:
            runner.kill()
        else:
            runner.ended()

    def end(self) -> None:
        """The last start."""
        runner = self._started()
        assert runner.ask("quit") == "closed"
        runner.ended()

    def _changed(self, runner: Runner) -> bool:
        """Whether a change was confirmed; if not, the process has ended, and it may have been made or not."""
        if self._rng.random() < 0.2 and runner.ask("snapshot") != "done":
            self._doubtful = None
            return False
        change = self._contents.draw()
        if runner.ask(f"sql {change.sql}") != "done":
            self._doubtful = change
            return False
        self._contents.happened(change)
        return True

    def _started(self) -> Runner:
        told = (self._deaths, self._queries)
        runner = Runner(self._folder / "data", self._app, None)
        runner.ready()
        assert runner.ask("idle", 300) == "True", (told, runner.ask("jobs"))
        states = json.loads(runner.ask("jobs"))
        assert {name: job for name, job in states.items() if job[0] != "running"} == {}, told
        assert runner.ask(f"dump {self._dump}") == "done"
        self._nothing_lost()
        relations = {name: self._dumped(name) for name in TABLES}
        truth, second = Truth(self._spark, relations), SecondOpinion(relations)
        for name, sql in self._queries.items():
            found = self._dumped(name)
            assert differences(found, truth.result(name, sql)) == [], (name, sql, told)
            assert second.differences(found, sql) == [], (name, sql, told)
        assert second.refused == []
        return runner

    def _nothing_lost(self) -> None:
        """Every confirmed change is there, and the last one if it was made."""
        for name in TABLES:
            rows = self._dumped(name).to_pylist()
            if self._doubtful and self._doubtful.table == name and same_rows(rows, self._doubtful.rows):
                self._contents.happened(self._doubtful)
            assert same_rows(rows, self._contents.rows[name]), (name, self._deaths, self._doubtful)

    def _dumped(self, name: str) -> pa.Table:
        return pq.read_table(self._dump / f"{name}.parquet")


@pytest.mark.timeout(7200)
def test_derived_tables_survive_kills(spark, tmp_path, rng, rounds):
    for number in range(rounds(1, 5)):
        story = Story(spark, tmp_path / str(number), rng, rounds(5, 10))
        for life in range(rounds(2, 6)):
            story.live(placed=life % 2 == 1)
        story.end()
