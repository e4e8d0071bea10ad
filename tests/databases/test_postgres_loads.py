"""What a load reads, and how: at one snapshot, in parts, and so that it can be stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from refusals import refusal
from velostream.config import Settings
from velostream.connectors.postgres.read import load
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

if TYPE_CHECKING:
    from pathlib import Path

    from shops import Shop
    from tests.conftest import WaitUntil

    from velostream import Database
    from velostream.connectors.base import Source


def opened(shop: Shop, folder: Path, table: str = "orders", once: bool = True, **properties: str) -> Source:
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return open_source(
        SourceRef("__source_1", Uri(shop.uri(table)), given),
        Settings(data_dir=folder / "data"),
        folder / "spool",
        known=None,
        once=once,
        table=True,
        owner="job",
    )


def loaded(source: Source) -> list[dict[str, Any]]:
    end = source.latest(None)
    rows = [row for batch in source.read("changes", None, end["changes"]) for row in batch.to_pylist()]
    source.close()
    return rows


@pytest.fixture
def many(shop: Shop) -> None:
    shop.sql.execute(
        "INSERT INTO orders SELECT n, n % 7, 100, repeat('x', 500) FROM generate_series(1, 20000) n"
    )


@pytest.mark.parametrize("properties", [{}, {"transaction_isolation": "serializable"}])
def test_parts_are_read_at_one_snapshot(
    shop: Shop,
    many: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
) -> None:
    """What moves from the first pages to the last ones all the time is always there once."""
    monkeypatch.setattr(load, "LEAST_PAGES", 64)
    stop = threading.Event()

    def move() -> None:
        with shop.postgres.connect(shop.name) as other:
            for number in range(1, 1000):
                if stop.is_set():
                    return
                with other.transaction():
                    other.execute("UPDATE orders SET amount = amount - 1 WHERE id = %s", (number,))
                    other.execute("UPDATE orders SET amount = amount + 1 WHERE id = %s", (20001 - number,))

    moving = threading.Thread(target=move)
    moving.start()
    try:
        for attempt in range(5):
            source = opened(shop, tmp_path / str(attempt), parallel_readers="4", **properties)
            rows = loaded(source)
            assert sum(row["amount"] for row in rows) == 2_000_000
    finally:
        stop.set()
        moving.join()


def test_a_table_that_was_never_analysed_is_read_in_parts(
    shop: Shop, many: None, tmp_path: Path, wait_until: WaitUntil
) -> None:
    shop.sql.execute("ALTER TABLE orders SET (autovacuum_enabled = false)")
    shop.sql.execute(
        "INSERT INTO orders SELECT n, 1, 1, repeat('y', 500) FROM generate_series(30001, 50000) n"
    )
    where = "EXISTS (SELECT FROM customers)"
    source = opened(shop, tmp_path, where=where, parallel_readers="2", once=False)
    source.check()
    try:
        # Both readers wait for the lock at the same time, if there are two.
        with shop.postgres.connect(shop.name) as other, other.transaction():
            other.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
            source.latest(None)
            waiting = (
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'COPY%'"
            )
            wait_until(lambda: shop.sql.execute(waiting).fetchone() == (2,))
        wait_until(source.settled)
    finally:
        source.close()


@pytest.mark.parametrize(
    "properties", [{"cdc": "true"}, {"poll_interval": "1s"}, {}, {"order_by": "id"}], ids=str
)
def test_a_load_can_be_stopped(shop: Shop, tmp_path: Path, properties: dict[str, str]) -> None:
    """A job that waits for its first rows asks again and again, so that it can end: so does the query."""
    given = (
        dict(properties) if "cdc" in properties else {"where": "EXISTS (SELECT FROM customers)", **properties}
    )
    source = opened(shop, tmp_path, once=False, **given)
    source.check()
    with shop.postgres.connect(shop.name) as other, other.transaction():
        # A new slot waits for this transaction, and a query for its lock.
        other.execute("LOCK TABLE customers IN ACCESS EXCLUSIVE MODE")
        other.execute("INSERT INTO customers VALUES (100, 'x')")
        began = time.monotonic()
        assert source.latest(None) == {"changes": 0}
        assert not source.settled()
        source.close()
        assert time.monotonic() - began < 10


def test_descriptors_may_be_many(shop: Shop, tmp_path: Path, wait_until: WaitUntil, many_files: None) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    source = opened(shop, tmp_path, once=False, cdc="true")
    try:
        wait_until(lambda: source.latest(None) == {"changes": 1})
        shop.sql.execute("INSERT INTO orders VALUES (2, 1, 1, 'x')")
        wait_until(lambda: source.latest(None) == {"changes": 2})
    finally:
        source.close()


_FOLLOWER = """
import sys
from pathlib import Path
from velostream.config import Settings
from velostream.engine.opening.connect import open_source
from velostream.model.statements import SourceRef
from velostream.model.uri import Uri

folder = Path(sys.argv[2])
source = open_source(
    SourceRef("__source_1", Uri(sys.argv[1]), {"cdc": "true"}), Settings(data_dir=folder / "data"),
    folder / "spool", known=None, once=False, table=True, owner="job",
)

def most():
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024

have = source.latest(None)
while not source.settled():
    have = source.latest(have)
before = most()
print("loaded", flush=True)
end, rows = have, 0
while rows < 1_000_000:
    end = source.latest(have)
    if end != have:
        rows += sum(batch.num_rows for batch in source.read("changes", have["changes"], end["changes"]))
        have = end
source.commit(have)
print(most() - before, rows, flush=True)
source.close()
"""


@pytest.mark.sampled(3)
def test_a_long_transaction_needs_no_memory(shop: Shop, tmp_path: Path) -> None:
    """A million rows, 250 MB of text, in one transaction."""
    command = [sys.executable, "-c", _FOLLOWER, shop.uri("orders"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        assert follower.stdout.readline() == "loaded\n"
        shop.sql.execute(
            "INSERT INTO orders SELECT n, n, n, repeat('x', 250) FROM generate_series(1, 1000000) n"
        )
        grown, rows = map(int, follower.stdout.readline().split())
    assert rows == 1_000_000
    assert grown < 200


@pytest.mark.parametrize(
    "properties",
    [
        {"fetch_size": "7"},
        {"fetch_size": "7", "order_by": "id"},
        {"prefetch_count": "0", "parallel_readers": "3"},
        {"batch_size": "1", "limit": "2500", "order_by": "id"},
        {"transaction_isolation": "read_committed"},
        {"transaction_isolation": "read_uncommitted", "order_by": "id"},
        {"transaction_isolation": "serializable", "parallel_readers": "4"},
        {"pool_size": "1", "pool_max_idle": "0"},
        {"connection_pool_size": "2", "pool_validation_query": "SELECT 1 FROM orders LIMIT 1"},
        {"socket_timeout": "5s", "connect_timeout": "3s", "query_timeout": "1m"},
    ],
    ids=str,
)
def test_how_rows_are_read_does_not_matter(
    shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    monkeypatch.setattr(load, "LEAST_PAGES", 4)
    shop.sql.execute("INSERT INTO orders SELECT n, n, n, repeat('x', 90) FROM generate_series(1, 2500) n")
    rows = loaded(opened(shop, tmp_path, **properties))
    assert sorted(row["id"] for row in rows) == list(range(1, 2501))
    assert {row["note"] for row in rows} == {"x" * 90}


def test_a_query_takes_as_long_as_it_may(shop: Shop, tmp_path: Path) -> None:
    shop.sql.execute("INSERT INTO orders VALUES (1, 1, 1, 'x')")
    source = opened(shop, tmp_path, query_timeout="100ms", where="pg_sleep(20) IS NULL")
    with refusal("source.network", why="timeout"):
        source.latest(None)
    source.close()


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        ({"binlog.file": "x", "cdc": "true"}, "binlog.file"),
        ({"cdc.start": "latest"}, "cdc.start"),
        ({"cdc.format": "debezium"}, "cdc.format"),
        ({"initial.load": "none", "poll.interval": "1s"}, "initial.load"),
        ({"slot.name": "s"}, "slot.name"),
        ({"publication.name": "p"}, "publication.name"),
    ],
    ids=str,
)
def test_properties_that_mean_nothing_are_refused(
    db: Database, shop: Shop, properties: dict[str, str], told: str
) -> None:
    given = ", ".join(f'"{name}" = "{value}"' for name, value in properties.items())
    with refusal("sql.property", told):
        db.sql(f"CREATE TABLE t AS SELECT * FROM {shop.uri('orders')} WITH ({given})")
