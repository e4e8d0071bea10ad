"""Many tables, one after the other and at once: nothing is left behind, and nothing grows."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from velostream.runtime.instance import open_instance

if TYPE_CHECKING:
    from collections.abc import Callable

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


def held(database: Instance) -> dict[str, int]:
    """What this process and its Spark hold."""
    gc.collect()
    spark = database.spark()
    return {
        "threads": threading.active_count(),
        "files": len(list(Path("/proc/self/fd").iterdir())),
        "views": len(spark.catalog.listTables()),
        "cached": spark._jsc.getPersistentRDDs().size(),  # type: ignore[union-attr]
        "streams": len(spark.streams.active),
    }


def test_tables_that_come_and_go_leave_nothing(
    opened: Callable[[Path], Instance], tmp_path: Path, rounds: Callable[[int, int], int], wait_until
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,v\n" + "".join(f"{n},{n % 7}\n" for n in range(100)))
    database = opened(tmp_path / "data")
    database.sql(f"CREATE TABLE base AS SELECT * FROM file://{source}")

    def cycle() -> None:
        database.sql(f"CREATE TABLE raw AS SELECT id FROM file://{source}")
        database.sql("CREATE TABLE sums AS SELECT v, COUNT(*) AS n FROM base GROUP BY v")
        database.sql("CREATE OR REPLACE TABLE sums AS SELECT v, SUM(id) AS n FROM base GROUP BY v")
        assert database.sql("SELECT COUNT(*) FROM sums").scalar() == 7
        database.sql("DROP TABLE sums")
        database.sql("DROP TABLE raw")

    for _ in range(2):
        cycle()
    before = held(database)
    for _ in range(rounds(4, 200)):
        cycle()
    # Threads end a moment after their job. Java keeps a connection for each call into Python that it ever had
    # at the same time; one that each cycle left behind would be more than these two.
    wait_until(lambda: all(now <= before[what] + 2 for what, now in held(database).items()))
    data = tmp_path / "data"
    assert {path.name for path in (data / "tables").iterdir()} == {"base", "dead_letters"}
    assert len(list((data / "jobs").iterdir())) == 1
    assert not list((data / "tmp").glob("select-*"))


def test_many_tables_on_one_source(
    opened: Callable[[Path], Instance], tmp_path: Path, rounds: Callable[[int, int], int]
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id\n" + "".join(f"{n}\n" for n in range(1000)))
    count = rounds(3, 30)
    database = opened(tmp_path / "data")
    for number in range(count):
        database.sql(f"CREATE TABLE t{number} AS SELECT id + {number} AS id FROM file://{source}")
    with source.open("a") as out:
        out.write("".join(f"{n}\n" for n in range(1000, 2000)))
    assert database.wait_idle(120)
    for number in range(count):
        assert database.sql(f"SELECT COUNT(*), MIN(id) FROM t{number}").rows() == [(2000, number)]
    database.close()
    again = opened(tmp_path / "data")
    assert again.wait_idle(120)
    assert [again.table(f"t{number}").count() for number in range(count)] == [2000] * count


def test_many_tables_by_hand(tmp_path: Path, rounds: Callable[[int, int], int]) -> None:
    count = rounds(20, 200)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with open_instance(tmp_path / "data") as database:
        for number in range(count):
            database.create_table(f"t{number}", [{"id": number}])
        assert len(database.sql("SHOW TABLES")) == count + 1
        open_files = len(list(Path("/proc/self/fd").iterdir()))
    with open_instance(tmp_path / "data") as database:
        assert [database.table(f"t{n}").scalar("MAX(id)") for n in range(count)] == list(range(count))
    assert open_files - before < count + 20
