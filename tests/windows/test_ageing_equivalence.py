"""Tables with filters on the clock equal the same SQL from scratch, the clock stopped at the time it is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from equivalence.stopped import stopped
from equivalence.truth import Truth, differences
from velostream.config import load
from velostream.runtime.instance import Instance

if TYPE_CHECKING:
    import random

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.sampled(3)]

START = datetime(2026, 5, 1, 23, 50, tzinfo=UTC)

QUERIES = {
    "grouped": "SELECT k, COUNT(*) AS c, SUM(n) AS s, MIN(n) AS low, AVG(n) AS mean FROM o "
    "WHERE ts > now() - INTERVAL 10 MINUTES AND n <> 5 GROUP BY k",
    "around": "SELECT id, ts FROM o WHERE ts BETWEEN now() - INTERVAL 5 MINUTES AND now()",
    "joined": "SELECT a.k, b.name, a.n FROM o a JOIN p b ON a.k = b.k "
    "WHERE a.ts <= now() AND b.day >= current_date()",
    "kept": "SELECT a.id, b.name FROM o a LEFT JOIN p b ON a.k = b.k WHERE a.ts > now() - INTERVAL 7 MINUTES",
    "twice": "SELECT DISTINCT a.k FROM o a JOIN o b ON a.k = b.k AND a.id < b.id "
    "WHERE a.ts > now() - INTERVAL 6 MINUTES AND b.ts < now() - INTERVAL 3 MINUTES",
    "inner_query": "SELECT q.k, q.c FROM (SELECT k, COUNT(*) AS c FROM o "
    "WHERE now() - ts < INTERVAL 8 MINUTES GROUP BY k) q JOIN p ON q.k = p.k WHERE q.c > 1",
    "both": "SELECT k FROM o WHERE ts > now() UNION ALL SELECT k FROM p WHERE day < current_date()",
    "ranked": "SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n, id) AS r FROM o "
    "WHERE ts > now() - INTERVAL 9 MINUTES",
    "without": "SELECT p.k FROM p WHERE NOT EXISTS "
    "(SELECT 1 FROM o WHERE o.k = p.k AND o.ts > now() - INTERVAL 4 MINUTES)",
    "old": "SELECT k, COUNT(*) AS c FROM o WHERE ts <= now() - INTERVAL 5 MINUTES GROUP BY k",
    "diamond": "SELECT g.k, g.c, h.c AS d FROM grouped g JOIN old h ON g.k = h.k",
    "above": "SELECT c, COUNT(*) AS groups FROM grouped GROUP BY c",
}


@pytest.mark.timeout(1800)
def test_tables_equal_their_query_at_every_time(spark, tmp_path, rng: random.Random, rounds):
    now = [START]
    with Instance(load(None, data_dir=tmp_path / "data"), clock=lambda: now[0]) as database:
        database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, k STRING, n BIGINT, ts TIMESTAMP)")
        database.sql("CREATE TABLE p (k STRING, name STRING, day DATE)")
        _change(database, rng, now[0])
        for name, query in QUERIES.items():
            database.sql(f"CREATE TABLE {name} AS {query}")
        for step in range(rounds(8, 120)):
            now[0] += timedelta(seconds=rng.choice([0, 1, 30, 60, 200, 601]))
            if rng.random() < 0.7:
                _change(database, rng, now[0])
            assert database.wait_idle(120), database.jobs()
            truth = Truth(spark, {name: database.table(name).snapshot() for name in ("o", "p")})
            for name, query in QUERIES.items():
                wanted = truth.result(name, stopped(query, now[0]))
                wrong = differences(database.table(name).snapshot(), wanted)
                assert not wrong, (step, now[0], name, wrong)


def _change(database: Instance, rng: random.Random, now: datetime) -> None:
    orders, people = database.table("o"), database.table("p")
    for _ in range(rng.randint(1, 6)):
        ts = rng.choice([None, now, *(now + timedelta(seconds=rng.randint(-700, 400)) for _ in range(8))])
        row = {
            "id": rng.randrange(30),
            "k": rng.choice(["a", "b", "c", None]),
            "n": rng.randrange(8),
            "ts": ts,
        }
        orders.upsert(row)
    known = [row["id"] for row in orders.rows()]
    orders.delete(rng.sample(known, min(len(known), rng.randint(0, 2))))
    day = (now + timedelta(days=rng.choice([-1, 0, 1]))).date()
    people.insert({"k": rng.choice("abc"), "name": rng.choice("xy"), "day": day})
