"""The heart of the matter: every table always holds what its SQL gives from scratch.

A relation changes at random, while the database runs and while it does not, and after each change every table
is compared with a batch of Spark over the rows as they are then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from queries import CASES, closed
from truth import Truth, differences
from worlds import WORLDS, World, as_arrow

if TYPE_CHECKING:
    from queries import Case

    from velostream.runtime.database import Database

pytestmark = pytest.mark.spark


def wrong(spark, database: Database, world: World, cases: list[Case]) -> dict[str, list[str]]:
    truth = Truth(spark, {"src": as_arrow(world.rows())})
    found = {job.name: [f"{job.state}: {job.reason}"] for job in database.jobs() if job.state != "running"}
    for case in cases:
        lines = differences(database.table(case.name).snapshot(), truth.result(case.name, case.sql))
        if lines:
            found[case.name] = lines
    return found


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", WORLDS)
def test_tables_equal_the_query_from_scratch(kind, spark, opened, tmp_path, rng, rounds):
    world = WORLDS[kind](tmp_path / "world", rng)
    usable = [case.name for case in CASES if kind == "hand" or not case.over_table]
    cases = closed(set(rng.sample(usable, min(len(usable), rounds(9, len(usable))))))
    database: Database | None = opened(tmp_path / "data")
    world.create(database)
    for case in cases:
        database.sql(f"CREATE TABLE {case.name} AS {case.sql}{case.properties}")
    history = ["created"]
    for _ in range(rounds(4, 60)):
        assert database.wait_idle(120), (history, database.jobs())
        assert wrong(spark, database, world, cases) == {}, history
        stopped = rng.random() < 0.3
        if stopped:
            database.close()
            database = None
            history.append("stopped")
        history += [world.step(database) for _ in range(rng.randint(1, 3))]
        if database is None:
            database = opened(tmp_path / "data")
    assert database.wait_idle(120), (history, database.jobs())
    assert wrong(spark, database, world, cases) == {}, history
    assert database.sql("SELECT * FROM dead_letters").rows() == []
