"""Tables over tables: work follows the keys that a change touches, and bad rows are set aside."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from velostream.engine.inputs import feed

if TYPE_CHECKING:
    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.sampled(3)]


def settle(database: Instance) -> None:
    assert database.wait_idle(120), database.jobs()
    assert [job for job in database.jobs() if job.state != "running"] == []


def looked_up(database: Instance, name: str) -> int:
    return database.job(name).stats.rows_looked_up


def rows(database: Instance, sql: str) -> list[tuple[object, ...]]:
    return sorted(tuple(row) for row in database.sql(sql).rows())


@pytest.fixture
def shop(opened, tmp_path) -> Instance:
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, who BIGINT, amount DECIMAL(10,2))")
    database.sql("CREATE TABLE people (id BIGINT PRIMARY KEY, city STRING)")
    many = range(5000)
    database.table("people").insert(pa.table({"id": list(many), "city": [f"c{n % 100}" for n in many]}))
    database.table("orders").insert(
        pa.table(
            {
                "id": pa.array(many),
                "who": pa.array([n % 2500 for n in many], pa.int64()),
                "amount": pa.array(map(Decimal, many), pa.decimal128(10, 2)),
            }
        )
    )
    return database


def test_work_follows_the_keys_that_a_change_touches(shop):
    shop.sql("CREATE TABLE j AS SELECT o.id, p.city FROM orders o JOIN people p ON o.who = p.id")
    shop.sql(
        "CREATE TABLE g AS SELECT p.city, SUM(o.amount) AS s, MAX(o.amount) AS m"
        " FROM orders o JOIN people p ON o.who = p.id GROUP BY p.city"
    )
    shop.sql(
        "CREATE TABLE w AS SELECT id, who, rank() OVER (PARTITION BY who ORDER BY amount) AS r FROM orders"
    )
    settle(shop)
    assert len(shop.table("j")) == 5000
    start = {name: looked_up(shop, name) for name in ("j", "g", "w")}
    shop.sql("UPDATE people SET city = 'moved' WHERE id = 7")
    shop.sql("DELETE FROM orders WHERE id = 8")
    settle(shop)
    assert rows(shop, "SELECT * FROM j WHERE city = 'moved'") == [(7, "moved"), (2507, "moved")]
    assert shop.table("g").get("moved") == ("moved", 2514, 2507)
    assert rows(shop, "SELECT * FROM w WHERE who = 8") == [(2508, 8, 1)]
    # MAX of the city that lost a row is computed again from the hundred orders of that city.
    most = {"j": 40, "g": 600, "w": 40}
    assert {n: c for n in start if (c := looked_up(shop, n) - start[n]) > most[n]} == {}


def test_a_change_of_most_rows_runs_the_whole_query(shop, monkeypatch):
    shop.sql("CREATE TABLE j AS SELECT o.id, p.city FROM orders o JOIN people p ON o.who = p.id")
    shop.sql(
        "CREATE TABLE g AS SELECT p.city, COUNT(*) AS c FROM orders o JOIN people p ON o.who = p.id"
        " GROUP BY p.city"
    )
    settle(shop)
    shop.sql("UPDATE people SET city = 'all'")
    settle(shop)
    assert rows(shop, "SELECT city, COUNT(*) FROM j GROUP BY city") == [("all", 5000)]
    assert rows(shop, "SELECT * FROM g") == [("all", 5000)]
    monkeypatch.setattr(feed, "MANY_ROWS", 10**9)
    shop.sql("UPDATE people SET city = 'again' WHERE id < 2000")
    settle(shop)
    assert rows(shop, "SELECT * FROM g") == [("again", 4000), ("all", 1000)]


def test_rows_that_a_step_below_a_join_cannot_compute_are_dead_letters(opened, tmp_path):
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE a (id BIGINT PRIMARY KEY, x STRING, y BIGINT)")
    database.sql("CREATE TABLE b (id BIGINT PRIMARY KEY, z STRING)")
    database.sql("INSERT INTO a VALUES (1, '7', 1), (2, 'seven', 1), (3, '8', 0)")
    database.sql("INSERT INTO b VALUES (7, 'u'), (8, 'v')")
    database.sql("CREATE TABLE q AS SELECT a.id, b.z FROM a JOIN b ON CAST(a.x AS BIGINT) = b.id")
    database.sql(
        "CREATE TABLE s AS SELECT b.z, MAX(d.r) AS m FROM b"
        " JOIN (SELECT CAST(x AS BIGINT) AS x, 10 % y AS r FROM a) d ON d.x = b.id GROUP BY b.z"
    )
    settle(database)
    letters = "SELECT job, COUNT(*) FROM dead_letters GROUP BY job"
    assert rows(database, "SELECT * FROM q") == [(1, "u"), (3, "v")]
    assert rows(database, "SELECT * FROM s") == [("u", 0)]
    assert rows(database, letters) == [("q", 1), ("s", 2)]
    database.sql("INSERT INTO a VALUES (4, 'eight', 3)")
    database.sql("UPDATE b SET z = 'w' WHERE id = 8")
    settle(database)
    assert rows(database, "SELECT * FROM q") == [(1, "u"), (3, "w")]
    assert rows(database, "SELECT * FROM s") == [("u", 0)]
    assert rows(database, letters) == [("q", 2), ("s", 3)]
    database.sql("UPDATE a SET x = '8', y = 4 WHERE id > 1")
    settle(database)
    assert rows(database, "SELECT * FROM q") == [(1, "u"), (2, "w"), (3, "w"), (4, "w")]
    assert rows(database, "SELECT * FROM s") == [("u", 0), ("w", 2)]
    assert rows(database, letters) == [("q", 2), ("s", 3)]


def test_rows_of_a_join_that_cannot_be_computed_are_dead_letters(opened, tmp_path):
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE a (id BIGINT PRIMARY KEY, x BIGINT)")
    database.sql("CREATE TABLE b (id BIGINT PRIMARY KEY, y BIGINT)")
    database.sql("INSERT INTO a VALUES (1, 10), (2, 20), (3, 30)")
    database.sql("INSERT INTO b VALUES (1, 2), (2, 0)")
    database.sql("CREATE TABLE q AS SELECT a.id, a.x / b.y AS z FROM a JOIN b ON a.id = b.id")
    database.sql("CREATE TABLE s AS SELECT COUNT(*) AS c, SUM(a.x % b.y) AS r FROM a JOIN b ON a.id = b.id")
    settle(database)
    assert rows(database, "SELECT * FROM q") == [(1, 5.0)]
    assert rows(database, "SELECT * FROM s") == [(1, 0)]
    database.sql("INSERT INTO b VALUES (3, 0)")
    settle(database)
    assert rows(database, "SELECT job, COUNT(*) FROM dead_letters GROUP BY job") == [("q", 2), ("s", 2)]
    database.sql("UPDATE b SET y = 5 WHERE id = 3")
    database.sql("DELETE FROM b WHERE id = 1")
    settle(database)
    assert rows(database, "SELECT * FROM q") == [(3, 6.0)]
    assert rows(database, "SELECT * FROM s") == [(1, 0)]
    assert rows(database, "SELECT job, COUNT(*) FROM dead_letters GROUP BY job") == [("q", 2), ("s", 2)]
