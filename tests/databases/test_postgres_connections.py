"""Connections: named in the configuration, with secrets that are never shown, and errors by category."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import velostream
from refusals import refusal
from velostream.connectors.postgres.client.connections import Client
from velostream.connectors.postgres.options import PostgresOptions

if TYPE_CHECKING:
    from pathlib import Path

    from shops import Shop
    from tests.conftest import WaitUntil
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = [pytest.mark.spark, pytest.mark.sampled(2)]
CANARY = "cAn4ry-of-the-d4tabase"


@pytest.fixture
def user(shop: Shop) -> str:
    """A user of the test's own with as few rights as reading needs, whose password is nowhere else."""
    name = f"u_{shop.name}"
    shop.sql.execute(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD '{CANARY}'")
    shop.sql.execute(f"GRANT SELECT ON orders TO {name}")
    shop.sql.execute("CREATE PUBLICATION given FOR TABLE orders")
    return name


@pytest.fixture
def config(shop: Shop, user: str, tmp_path: Path) -> Path:
    path = tmp_path / "velostream.toml"
    path.write_text(
        f'[connections.shop]\nhost = "127.0.0.1"\nport = {shop.postgres.port}\ndatabase = "{shop.name}"\n'
        f'username = "{user}"\npassword = "${{env:SHOP_PASSWORD}}"\n'
    )
    return path


def test_a_secret_is_nowhere(
    shop: Shop, config: Path, tmp_path: Path, spark: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    told: list[str] = []
    with velostream.connect(tmp_path / "data", config=config) as db:
        db.sql(
            "CREATE TABLE orders AS SELECT * FROM postgres://shop/orders "
            'WITH ("cdc" = "true", "publication.name" = "given")'
        )
        db.wait_until(lambda: len(db.table("orders")) == 1, timeout=30)
        asked = ("SHOW JOBS", "SHOW CREATE orders", "DESCRIBE orders", "EXPLAIN SELECT * FROM orders")
        told += [str(db.sql(statement).rows()) for statement in asked]
        for uri in ("postgres://shop/nowhere", "postgres://shop/customers"):
            with pytest.raises(velostream.VelostreamError) as raised:
                db.sql(f"CREATE TABLE other AS SELECT * FROM {uri}")
            told += [str(raised.value), str(raised.value.__cause__)]
    assert not [text for text in told if CANARY in text]
    found = [
        path
        for path in (tmp_path / "data").rglob("*")
        if path.is_file() and CANARY.encode() in path.read_bytes()
    ]
    assert found == []


def test_rights_that_are_missing_are_told(
    db: Database, shop: Shop, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.sql.execute(f"ALTER ROLE {user} NOREPLICATION")
    base = f"postgresql://{user}@127.0.0.1:{shop.postgres.port}/{shop.name}"
    monkeypatch.setenv("SHOP_PASSWORD", CANARY)
    secret = '"password" = "${env:SHOP_PASSWORD}"'
    with refusal("source.auth", "customers"):
        db.sql(f"CREATE TABLE c AS SELECT * FROM {base}?table=customers WITH ({secret})")
    with refusal("source.auth", "publication") as caught:
        db.sql(f'CREATE TABLE o AS SELECT * FROM {base}?table=orders WITH ({secret}, "cdc" = "true")')
    assert "poll.interval" in str(caught.value.hint)
    with refusal("source.auth", "connect") as caught:
        db.sql(
            f"CREATE TABLE o AS SELECT * FROM {base}?table=orders "
            f'WITH ({secret}, "cdc" = "true", "publication.name" = "given")'
        )
    assert "poll.interval" in str(caught.value.hint)
    with refusal("source.auth"):
        db.sql(f'CREATE TABLE o AS SELECT * FROM {base}?table=orders WITH ("password" = "wrong")')


def test_what_cannot_be_reached(db: Database, shop: Shop) -> None:
    with refusal("source.missing", "there_is_none"):
        db.sql(f"CREATE TABLE o AS SELECT * FROM {shop.postgres.uri('there_is_none', 'orders')}")
    with refusal("source.network"):
        db.sql("CREATE TABLE o AS SELECT * FROM postgresql://u@127.0.0.1:1/db?table=orders")
    with refusal("sql.property", "table"):
        db.sql("CREATE TABLE o AS SELECT * FROM postgresql://127.0.0.1:1/db")


def test_a_schema_and_a_condition_in_the_address(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE SCHEMA other")
    shop.sql.execute("CREATE TABLE other.orders (id int PRIMARY KEY, note text)")
    shop.sql.execute("INSERT INTO other.orders SELECT n, 'it''s ' || n FROM generate_series(1, 9) n")
    shop.sql.execute("INSERT INTO orders VALUES (100, 1, 1, 'of public')")
    uri = f"{shop.uri('orders')}&schema=other"
    for name, properties in (("followed", '"cdc" = "true"'), ("polled", '"poll.interval" = "50ms"')):
        condition = "\"id < 5 OR note = 'it''s 7'\""
        db.sql(f"CREATE TABLE {name} AS SELECT * FROM {uri}&where={condition} WITH ({properties})")
        same("SELECT * FROM other.orders WHERE id < 5 OR note = 'it''s 7'", f"SELECT * FROM {name}")
    shop.sql.execute("UPDATE other.orders SET note = 'it''s 7' WHERE id = 6")
    shop.sql.execute("DELETE FROM other.orders WHERE id = 2")
    for name in ("followed", "polled"):
        same("SELECT * FROM other.orders WHERE id < 5 OR note = 'it''s 7'", f"SELECT * FROM {name}")


@pytest.mark.parametrize("query", [None, "SELECT count(*) FROM orders"])
def test_a_pooled_connection_is_validated(shop: Shop, wait_until: WaitUntil, query: str | None) -> None:
    """One that the server has ended meanwhile, as firewalls and administrators do, is not used again."""
    more = {"pool.validation.query": query} if query is not None else {}
    given = {"host": "127.0.0.1", "port": shop.postgres.port, "database": shop.name, "table": "orders"}
    user = {"username": "postgres", "password": "secret"}
    client = Client(PostgresOptions.model_validate({**given, **user, **more}))
    with client.session() as first:
        before = first.info.backend_pid
    with client.session() as again:
        assert again.info.backend_pid == before
    shop.sql.execute("SELECT pg_terminate_backend(%s)", (before,))
    there = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    wait_until(lambda: shop.sql.execute(there, (before,)).fetchone() == (0,))
    with client.session() as after:
        assert after.execute("SELECT 1").fetchone() == (1,)
        assert after.info.backend_pid != before
    client.close()


def test_a_validation_query_that_fails(shop: Shop) -> None:
    """Whatever the reason, the connection is not used again, and another one is."""
    given = {"host": "127.0.0.1", "port": shop.postgres.port, "database": shop.name, "table": "orders"}
    user = {"username": "postgres", "password": "secret", "pool.validation.query": "SELECT 1 FROM nowhere"}
    client = Client(PostgresOptions.model_validate({**given, **user}))
    with client.session() as first:
        before = first.info.backend_pid
    with client.session() as after:
        assert after.info.backend_pid != before
    client.close()


def test_a_file_is_checked_against_the_server(shop: Shop, config: Path, tmp_path: Path) -> None:
    app = tmp_path / "app.sql"
    app.write_text("CREATE TABLE t AS SELECT id, nothing FROM postgres://shop/orders;\n")
    done = subprocess.run(
        [sys.executable, "-m", "velostream", "check", str(app), "--connect", "--config", str(config)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "SHOP_PASSWORD": CANARY},
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "nothing" in done.stderr
    assert CANARY not in done.stderr + done.stdout
