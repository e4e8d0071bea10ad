"""A stream joined to tables: as they are when a row comes, at a cost that follows the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.engine.inputs import lookups

if TYPE_CHECKING:
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ORDERS = "id,who,amount\n1,7,10.50\n2,8,3.25\n3,9,1.00\n4,,2.00\n"


def settle(database: Instance) -> None:
    assert database.wait_idle(120), database.jobs()
    assert [job for job in database.jobs() if job.state not in ("running", "finished")] == []


def rows(database: Instance, sql: str) -> list[tuple[object, ...]]:
    return [tuple(row) for row in database.sql(sql).rows()]


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    path = tmp_path / "orders.csv"
    path.write_text(ORDERS)
    return path


@pytest.fixture
def shop(opened, tmp_path) -> Instance:
    database = opened(tmp_path / "data")
    database.sql("CREATE TABLE people (id BIGINT PRIMARY KEY, city STRING)")
    database.sql("CREATE TABLE cities (city STRING, country STRING)")
    database.sql("INSERT INTO people VALUES (7, 'Rome'), (8, 'Oslo')")
    database.sql("INSERT INTO cities VALUES ('Rome', 'IT'), ('Oslo', 'NO'), ('Oslo', 'no')")
    return database


def test_each_row_meets_the_tables_as_they_are_when_it_comes(shop, orders, opened, tmp_path):
    source = f"file://{orders} o WITH ('file.debounce' = '50ms')"
    shop.sql(f"CREATE TABLE i AS SELECT o.id, p.city FROM {source} JOIN people p ON o.who = p.id")
    shop.sql(
        f"CREATE TABLE l AS SELECT o.id, c.country FROM {source} LEFT JOIN people p ON o.who = p.id"
        " LEFT JOIN cities c ON p.city = c.city"
    )
    shop.sql(f"CREATE TABLE s AS SELECT o.id FROM {source} LEFT SEMI JOIN people p ON o.who = p.id")
    shop.sql(
        f"CREATE TABLE a AS SELECT o.id FROM {source}"
        " WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = o.who)"
    )
    settle(shop)
    assert rows(shop, "SELECT * FROM i ORDER BY id") == [(1, "Rome"), (2, "Oslo")]
    assert rows(shop, "SELECT * FROM l ORDER BY id, country") == [
        (1, "IT"),
        (2, "NO"),
        (2, "no"),
        (3, None),
        (4, None),
    ]
    assert rows(shop, "SELECT id FROM s ORDER BY id") == [(1,), (2,)]
    assert rows(shop, "SELECT id FROM a ORDER BY id") == [(3,), (4,)]
    assert shop.job("i").stats.lookup_misses == 2
    shop.sql("UPDATE people SET city = 'Bergen' WHERE id = 8")
    settle(shop)
    with orders.open("a") as out:
        out.write("5,8,7.00\n")
    settle(shop)
    assert rows(shop, "SELECT * FROM i ORDER BY id") == [(1, "Rome"), (2, "Oslo"), (5, "Bergen")]
    assert rows(shop, "SELECT * FROM l WHERE id = 5") == [(5, None)]
    shop.close()
    orders.write_text("id,who,amount\n1,7,10.50\n3,7,1.00\n5,8,7.50\n")
    again = opened(tmp_path / "data")
    settle(again)
    # Row 2 went as it was joined when it came, although the table says something else by now.
    assert rows(again, "SELECT * FROM i ORDER BY id") == [(1, "Rome"), (3, "Rome"), (5, "Bergen")]
    assert rows(again, "SELECT * FROM l ORDER BY id") == [(1, "IT"), (3, "IT"), (5, None)]
    assert again.sql("SELECT * FROM dead_letters").rows() == []


def test_the_cost_follows_the_batch(shop, orders):
    many = range(100, 50_100)
    shop.table("people").insert(pa.table({"id": list(many), "city": ["Rome"] * len(many)}))
    shop.sql(f"CREATE TABLE i AS SELECT o.id, p.city FROM file://{orders} o JOIN people p ON o.who = p.id")
    settle(shop)
    assert len(shop.table("i")) == 2
    assert shop.job("i").stats.rows_looked_up == 2


@pytest.mark.parametrize(
    ("sql", "misses"),
    [
        ("SELECT o.id FROM {s} JOIN people p ON o.who = p.id", 2),
        ("SELECT o.id FROM {s} LEFT JOIN people p ON o.who = p.id", 2),
        ("SELECT o.id FROM {s} JOIN people p ON o.who = p.id AND o.id = p.id - 5", 4),
        ("SELECT o.id FROM {s} JOIN people p ON o.who <=> p.id", 2),
        # A row that finds nothing in the first table finds nothing in the second either, or is not there.
        ("SELECT o.id FROM {s} LEFT JOIN people p ON o.who = p.id LEFT JOIN cities c ON p.city = c.city", 4),
        ("SELECT o.id FROM {s} JOIN people p ON o.who = p.id JOIN cities c ON p.city = c.city", 2),
        # Spark may know before it reads anything that no row is left.
        ("SELECT o.id FROM {s} JOIN people p ON o.who = p.id WHERE p.city IS NULL AND p.id + o.id > 0", 2),
    ],
)
@pytest.mark.parametrize("small", [True, False], ids=["whole", "by key"])
def test_rows_that_find_nothing_are_counted(shop, orders, monkeypatch, sql, misses, small):
    if not small:
        monkeypatch.setattr(lookups, "FEW", 0)
    shop.sql(f"CREATE TABLE i AS {sql.format(s=f'file://{orders} o')}")
    settle(shop)
    assert shop.job("i").stats.lookup_misses == misses


def test_groups_over_a_stream_that_only_grows(shop):
    shop.sql(
        "CREATE TABLE g AS SELECT p.city, COUNT(*) AS c, MIN(length(t.symbol)) AS m"
        " FROM datagen://trades?rows=300&rows_per_second=100000 t JOIN people p ON t.quantity % 2 + 7 = p.id"
        " GROUP BY p.city"
    )
    settle(shop)
    assert sum(count for _, count, _ in rows(shop, "SELECT * FROM g")) == 300


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT o.id FROM {s} RIGHT JOIN people p ON o.who = p.id", "right join keeps rows of a table"),
        ("SELECT o.id FROM {s} FULL JOIN people p ON o.who = p.id", "full join keeps rows of a table"),
        ("SELECT p.city, COUNT(*) AS c FROM {s} JOIN people p ON o.who = p.id GROUP BY p.city", "retract"),
    ],
)
def test_what_has_no_exact_answer_is_refused(shop, orders, sql, why):
    with refusal("sql.unsupported", why=why):
        shop.sql(f"CREATE TABLE z AS {sql.format(s=f'file://{orders} o')}")


def test_a_row_of_a_lookup_that_cannot_be_computed_is_a_dead_letter(shop, orders):
    shop.sql("CREATE TABLE d (id BIGINT PRIMARY KEY, by BIGINT)")
    shop.sql("INSERT INTO d VALUES (7, 0), (8, 2)")
    shop.sql(f"CREATE TABLE q AS SELECT o.id, o.id / d.by AS x FROM file://{orders} o JOIN d ON o.who = d.id")
    settle(shop)
    assert rows(shop, "SELECT * FROM q") == [(2, 1.0)]
    assert rows(shop, "SELECT job, COUNT(*) FROM dead_letters GROUP BY job") == [("q", 1)]
    source = f"file://{orders} o WITH ('schema' = 'id BIGINT, who STRING')"
    orders.write_text("id,who\n1,7\n2,eight\n3,8\n")
    shop.sql(
        f"CREATE TABLE t AS SELECT o.id, p.city FROM {source} JOIN people p ON CAST(o.who AS BIGINT) = p.id"
    )
    settle(shop)
    assert rows(shop, "SELECT * FROM t ORDER BY id") == [(1, "Rome"), (3, "Oslo")]
    assert rows(shop, "SELECT COUNT(*) FROM dead_letters WHERE job = 't'") == [(1,)]


@pytest.mark.parametrize(("then", "found"), [("nulls", [(1, None)]), ("skip", [])])
def test_a_table_that_does_not_load_in_time(shop, orders, tmp_path, then, found):
    late = tmp_path / "late.csv"
    late.write_text("id,city\n7,Rome\n")
    shop.sql(f"CREATE TABLE late AS SELECT * FROM file://{late}")
    shop.sql("PAUSE JOB late")
    shop.table("late").version_object.commit = None  # as it is before the first batch
    sql = f"CREATE TABLE z AS SELECT o.id, l.city FROM file://{orders} o LEFT JOIN late l ON o.who = -l.id"
    with refusal("job", "late", "0s"):
        shop.sql(f"{sql} WITH ('join.wait' = '0s', 'join.on.timeout' = 'fail')")
    shop.sql(f"{sql} WITH ('join.wait' = '0s', 'join.on.timeout' = '{then}')")
    assert shop.wait_idle(120), shop.jobs()
    assert rows(shop, "SELECT id, city FROM z WHERE id = 1") == found
