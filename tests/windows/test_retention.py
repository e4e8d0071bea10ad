"""The property `retention`: rows leave tables filled by hand and by queries, and stay away."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.instance import Instance


@pytest.fixture
def database(clocked, tmp_path: Path) -> Instance:
    return clocked(tmp_path / "data")


def rows(database: Instance, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(name).rows()), key=repr)


def test_a_table_filled_by_hand_and_what_is_built_on_it(clocked, clock, tmp_path, wait_until):
    database = clocked(tmp_path / "data")
    database.sql("""CREATE TABLE seen (id BIGINT PRIMARY KEY, city STRING) WITH ("retention" = "1 hour")""")
    database.sql("CREATE TABLE by_city AS SELECT city, COUNT(*) AS c FROM seen GROUP BY city")
    database.sql("INSERT INTO seen VALUES (1, 'Rome'), (2, 'Rome'), (3, 'Oslo')")
    wait_until(lambda: rows(database, "by_city") == [("Oslo", 1), ("Rome", 2)])
    clock.forward(minutes=40)
    database.sql("UPDATE seen SET city = 'Bonn' WHERE id = 2")
    database.sql("INSERT OR REPLACE INTO seen VALUES (3, 'Oslo')")
    changes = database.table("seen").changes(timeout=30)
    clock.forward(minutes=20)
    wait_until(lambda: rows(database, "seen") == [(2, "Bonn"), (3, "Oslo")])
    _, told = next(iter(changes))
    assert [(row["id"], row["_weight"]) for row in told.to_pylist()] == [(1, -1)]
    wait_until(lambda: rows(database, "by_city") == [("Bonn", 1), ("Oslo", 1)])
    database.close()
    clock.forward(minutes=40)
    database = clocked(tmp_path / "data")
    wait_until(lambda: rows(database, "seen") == [])
    wait_until(lambda: rows(database, "by_city") == [])
    database.sql("INSERT INTO seen VALUES (1, 'Rome')")
    wait_until(lambda: rows(database, "by_city") == [("Rome", 1)])


def test_rows_of_a_file_by_event_time_also_when_it_loses_them_later(database, clock, tmp_path, wait_until):
    path = tmp_path / "e.csv"

    def write(*events: tuple[int, int]) -> None:
        stamped = [(n, (clock_start + timedelta(minutes=at)).isoformat()) for n, at in events]
        path.write_text("id,ts\n" + "".join(f"{n},{at}\n" for n, at in stamped))

    clock_start: datetime = clock()
    write((1, -50), (2, -20), (3, -90))
    database.sql(
        f"CREATE TABLE t AS SELECT id, ts FROM file://{path} "
        'WITH ("retention" = "1h", "event.time.column" = "ts")'
    )
    database.sql("CREATE TABLE n AS SELECT COUNT(*) AS c FROM t")

    def there() -> list[int]:
        return [row["id"] for row in database.table("t").rows()]

    wait_until(lambda: there() == [1, 2])
    clock.forward(minutes=15)
    wait_until(lambda: there() == [2])
    wait_until(lambda: rows(database, "n") == [(1,)])
    write((2, -20), (4, 10))
    wait_until(lambda: sorted(there()) == [2, 4])
    write((4, 10), (5, -100))
    wait_until(lambda: there() == [4])
    wait_until(lambda: rows(database, "n") == [(1,)])


def test_a_group_that_left_comes_back_whole_when_it_changes(clocked, clock, tmp_path, wait_until):
    database = clocked(tmp_path / "data")
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, k STRING, n BIGINT)")
    database.sql("INSERT INTO o VALUES (1, 'a', 1), (2, 'a', 2), (3, 'b', 3)")
    database.sql(
        'CREATE TABLE t AS SELECT k, COUNT(*) AS c, SUM(n) AS s FROM o GROUP BY k WITH ("retention" = "1h")'
    )
    wait_until(lambda: rows(database, "t") == [("a", 2, 3), ("b", 1, 3)])
    clock.forward(minutes=30)
    database.sql("INSERT INTO o VALUES (4, 'b', 4)")
    wait_until(lambda: rows(database, "t") == [("a", 2, 3), ("b", 2, 7)])
    clock.forward(minutes=30)
    wait_until(lambda: rows(database, "t") == [("b", 2, 7)])
    assert database.table("t").get("a") is None
    database.close()
    database = clocked(tmp_path / "data")
    database.sql("DELETE FROM o WHERE id = 3")
    wait_until(lambda: rows(database, "t") == [("b", 1, 4)])
    database.sql("INSERT INTO o VALUES (5, 'a', 10)")
    wait_until(lambda: rows(database, "t") == [("a", 3, 13), ("b", 1, 4)])
    clock.forward(hours=1)
    wait_until(lambda: rows(database, "t") == [])
    database.sql("DELETE FROM o WHERE k = 'a'")
    database.sql("UPDATE o SET n = 5 WHERE id = 4")
    wait_until(lambda: rows(database, "t") == [("b", 1, 5)])
    told = database.explain("""CREATE TABLE z AS SELECT k FROM o WITH ("retention" = "90m")""")
    assert "retention: rows leave 90m after they were last written" in told


def test_with_a_filter_on_the_clock_and_a_join(database, clock, wait_until):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, k STRING, ts TIMESTAMP)")
    database.sql("CREATE TABLE p (k STRING PRIMARY KEY, name STRING)")
    database.table("p").insert([{"k": "a", "name": "x"}, {"k": "b", "name": "y"}])
    for number, minutes in enumerate((-50, -10)):
        database.table("o").insert(
            {"id": number, "k": "ab"[number], "ts": clock() + timedelta(minutes=minutes)}
        )
    database.sql(
        "CREATE TABLE t AS SELECT o.id, p.name FROM o JOIN p ON o.k = p.k "
        """WHERE o.ts > now() - INTERVAL 1 HOUR WITH ("retention" = "30m")"""
    )
    wait_until(lambda: rows(database, "t") == [(0, "x"), (1, "y")])
    clock.forward(minutes=10)
    wait_until(lambda: rows(database, "t") == [(1, "y")])
    clock.forward(minutes=20)
    wait_until(lambda: rows(database, "t") == [])
    database.sql("UPDATE p SET name = 'z' WHERE k = 'b'")
    wait_until(lambda: rows(database, "t") == [(1, "z")])


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("""CREATE TABLE t (id BIGINT) WITH ("retention" = "0s")""", "longer than nothing"),
        (
            """CREATE TABLE t (id BIGINT, s STRING) WITH ("retention" = "1h", "event.time.column" = "s")""",
            "string",
        ),
        (
            """CREATE TABLE t AS SELECT id FROM o WITH ("retention" = "1h", "event.time.column" = "n")""",
            "not a column",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(database, sql, why):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, n BIGINT)")
    with refusal("sql.property", why=why):
        database.sql(sql)
    assert database.catalog.get("t") is None
