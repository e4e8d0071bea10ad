"""The heart of the matter: every table always holds what its SQL gives from scratch.

A relation changes at random, while the database runs and while it does not, and after each change every table
is compared with a batch of Spark over the rows as they are then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from equivalence.check import create, wrong
from equivalence.queries import CASES, closed
from equivalence.worlds import WORLDS

if TYPE_CHECKING:
    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", WORLDS)
def test_tables_equal_the_query_from_scratch(kind, spark, opened, tmp_path, rng, rounds):
    world = WORLDS[kind](tmp_path / "world", rng)
    usable = [case.name for case in CASES if kind == "hand" or not case.over_table]
    cases = closed(set(rng.sample(usable, rounds(7, len(usable)))))
    database: Instance | None = opened(tmp_path / "data")
    create(database, world, cases)
    history = ["created"]
    for _ in range(rounds(3, 15)):
        assert database.wait_idle(180), (history, database.jobs())
        assert wrong(spark, database, world, cases) == {}, history
        if rng.random() < 0.3:
            database.close()
            database = None
            history.append("stopped")
        history += [world.step(database) for _ in range(rng.randint(1, 3))]
        if database is None:
            database = opened(tmp_path / "data")
    assert database.wait_idle(180), (history, database.jobs())
    assert wrong(spark, database, world, cases) == {}, history
    assert database.sql("SELECT * FROM dead_letters").rows() == []
