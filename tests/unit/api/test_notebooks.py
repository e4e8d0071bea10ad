"""What a notebook, a prompt and completion show of the objects that users hold."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

import velostream
from refusals import refusal

if TYPE_CHECKING:
    from pathlib import Path

    from velostream import Database


@pytest.fixture
def db(tmp_path: Path):
    with velostream.connect(tmp_path / "data") as database:
        yield database


def test_the_module_shows_its_public_names() -> None:
    assert dir(velostream) == sorted(velostream.__all__)
    from velostream import Table

    assert callable(Table.get)
    script = "import velostream, sys; dir(velostream); assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_completion_proposes_the_public_names_alone(db: Database) -> None:
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    table = db.create_table("t", [{"a": 1}], key="a")
    shell = InteractiveShell.instance()
    shell.user_ns |= {"velostream": velostream, "db": db, "t": table}
    shell.Completer.use_jedi = False
    try:
        for name, held in (("velostream", velostream), ("db", db), ("t", table)):
            with provisionalcompleter():
                found = {each.text for each in shell.Completer.completions(f"{name}.", len(name) + 1)}
            assert found == {f".{each}" for each in dir(held) if not each.startswith("_")}
    finally:
        InteractiveShell.clear_instance()
    proposed = {*dir(db), *dir(table)}
    assert {"sql", "stream", "wait_until", "get", "wait_for"} <= proposed
    assert not {"commit_keyed", "commit_rows", "only_forgot", "changelog", "spec", "executor"} & proposed


def test_a_line_for_each(db: Database, tmp_path: Path) -> None:
    table = db.create_table("prices", [{"item": "a", "price": Decimal("1.50")}], key="item")
    assert repr(table) == "<Table prices: 1 row, key item, version 1>"
    assert repr(db) == f"<Database {tmp_path / 'data'}: 2 tables, 0 jobs>"
    assert repr(db.sql("SELECT item, price FROM prices")) == "<Result: 1 row of item, price>"
    assert repr(db.sql("DELETE FROM prices")) == '<Result: 1 row deleted from "prices">'
    db.close()
    assert repr(table) == "<Table: closed>"
    assert "closed" in table._repr_html_()
    assert repr(db).endswith("closed>")


def test_html(db: Database) -> None:
    hostile = "<script>alert(1)</script>"
    table = db.create_table(
        "t", [{"id": n, "text": hostile if n == 0 else None, "list": [n]} for n in range(50)], key="id"
    )
    shown = table._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown
    assert "50 rows, the first 20 shown" in shown
    assert "<td>[3]</td>" in shown
    assert shown.count("<tr>") == 21
    assert "NULL" in db.sql("SELECT text FROM t WHERE id = 1")._repr_html_()
    assert "0 rows" in db.sql("SELECT text FROM t WHERE id = -1")._repr_html_()
    assert "<th>rows</th>" in db._repr_html_()
    assert db.sql("DELETE FROM t")._repr_html_() == "<p>50 rows deleted from &quot;t&quot;</p>"


def test_waiting(db: Database) -> None:
    table = db.create_table("t", [{"id": 1, "n": 5}], key="id")
    assert table.wait_for("n > 4") is table
    assert table.wait_for(lambda t: len(t) == 1, timeout=0) is table
    assert db.wait_until(lambda: table.get(1)).n == 5
    with refusal("timeout", "t", "n > 5"):
        table.wait_for("n > 5", timeout=0.05)
    with refusal("timeout"):
        db.wait_until(lambda: False, timeout=0.05)
