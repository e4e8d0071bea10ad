"""Files of statements on a data directory that has something already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from refusals import refusal
from velostream.runtime.instance import open_instance
from velostream.runtime.statements.application import Application

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "CREATE TABLE t (id INT PRIMARY KEY)"
VIEW = "CREATE VIEW `odd name` AS SELECT id FROM t"


def test_what_a_file_no_longer_names_is_told(tmp_path: Path) -> None:
    with open_instance(tmp_path / "data") as db:
        both = Application(db, db.check(f"{TABLE}; {VIEW};"))
        both.start()
        assert both.left_out() == []
        assert Application(db, db.check(f"{VIEW.replace('CREATE', 'CREATE OR REPLACE')};")).left_out() == [
            'table "t" is not in this file, but stays; DROP TABLE t ends it'
        ]
        (told,) = Application(db, db.check(f"{TABLE};")).left_out()
        assert told == 'view "odd name" is not in this file, but stays; DROP VIEW `odd name` ends it'


def test_a_changed_statement_is_an_error_before_anything_starts(tmp_path: Path) -> None:
    with open_instance(tmp_path / "data") as db:
        Application(db, db.check(f"{TABLE};")).start()
        changed = Application(
            db, db.check("CREATE TABLE u (id INT); CREATE TABLE t (id BIGINT PRIMARY KEY);")
        )
        with refusal("sql.changed_statement", "t"):
            changed.start()
        assert "u" not in db.store.names()
