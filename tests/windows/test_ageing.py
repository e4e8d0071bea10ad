"""Rows that come and go by the clock: the table is the same SQL over everything, run at the clock's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.sampled(3)

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def database(clocked, tmp_path: Path) -> Instance:
    return clocked(tmp_path / "data")


def rows(database: Instance, name: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in database.table(name).rows()), key=repr)


def at(minutes: float) -> str:
    return (NOON + timedelta(minutes=minutes)).strftime("%Y-%m-%d %H:%M:%S")


def events(path: Path, *lines: tuple[Any, ...], header: str = "id,kind,n,ts") -> str:
    path.write_text("\n".join([header, *(",".join(map(str, line)) for line in lines)]) + "\n")
    return f"file://{path}"


def append(path: Path, *lines: tuple[Any, ...]) -> None:
    with path.open("a") as file:
        file.write("".join(",".join(map(str, line)) + "\n" for line in lines))


def test_rows_of_a_file_leave_by_themselves(database, clock, tmp_path, wait_until):
    uri = events(
        tmp_path / "e.csv",
        (1, "a", 5, at(-90)),
        (2, "a", 6, at(-30)),
        (3, "b", 7, at(-10)),
        (4, "b", 8, ""),
    )
    database.sql(
        f"CREATE TABLE recent AS SELECT id, n FROM {uri} WHERE ts > now() - INTERVAL 1 HOUR AND n < 100"
    )
    database.sql(
        f"CREATE TABLE totals AS SELECT kind, COUNT(*) AS c, SUM(n) AS s, MAX(n) AS m FROM {uri} "
        "WHERE ts > now() - INTERVAL '1' HOUR GROUP BY kind"
    )
    wait_until(lambda: rows(database, "recent") == [(2, 6), (3, 7)])
    wait_until(lambda: rows(database, "totals") == [("a", 1, 6, 6), ("b", 1, 7, 7)])
    changes = database.table("totals").changes(timeout=30)
    clock.forward(minutes=30)
    wait_until(lambda: rows(database, "recent") == [(3, 7)])
    wait_until(lambda: rows(database, "totals") == [("b", 1, 7, 7)])
    _, told = next(iter(changes))
    assert [(row["kind"], row["_weight"]) for row in told.to_pylist()] == [("a", -1)]
    append(tmp_path / "e.csv", (5, "a", 9, at(29)), (6, "a", 1, at(-40)), (7, "c", 200, at(20)))
    wait_until(lambda: rows(database, "totals") == [("a", 1, 9, 9), ("b", 1, 7, 7), ("c", 1, 200, 200)])
    wait_until(lambda: rows(database, "recent") == [(3, 7), (5, 9)])
    clock.forward(days=1)
    wait_until(lambda: rows(database, "recent") == rows(database, "totals") == [])


def test_rows_of_tables_leave_joins_and_what_is_made_of_them(database, clock, wait_until):
    database.sql("CREATE TABLE orders (id BIGINT PRIMARY KEY, who BIGINT, n BIGINT, ts TIMESTAMP)")
    database.sql("CREATE TABLE people (who BIGINT PRIMARY KEY, city STRING)")
    database.sql("INSERT INTO people VALUES (1, 'Rome'), (2, 'Oslo')")
    orders = database.table("orders")
    for number, minutes in enumerate((-70, -50, -20, -5)):
        orders.insert(
            {"id": number, "who": number % 2 + 1, "n": number, "ts": NOON + timedelta(minutes=minutes)}
        )
    orders.insert({"id": 9, "who": 1, "n": 9, "ts": None})
    database.sql(
        "CREATE TABLE by_city AS SELECT p.city, COUNT(*) AS c, SUM(o.n) AS s FROM orders o "
        "JOIN people p ON o.who = p.who WHERE o.ts > now() - INTERVAL 1 HOUR GROUP BY p.city"
    )
    database.sql("CREATE TABLE recent AS SELECT * FROM orders WHERE now() - ts < INTERVAL 1 HOUR")
    database.sql("CREATE TABLE big AS SELECT city FROM by_city WHERE s > 2")
    database.sql(
        "CREATE TABLE newest AS SELECT id FROM orders WHERE ts > now() - INTERVAL 1 HOUR ORDER BY id LIMIT 1"
    )
    wait_until(lambda: rows(database, "by_city") == [("Oslo", 2, 4), ("Rome", 1, 2)])
    wait_until(lambda: rows(database, "big") == [("Oslo",)])
    wait_until(lambda: [row["id"] for row in database.table("recent").rows()] == [1, 2, 3])
    assert database.table("recent").get(2)["n"] == 2
    wait_until(lambda: rows(database, "newest") == [(1,)])
    clock.forward(minutes=20)
    wait_until(lambda: rows(database, "by_city") == [("Oslo", 1, 3), ("Rome", 1, 2)])
    wait_until(lambda: rows(database, "newest") == [(2,)])
    orders.update(2, ts=NOON + timedelta(minutes=15))
    orders.update(0, ts=NOON + timedelta(minutes=19), n=100)
    orders.delete([1, 3])
    wait_until(lambda: rows(database, "by_city") == [("Rome", 2, 102)])
    wait_until(lambda: rows(database, "big") == [("Rome",)])
    clock.forward(minutes=55)
    wait_until(lambda: rows(database, "by_city") == [("Rome", 1, 100)])
    database.sql("UPDATE people SET city = 'Bonn' WHERE who = 1")
    wait_until(lambda: rows(database, "by_city") == [("Bonn", 1, 100)])
    clock.forward(minutes=5)
    wait_until(
        lambda: rows(database, "by_city") == rows(database, "recent") == rows(database, "newest") == []
    )


def test_a_sink_is_told_of_rows_that_leave(database, clock, capfd, wait_until):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, ts TIMESTAMP)")
    database.table("o").insert({"id": 7, "ts": NOON})
    database.sql("CREATE TABLE t AS SELECT id FROM o WHERE ts > now() - INTERVAL 1 HOUR")
    wait_until(lambda: rows(database, "t") == [(7,)])
    database.sql("CREATE STREAM s AS SELECT id FROM t")
    told = ""

    def said(text: str) -> bool:
        nonlocal told
        told += capfd.readouterr().out
        return text in told

    wait_until(lambda: said('{"id":7'))
    assert '"_weight":-1' not in told
    clock.forward(hours=1)
    wait_until(lambda: said('"_weight":-1'))


def test_rows_come_when_their_time_comes(database, clock, tmp_path, wait_until):
    path = tmp_path / "e.csv"
    uri = events(path, (1, "a", 1, at(-5)), (2, "a", 2, at(5)), (3, "a", 3, at(10)))
    database.sql(f"CREATE TABLE due AS SELECT id FROM {uri} WHERE ts <= now()")
    database.sql(
        f"CREATE TABLE now_on AS SELECT COUNT(*) AS c FROM {uri} "
        "WHERE ts BETWEEN now() - INTERVAL 6 MINUTES AND now()"
    )
    wait_until(lambda: rows(database, "due") == [(1,)])
    wait_until(lambda: rows(database, "now_on") == [(1,)])
    clock.forward(minutes=5)
    wait_until(lambda: rows(database, "due") == [(1,), (2,)])
    wait_until(lambda: rows(database, "now_on") == [(1,)])
    events(path, (1, "a", 1, at(-5)), (2, "a", 2, at(5)))
    clock.forward(minutes=5)
    wait_until(lambda: rows(database, "now_on") == [(1,)])
    assert rows(database, "due") == [(1,), (2,)]
    append(path, (4, "b", 1, at(11)))
    clock.forward(minutes=1)
    wait_until(lambda: rows(database, "due") == [(1,), (2,), (4,)])
    wait_until(lambda: rows(database, "now_on") == [(2,)])


def test_rows_that_a_file_loses_before_and_after_they_left(database, clock, tmp_path, wait_until):
    path = tmp_path / "e.csv"
    lines = [(n, "a", n, at(n)) for n in range(6)]
    uri = events(path, *lines, lines[4])
    database.sql(
        f"CREATE TABLE t AS SELECT kind, COUNT(*) AS c FROM {uri} "
        "WHERE ts > now() - INTERVAL 1 HOUR GROUP BY kind"
    )
    wait_until(lambda: rows(database, "t") == [("a", 7)])
    clock.forward(minutes=62)
    wait_until(lambda: rows(database, "t") == [("a", 4)])
    events(path, *lines[2:5])
    wait_until(lambda: rows(database, "t") == [("a", 2)])
    events(path, lines[4], (9, "b", 1, at(60)))
    wait_until(lambda: rows(database, "t") == [("a", 1), ("b", 1)])
    clock.forward(minutes=2)
    wait_until(lambda: rows(database, "t") == [("b", 1)])


def test_rows_that_became_due_while_stopped_leave_at_the_next_start(clocked, clock, tmp_path, wait_until):
    path = tmp_path / "e.csv"
    uri = events(path, *((n, "ab"[n % 2], n, at(-10 * n)) for n in range(5)))
    database = clocked(tmp_path / "data")
    database.sql(
        f"CREATE TABLE t AS SELECT kind, SUM(n) AS s FROM {uri} "
        "WHERE ts > now() - INTERVAL 1 HOUR GROUP BY kind"
    )
    database.sql("CREATE TABLE top AS SELECT kind FROM t WHERE s > 3")
    wait_until(lambda: rows(database, "t") == [("a", 6), ("b", 4)])
    wait_until(lambda: rows(database, "top") == [("a",), ("b",)])
    database.close()
    clock.forward(minutes=35)
    database = clocked(tmp_path / "data")
    wait_until(lambda: rows(database, "t") == [("a", 2), ("b", 1)])
    wait_until(lambda: rows(database, "top") == [])
    append(path, (7, "b", 7, at(30)))
    wait_until(lambda: rows(database, "t") == [("a", 2), ("b", 8)])
    clock.forward(minutes=10)
    wait_until(lambda: rows(database, "t") == [("a", 0), ("b", 8)])


def test_a_clock_that_is_put_back_brings_nothing_back(database, clock, tmp_path, wait_until):
    path = tmp_path / "e.csv"
    uri = events(path, (1, "a", 1, at(-50)), (2, "a", 2, at(0)))
    database.sql(f"CREATE TABLE t AS SELECT id FROM {uri} WHERE ts > now() - INTERVAL 1 HOUR")
    wait_until(lambda: rows(database, "t") == [(1,), (2,)])
    clock.forward(minutes=20)
    wait_until(lambda: rows(database, "t") == [(2,)])
    clock.forward(minutes=-20)
    append(path, (3, "a", 3, at(-45)), (4, "a", 4, at(1)))
    wait_until(lambda: rows(database, "t") == [(2,), (4,)])


def test_the_last_row_of_a_key_among_those_that_are_there(database, clock, tmp_path, wait_until):
    path = tmp_path / "e.csv"
    uri = events(path, (1, "a", 10, at(-5)), (1, "a", 11, at(-30)), (2, "b", 20, at(3)))
    database.sql(
        f"""CREATE TABLE t AS SELECT * FROM {uri} WHERE ts > now() - INTERVAL 1 HOUR WITH ("key" = "id")"""
    )
    wait_until(lambda: [(row["id"], row["n"]) for row in database.table("t").rows()] == [(1, 11), (2, 20)])
    clock.forward(minutes=30)
    wait_until(lambda: database.table("t").get(1)["n"] == 10)
    clock.forward(minutes=25)
    wait_until(lambda: database.table("t").get(1) is None)
    assert database.table("t").get(2)["n"] == 20


def test_columns_that_widen_and_appear_later(database, clock, tmp_path, wait_until):
    path = tmp_path / "e.jsonl"
    path.write_text(f'{{"id": 1, "ts": "{at(-50)}"}}\n')
    database.sql(f"CREATE TABLE t AS SELECT * FROM file://{path} WHERE ts > now() - INTERVAL 1 HOUR")
    wait_until(lambda: [row["id"] for row in database.table("t").rows()] == [1])
    with path.open("a") as file:
        file.write(f'{{"id": 2.5, "ts": "{at(-1)}", "note": "new"}}\n')
    wait_until(lambda: sorted(row["id"] for row in database.table("t").rows()) == [1, Decimal("2.5")])
    clock.forward(minutes=20)
    wait_until(lambda: [row["note"] for row in database.table("t").rows()] == ["new"])


def test_bad_rows_are_kept_aside(database, clock, tmp_path, wait_until):
    uri = events(tmp_path / "e.csv", (1, "a", 5, at(-30)), (2, "a", 0, at(-20)), (3, "a", "x", at(-5)))
    database.sql(
        f"CREATE TABLE t AS SELECT id, 10 / n AS q FROM file('{uri[7:]}') "
        "WHERE ts > now() - INTERVAL 1 HOUR AND 100 / n > 1 "
        """WITH ("schema" = "id BIGINT, kind STRING, n INT, ts TIMESTAMP")"""
    )
    wait_until(lambda: [row["id"] for row in database.table("t").rows()] == [1])
    wait_until(lambda: len(database.sql("SELECT * FROM dead_letters").rows()) == 2)
    clock.forward(hours=1)
    wait_until(lambda: rows(database, "t") == [])


def test_generated_rows_leave_and_the_job_ends_after_the_last(database, clock, wait_until):
    clock.now = datetime.now(UTC)
    database.sql(
        "CREATE TABLE t AS SELECT symbol, COUNT(*) AS c FROM datagen://trades?rows=50&rows_per_second=1000 "
        "WHERE _timestamp > now() - INTERVAL 1 MINUTE GROUP BY symbol"
    )
    wait_until(lambda: sum(row["c"] for row in database.table("t").rows()) == 50)
    job = database.jobs_by_name.require("t")
    assert job.state.alive
    clock.forward(minutes=2)
    wait_until(lambda: len(database.table("t")) == 0)
    wait_until(lambda: job.state.value == "finished")


def test_drop_leaves_nothing_of_live_rows(database, clock, tmp_path, wait_until):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, ts TIMESTAMP)")
    database.sql("CREATE TABLE t AS SELECT id FROM o WHERE ts > now() - INTERVAL 1 HOUR")
    database.table("o").insert({"id": 1, "ts": NOON})
    wait_until(lambda: rows(database, "t") == [(1,)])
    database.sql("DROP TABLE t")
    assert list((tmp_path / "data" / "jobs").glob("*")) == []
    assert {row.name for row in database.sql("SHOW TABLES")} <= {"dead_letters", "o"}
    database.sql("DROP TABLE o")


@pytest.mark.parametrize(
    ("query", "why"),
    [
        ("SELECT id, now() AS seen FROM o", "now"),
        ("SELECT id FROM o WHERE ts > now() OR n = 1", "AND connects"),
        ("SELECT id FROM o WHERE ts > now() - INTERVAL 1 MONTH", "equally long"),
        ("SELECT id FROM o WHERE hour(now()) > n", "move with the clock"),
        ("SELECT id FROM o WHERE ts > now() - make_dt_interval(0, n)", "not the same for every row"),
        ("SELECT n, COUNT(*) AS c FROM o GROUP BY n HAVING max(ts) > now()", "in a WHERE"),
        ("SELECT a.id FROM o a LEFT JOIN o b ON a.id = b.id WHERE b.ts > now()", "may be missing"),
        ("SELECT id FROM (SELECT id, max(ts) AS ts FROM o GROUP BY id) q WHERE ts > now()", "inside it"),
        ("SELECT id FROM o WHERE ts > now() AND rand() > 0.5", "rand"),
    ],
)
def test_what_cannot_be_followed_is_refused(database, query, why):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, n INT, ts TIMESTAMP)")
    with refusal("sql.unsupported", why=why):
        database.sql(f"CREATE TABLE t AS {query}")
    assert database.catalog.get("t") is None


def test_text_is_not_compared_with_the_clock(database):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, ts STRING)")
    with refusal("sql.type", "ts"):
        database.sql("CREATE TABLE t AS SELECT id FROM o WHERE ts > now()")


def test_explain_tells_of_the_clock(database):
    database.sql("CREATE TABLE o (id BIGINT PRIMARY KEY, k STRING, ts TIMESTAMP)")
    told = database.explain(
        "CREATE TABLE t AS SELECT k, COUNT(*) AS c FROM o WHERE ts > now() - INTERVAL 1 HOUR GROUP BY k"
    )
    assert "step 1: rows while ts > NOW() - INTERVAL '1' HOUR" in told
    assert "kind: by the clock" in told
    assert "groups by k" in told
