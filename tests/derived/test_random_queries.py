"""Random queries over tables that change at random, with restarts, against Spark from scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from equivalence.changes import Contents
from equivalence.grammar import TABLES, Grammar
from equivalence.truth import SecondOpinion, Truth, differences
from velostream.engine.inputs import feed
from velostream.engine.stage import Stage

if TYPE_CHECKING:
    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def changed(database: Instance, contents: Contents) -> str:
    """One random change, executed."""
    change = contents.draw()
    database.sql(change.sql)
    contents.happened(change)
    return change.sql


@pytest.mark.timeout(7200)
def test_random_queries_equal_spark_from_scratch(spark, opened, tmp_path, rng, rounds, monkeypatch):
    rebuilt: list[str] = []
    rebuild = Stage.rebuild

    def noted(self: Stage, end: Any, commit: Any, why: Any) -> Any:
        rebuilt.append(f"{self.job}: {why.message}")
        return rebuild(self, end, commit, why)

    monkeypatch.setattr(Stage, "rebuild", noted)
    for _ in range(rounds(1, 10)):
        folder = tmp_path / f"round{rng.random()}"
        contents, grammar = Contents(rng), Grammar(rng)
        queries = {f"q{number}": grammar.query() for number in range(rounds(6, 12))}
        database = opened(folder)
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        history = [changed(database, contents) for _ in range(6)]
        for name, sql in queries.items():
            database.sql(f"CREATE TABLE {name} AS {sql}")
        for _ in range(rounds(4, 15)):
            assert database.wait_idle(300), (database.jobs(), queries)
            schemas = {name: database.table(name).spec.visible_schema for name in TABLES}
            relations = contents.arrow(schemas)
            truth, second = Truth(spark, relations), SecondOpinion(relations)
            for name, sql in queries.items():
                rows = database.table(name).snapshot()
                assert differences(rows, truth.result(name, sql)) == [], (name, sql, history)
                assert second.differences(rows, sql) == [], (name, sql, history)
            assert second.refused == []
            if rng.random() < 0.25:
                database.close()
                database = opened(folder)
                history.append("restarted")
            monkeypatch.setattr(feed, "FEW_ROWS", rng.choice((0, 1000)))
            history += [changed(database, contents) for _ in range(rng.randint(1, 4))]
        assert rebuilt == [], queries
        assert database.sql("SELECT * FROM dead_letters").rows() == []
        database.close()
