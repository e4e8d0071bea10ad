"""Tables, views and queries of PostgreSQL that are asked again and again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from shops import ours

from refusals import refusal
from velostream.connectors.postgres.read import load

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from shops import Shop
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = pytest.mark.spark
OFTEN = '"poll.interval" = "50ms"'


def test_the_difference_is_what_changed(
    db: Database, shop: Shop, same: Same, rng: random.Random, rounds: Callable[[int, int], int]
) -> None:
    from workloads import transaction

    shop.sql.execute("INSERT INTO orders SELECT n, n % 9, n, 'x' FROM generate_series(1, 300) n")
    shop.follow(db, properties=OFTEN)
    db.sql("CREATE TABLE total AS SELECT count(*) AS n, sum(amount) AS total FROM orders")
    for _ in range(rounds(10, 100)):
        transaction(shop.sql, rng)
    same()
    same("SELECT count(*), sum(amount) FROM orders", "SELECT * FROM total")


def test_rows_without_a_key(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE TABLE plain (a int, b text, c numeric(5,1)[])")
    shop.sql.execute("INSERT INTO plain VALUES (1, 'x', '{1.5}'), (1, 'x', '{1.5}'), (NULL, NULL, NULL)")
    shop.follow(db, "plain", OFTEN)
    db.wait_until(lambda: len(db.table("plain")) == 3, timeout=30)
    shop.sql.execute("DELETE FROM plain WHERE ctid = (SELECT min(ctid) FROM plain WHERE a = 1)")
    db.wait_until(lambda: len(db.table("plain")) == 2, timeout=30)
    shop.sql.execute("INSERT INTO plain SELECT a, b, c FROM plain")
    shop.sql.execute("UPDATE plain SET b = 'y' WHERE a IS NULL")
    query = "SELECT a, b, count(*) FROM plain GROUP BY a, b"
    same(query)


def test_views_and_queries_with_parameters(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders SELECT n, n % 3, n, '100%' FROM generate_series(1, 30) n")
    shop.sql.execute(
        "CREATE VIEW sums AS SELECT customer, sum(amount) AS total FROM orders GROUP BY customer"
    )
    shop.sql.execute(
        "CREATE MATERIALIZED VIEW counted AS SELECT customer, count(*) AS n FROM orders GROUP BY 1"
    )
    base = f"postgresql://postgres:secret@127.0.0.1:{shop.postgres.port}/{shop.name}"
    shop.follow(db, "sums", f'{OFTEN}, "key" = "customer"')
    shop.follow(db, "counted", OFTEN)
    db.sql(
        f"CREATE TABLE some AS SELECT * FROM {base}"
        "?query=\"SELECT id, note FROM orders WHERE customer = ? AND note LIKE '100%' AND amount > ?\" "
        f'WITH ({OFTEN}, "query.params" = "[1, 5.5]")'
    )
    some = "SELECT id, note FROM orders WHERE customer = 1 AND amount > 5.5"
    same(some, "SELECT * FROM some")
    shop.sql.execute("DELETE FROM orders WHERE id < 15")
    shop.sql.execute("REFRESH MATERIALIZED VIEW counted")
    same(some, "SELECT * FROM some")
    same("SELECT * FROM sums")
    same("SELECT * FROM counted")
    assert db.table("sums").get(1) is not None


def test_by_a_column_that_grows(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute(
        "CREATE TABLE events (id bigserial PRIMARY KEY, what text, at timestamptz DEFAULT now())"
    )
    shop.sql.execute("INSERT INTO events (what) SELECT 'e' || n FROM generate_series(1, 100) n")
    shop.follow(db, "events", f'{OFTEN}, "incremental.column" = "at"')
    same("SELECT * FROM events")
    shop.sql.execute("INSERT INTO events (what) SELECT 'f' || n FROM generate_series(1, 100) n")
    # Of the same key, later: the row is another one now.
    shop.sql.execute("UPDATE events SET what = 'new', at = now() WHERE id = 7")
    same("SELECT * FROM events")
    before = len(db.table("events"))
    shop.sql.execute("DELETE FROM events WHERE id = 8")
    shop.sql.execute("INSERT INTO events (what) VALUES ('last')")
    db.wait_until(lambda: len(db.table("events")) == before + 1, timeout=30)


def test_rows_without_a_key_by_a_column_that_grows(
    db: Database, shop: Shop, same: Same, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several connections read the first rows, in any order; later rows may have the last value of before."""
    monkeypatch.setattr(load, "LEAST_PAGES", 4)
    shop.sql.execute("CREATE TABLE log (n bigint, line text)")
    shop.sql.execute("INSERT INTO log SELECT n, repeat('x', 200) FROM generate_series(1, 3000) n")
    shop.follow(db, "log", f'{OFTEN}, "incremental.column" = "n", "parallel.readers" = "4"')
    same("SELECT * FROM log")
    for late in (3000, 3000, 3001, 3001):
        shop.sql.execute("INSERT INTO log VALUES (%s, 'late')", (late,))
        same("SELECT * FROM log")


def test_texts_grow_in_the_order_of_the_database(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute('CREATE TABLE named (name text COLLATE "en-x-icu", n int)')
    shop.sql.execute("INSERT INTO named VALUES ('b', 1), ('B', 2), ('a', 3), ('Z', 4), (NULL, 5)")
    shop.follow(db, "named", f'{OFTEN}, "incremental.column" = "name"')
    same("SELECT * FROM named")
    shop.sql.execute("INSERT INTO named VALUES ('zz', 6), ('Zy', 7)")
    same("SELECT * FROM named")


@pytest.mark.parametrize("more", ["", ', "incremental.column" = "id"'])
def test_columns_that_are_altered(shop: Shop, spark: object, tmp_path: Path, more: str) -> None:
    """While it is polled, and while nobody does."""
    import velostream

    def same(db: Database, query: str = "SELECT * FROM orders") -> bool:
        return ours(db, query) == shop.rows(query)

    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 5) n")
    with velostream.connect(tmp_path / "data") as db:
        shop.follow(db, properties=OFTEN + more)
        db.wait_until(lambda: same(db), timeout=30)
        shop.sql.execute("ALTER TABLE orders ADD more int DEFAULT 7")
        db.wait_until(lambda: same(db), timeout=30)
    shop.sql.execute("ALTER TABLE orders ADD again text, ALTER customer TYPE bigint")
    shop.sql.execute("INSERT INTO orders VALUES (6, 5000000000, 6, 'x', 8, 'y')")
    with velostream.connect(tmp_path / "data") as db:
        db.wait_until(lambda: same(db), timeout=30)
        shop.sql.execute("ALTER TABLE orders RENAME again TO other")
        db.wait_until(lambda: db.job("orders").state == "failed", timeout=30)
        assert '"again"' in (db.job("orders").reason or "")
        assert len(db.table("orders")) == 6


def test_by_a_query_of_ones_own(db: Database, shop: Shop) -> None:
    shop.sql.execute("CREATE TABLE log (n bigint, line text)")
    shop.sql.execute("INSERT INTO log SELECT n, 'line' FROM generate_series(1, 10) n")
    query = "SELECT line, 'x' AS other, n FROM log WHERE n > ? ORDER BY n LIMIT 3"
    shop.follow(db, "log", f'{OFTEN}, "incremental.column" = "n", "poll.query" = "{query}"')
    shop.sql.execute("INSERT INTO log SELECT n, 'more' FROM generate_series(11, 20) n")
    db.wait_until(lambda: ours(db, "SELECT * FROM log") == shop.rows("SELECT * FROM log"), timeout=30)


def test_once(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db, properties='"where" = "id < 10"')
    same()
    db.wait_until(lambda: db.job("orders").state == "finished", timeout=30)


def test_polling_goes_on_after_a_restart(shop: Shop, spark: object, tmp_path: Path) -> None:
    import velostream

    shop.sql.execute("INSERT INTO orders SELECT n, n, n, 'x' FROM generate_series(1, 10) n")
    with velostream.connect(tmp_path / "data") as db:
        shop.follow(db, properties=OFTEN)
        db.wait_until(lambda: len(db.table("orders")) == 10, timeout=30)
    shop.sql.execute("DELETE FROM orders WHERE id = 3")
    shop.sql.execute("UPDATE orders SET note = 'y' WHERE id = 4")
    with velostream.connect(tmp_path / "data") as db:
        db.wait_until(
            lambda: ours(db, "SELECT * FROM orders") == shop.rows("SELECT * FROM orders"), timeout=30
        )


def test_what_does_not_fit_is_told_once(db: Database, shop: Shop) -> None:
    shop.sql.execute("CREATE TABLE odd (id int PRIMARY KEY, n numeric(5,2))")
    shop.sql.execute("INSERT INTO odd VALUES (1, 1), (2, 'NaN')")
    shop.follow(db, "odd", OFTEN)
    db.wait_until(lambda: len(db.table("odd")) == 1, timeout=30)
    shop.sql.execute("INSERT INTO odd VALUES (3, 3)")
    db.wait_until(lambda: len(db.table("odd")) == 2, timeout=30)
    shop.sql.execute("UPDATE odd SET n = 'NaN' WHERE id = 3")
    db.wait_until(lambda: len(db.table("odd")) == 1, timeout=30)
    letters = db.sql("SELECT raw FROM dead_letters WHERE job = 'odd'").rows()
    assert Counter(row.raw for row in letters) == Counter(
        [b'{"id": "2", "n": "NaN"}', b'{"id": "3", "n": "NaN"}']
    )


def test_mistakes_are_named(db: Database, shop: Shop) -> None:
    with refusal("source.config", "incremental.column", "nothing"):
        shop.follow(db, properties=f'{OFTEN}, "incremental.column" = "nothing"')
    with refusal("source.config", "nothing"):
        shop.follow(db, properties=f'{OFTEN}, "where" = "nothing = 1"')
    with refusal("source.config"):
        shop.follow(db, properties=f'{OFTEN}, "where" = "1 = 1; DROP TABLE orders"')
    assert shop.rows("SELECT count(*) FROM orders") == Counter([(0,)])
