"""Properties that hold SQL or names, and end what they stand in to begin something else."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from velostream import VelostreamError

if TYPE_CHECKING:
    from shops import Shop
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = pytest.mark.spark
DROP = "DROP TABLE customers"
CONDITIONS = (
    f"true); {DROP}; --",
    f"true)) TO STDOUT; COMMIT; {DROP}; COPY (SELECT 1 WHERE (true",
    f"true; {DROP}",
    f"true)); COMMIT; {DROP}; SELECT ((true",
    "true) UNION SELECT id, id, id, city FROM customers WHERE (true",
    "true /*",
    f"(SELECT 1); {DROP}; SELECT true",
    "note = '",
)
QUERIES = (
    f"SELECT 1 AS a; {DROP}",
    f"SELECT 1 AS a) q LIMIT 0; {DROP}; --",
    f"SELECT 1 AS a) q) TO STDOUT; COMMIT; {DROP}; --",
    "DELETE FROM customers RETURNING *",
    "WITH gone AS (DELETE FROM customers RETURNING *) SELECT * FROM gone",
    DROP,
    "SELECT 1 AS a) q, (SELECT 2 AS b",
)
NAMES = (
    f'orders"; {DROP}; --',
    f"orders'; {DROP}; --",
    f"orders; {DROP}",
    'a"b',
    "a\\b",
    "%s",
    "orders WHERE true",
)


@pytest.fixture(autouse=True)
def customers_stay(shop: Shop) -> object:
    """Whatever is given, the customers are there afterwards."""
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x'), (2, 2, 2, 'y')")
    before = shop.rows("SELECT * FROM customers")
    yield
    assert shop.rows("SELECT * FROM customers") == before


def quoted(text: str) -> str:
    """As a property of a statement."""
    return text.replace("\\", "\\\\").replace("'", "''")


def attempt(db: Database, shop: Shop, properties: dict[str, str], table: str | None = "orders") -> None:
    """A statement with these properties is refused, and leaves nothing on the server."""
    uri = shop.uri(table) if table is not None else shop.uri("x").replace("?table=x", "")
    given = ", ".join(f"\"{name}\" = '{quoted(value)}'" for name, value in properties.items())
    with pytest.raises(VelostreamError) as raised:
        db.sql(f"CREATE TABLE made AS SELECT * FROM {uri} WITH ({given})")
    assert raised.value.code.startswith(("source.", "sql.")), raised.value
    assert not shop.rows("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
    assert not shop.rows("SELECT pubname FROM pg_publication")


@pytest.mark.parametrize("how", ["cdc", "poll.interval", ""])
def test_conditions(db: Database, shop: Shop, how: str) -> None:
    more = {how: "true" if how == "cdc" else "1s"} if how else {}
    for where in CONDITIONS:
        attempt(db, shop, {"where": where, **more})


def test_queries(db: Database, shop: Shop) -> None:
    for query in QUERIES:
        attempt(db, shop, {"query": query}, None)
        attempt(db, shop, {"query": query, "poll.interval": "1s"}, None)
        growing = {"poll.interval": "1s", "incremental.column": "id"}
        attempt(db, shop, {"poll.query": f"{query} WHERE 1 > ?", **growing})
        attempt(db, shop, {"poll.query": query, **growing})


def test_orders(db: Database, shop: Shop) -> None:
    for order in (f"id; {DROP}", f"id) q; {DROP}; --", "id FOR UPDATE", "id LIMIT 1", "id UNION SELECT 1"):
        attempt(db, shop, {"order.by": order})


def test_names(db: Database, shop: Shop) -> None:
    for name in NAMES:
        attempt(db, shop, {"table": name}, None)
        attempt(db, shop, {"schema": name})
        attempt(db, shop, {"schema": name, "cdc": "true"})
        attempt(db, shop, {"slot.name": name, "cdc": "true"})
        attempt(db, shop, {"incremental.column": name, "poll.interval": "1s"})


def test_publications(db: Database, shop: Shop) -> None:
    """A publication may have any name."""
    for number, name in enumerate(NAMES):
        text = quoted(name)
        db.sql(
            f"CREATE TABLE t{number} AS SELECT * FROM {shop.uri('orders')} "
            f"WITH (\"cdc\" = 'true', \"publication.name\" = '{text}')"
        )
        assert (name,) in shop.rows("SELECT pubname FROM pg_publication")
        db.sql(f"DROP TABLE t{number}")
    assert not shop.rows("SELECT pubname FROM pg_publication")


def test_values(db: Database, shop: Shop) -> None:
    """Values are bound: they are what they are, and match nothing."""
    for number, value in enumerate((f"x'; {DROP}; --", "x' OR '1' = '1", "$1", "%s", "\\")):
        text = quoted(value)
        uri = shop.uri("x").replace("?table=x", "")
        db.sql(
            f"CREATE TABLE t{number} AS SELECT * FROM {uri} "
            f"WITH (\"query\" = 'SELECT id FROM orders WHERE note = ?', \"query.params\" = '{text}')"
        )
        assert len(db.table(f"t{number}")) == 0
    shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, %s)", (f"x'; {DROP}; --",))
    db.sql(f"CREATE TABLE t AS SELECT * FROM {shop.uri('orders')} WHERE note = 'x''; {DROP}; --'")
    assert list(db.table("t").column_values("id")) == [3]


def test_names_of_columns_and_tables(db: Database, shop: Shop, same: Same) -> None:
    """What is odd in a name is part of it."""
    shop.sql.execute('CREATE TABLE "o""dd%s; --" ("i""d%" int PRIMARY KEY, "a\'b $1" text, big text)')
    shop.sql.execute('ALTER TABLE "o""dd%s; --" ALTER big SET STORAGE EXTERNAL')
    shop.sql.execute('INSERT INTO "o""dd%%s; --" VALUES (1, %s, repeat(\'x\', 9000))', ("x",))
    properties = "\"cdc\" = 'true', \"table\" = 'o\"dd%s; --', \"where\" = '\"a''b $1\" <> ''%s {}'''"
    uri = shop.uri("x").replace("?table=x", "")
    db.sql(f"CREATE TABLE odd AS SELECT * FROM {uri} WITH ({properties})")
    shop.sql.execute('UPDATE "o""dd%s; --" SET "a\'b $1" = \'y\'')
    query = 'SELECT "i""d%%", "a\'b $1", length(big) FROM "o""dd%%s; --"'.replace("%%", "%")
    same(query, "SELECT `i\"d%`, `a'b $1`, length(big) FROM odd")
    assert Counter(shop.sql.execute(query).fetchall()) == Counter([(1, "y", 9000)])
