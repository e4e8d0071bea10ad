"""Connections to MySQL and MariaDB: named, encrypted, with secrets that are never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import velostream
from refusals import refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mysql_shops import MySqlShop

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]
CANARY = "cAn4ry-of-the-d4tabase"


@pytest.fixture
def user(mysql_shop: MySqlShop) -> Iterator[str]:
    """A user of the test's own with as few rights as reading needs, whose password is nowhere else."""
    name, sql = f"u{mysql_shop.name}", mysql_shop.sql
    sql.execute(f"CREATE USER {name}@'127.0.0.1' IDENTIFIED BY '{CANARY}'")
    sql.execute(f"GRANT SELECT ON {mysql_shop.name}.orders TO {name}@'127.0.0.1'")
    yield name
    sql.execute(f"DROP USER {name}@'127.0.0.1'")


@pytest.fixture
def config(mysql_shop: MySqlShop, user: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    path = tmp_path / "velostream.toml"
    path.write_text(
        f'[connections.shop]\nhost = "127.0.0.1"\nport = {mysql_shop.server.port}\n'
        f'database = "{mysql_shop.name}"\nusername = "{user}"\npassword = "${{env:SHOP_PASSWORD}}"\n'
    )
    return path


def test_a_secret_is_nowhere_and_rights_are_told(
    mysql_shop: MySqlShop, config: Path, user: str, tmp_path: Path, spark: object
) -> None:
    shop = mysql_shop
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    named = 'mysql:///?table={} WITH ("connection" = "shop"{})'
    followed = "CREATE TABLE orders AS SELECT * FROM " + named.format("orders", ', "cdc" = "true"')
    told: list[str] = []
    with velostream.connect(tmp_path / "data", config=config) as db:
        db.sql(f"CREATE TABLE loaded AS SELECT * FROM {named.format('orders', '')}")
        db.wait_until(lambda: len(db.table("loaded")) == 1, timeout=30)
        with refusal("source.auth", "binlog"):
            db.sql(followed)
        shop.sql.execute(f"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}@'127.0.0.1'")
        db.sql(followed)
        db.wait_until(lambda: len(db.table("orders")) == 1, timeout=30)
        asked = ("SHOW JOBS", "SHOW CREATE orders", "DESCRIBE orders", "EXPLAIN SELECT * FROM orders")
        told += [str(db.sql(statement).rows()) for statement in asked]
        for table in ("nowhere", "customers"):
            with pytest.raises(velostream.VelostreamError) as raised:
                db.sql(f"CREATE TABLE other AS SELECT * FROM {named.format(table, '')}")
            told += [str(raised.value), str(raised.value.__cause__)]
    assert not [text for text in told if CANARY in text]
    found = [
        path
        for path in (tmp_path / "data").rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert found == []


def test_encrypted(db: Database, mysql_shop: MySqlShop, tmp_path: Path) -> None:
    shop = mysql_shop
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    from_orders = f"SELECT * FROM {shop.uri('orders')}"
    if shop.server.kind == "mariadb":
        # It has no certificates.
        with refusal("source.config", "SSL"):
            db.sql(f'CREATE TABLE o AS {from_orders} WITH ("ssl.mode" = "require")')
        db.sql(f'CREATE TABLE o AS {from_orders} WITH ("ssl.mode" = "disable")')
        return
    authority = tmp_path / "ca.pem"
    authority.write_bytes((shop.server.data / "ca.pem").read_bytes())
    for number, mode in enumerate(("require", "verify-ca")):
        db.sql(
            f"CREATE TABLE o{number} AS {from_orders} "
            f'WITH ("cdc" = "true", "ssl.mode" = "{mode}", "ssl.root.cert" = "{authority}")'
        )
        db.wait_until(lambda number=number: len(db.table(f"o{number}")) == 1, timeout=30)
    with refusal("source.config", "certificate"):
        db.sql(f'CREATE TABLE o AS {from_orders} WITH ("ssl.mode" = "verify-full")')
    with refusal("source.config", "certificates"):
        db.sql(f'CREATE TABLE o AS {from_orders} WITH ("ssl.mode" = "require", "ssl.root.cert" = "/nowhere")')
