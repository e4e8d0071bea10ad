"""Slots and publications on the server: what they hold back, whose they are, and that none is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from ways import way_to

import velostream
from database_servers import running
from refusals import refusal
from velostream.connectors.postgres.read import changes, following

if TYPE_CHECKING:
    from pathlib import Path

    from shops import Shop
    from tests.conftest import WaitUntil
    from tests.databases.conftest import Same

    from velostream import Database

pytestmark = pytest.mark.spark
SLOTS = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a megabyte were much WAL, looked at often."""
    monkeypatch.setattr(changes, "HELD_BACK_BYTES", 1 << 20)
    monkeypatch.setattr(changes, "LOOK_EVERY", 0.2)


def test_a_slot_that_holds_back_wal_is_warned_of(
    db: Database,
    shop: Shop,
    same: Same,
    few_bytes: None,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When it is opened, and while it is read; neither ends the job."""

    def warned() -> bool:
        return any("holds back" in message and "WAL" in message for message in caplog.messages)

    shop.follow(db)
    same()
    # A transaction that stays open holds back everything after it.
    with shop.postgres.connect(shop.name) as other, other.transaction():
        other.execute("INSERT INTO customers VALUES (77, 'slow')")
        shop.sql.execute(
            "INSERT INTO orders SELECT n, n, n, repeat('x', 200) FROM generate_series(1, 20000) n"
        )
        wait_until(warned)
        db.sql("PAUSE JOB orders")
        caplog.clear()
        db.sql("RESUME JOB orders")
        wait_until(warned)
        same()
    assert db.job("orders").state == "running"


def slots(shop: Shop) -> set[str]:
    return {name for (name,) in shop.rows(SLOTS)}


def publications(shop: Shop) -> set[str]:
    return {name for (name,) in shop.rows("SELECT pubname FROM pg_publication")}


def test_names_that_are_given_and_missing_are_made_and_removed(db: Database, shop: Shop, same: Same) -> None:
    """What was there before stays; also after the slot was lost, and made again."""
    shop.follow(db, properties='"cdc" = "true", "slot.name" = "given", "publication.name" = "given_too"')
    same()
    assert (slots(shop), publications(shop)) == ({"given"}, {"given_too"})
    db.sql("DROP TABLE orders")
    assert (slots(shop), publications(shop)) == (set(), set())
    shop.sql.execute("CREATE PUBLICATION mine FOR TABLE orders")
    shop.follow(db, properties='"cdc" = "true", "slot.name" = "given", "publication.name" = "mine"')
    same()
    db.sql("DROP TABLE orders")
    assert (slots(shop), publications(shop)) == (set(), {"mine"})


def test_a_slot_from_before_its_publication_is_refused(db: Database, shop: Shop) -> None:
    """Its changes can never be read, so nothing is loaded again and again."""
    shop.sql.execute("SELECT pg_create_logical_replication_slot('early', 'pgoutput')")
    with refusal("source.config", "early"):
        shop.follow(db, properties='"cdc" = "true", "slot.name" = "early"')
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'before the publication')")
    shop.sql.execute("CREATE PUBLICATION late FOR TABLE orders")
    given = '"cdc" = "true", "slot.name" = "early", "publication.name" = "late", "initial.load" = "none"'
    with refusal("source.config", "early"):
        db.sql(f"CREATE TABLE orders AS SELECT * FROM {shop.uri('orders')} WITH ({given})")
        db.wait_until(lambda: db.job("orders").state != "running", timeout=30)
        raise db.job("orders").error
    assert slots(shop) == {"early"}


def test_a_slot_with_changes_of_older_columns(db: Database, shop: Shop, same: Same) -> None:
    shop.sql.execute("CREATE PUBLICATION mine FOR TABLE orders")
    shop.sql.execute("SELECT pg_create_logical_replication_slot('own', 'pgoutput')")
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.sql.execute(
        "ALTER TABLE orders ADD city text DEFAULT 'Rome', ALTER customer TYPE bigint, ADD gone int"
    )
    shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'y', 'Bonn', 1)")
    shop.sql.execute("ALTER TABLE orders DROP gone")
    shop.sql.execute("INSERT INTO orders VALUES (3, 3, 3, 'z', 'Oslo')")
    own = '"cdc" = "true", "slot.name" = "own", "publication.name" = "mine"'
    shop.follow(db, properties=own)
    same()
    shop.sql.execute("UPDATE orders SET city = 'Lima' WHERE id = 1")
    same()
    db.sql("DROP TABLE orders")
    shop.sql.execute("SELECT pg_drop_replication_slot('own')")


def test_a_slot_that_has_gone_on_without_us(
    db: Database, shop: Shop, same: Same, caplog: pytest.LogCaptureFixture, wait_until: WaitUntil
) -> None:
    """As after the data directory was put back from a copy: the server would go on without a word."""
    shop.sql.execute("CREATE PUBLICATION mine FOR TABLE orders")
    shop.sql.execute("SELECT pg_create_logical_replication_slot('own', 'pgoutput')")
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db, properties='"cdc" = "true", "slot.name" = "own", "publication.name" = "mine"')
    same()
    db.sql("PAUSE JOB orders")
    shop.sql.execute("UPDATE orders SET note = 'missed'")
    active = "SELECT active FROM pg_replication_slots WHERE slot_name = 'own'"
    wait_until(lambda: shop.sql.execute(active).fetchone() == (False,))
    shop.sql.execute("SELECT pg_replication_slot_advance('own', pg_current_wal_lsn())")
    db.sql("RESUME JOB orders")
    same()
    assert any("gone on" in message for message in caplog.messages)


def test_wal_of_other_tables_does_not_look_like_a_gap(
    db: Database,
    shop: Shop,
    same: Same,
    wait_until: WaitUntil,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(following, "IDLE_EVERY", 0.1)
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    shop.follow(db)
    same()
    behind = (
        "SELECT pg_current_wal_lsn() - confirmed_flush_lsn FROM pg_replication_slots "
        "WHERE database = current_database()"
    )
    shop.sql.execute("INSERT INTO customers SELECT n, 'x' FROM generate_series(100, 5000) n")
    wait_until(lambda: shop.sql.execute(behind).fetchone()[0] < 1000)
    for _ in range(2):
        db.sql("PAUSE JOB orders")
        shop.sql.execute("UPDATE customers SET city = 'y'")
        shop.sql.execute("UPDATE orders SET note = note || 'y'")
        db.sql("RESUME JOB orders")
        same()
    assert not [message for message in caplog.messages if "read again" in message]


def test_a_server_that_falls_silent_is_given_up(
    db: Database, shop: Shop, same: Same, wait_until: WaitUntil, caplog: pytest.LogCaptureFixture
) -> None:
    """A server whose answers are lost does not keep its table from being followed on another connection."""
    shop.sql.execute(f"ALTER DATABASE {shop.name} SET wal_sender_timeout = '3s'")
    with way_to(shop.postgres.port) as way:
        uri = shop.uri("orders").replace(f":{shop.postgres.port}/", f":{way.port}/")
        db.sql(f'CREATE TABLE orders AS SELECT * FROM {uri} WITH ("cdc" = "true", "ssl.mode" = "disable")')
        shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
        same()
        way.silent.set()
        shop.sql.execute("INSERT INTO orders VALUES (2, 2, 2, 'untold')")
        wait_until(lambda: any("silent" in message for message in caplog.messages))
        way.silent.clear()
        same()


def test_what_is_left_behind_is_removed_later(
    shop: Shop, spark: object, tmp_path: Path, wait_until: WaitUntil
) -> None:
    """A server that is away when its table is dropped is told at the next opening; so after a crash."""
    with running() as server:
        with server.connect() as admin:
            admin.execute("CREATE TABLE orders (id int PRIMARY KEY)")
        asked = "SELECT (SELECT count(*) FROM pg_replication_slots), (SELECT count(*) FROM pg_publication)"
        with velostream.connect(tmp_path / "data") as db:
            uri = server.uri("postgres", "orders")
            db.sql(f'CREATE TABLE orders AS SELECT * FROM {uri} WITH ("cdc" = "true")')
            with server.connect() as admin:
                assert admin.execute(asked).fetchone() == (1, 1)
            server.stop()
            db.sql("DROP TABLE orders")
        # Still away.
        velostream.connect(tmp_path / "data").close()
        server.start()
        with velostream.connect(tmp_path / "data"), server.connect() as admin:
            wait_until(lambda: admin.execute(asked).fetchone() == (0, 0))
        found = [
            path
            for path in (tmp_path / "data").rglob("*")
            if path.is_file() and b":secret@" in path.read_bytes()
        ]
        assert {path.name for path in found} <= {"secrets.json", "secrets.copy.json"}
        with velostream.connect(tmp_path / "data"):
            assert not list((tmp_path / "data" / "jobs").iterdir())
