"""Tables filled by hand and views are replaced and altered, with what is built on them: without Spark."""

from __future__ import annotations

import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

import velostream
from refusals import refusal
from velostream.runtime.catalog import file as catalog_file
from velostream.runtime.changing import altering
from velostream.runtime.changing.claims import Claims
from velostream.runtime.changing.plan import Action, plan_of
from velostream.runtime.instance import open_instance
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Instance]:
    with open_instance(tmp_path / "data") as opened:
        opened.sql("CREATE TABLE t (a INT PRIMARY KEY, b STRING); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        opened.sql(
            "CREATE VIEW v AS SELECT t.a FROM t WHERE a > 1; CREATE VIEW w AS SELECT a + 1 AS c FROM v"
        )
        yield opened


def rows(db: Instance, query: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in db.sql(query).rows())


def again(db: Instance) -> Instance:
    db.close()
    return open_instance(db.settings.data_dir)


class TestReplacing:
    def test_what_is_built_on_it_follows(self, db: Instance) -> None:
        told = db.sql("CREATE OR REPLACE TABLE t (a BIGINT, z INT)").message
        assert told == 'table "t" replaced, and with it "v", "w"'
        db.sql("INSERT INTO t VALUES (7, 0)")
        assert rows(db, "SELECT * FROM w") == [(8,)]
        with again(db) as opened:
            assert rows(opened, "SELECT * FROM w") == [(8,)]
            assert [
                path.name for path in opened.directory.tables.iterdir() if path.name != "dead_letters"
            ] == ["t@1"]

    def test_all_of_it_is_refused_when_something_no_longer_fits(self, db: Instance) -> None:
        with refusal("sql.unknown_name", "v", "t", "a"):
            db.sql("CREATE OR REPLACE TABLE t (b STRING)")
        with refusal("sql.unknown_name", "w", "v", "a"):
            db.sql("CREATE OR REPLACE VIEW v AS SELECT b FROM t")
        assert rows(db, "SELECT * FROM w") == [(3,)]

    def test_the_plan_is_explained(self, db: Instance) -> None:
        (first, *more) = [row[0] for row in db.sql("EXPLAIN CREATE OR REPLACE TABLE t (a INT)").rows()][1:]
        assert first.startswith('replaced: table "t"; now 2 rows')
        assert more[:2] == ['rebuilt: view "v" from t', 'rebuilt: view "w" from t']
        refused = [row[0] for row in db.sql("EXPLAIN CREATE OR REPLACE TABLE t (z INT)").rows()]
        assert any(line.startswith("refused: ") and '"v"' in line for line in refused)

    def test_a_full_disk_changes_nothing(self, db: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(*_: Any, **__: Any) -> None:
            raise OSError(28, "no space left on device")

        for statement in (
            "CREATE OR REPLACE TABLE t (a INT)",
            "ALTER TABLE t RENAME TO u",
            "ALTER TABLE t ADD COLUMN n INT",
        ):
            with monkeypatch.context() as patched:
                patched.setattr(catalog_file, "replace_file", full)
                with pytest.raises(velostream.VelostreamError):
                    db.sql(statement)
            assert rows(db, "SELECT * FROM t") == [(1, "x"), (2, "y")]
            assert rows(db, "SELECT * FROM w") == [(3,)]
        with again(db) as opened:
            assert rows(opened, "SELECT * FROM w") == [(3,)]


class TestRenaming:
    def test_rows_and_what_is_built_on_it_go_along(self, db: Instance) -> None:
        held = db.table("t")
        assert db.sql("ALTER TABLE t RENAME TO `my table`").message.startswith(
            'table "t" is called "my table" now'
        )
        with refusal("closed", "t", why="renamed"):
            held.insert([(9, "z")])
        with refusal("sql.unknown_name", "t"):
            db.sql("SELECT * FROM t")
        db.sql("INSERT INTO `my table` VALUES (5, 'z')")
        assert db.table("my table").get(5).b == "z"
        assert rows(db, "SELECT * FROM w") == [(3,), (6,)]
        assert (
            db.sql("SHOW CREATE v").rows()[0][0]
            == "CREATE VIEW v AS SELECT t.a FROM `my table` AS t WHERE a > 1"
        )
        db.sql("CREATE TABLE t (other INT)")
        with again(db) as opened:
            assert rows(opened, "SELECT * FROM `my table`") == [(1, "x"), (2, "y"), (5, "z")]
            assert rows(opened, "SELECT * FROM w") == [(3,), (6,)]
            assert opened.sql("SELECT * FROM t").rows() == []
            assert all(report.good for report in opened.verify())

    def test_a_name_that_is_taken(self, db: Instance) -> None:
        with refusal("sql.duplicate_name", "v"):
            db.sql("ALTER TABLE t RENAME TO v")

    @pytest.mark.parametrize("place", ["copy_as", "publish_all", "drop"])
    def test_killed_on_the_way_it_has_one_name(
        self, db: Instance, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        import shutil

        original, moments = getattr(TableStore, place), []

        def watched(store: TableStore, *arguments: Any, **named: Any) -> Any:
            for when in ("before", "after"):
                result = original(store, *arguments, **named) if when == "after" else None
                copy = tmp_path / f"{len(moments)} {when}"
                shutil.copytree(db.directory.root, copy, ignore=shutil.ignore_patterns("socket*", "lock"))
                moments.append(copy)
            return result

        with monkeypatch.context() as patched:
            patched.setattr(TableStore, place, watched)
            db.sql("ALTER TABLE t RENAME TO u")
        db.close()
        assert moments
        for copy in moments:
            with open_instance(copy) as opened:
                (name,) = {"t", "u"} & set(opened.store.names())
                opened.sql(f"INSERT INTO {name} VALUES (3, 'z')")
                assert rows(opened, "SELECT * FROM w") == [(3,), (4,)]
                folders = {path.name for path in opened.directory.tables.iterdir()}
                assert folders == {"dead_letters", name}


class TestColumns:
    def test_old_rows_have_the_default(self, db: Instance) -> None:
        db.sql("ALTER TABLE t ADD COLUMN n DECIMAL(10,2) DEFAULT 1.5")
        db.sql("ALTER TABLE t ADD COLUMN at TIMESTAMP DEFAULT TIMESTAMP '2026-01-01 00:00:00'")
        db.sql("ALTER TABLE t ADD COLUMN born DATE DEFAULT DATE '2000-01-01'")
        db.sql("ALTER TABLE t ADD COLUMN empty DOUBLE")
        db.sql("INSERT INTO t (a) VALUES (3); INSERT INTO t VALUES (4, 'z', NULL, NULL, NULL, 0.5)")
        noon, day = datetime(2026, 1, 1, tzinfo=UTC), date(2000, 1, 1)
        expected = [
            (1, "x", Decimal("1.50"), noon, day, None),
            (2, "y", Decimal("1.50"), noon, day, None),
            (3, None, Decimal("1.50"), noon, day, None),
            (4, "z", None, None, None, 0.5),
        ]
        assert rows(db, "SELECT * FROM t") == expected
        assert db.table("t").get(1).n == Decimal("1.50")
        db.table("t").insert([{"a": 5}])
        assert db.table("t").get(5).born == day
        with again(db) as opened:
            assert rows(opened, "SELECT * FROM t WHERE a < 5") == expected
            opened.table("t").checkpoint()
            opened.sql("UPDATE t SET n = 2 WHERE a = 1; DELETE FROM t WHERE a = 2")
            with again(opened) as third:
                assert third.table("t").get(1).n == Decimal("2.00")
                assert len(third.table("t")) == 4

    def test_what_cannot_be(self, db: Instance) -> None:
        with refusal("sql.type", "n", "INT"):
            db.sql("ALTER TABLE t ADD COLUMN n INT DEFAULT 'x'")
        with refusal("sql.duplicate_name", "t", "b"):
            db.sql("ALTER TABLE t ADD COLUMN b INT")
        assert "already" in db.sql("ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT").message
        with refusal("sql.unsupported", "t", "retention"):
            db.sql("ALTER TABLE t SET ('retention' = '1d')")
        assert rows(db, "SELECT * FROM t") == [(1, "x"), (2, "y")]

    def test_killed_between_catalogue_and_table(self, db: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(altering, "fit", lambda *_: None)
            db.sql("ALTER TABLE t ADD COLUMN n INT DEFAULT 7")
        with again(db) as opened:
            assert rows(opened, "SELECT * FROM t") == [(1, "x", 7), (2, "y", 7)]
            opened.sql("INSERT INTO t VALUES (3, 'z', 0)")


def test_what_follows_an_alter_names_things_as_they_are_by_then(db: Instance) -> None:
    db.sql(
        "ALTER TABLE t ADD COLUMN n INT; INSERT INTO t VALUES (3, 'z', 1);\n"
        "ALTER TABLE t RENAME TO u; UPDATE u SET n = 2 WHERE a = 1; CREATE VIEW x AS SELECT n FROM u;"
    )
    assert sorted(db.sql("SELECT * FROM x WHERE n IS NOT NULL").rows()) == [(1,), (2,)]
    with refusal("sql.unknown_name", "nope", at="nope") as caught:
        db.sql("ALTER TABLE u ADD COLUMN m INT;\n SELECT nope FROM u")
    assert str(caught.value.location).endswith("2:9")
    with refusal("sql.syntax", "FORM"):
        db.sql("ALTER TABLE u RENAME TO t; SELECT a FORM t x y z")
    assert "u" in db.store.names()


def test_truncate(db: Instance) -> None:
    assert db.sql("TRUNCATE TABLE t").message == '2 rows deleted from "t"'
    assert rows(db, "SELECT * FROM w") == []
    assert db.sql("TRUNCATE t").message == '0 rows deleted from "t"'
    with again(db) as opened:
        assert len(opened.table("t")) == 0


def test_defaults_of_a_new_table(db: Instance) -> None:
    db.sql("CREATE TABLE d (a INT, b STRING DEFAULT 'it''s', c BOOLEAN DEFAULT TRUE, e INT DEFAULT -1)")
    db.sql("INSERT INTO d (a) VALUES (1)")
    db.sql("INSERT INTO d (a, b) SELECT a, b FROM t WHERE a = 2")
    assert rows(db, "SELECT * FROM d") == [(1, "it's", True, -1), (2, "y", True, -1)]


def test_a_file_is_planned_without_changing_anything(db: Instance) -> None:
    def planned(text: str) -> list[tuple[str, str]]:
        before = db.directory.catalog.read_bytes()
        steps = plan_of(db.catalog, db.store, db.check(text))
        assert db.directory.catalog.read_bytes() == before
        return [(str(step.action), step.name) for step in steps]

    same = "CREATE TABLE t (a INT PRIMARY KEY, b STRING); CREATE VIEW v AS SELECT t.a FROM t WHERE a > 1;"
    assert planned(same) == [("unchanged", "t"), ("unchanged", "v"), ("stays", "w")]
    changed = "CREATE OR REPLACE TABLE t (a INT); CREATE VIEW x AS SELECT a FROM t; INSERT INTO t VALUES (1);"
    assert planned(changed) == [
        ("replace", "t"),
        ("rebuild", "v"),
        ("rebuild", "w"),
        ("create", "x"),
        ("run", "t"),
    ]
    both = "CREATE OR REPLACE TABLE t (z INT); CREATE OR REPLACE VIEW v AS SELECT z AS a FROM t;"
    assert planned(both) == [("replace", "t"), ("replace", "v"), ("rebuild", "w")]
    assert planned("CREATE TABLE t (z INT);")[0] == ("refuse", "t")
    assert planned("CREATE OR REPLACE TABLE t (z INT);")[0] == ("refuse", "t")
    assert not Action.STAYS.changes


def test_a_file_replaces_what_it_changes_together(db: Instance) -> None:
    from velostream.runtime.statements.application import Application

    text = "CREATE OR REPLACE TABLE t (z INT); CREATE OR REPLACE VIEW v AS SELECT z AS a FROM t;"
    told = []
    Application(db, db.check(text)).start(lambda step: told.append(step.result.message))
    assert told == ['table "t" replaced, and with it "v", "w"', '"v" is known']
    db.sql("INSERT INTO t VALUES (1)")
    assert rows(db, "SELECT * FROM w") == [(2,)]
    with refusal("sql.unsupported", "ALTER"):
        Application(db, db.check("ALTER TABLE t RENAME TO u")).start()


def test_two_statements_do_not_change_the_same() -> None:
    claims, inside, leave = Claims(), threading.Event(), threading.Event()

    def change() -> None:
        with claims.changing(["t", "d"], None):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=change)
    thread.start()
    assert inside.wait(30)
    with refusal("sql.duplicate_name", "d"), claims.changing(["D"], None):
        pass
    with refusal("sql.duplicate_name", "t"), claims.making("x", ["T"], None):
        pass
    with refusal("sql.duplicate_name", "t"), claims.making("t", [], None):
        pass
    leave.set()
    thread.join()
    with claims.making("x", ["t"], None), refusal("sql.duplicate_name", "t"), claims.changing(["t"], None):
        pass
    with claims.making("t", [], None), claims.making("x", ["t"], None), claims.changing(["d"], None):
        pass
