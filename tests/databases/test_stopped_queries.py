"""A source is closed while its query is under way: the query ends, and does not hold up who drops the table.

PostgreSQL's and MySQL's own are in test_postgres_loads.py and test_mysql_loads.py.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pytest
from ways import way_to

from velostream.config import Settings
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from shops import Shop
    from tests.conftest import WaitUntil
    from tests.databases.conftest import ShopOf
    from warehouses import Warehouse

    from velostream.connectors.base import Source


pytestmark = pytest.mark.sampled(2)


def opened(folder: Path, uri: str, **properties: str) -> Source:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return open_source(
        SourceRef("__source_1", Uri(uri), given),
        Settings(data_dir=folder / "data"),
        folder / "spool",
        known=None,
        once=False,
        table=True,
        owner="job",
    )


def ends_soon(source: Source, waits: AbstractContextManager[None]) -> None:
    """What is asked after the source was checked waits; closing it does not."""
    source.check()
    with waits:
        began = time.monotonic()
        assert source.latest(None) == {"changes": 0}
        assert not source.settled()
        source.close()
        assert time.monotonic() - began < 10


@contextmanager
def nothing() -> Iterator[None]:
    yield


@pytest.mark.parametrize(
    ("driver", "endless"),
    [
        (
            "sqlite",
            "SELECT count(*) FROM (WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000000000) SELECT i FROM n)",
        ),
        ("duckdb", "SELECT count(*) FROM range(10000000000000) AS r(n) WHERE n % 7 = 3"),
    ],
)
def test_files(tmp_path: Path, driver: str, endless: str) -> None:
    path = tmp_path / "app.db"
    with (sqlite3 if driver == "sqlite" else duckdb).connect(path) as made:  # type: ignore[attr-defined]
        made.execute("CREATE TABLE orders (id INT PRIMARY KEY)")
        made.execute("INSERT INTO orders VALUES (1)")
    made.close()
    uri = f"sql://{driver}:{path}?table=orders"
    ends_soon(opened(tmp_path, uri, where=f"id < ({endless})"), nothing())


def test_sqlalchemy_over_postgresql(shop: Shop, tmp_path: Path) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    uri = f"sql://postgresql://postgres:secret@127.0.0.1:{shop.postgres.port}/{shop.name}?table=orders"

    @contextmanager
    def locked() -> Iterator[None]:
        with shop.postgres.connect(shop.name) as other, other.transaction():
            other.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
            yield

    ends_soon(opened(tmp_path, uri, where="EXISTS (SELECT FROM customers)"), locked())


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_sqlalchemy_over_mysql(shop_of: ShopOf, tmp_path: Path, kind: str) -> None:
    shop = shop_of(kind)
    shop.fill(1, 3)
    uri = shop.uri("orders").replace("mysql://", "sql://mysql://")

    @contextmanager
    def locked() -> Iterator[None]:
        with shop.server.connect(shop.name) as other:
            other.execute("LOCK TABLES orders WRITE, customers WRITE")
            yield
            other.execute("UNLOCK TABLES")

    ends_soon(opened(tmp_path, uri), locked())


@pytest.mark.parametrize("where", ["n >= 0", "sleepEachRow(0.1) = 0"])
def test_clickhouse(warehouse: Warehouse, tmp_path: Path, wait_until: WaitUntil, where: str) -> None:
    """The server is silent, as one that sorts and groups before it answers."""
    warehouse.run("CREATE TABLE @t (n Int64) ENGINE = MergeTree ORDER BY n", "INSERT INTO @t VALUES (1), (2)")
    with way_to(warehouse.server.port) as way:
        uri = warehouse.uri("t").replace(f":{warehouse.server.port}/", f":{way.port}/")
        source = opened(tmp_path, uri, where=where)

        @contextmanager
        def silent() -> Iterator[None]:
            way.most_bytes = 0
            yield

        ends_soon(source, silent())
