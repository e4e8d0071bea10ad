from __future__ import annotations

import io
import json
import sys
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.cli.conftest import Velo

MADE = (
    "CREATE TABLE p (id INT PRIMARY KEY, name STRING, v DECIMAL(10,2));"
    "INSERT INTO p VALUES (1, 'a', 1.50), (2, NULL, 22.25)"
)


@pytest.fixture
def made(velo: Velo) -> Velo:
    ran = velo("sql", MADE)
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == 'table "p" created\n2 rows inserted into "p"\n'
    return velo


def test_a_table_for_people(made: Velo) -> None:
    ran = made("sql", "SELECT * FROM p ORDER BY id")
    assert ran.code == 0
    assert ran.out == "id  name      v\n--  ----  -----\n 1  a      1.50\n 2  ∅     22.25\n"
    assert ran.err == ""


def test_json_keeps_every_digit(made: Velo) -> None:
    ran = made("sql", "--format", "json", "SELECT * FROM p ORDER BY id")
    assert ran.out == '{"id":1,"name":"a","v":1.50}\n{"id":2,"name":null,"v":22.25}\n'


def test_csv(made: Velo) -> None:
    ran = made("sql", "--format", "csv", "SELECT * FROM p ORDER BY id")
    assert ran.out == "id,name,v\n1,a,1.50\n2,,22.25\n"


def test_arrow(made: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    class Out(io.StringIO):
        buffer = io.BytesIO()

    monkeypatch.setattr(sys, "stdout", Out())
    assert made("sql", "--format", "arrow", "SELECT * FROM p ORDER BY id").code == 0
    rows = pa.ipc.open_stream(Out.buffer.getvalue()).read_all()
    assert rows.schema.field("v").type == pa.decimal128(10, 2)
    assert rows.column("id").to_pylist() == [1, 2]


def test_statements_from_standard_input(made: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("SELECT id FROM p WHERE id = 2;"))
    assert made("sql", "-", "--format", "csv").out == "id\n2\n"


def test_no_statement(velo: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("  "))
    ran = velo("sql")
    assert ran.code == 2
    assert "there is no statement" in ran.err


def test_a_typo_shows_its_place(made: Velo) -> None:
    ran = made("sql", "SELECT nmae FROM p")
    assert ran.code == 1
    assert ran.err == (
        'error: <sql>:1:8: unknown column "nmae"\n1 | SELECT nmae FROM p\n  |        ^^^^\n'
        'hint: did you mean "name"?\n'
    )


def test_errors_as_json(made: Velo) -> None:
    ran = made("sql", "--format", "json", "INSERT INTO p VALUES (1, 'x', 1)")
    assert ran.code == 1
    assert json.loads(ran.err)["code"] == "sql.key_exists"


def test_what_only_asks_creates_nothing(velo: Velo, data_dir: Path) -> None:
    for arguments in (("tables",), ("jobs",), ("sql", "SELECT 1"), ("explain", "SELECT 1")):
        assert velo(*arguments).code == 0
    assert not data_dir.exists()


def test_describe_and_explain(made: Velo) -> None:
    ran = made("describe", "p", "--format", "csv")
    assert ran.out == 'column,type,key\nid,INT,true\nname,STRING,false\nv,"DECIMAL(10, 2)",false\n'
    ran = made("describe", "q")
    assert (ran.code, ran.out) == (1, "")
    assert "kind: merge" in made("explain", "CREATE TABLE n AS SELECT COUNT(*) AS n FROM p").out


def test_tables_and_jobs(made: Velo) -> None:
    rows = [json.loads(line) for line in made("tables", "--format", "json").out.splitlines()]
    assert {row["name"]: row["rows"] for row in rows}["p"] == 2
    ran = made("jobs")
    assert (ran.code, ran.out, ran.err) == (0, "", "no jobs yet\n")


def test_a_file_where_the_data_directory_should_be(velo: Velo, data_dir: Path) -> None:
    data_dir.write_text("x")
    for statement in ("SELECT 1", "CREATE TABLE t (id INT)"):
        ran = velo("sql", statement)
        assert ran.code == 2
        assert str(data_dir) in ran.err
