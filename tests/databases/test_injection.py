"""Properties that hold SQL or names, over MySQL, ClickHouse and drivers: they end what they stand in to begin
something else. PostgreSQL's are in test_postgres_injection.py.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import duckdb
import pytest

from velostream import VelostreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mysql_shops import MySqlShop
    from shops import Rows, Shop
    from warehouses import Warehouse

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
DROP = "DROP TABLE customers"
CONDITIONS = (
    f"1 = 1); {DROP}; --",
    f"1 = 1; {DROP}",
    f"1 = 1)); {DROP}; SELECT ((1 = 1",
    f"1 = 1)) q; {DROP}; SELECT ((1 = 1",
    f"(1 = 1)) q WHERE 1 = 0; {DROP}; SELECT * FROM ((SELECT 1 AS x",
    "1 = 1) UNION ALL SELECT id FROM customers WHERE (1 = 1",
    "1 = 1) UNION ALL SELECT id, id FROM customers WHERE (1 = 1",
    "1 = 1 LIMIT 1",
    "1 = 1 /*",
    "note = '",
)
QUERIES = (
    f"SELECT 1 AS a; {DROP}",
    f"SELECT 1 AS a) q; {DROP}; --",
    f"SELECT 1 AS a) q; {DROP}; SELECT * FROM (SELECT 1 AS a",
    DROP,
    "SELECT 1 AS a) q, (SELECT 2 AS b",
    "SELECT 1 AS a) q WHERE (1 = 1",
)
ORDERS = (f"id; {DROP}", f"id) q; {DROP}; --", "id FOR UPDATE", "id UNION SELECT 1", "id LIMIT 1 --")
NAMES = ('orders"; {}; --', "orders'; {}; --", "orders`; {}; --", "orders; {}", "%s", "orders WHERE 1 = 1")


@dataclass(frozen=True)
class Place:
    """A database with orders and customers."""

    base: str
    """Its address, without a table."""
    customers: Callable[[], Rows]
    properties: dict[str, str] = field(default_factory=dict)
    """Of its connection."""


def mysql(shop: MySqlShop) -> Place:
    shop.sql.execute("INSERT INTO customers VALUES (1, 'Rome')")
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x'), (2, 2, 2, 'y')")
    return Place(shop.uri("x").partition("?")[0], lambda: shop.rows("SELECT * FROM customers"))


def clickhouse(warehouse: Warehouse) -> Place:
    warehouse.run(
        "CREATE TABLE @customers (id Int32, city String) ENGINE = MergeTree ORDER BY id",
        "CREATE TABLE @orders (id Int64, note String) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO @customers VALUES (1, 'Rome')",
        "INSERT INTO @orders VALUES (1, 'x'), (2, 'y')",
    )
    return Place(warehouse.uri("x").partition("?")[0], lambda: warehouse.rows("SELECT * FROM @customers"))


def file(folder: Path, driver: str) -> Place:
    def run(*statements: str) -> list[tuple[Any, ...]]:
        opened: Any = sqlite3 if driver == "sqlite" else duckdb
        connection = opened.connect(folder / driver)
        found = [connection.execute(statement).fetchall() for statement in statements][-1]
        if driver == "sqlite":
            connection.commit()
        connection.close()
        return list(found)

    run(
        "CREATE TABLE customers (id INT PRIMARY KEY, city TEXT)",
        "CREATE TABLE orders (id INT PRIMARY KEY, note TEXT)",
        "INSERT INTO customers VALUES (1, 'Rome')",
        "INSERT INTO orders VALUES (1, 'x'), (2, 'y')",
    )
    return Place(f"sql://{driver}:{folder / driver}", lambda: Counter(run("SELECT * FROM customers")))


def alchemy(shop: Shop) -> Place:
    shop.sql.execute("INSERT INTO customers VALUES (1, 'Rome')")
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x'), (2, 2, 2, 'y')")
    address = f"postgres:secret@127.0.0.1:{shop.postgres.port}/{shop.name}"
    return Place(f"sql://postgresql+psycopg://{address}", lambda: shop.rows("SELECT * FROM customers"))


def jdbc(shop: Shop) -> Place:
    made = alchemy(shop)
    user = {"username": "postgres", "password": "secret", "key": "id"}
    return Place(f"sql://jdbc:postgresql://127.0.0.1:{shop.postgres.port}/{shop.name}", made.customers, user)


@pytest.fixture(params=["mysql", "mariadb", "clickhouse", "sqlite", "duckdb", "sqlalchemy", "jdbc"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    asked = request.getfixturevalue
    return {
        "mysql": lambda: mysql(asked("shop_of")("mysql")),
        "mariadb": lambda: mysql(asked("shop_of")("mariadb")),
        "clickhouse": lambda: clickhouse(asked("warehouse")),
        "sqlite": lambda: file(tmp_path, "sqlite"),
        "duckdb": lambda: file(tmp_path, "duckdb"),
        "sqlalchemy": lambda: alchemy(asked("shop")),
        "jdbc": lambda: jdbc(asked("shop")),
    }[request.param]()


@pytest.fixture(autouse=True)
def customers_stay(place: Place) -> object:
    """Whatever is given, the customers are there afterwards."""
    before = place.customers()
    yield
    assert place.customers() == before != Counter()


def with_(properties: dict[str, str]) -> str:
    quoted = {name: value.replace("\\", "\\\\").replace("'", "''") for name, value in properties.items()}
    return ", ".join(f"\"{name}\" = '{value}'" for name, value in quoted.items())


def attempt(db: Database, place: Place, properties: dict[str, str]) -> None:
    """A statement with these properties is refused."""
    given = with_({**place.properties, **properties})
    with pytest.raises(VelostreamError) as raised:
        db.sql(f"CREATE TABLE made AS SELECT * FROM {place.base} WITH ({given})")
    assert raised.value.code.startswith(("source.", "sql.")), (properties, raised.value)
    assert raised.value.code != "source.network", (properties, raised.value)


def test_conditions(db: Database, place: Place) -> None:
    for where in CONDITIONS:
        attempt(db, place, {"table": "orders", "where": where})
        attempt(db, place, {"query": "SELECT id FROM orders", "where": where})


def test_queries(db: Database, place: Place) -> None:
    growing = {"table": "orders", "poll.interval": "1s", "incremental.column": "id"}
    for query in QUERIES:
        attempt(db, place, {"query": query})
        attempt(db, place, {**growing, "poll.query": f"{query} WHERE 1 > ?"})
        attempt(db, place, {**growing, "poll.query": query})


def test_orders(db: Database, place: Place) -> None:
    for order in ORDERS:
        attempt(db, place, {"table": "orders", "order.by": order})
        attempt(db, place, {"query": "SELECT id FROM orders", "order.by": order})


def test_names(db: Database, place: Place) -> None:
    for name in NAMES:
        attempt(db, place, {"table": name.format(DROP)})
        attempt(db, place, {"table": "orders", "schema": name.format(DROP)})
        attempt(
            db,
            place,
            {"table": "orders", "incremental.column": name.format(DROP), "poll.interval": "1s"},
        )


def test_values(db: Database, place: Place) -> None:
    """Values are bound: they are what they are, and match nothing."""
    for number, value in enumerate((f"x'; {DROP}; --", "x' OR '1' = '1", "$1", "%s", "\\", "\\' OR 1=1 --")):
        if "jdbc" in place.base and "\\" in value:
            # Spark binds no values, and what a backslash is in a text depends on the database.
            attempt(db, place, {"query": "SELECT id FROM orders WHERE note = ?", "query.params": value})
            continue
        asked = {"query": "SELECT id FROM orders WHERE note = ?", "query.params": value, **place.properties}
        db.sql(f"CREATE TABLE t{number} AS SELECT * FROM {place.base} WITH ({with_(asked)})")
        assert len(db.table(f"t{number}")) == 0


def test_what_is_allowed(db: Database, place: Place) -> None:
    """Comments, subqueries and marks in texts are no reason to refuse anything."""
    given = {
        "where": "id IN (SELECT id FROM customers) OR note = '?' -- ours",
        "order.by": "id DESC -- last",
        **place.properties,
    }
    for name, relation in (("a", {"table": "orders"}), ("b", {"query": "SELECT id, note FROM orders"})):
        db.sql(
            f"CREATE TABLE {name} AS SELECT id, note FROM {place.base} WITH ({with_({**relation, **given})})"
        )
        assert [tuple(row) for row in db.sql(f"SELECT * FROM {name}").rows()] == [(1, "x")]
