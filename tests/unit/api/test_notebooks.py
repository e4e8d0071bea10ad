"""What a notebook, a prompt and completion show of the objects that users hold."""

from __future__ import annotations

import pydoc
import re
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


def test_help_shows_what_users_hold() -> None:
    shown = pydoc.plain(pydoc.render_doc(velostream))
    _, _, classes = shown.partition("\nCLASSES\n")
    classes, _, functions = classes.partition("\nFUNCTIONS\n")
    functions = functions.partition("\nVERSION\n")[0]
    defined = re.findall(r"^    class (\w+)\(", classes, re.MULTILINE)
    made = re.findall(r"^    (\w+)\(", functions, re.MULTILINE)
    assert sorted([*defined, *made, "__version__"]) == sorted(velostream.__all__)
    # Neither what they are made of, nor that they are methods of something else.
    assert not {"Shortcuts", "Registry", "Instance"} & set(re.findall(r"\w+", classes + functions))
    methods = {name for name in re.findall(r"^     \|  (\w+)\(", classes, re.MULTILINE) if name[0] != "_"}
    assert {"sql", "explain", "wait_until", "create_table", "get", "changes", "df"} <= methods


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
    changes = table.changes(after=1, timeout=0)
    assert repr(changes) == "<Subscription: the changes after version 1, open>"
    assert [version for version, _ in changes] == [2]
    changes.close()
    assert repr(changes) == "<Subscription: the changes after version 2, closed>"
    assert {name for name in dir(changes) if name[0] != "_"} == {"close", "next_change", "version"}
    live = db.stream("SELECT price\nFROM prices WHERE price > 10 AND price < 20 OR item = 'a'")
    shown = "SELECT price FROM prices WHERE price > 10 AND price < 20 OR …"
    assert repr(live) == f"<Stream of {shown}: not begun>"
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


@pytest.mark.parametrize(("call", "package"), [("df", "pandas"), ("pl", "polars")])
def test_a_dataframe_without_its_package(
    db: Database, monkeypatch: pytest.MonkeyPatch, call: str, package: str
) -> None:
    rows = db.sql("SHOW TABLES")
    monkeypatch.setitem(sys.modules, package, None)
    with refusal("config", f"{call}()", package) as refused:
        getattr(rows, call)()
    assert refused.value.hint == f"pip install 'velostream[{package}]'"


def test_waiting(db: Database) -> None:
    table = db.create_table("t", [{"id": 1, "n": 5}], key="id")
    assert table.wait_for("n > 4") is table
    assert table.wait_for(lambda t: len(t) == 1, timeout=0) is table
    assert db.wait_until(lambda: table.get(1)).n == 5
    with refusal("timeout", "t", "n > 5"):
        table.wait_for("n > 5", timeout=0.05)
    with refusal("timeout"):
        db.wait_until(lambda: False, timeout=0.05)
