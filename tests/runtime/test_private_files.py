"""Every file of a data directory is for its owner alone, whatever the umask says and whoever writes it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.spark


@pytest.fixture
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def loose(root: Path) -> dict[str, str]:
    """What others could get at, with its mode."""
    found = {}
    for path in (root, *root.rglob("*")):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            # Spark moves its files while we look.
            continue
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if stat.S_IMODE(mode) != wanted:
            found[str(path.relative_to(root))] = oct(stat.S_IMODE(mode))
    return found


@pytest.mark.parametrize("umask", [0o000, 0o077], indirect=True, ids=["umask 000", "umask 077"])
def test_every_file_of_the_data_directory_is_private(opened, spark, umask, tmp_path: Path, wait_until):
    (tmp_path / "orders.csv").write_text(
        "id,amount,at\n1,2.5,2024-01-01T00:00:00Z\n1,3.5,2024-01-01T00:01:00Z\n"
    )
    (tmp_path / "bad.jsonl").write_text('{"id": 1}\nno JSON\n')
    pq.write_table(pa.table({"id": [1, 2], "name": ["a", "b"]}), tmp_path / "names.parquet")
    out, data = tmp_path / "out", tmp_path / "deep" / "down" / "data"
    database = opened(data)
    # Delta's files have one umask to mind, that of Java: once will do.
    storage = "memory" if umask else "delta"
    database.sql(f"""
        CREATE TABLE by_hand (id BIGINT PRIMARY KEY, name STRING);
        INSERT INTO by_hand VALUES (1, 'one');
        CREATE TABLE totals AS SELECT id, SUM(amount) AS s FROM file://{tmp_path}/orders.csv GROUP BY id;
        CREATE TABLE joined AS SELECT t.id, t.s, h.name FROM totals t JOIN by_hand h ON t.id = h.id;
        CREATE TABLE names AS SELECT * FROM file://{tmp_path}/names.parquet;
        CREATE TABLE kept AS SELECT id, name FROM by_hand WITH ("table.storage" = "{storage}");
        CREATE TABLE windows AS SELECT id, COUNT(*) AS n FROM file://{tmp_path}/orders.csv
            WINDOW TUMBLING(at, INTERVAL '1' MINUTE) GROUP BY id WITH ("event.time.column" = "at");
        CREATE TABLE rough AS SELECT * FROM file://{tmp_path}/bad.jsonl;
        CREATE TABLE made AS SELECT * FROM datagen://trades?rows_per_second=10&rows=20;
        CREATE STREAM written AS SELECT id, amount FROM file://{tmp_path}/orders.csv
            WITH ("sink" = "file://{out}/rows.jsonl")
    """)
    wait_until(lambda: database.sql("SELECT COUNT(*) FROM kept").rows() == [(1,)], 60)
    wait_until(lambda: database.sql("SELECT COUNT(*) FROM dead_letters").rows() == [(1,)])
    wait_until(lambda: (out / "rows.jsonl").read_text().count("\n") == 2, 60)
    database.sql("UPDATE by_hand SET name = 'uno' WHERE id = 1")
    wait_until(lambda: database.sql("SELECT name FROM joined").rows() == [("uno",)], 60)
    assert not loose(data)
    database.close()
    assert not loose(data)
    assert stat.S_IMODE((out / "rows.jsonl").stat().st_mode) == 0o666 & ~umask, "a user's file is a user's"
    assert json.loads((out / "rows.jsonl").read_text().splitlines()[0])["id"] == 1
    session = Path(urlsplit(spark.conf.get("spark.sql.warehouse.dir")).path).parent
    assert (session / "logs" / "spark.log").exists()
    # The folder itself was made by the test; libraries that Java unpacks are executable for their owner.
    assert {name for name in loose(session) if not name.endswith(".so")} <= {"."}


def test_a_directory_of_an_earlier_version_is_closed_when_it_is_opened(opened, tmp_path: Path):
    data = tmp_path / "data"
    opened(data).close()
    old = data / "logs" / "old"
    old.mkdir()
    (old / "old.log").write_text("")
    for path in (data, data / "catalog.json", old, old / "old.log"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    opened(data)
    assert not loose(data)
