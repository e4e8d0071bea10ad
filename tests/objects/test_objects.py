"""Tables over objects of a bucket: what comes, changes and goes, and what is said when nothing is read."""

from __future__ import annotations

import gzip
import json
import os
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import velostream
from object_store import SECRET
from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import WaitUntil

    from object_store import Bucket
    from velostream import Database

pytestmark = pytest.mark.spark
FAST = {"poll_interval": "100ms"}


def rows(db: Database, query: str) -> list[tuple]:
    return sorted(tuple(row) for row in db.sql(query).rows())


def test_objects_come_change_and_go(db: Database, any_bucket: Bucket, wait_until: WaitUntil):
    bucket = any_bucket
    bucket.put("in/a.csv", "id,price\n1,1.50\n2,2.25\n")
    bucket.put("in/deep/b.csv.gz", gzip.compress(b"id,price\n3,3.00\n"))
    bucket.put("in/_hidden.csv", "id,price\n9,9\n")
    bucket.put("in/notes.md", "no rows")
    db.sql(f"CREATE TABLE t AS SELECT id, price FROM {bucket.uri('in/')} WITH ({bucket.said(**FAST)})")
    db.sql("CREATE TABLE sums AS SELECT COUNT(*) AS n, SUM(price) AS total FROM t")
    wait_until(lambda: rows(db, "SELECT n, total FROM sums") == [(3, Decimal("6.75"))])
    bucket.put("in/a.csv", "id,price\n1,1.50\n2,4.25\n4,1\n")
    wait_until(
        lambda: rows(db, "SELECT * FROM t") == [(1, Decimal("1.50")), (2, Decimal("4.25")), (3, 3), (4, 1)]
    )
    bucket.delete("in/deep/b.csv.gz")
    wait_until(lambda: rows(db, "SELECT n, total FROM sums") == [(3, Decimal("6.75"))])
    bucket.put("in/c.csv", "id,price\n5,0.25\n")
    wait_until(lambda: rows(db, "SELECT n, total FROM sums") == [(4, Decimal("7.00"))])


def test_objects_that_are_written_again_within_a_second(
    db: Database, any_bucket: Bucket, wait_until: WaitUntil
):
    """Neither size nor time tells of the last one."""
    bucket = any_bucket
    bucket.put("one.csv", "id,price\n1,100\n")
    db.sql(f"CREATE TABLE t AS SELECT * FROM {bucket.uri('one.csv')} WITH ({bucket.said(**FAST)})")
    for price in range(200, 260):
        bucket.put("one.csv", f"id,price\n1,{price}\n")
    wait_until(lambda: rows(db, "SELECT price FROM t") == [(259,)])


def test_a_restart_goes_on_where_it_was(spark: object, tmp_path: Path, bucket: Bucket, wait_until: WaitUntil):
    bucket.put("in/a.jsonl", '{"id": 1}\n{"id": 2}\n')
    with velostream.connect(tmp_path / "data") as db:
        db.sql(f"CREATE TABLE t AS SELECT * FROM {bucket.uri('in/*.jsonl')} WITH ({bucket.said(**FAST)})")
        db.sql("CREATE TABLE n AS SELECT COUNT(*) AS n FROM t")
        wait_until(lambda: rows(db, "SELECT n FROM n") == [(2,)])
    bucket.put("in/b.jsonl", '{"id": 3}\n')
    bucket.delete("in/a.jsonl")
    with velostream.connect(tmp_path / "data") as db:
        wait_until(lambda: rows(db, "SELECT id FROM t") == [(3,)])
        wait_until(lambda: rows(db, "SELECT n FROM n") == [(1,)])


def test_a_store_that_goes_away(tmp_path: Path, spark: object, wait_until: WaitUntil, monkeypatch):
    from object_store import KEY, Bucket, running

    monkeypatch.setenv("STORE_KEY", KEY)
    monkeypatch.setenv("STORE_SECRET", SECRET)
    (tmp_path / "store").mkdir()
    with running(tmp_path / "store") as server, velostream.connect(tmp_path / "data") as db:
        bucket = Bucket(server, "shop")
        bucket.put("in/a.csv", "id\n1\n")
        db.sql(f"CREATE TABLE t AS SELECT * FROM {bucket.uri('in/*.csv')} WITH ({bucket.said(**FAST)})")
        wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,)])
        server.stop()
        wait_until(lambda: db.table("t").stats().health == "disconnected", 60)
        assert rows(db, "SELECT * FROM t") == [(1,)]
        server.start()
        bucket.put("in/b.csv", "id\n2\n")
        wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,), (2,)], 60)
        wait_until(lambda: db.table("t").stats().health == "healthy", 60)


def test_parquet_and_what_is_damaged(db: Database, bucket: Bucket, wait_until: WaitUntil):
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"id": [1, 2], "at": pa.array([0, 1], pa.timestamp("ms"))}), sink)
    bucket.put("in/a.parquet", sink.getvalue().to_pybytes())
    bucket.put("in/b.parquet", b"PAR1 no parquet PAR1")
    db.sql(f"CREATE TABLE t AS SELECT id FROM {bucket.uri('in/*.parquet')} WITH ({bucket.said(**FAST)})")
    wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,), (2,)])
    wait_until(lambda: len(rows(db, "SELECT partition FROM dead_letters")) == 1)
    assert rows(db, "SELECT partition FROM dead_letters") == [(bucket.uri("in/b.parquet"),)]


def test_what_is_said_when_nothing_can_be_read(db: Database, bucket: Bucket, monkeypatch):
    bucket.put("in/orders.csv", "id\n1\n")
    said = bucket.said()
    with refusal("source.missing", bucket.uri("in/order.csv"), bucket.uri("in/orders.csv")):
        db.sql(f"CREATE TABLE a AS SELECT * FROM {bucket.uri('in/order.csv')} WITH ({said})")
    with refusal("source.missing", "orders.csv", why="no object matches"):
        db.sql(f"CREATE TABLE a AS SELECT * FROM {bucket.uri('in/*.json')} WITH ({said})")
    with refusal("source.missing", "nowhere-at-all"):
        db.sql(f"CREATE TABLE a AS SELECT * FROM s3://nowhere-at-all/x/ WITH ({said})")
    with refusal("sink.missing", "nowhere-at-all"):
        db.sql(f"INSERT INTO s3://nowhere-at-all/x/ WITH ({said}) VALUES (1)")
    with refusal("source.auth"):
        monkeypatch.setenv("STORE_SECRET", "another")
        db.sql(f"CREATE TABLE a AS SELECT * FROM {bucket.uri('in/*.csv')} WITH ({said})")
    assert rows(db, "SELECT * FROM dead_letters") == []


def test_rows_are_written_once(db: Database, any_bucket: Bucket, wait_until: WaitUntil):
    bucket = any_bucket
    db.sql("CREATE TABLE orders (id INT PRIMARY KEY, price DECIMAL(9, 2))")
    db.sql("INSERT INTO orders VALUES (1, 1.50), (2, 2.25)")
    out = f"{bucket.uri('out/')} WITH ({bucket.said(format='jsonl')})"
    db.sql(f"INSERT INTO {out} SELECT * FROM orders EMIT CHANGES")

    def written() -> list[dict]:
        lines = (line for key in bucket.keys("out") for line in bucket.get(key).splitlines())
        return sorted((json.loads(line) for line in lines), key=lambda row: row["id"])

    wait_until(lambda: [row["id"] for row in written()] == [1, 2])
    db.sql("INSERT INTO orders VALUES (3, 3.00)")
    wait_until(lambda: [row["id"] for row in written()] == [1, 2, 3])


def test_hosts_that_may_not_be_reached(spark: object, tmp_path: Path, bucket: Bucket):
    config = tmp_path / "velostream.toml"
    config.write_text('allowed.hosts = ["127.0.0.2"]\n')
    bucket.put("in/a.csv", "id\n1\n")
    with velostream.connect(tmp_path / "data", config=config) as db:
        with refusal("sql.unsafe", f"127.0.0.1:{bucket.server.port}"):
            db.sql(f"CREATE TABLE a AS SELECT * FROM {bucket.uri('in/')} WITH ({bucket.said()})")
        with refusal("sql.unsafe", "elsewhere.s3.amazonaws.com"):
            db.sql("CREATE TABLE a AS SELECT * FROM s3://elsewhere/in/*.csv")


def test_no_secret_is_shown(db: Database, bucket: Bucket, tmp_path: Path, wait_until: WaitUntil):
    bucket.put("in/a.csv", "id\n1\n")
    db.sql(f"CREATE TABLE t AS SELECT * FROM {bucket.uri('in/*.csv')} WITH ({bucket.said(**FAST)})")
    wait_until(lambda: rows(db, "SELECT * FROM t") == [(1,)])
    shown = str(db.sql("SHOW CREATE t").rows()) + str(db.sql("SHOW JOBS").rows())
    shown += str(db.sql(f"EXPLAIN SELECT * FROM {bucket.uri('in/*.csv')} WITH ({bucket.said()})").rows())
    assert SECRET not in shown
    for folder, _, names in os.walk(tmp_path / "data"):
        for name in names:
            path = os.path.join(folder, name)  # noqa: PTH118
            if os.path.isfile(path):  # noqa: PTH113 - the socket is none
                with open(path, "rb") as stream:  # noqa: PTH123
                    assert SECRET.encode() not in stream.read(), path
