"""Streaming cases on a cluster whose executors see neither the driver's memory nor its files."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from equivalence.check import create, wrong
from equivalence.queries import closed
from equivalence.worlds import WORLDS
from refusals import refusal
from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance

    Open = Callable[[Path], Instance]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
ONE_OF_EACH = {"r_filter", "k_id", "g_sums", "g_any", "g_having", "g_global", "d_counts", "j_left"}


@pytest.fixture
def opened(cluster_spark, cluster) -> Iterator[Open]:
    """Open data directories on the cluster; whatever is still open when the test ends is closed."""
    databases: list[Instance] = []

    def connect(folder: Path) -> Instance:
        databases.append(open_instance(folder, master=cluster.master, conf=dict(cluster.conf)))
        return databases[-1]

    yield connect
    for database in databases:
        database.close()


@pytest.mark.parametrize("kind", ["file", "hand"])
def test_tables_equal_the_query_from_scratch(kind, cluster_spark, opened, tmp_path, rng):
    world = WORLDS[kind](tmp_path / "world", rng)
    cases = closed(ONE_OF_EACH)
    database = opened(tmp_path / "data")
    create(database, world, cases)
    assert database.wait_idle(180), database.jobs()
    assert wrong(cluster_spark, database, world, cases) == {}
    history = [world.step(database) for _ in range(3)]
    assert database.wait_idle(180), database.jobs()
    assert wrong(cluster_spark, database, world, cases) == {}, history
    database.close()
    history += ["stopped", world.step(None)]
    database = opened(tmp_path / "data")
    assert database.wait_idle(180), database.jobs()
    assert wrong(cluster_spark, database, world, cases) == {}, history


def test_functions_bad_rows_widening_and_sinks(opened, tmp_path):
    path, out = tmp_path / "in.csv", tmp_path / "out"
    path.write_text("id,q,price\n1,5,1.50\n2,6,2.25\n")
    database = opened(tmp_path / "data")

    @database.udf
    def shout(text: str) -> str:
        return f"{text}!"

    database.sql(
        f"CREATE TABLE t AS SELECT shout(CAST(id AS STRING)) AS s, 10 / (q - 7) AS r, price FROM file://{path}"
    )
    database.sql(f"CREATE TABLE sums AS SELECT COUNT(*) AS n, SUM(price) AS p FROM file://{path}")
    for form in ("csv", "jsonl", "parquet"):
        database.sql(
            f"INSERT INTO file://{out}/x.{form} SELECT id, CAST(price AS DECIMAL(12,4)) AS p FROM file://{path}"
        )
    with path.open("a") as lines:
        lines.write("3,7,3.00\nbad\n4,8,4.125\n")
    assert database.wait_idle(180), database.jobs()
    assert {row.s for row in database.table("t").rows()} == {"1!", "2!", "4!"}
    assert [tuple(row) for row in database.table("sums").rows()] == [(4, Decimal("10.875"))]
    letters = Counter(row.job for row in database.sql("SELECT job FROM dead_letters"))
    assert (letters["t"], letters["sums"]) == (2, 1)
    assert len((out / "x.csv").read_text().splitlines()) == 5
    assert len((out / "x.jsonl").read_text().splitlines()) == 4
    assert sorted(pq.read_table(out / "x.parquet").column("id").to_pylist()) == [1, 2, 3, 4]


def test_a_table_in_delta_lake_needs_a_data_directory_that_executors_see(opened, tmp_path):
    database = opened(tmp_path / "data")
    with refusal("sql.unsupported", "Delta Lake"):
        database.sql('CREATE TABLE t (id INT) WITH ("table.storage" = "delta")')
    assert [row.name for row in database.sql("SHOW TABLES").rows()] == ["dead_letters"]
