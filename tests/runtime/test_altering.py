"""ALTER TABLE and TRUNCATE of tables that others are maintained from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from moments import Moments

from refusals import refusal
from velostream.runtime.catalog import file as catalog_file
from velostream.runtime.instance import open_instance
from velostream.runtime.statements.executor import Executor
from velostream.serving.memory.table import MemoryTable
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
QUICK = "WITH ('file.debounce' = '20ms')"


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.csv"
    path.write_text("id,g,v\n1,a,10\n2,b,20\n")
    return path


@pytest.fixture
def database(spark, tmp_path: Path) -> Iterator[Instance]:
    with open_instance(tmp_path / "data") as database:
        yield database


def rows(database: Instance, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in database.table(name).rows())


def append(path: Path, text: str) -> None:
    with path.open("a") as out:
        out.write(text)


HAND = """
CREATE TABLE hand (id INT PRIMARY KEY, g STRING);
INSERT INTO hand VALUES (1, 'a'), (2, 'b'), (3, 'a');
CREATE TABLE copy AS SELECT * FROM hand;
CREATE TABLE counts AS SELECT hand.g, COUNT(*) AS n FROM hand GROUP BY hand.g;
CREATE TABLE joined AS SELECT copy.id, counts.n FROM copy JOIN counts ON copy.g = counts.g;
"""


def test_truncate_flows_through_what_is_built_on_it(database):
    database.sql(HAND)
    assert database.sql("TRUNCATE TABLE hand").message == '3 rows deleted from "hand"'
    assert database.wait_idle(60)
    assert [rows(database, name) for name in ("copy", "counts", "joined")] == [[], [], []]
    database.sql("INSERT INTO hand VALUES (4, 'c')")
    assert database.wait_idle(60)
    assert rows(database, "joined") == [(4, 1)]
    with refusal("table", "copy", at="copy"):
        database.sql("TRUNCATE copy")


def test_a_column_is_added_and_what_is_built_on_it_keeps_its_columns(database, tmp_path, opened):
    database.sql(HAND)
    assert database.wait_idle(60)
    database.sql("ALTER TABLE hand ADD COLUMN n INT DEFAULT 7")
    database.sql("INSERT INTO hand VALUES (4, 'b', 8); UPDATE hand SET n = 9 WHERE id = 1")
    database.sql("CREATE TABLE later AS SELECT * FROM hand")
    assert database.wait_idle(60)

    def check(database: Instance) -> None:
        assert rows(database, "copy") == [(1, "a"), (2, "b"), (3, "a"), (4, "b")]
        assert rows(database, "counts") == [("a", 2), ("b", 2)]
        assert rows(database, "joined") == [(1, 2), (2, 2), (3, 2), (4, 2)]
        assert rows(database, "later") == [(1, "a", 9), (2, "b", 7), (3, "a", 7), (4, "b", 8)]

    check(database)
    database.close()
    again = opened(tmp_path / "data")
    assert again.wait_idle(60)
    check(again)
    again.sql("DELETE FROM hand WHERE id = 4; UPDATE hand SET g = 'b' WHERE id = 1")
    assert again.wait_idle(60)
    assert rows(again, "copy") == [(1, "b"), (2, "b"), (3, "a")]
    assert rows(again, "joined") == [(1, 2), (2, 2), (3, 1)]


def test_killed_while_a_column_is_added(database, tmp_path, opened, monkeypatch):
    database.sql(HAND)
    assert database.wait_idle(60)
    moments = Moments(database.directory.root, tmp_path / "copies")
    with monkeypatch.context() as patched:
        moments.around(patched, catalog_file, "replace_file")
        moments.around(patched, MemoryTable, "evolve")
        database.sql("ALTER TABLE hand ADD COLUMN n INT DEFAULT 7")
    database.close()
    assert len(moments.names) >= 4
    for name in moments.names:
        again = opened(tmp_path / "copies" / name)
        wide = len(again.table("hand").spec.visible) == 3
        again.sql(f"INSERT INTO hand VALUES (4, 'b'{', 8' if wide else ''})")
        assert again.wait_idle(60)
        assert rows(again, "copy") == [(1, "a"), (2, "b"), (3, "a"), (4, "b")], name
        if wide:
            assert [row[2] for row in rows(again, "hand")] == [7, 7, 7, 8], name
        again.close()


def test_a_table_is_renamed_with_what_is_built_on_it(database, numbers, tmp_path, opened):
    database.sql(f"CREATE TABLE t AS SELECT id, g, v FROM file://{numbers} {QUICK}")
    database.sql("CREATE TABLE sums AS SELECT t.g, SUM(t.v) AS s FROM t GROUP BY t.g")
    database.sql("CREATE TABLE top AS SELECT t.id, sums.s FROM t JOIN sums ON t.g = sums.g")
    assert database.wait_idle(60)
    told = database.sql("ALTER TABLE t RENAME TO orders").message
    assert told == 'table "t" is called "orders" now; built anew on it: sums, top'
    append(numbers, "3,a,5\n")
    assert database.wait_idle(60)

    def check(database: Instance) -> None:
        assert rows(database, "orders") == [(1, "a", 10), (2, "b", 20), (3, "a", 5)]
        assert rows(database, "sums") == [("a", 15), ("b", 20)]
        assert rows(database, "top") == [(1, 15), (2, 20), (3, 15)]
        assert {job.name for job in database.jobs()} == {"orders", "sums", "top"}
        folders = {path.name.partition("@")[0] for path in database.directory.tables.iterdir()}
        assert folders == {"dead_letters", "orders", "sums", "top"}
        assert len(list((database.directory.root / "jobs").iterdir())) == 3

    check(database)
    assert "FROM orders AS t" in database.sql("SHOW CREATE sums").rows()[0][0]
    database.close()
    again = opened(tmp_path / "data")
    assert again.wait_idle(60)
    check(again)
    append(numbers, "4,b,1\n")
    assert again.wait_idle(60)
    assert rows(again, "sums") == [("a", 15), ("b", 21)]


def test_killed_while_it_is_renamed(database, numbers, tmp_path, opened, monkeypatch):
    database.sql(f"CREATE TABLE t AS SELECT id, g, v FROM file://{numbers} {QUICK}")
    database.sql("CREATE TABLE sums AS SELECT g, SUM(v) AS s FROM t GROUP BY g")
    assert database.wait_idle(60)
    moments = Moments(database.directory.root, tmp_path / "copies")
    with monkeypatch.context() as patched:
        moments.around(patched, catalog_file, "replace_file")
        moments.around(patched, TableStore, "copy_as")
        moments.around(patched, TableStore, "publish_all")
        moments.around(patched, TableStore, "drop")
        moments.around(patched, Executor, "await_loaded")
        database.sql("ALTER TABLE t RENAME TO u")
    database.close()
    append(numbers, "3,a,5\n")
    found = []
    for name in moments.names:
        again = opened(tmp_path / "copies" / name)
        assert again.wait_idle(60)
        (table,) = {"t", "u"} & set(again.store.names())
        assert rows(again, table) == [(1, "a", 10), (2, "b", 20), (3, "a", 5)], name
        assert rows(again, "sums") == [("a", 15), ("b", 20)], name
        assert len(list(again.directory.tables.iterdir())) == 3, name
        again.close()
        found.append(table)
    assert found == sorted(found)
    assert set(found) == {"t", "u"}


def test_what_reads_a_source_or_writes_to_a_sink_is_not_built_anew(database, numbers, tmp_path):
    database.sql("CREATE TABLE hand (g STRING PRIMARY KEY, x INT); INSERT INTO hand VALUES ('a', 1)")
    database.sql(
        f"CREATE TABLE j AS SELECT n.id, hand.x FROM file://{numbers} {QUICK} n JOIN hand ON n.g = hand.g"
    )
    with refusal("sql.unsupported", "j", "hand"):
        database.sql("ALTER TABLE hand RENAME TO other")
    database.sql("DROP TABLE j")
    database.sql(f"CREATE STREAM s AS SELECT g FROM hand WITH ('sink' = 'file://{tmp_path}/out.jsonl')")
    with refusal("sql.duplicate_name", "s", "hand"):
        database.sql("ALTER TABLE hand RENAME TO other")
    assert rows(database, "hand") == [("a", 1)]


def test_properties_that_say_how_rows_are_processed(database, numbers, tmp_path, opened):
    database.sql(f"CREATE TABLE t AS SELECT id, 10 / v AS q FROM file://{numbers} {QUICK}")
    assert database.wait_idle(60)
    message = database.sql("ALTER TABLE t SET ('on.error' = 'skip', 'max.rows.per.batch' = '5')").message
    assert message == 'on.error, max.rows.per.batch of table "t" changed'
    assert "already" in database.sql("ALTER TABLE t SET ('on.error' = 'skip')").message
    append(numbers, "3,a,0\n4,a,5\n")
    assert database.wait_idle(60)
    assert [row[0] for row in rows(database, "t")] == [1, 2, 4]
    assert database.sql("SELECT COUNT(*) FROM dead_letters").rows() == [(0,)]
    for name, value in (("retention", "1d"), ("key", "id"), ("table.storage", "delta"), ("grace", "1s")):
        with refusal("sql.unsupported", name, "t"):
            database.sql(f"ALTER TABLE t SET ('{name}' = '{value}')")
    with refusal("sql.unknown_name", "on.eror"):
        database.sql("ALTER TABLE t SET ('on.eror' = 'skip')")
    with refusal("sql.property", "on.error"):
        database.sql("ALTER TABLE t SET ('on.error' = 'panic')")
    database.close()
    again = opened(tmp_path / "data")
    append(numbers, "5,a,0\n6,a,1\n")
    assert again.wait_idle(60)
    assert [row[0] for row in rows(again, "t")] == [1, 2, 4, 6]
    assert again.sql("SELECT COUNT(*) FROM dead_letters").rows() == [(0,)]


def test_materialized_views(database, numbers):
    database.sql(f"CREATE MATERIALIZED VIEW t AS SELECT id, g FROM file://{numbers} {QUICK}")
    database.sql("CREATE TABLE hand (a INT)")
    assert [row.name for row in database.sql("SHOW MATERIALIZED VIEWS").rows()] == ["t"]
    assert database.sql(
        "CREATE MATERIALIZED VIEW IF NOT EXISTS t AS SELECT 1 AS x FROM hand"
    ).message.endswith("already")
    database.sql(f"CREATE OR REPLACE MATERIALIZED VIEW t AS SELECT g FROM file://{numbers} {QUICK}")
    assert rows(database, "t") == [("a",), ("b",)]
    database.sql("DROP MATERIALIZED VIEW t")
    assert database.jobs() == []
