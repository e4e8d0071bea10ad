"""Fixtures of the tests against real databases."""

from __future__ import annotations

import os
import resource
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Protocol

import pytest
from mysql_shops import MySqlShop
from shops import Shop, ours
from warehouses import Warehouse

import clickhouse_server
import velostream
from database_servers import running
from mysql_servers import NAMES, running_mysql

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import psycopg
    from tests.conftest import WaitUntil

    from clickhouse_server import ClickHouse
    from database_servers import Postgres
    from mysql_servers import MySqlServer, Session
    from velostream import Database


MANY_FILES = 2048


@pytest.fixture(scope="package")
def postgres() -> Iterator[Postgres]:
    """A server that the tests of a process share."""
    with running() as server:
        yield server


@pytest.fixture
def database(
    postgres: Postgres, request: pytest.FixtureRequest, wait_until: WaitUntil
) -> Iterator[tuple[str, psycopg.Connection]]:
    """A database of the test's own: its name, and a connection to it."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    with postgres.connect() as admin:
        admin.execute(f"CREATE DATABASE {name}")
    connection = postgres.connect(name)
    yield name, connection
    connection.close()
    wait_until(lambda: postgres.drop_slots(name))
    with postgres.connect() as admin:
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def db(spark: object, tmp_path: Path) -> Iterator[Database]:
    with velostream.connect(tmp_path / "data") as opened:
        yield opened


@pytest.fixture
def shop(postgres: Postgres, database: tuple[str, psycopg.Connection]) -> Shop:
    return Shop(postgres, *database)


@pytest.fixture
def many_files() -> Iterator[None]:
    """The descriptors of sockets that are opened from now on are higher than `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < MANY_FILES:
        resource.setrlimit(resource.RLIMIT_NOFILE, (MANY_FILES, hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Same(Protocol):
    """`same(query)`: the query gives the same rows here and in the database, in the end.

    `mine` is how it is asked here, where that differs.
    """

    def __call__(
        self, query: str = "SELECT * FROM orders", mine: str | None = None, timeout: float = 30.0
    ) -> None: ...


@pytest.fixture
def same(db: Database, shop: Shop, wait_until: WaitUntil) -> Same:
    def check(query: str = "SELECT * FROM orders", mine: str | None = None, timeout: float = 30.0) -> None:
        wait_until(lambda: ours(db, mine or query) == shop.rows(query), timeout)

    return check


class Servers(Protocol):
    """`servers("mariadb")`: the server of this kind that the tests of a process share."""

    def __call__(self, kind: str) -> MySqlServer: ...


@pytest.fixture(scope="package")
def servers() -> Iterator[Servers]:
    with ExitStack() as stack:
        made: dict[str, MySqlServer] = {}

        def server(kind: str) -> MySqlServer:
            if kind not in made:
                made[kind] = stack.enter_context(running_mysql(kind))
            return made[kind]

        yield server


@pytest.fixture(scope="package", params=NAMES)
def mysql(request: pytest.FixtureRequest, servers: Servers) -> MySqlServer:
    """A MariaDB, and a MySQL."""
    return servers(request.param)


@pytest.fixture(scope="package")
def mariadb(servers: Servers) -> MySqlServer:
    """A MariaDB, for tests of what both servers do alike."""
    return servers("mariadb")


@contextmanager
def _own(server: MySqlServer, request: pytest.FixtureRequest) -> Iterator[tuple[str, Session]]:
    name = f"t{abs(hash(request.node.nodeid)) % 10**12}"
    with server.connect() as admin:
        admin.execute(f"CREATE DATABASE {name}")
    session = server.connect(name)
    yield name, session
    session.close()
    with server.connect() as admin:
        admin.execute(f"DROP DATABASE {name}")


@pytest.fixture
def mysql_database(mysql: MySqlServer, request: pytest.FixtureRequest) -> Iterator[tuple[str, Session]]:
    """A database of the test's own: its name, and a connection to it."""
    with _own(mysql, request) as made:
        yield made


@pytest.fixture
def mysql_shop(mysql: MySqlServer, mysql_database: tuple[str, Session]) -> MySqlShop:
    return MySqlShop(mysql, *mysql_database)


@pytest.fixture
def maria_shop(mariadb: MySqlServer, request: pytest.FixtureRequest) -> Iterator[MySqlShop]:
    with _own(mariadb, request) as made:
        yield MySqlShop(mariadb, *made)


@pytest.fixture(params=["postgres", *NAMES])
def each_shop(request: pytest.FixtureRequest) -> Iterator[Shop | MySqlShop]:
    """A shop on each of the servers that write by transactions."""
    if request.param == "postgres":
        yield request.getfixturevalue("shop")
        return
    server = request.getfixturevalue("servers")(request.param)
    with _own(server, request) as made:
        yield MySqlShop(server, *made)


class ShopOf(Protocol):
    """`shop_of("mysql")`: a shop of the test's own, where a parameter of the test says on which server."""

    def __call__(self, kind: str) -> MySqlShop: ...


@pytest.fixture
def shop_of(servers: Servers, request: pytest.FixtureRequest) -> Iterator[ShopOf]:
    with ExitStack() as stack:

        def shop(kind: str) -> MySqlShop:
            server = servers(kind)
            return MySqlShop(server, *stack.enter_context(_own(server, request)))

        yield shop


@pytest.fixture
def mysql_same(db: Database, mysql_shop: MySqlShop, wait_until: WaitUntil) -> Same:
    return _same_as(db, mysql_shop, wait_until)


@pytest.fixture
def maria_same(db: Database, maria_shop: MySqlShop, wait_until: WaitUntil) -> Same:
    return _same_as(db, maria_shop, wait_until)


def _same_as(db: Database, shop: MySqlShop, wait_until: WaitUntil) -> Same:
    def check(query: str = "SELECT * FROM orders", mine: str | None = None, timeout: float = 30.0) -> None:
        wait_until(lambda: ours(db, mine or query) == shop.rows(query), timeout)

    return check


@pytest.fixture(scope="package")
def clickhouse() -> Iterator[ClickHouse]:
    """A server that the tests of a process share."""
    with clickhouse_server.running() as server:
        yield server


@pytest.fixture
def warehouse(clickhouse: ClickHouse, request: pytest.FixtureRequest) -> Iterator[Warehouse]:
    """A database of the test's own."""
    made = Warehouse(clickhouse, f"t{abs(hash(request.node.nodeid)) % 10**12}")
    yield made
    made.run(f"DROP DATABASE {made.name}")
