"""Random queries over tables that change at random, with restarts, against Spark from scratch."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from equivalence.grammar import TABLES, Grammar
from equivalence.truth import Truth, differences
from velostream.runtime.work import ContinuousWork

if TYPE_CHECKING:
    import random

    from velostream.runtime.database import Database

pytestmark = pytest.mark.spark


class Tables:
    """Three tables filled by hand, and what is in them."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._next = 0
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}

    def change(self, database: Database) -> str:
        rng = self._rng
        name = rng.choice(list(TABLES))
        rows, table = self.rows[name], database.table(name)
        shape = rng.random()
        if shape < 0.5 or not rows:
            fresh = [self._row(name) for _ in range(rng.randint(1, 6))]
            table.insert(pa.Table.from_pylist(fresh, table.spec.visible_schema))
            rows += fresh
            return f"insert into {name}"
        if shape < 0.75:
            value, limit = rng.randint(0, 5), rng.randint(0, 5)
            database.sql(f"UPDATE {name} SET n = {value} WHERE n <= {limit}")
            for row in rows:
                row["n"] = value if row["n"] is not None and row["n"] <= limit else row["n"]
            return f"update {name}"
        key = rng.choice(["x", "y", "z", ""])
        database.sql(f"DELETE FROM {name} WHERE k = '{key}'")
        self.rows[name] = [row for row in rows if row["k"] != key]
        return f"delete from {name}"

    def _row(self, name: str) -> dict[str, Any]:
        rng = self._rng
        self._next += 1
        row = {
            "id": self._next if name != "c" else rng.randint(1, 12),
            "k": rng.choice(["x", "y", "z", "", None]),
            "n": rng.choice([None, *range(6)]),
        }
        return row if name == "c" else row | {"x": Decimal(rng.randint(0, 999)).scaleb(-2)}

    def truth(self, spark: Any, database: Database) -> Truth:
        schemas = {name: database.table(name).spec.visible_schema for name in TABLES}
        return Truth(spark, {n: pa.Table.from_pylist(self.rows[n], schemas[n]) for n in TABLES})


@pytest.mark.timeout(7200)
def test_random_queries_equal_spark_from_scratch(spark, opened, tmp_path, rng, rounds, monkeypatch):
    rebuilt: list[str] = []
    rebuild = ContinuousWork._rebuild

    def noted(self: ContinuousWork, end: Any, commit: Any, why: Any) -> Any:
        rebuilt.append(f"{self.job}: {why.message}")
        return rebuild(self, end, commit, why)

    monkeypatch.setattr(ContinuousWork, "_rebuild", noted)
    for _ in range(rounds(1, 10)):
        folder = tmp_path / f"round{rng.random()}"
        tables, grammar = Tables(rng), Grammar(rng)
        queries = {f"q{number}": grammar.query() for number in range(rounds(6, 12))}
        database = opened(folder)
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        history = [tables.change(database) for _ in range(6)]
        for name, sql in queries.items():
            database.sql(f"CREATE TABLE {name} AS {sql}")
        for _ in range(rounds(4, 15)):
            assert database.wait_idle(300), (database.jobs(), queries)
            truth = tables.truth(spark, database)
            for name, sql in queries.items():
                found = differences(database.table(name).snapshot(), truth.result(name, sql))
                assert found == [], (name, sql, history)
            if rng.random() < 0.25:
                database.close()
                database = opened(folder)
                history.append("restarted")
            history += [tables.change(database) for _ in range(rng.randint(1, 4))]
        assert rebuilt == [], queries
        assert database.sql("SELECT * FROM dead_letters").rows() == []
        database.close()
