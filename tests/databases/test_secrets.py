"""The password of a database is in no error, traceback, log file, answer or file, whatever happens to it."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

import pytest
from shops import Shop

import velostream
from velostream.runtime.logs import log_to, stop

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mysql_shops import MySqlShop
    from tests.conftest import WaitUntil

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
CANARY = "cAn4ry-of-the-d4tabase"
OTHER = "an0ther-cAn4ry"
ASKED = ("SHOW JOBS", "SHOW CREATE orders", "DESCRIBE orders", "EXPLAIN SELECT * FROM orders", "SHOW SOURCES")


class User:
    """A user of the test's own, whose password is nowhere else."""

    def __init__(self, shop: Shop | MySqlShop) -> None:
        self._shop, self._postgres = shop, isinstance(shop, Shop)
        self.name = f"u{shop.name}"
        self._full = self.name if self._postgres else f"{self.name}@'127.0.0.1'"

    def make(self) -> None:
        sql = self._shop.sql
        if self._postgres:
            sql.execute(f"CREATE ROLE {self.name} LOGIN SUPERUSER PASSWORD '{CANARY}'")
        else:
            sql.execute(f"CREATE USER {self._full} IDENTIFIED BY '{CANARY}'")
            sql.execute(f"GRANT ALL ON *.* TO {self._full}")

    def change(self, password: str) -> None:
        """Change the password, and end what is connected."""
        sql, shop = self._shop.sql, self._shop
        how = "PASSWORD" if self._postgres else "IDENTIFIED BY"
        sql.execute(f"ALTER USER {self._full} {how} '{password}'")
        if isinstance(shop, Shop):
            sql.execute(
                f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{self.name}'"
            )
            return
        for (number,) in shop.sql.execute(
            f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{self.name}'"
        ):
            shop.sql.execute(f"KILL {number}")

    def remove(self) -> None:
        if self._postgres:
            self._shop.sql.execute(f"REASSIGN OWNED BY {self.name} TO postgres")
            self._shop.sql.execute(f"DROP OWNED BY {self.name}")
        self._shop.sql.execute(f"DROP USER {self._full}")


@pytest.fixture
def user(each_shop: Shop | MySqlShop) -> Iterator[User]:
    made = User(each_shop)
    made.make()
    yield made
    made.remove()


def test_a_secret_is_nowhere(
    each_shop: Shop | MySqlShop,
    user: User,
    tmp_path: Path,
    spark: object,
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop, mine = each_shop, isinstance(each_shop, Shop)
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    config = tmp_path / "velostream.toml"
    port = shop.postgres.port if isinstance(shop, Shop) else shop.server.port
    config.write_text(
        f'[connections.shop]\nhost = "127.0.0.1"\nport = {port}\ndatabase = "{shop.name}"\n'
        f'username = "{user.name}"\npassword = "${{env:SHOP_PASSWORD}}"\n'
    )
    scheme = "postgres" if mine else "mysql"
    said: list[str] = []
    handler = log_to(tmp_path / "data" / "logs", "debug")
    try:
        with velostream.connect(tmp_path / "data", config=config) as db:

            def from_shop(table: str, more: str = "") -> str:
                return f'{scheme}:///?table={table} WITH ("connection" = "shop"{more})'

            def refused(statement: str) -> None:
                with pytest.raises(velostream.VelostreamError) as raised:
                    db.sql(statement)
                said.extend(traceback.format_exception(raised.value))
                said.append(repr(raised.value))

            shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
            followed = from_shop("orders", ', "cdc" = "true"')
            db.sql(f"CREATE TABLE orders AS SELECT * FROM {followed}")
            db.sql(
                f"INSERT INTO {scheme}:///?table=copied SELECT * FROM orders EMIT CHANGES WITH "
                '("connection" = "shop", "table.create.if.missing" = "true")'
            )
            wait_until(lambda: shop.rows("SELECT count(*) FROM copied") == {(1,): 1})
            said.extend(str(db.sql(statement).rows()) for statement in ASKED)
            refused(f"CREATE TABLE other AS SELECT * FROM {from_shop('nowhere')}")
            refused(
                f"INSERT INTO {scheme}:///?table=nowhere SELECT * FROM orders EMIT CHANGES WITH "
                '("connection" = "shop")'
            )
            # The password changes while everything runs.
            user.change(OTHER)
            shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'y')")
            wait_until(lambda: db.job("orders").state == "failed", 60)
            said.append(str(db.job("orders").reason))
            refused(f"CREATE TABLE other AS SELECT * FROM {from_shop('customers')}")
            db.sql("RESUME JOB orders")
            wait_until(lambda: db.job("orders").state == "failed", 60)
            said.extend(str(db.sql(statement).rows()) for statement in ASKED)
            user.change(CANARY)
            db.sql("RESUME JOB orders")
            wait_until(lambda: len(db.table("orders")) == 2, 60)
            for job in db.jobs():
                if job.state == "failed":
                    said.append(str(job.reason))
                    db.sql(f"RESUME JOB {job.name}")
            wait_until(lambda: shop.rows("SELECT count(*) FROM copied") == {(2,): 1}, 60)
    finally:
        stop(handler)
    assert not [text for text in said if CANARY in text or OTHER in text]
    paths = [path for path in (tmp_path / "data").rglob("*") if path.is_file()]
    assert any(path.name == "velostream.log" for path in paths)
    assert [path for path in paths if CANARY.encode() in path.read_bytes()] == []
