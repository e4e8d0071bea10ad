from __future__ import annotations

import io
import json
import sys
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from velostream.cli.commands.sql import parameters
from velostream.cli.main import run

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


def piped(content: bytes) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(content), encoding="utf-8")


def test_statements_from_standard_input(made: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", piped(b"SELECT id FROM p WHERE id = 2;"))
    assert made("sql", "-", "--format", "csv").out == "id\n2\n"


def test_no_statement(velo: Velo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", piped(b"  "))
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


def test_a_folder_without_a_data_directory(velo: Velo, data_dir: Path) -> None:
    for statement in ("SELECT * FROM totals", "DESCRIBE totals"):
        ran = velo("sql", statement)
        assert ran.code == 1
        assert f"hint: there is no data directory {data_dir}: go to its folder, or give --data-dir" in ran.err


def test_bytes_are_text_where_they_are_text(velo: Velo) -> None:
    for form, shown in (("json", '{"a":"é","b":"X\'FF\'"}'), ("csv", "a,b\né,X'FF'")):
        ran = velo("sql", "SELECT X'C3A9' AS a, X'FF' AS b", "--format", form)
        assert ran.out.strip() == shown


def test_a_file_where_the_data_directory_should_be(velo: Velo, data_dir: Path) -> None:
    data_dir.write_text("x")
    for statement in ("SELECT 1", "CREATE TABLE t (id INT)"):
        ran = velo("sql", statement)
        assert ran.code == 2
        assert str(data_dir) in ran.err


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("7", 7),
        ("-7", -7),
        ("1.50", Decimal("1.50")),
        ("1e3", 1000.0),
        ("TRUE", True),
        ("null", None),
        ("", ""),
        ("AAPL", "AAPL"),
        ("a=b", "a=b"),
        ("'7'", "7"),
        ('"null"', "null"),
        ("007", "007"),
        ("2024-01-01", "2024-01-01"),
        ("x' OR '1'='1", "x' OR '1'='1"),
        ("٣", "٣"),
    ],
)
def test_parameters_are_typed_by_how_they_look(given: str, value: object) -> None:
    found = parameters([f"p={given}"])["p"]
    assert (type(found), found) == (type(value), value)


def test_parameters_are_bound(made: Velo) -> None:
    asked = "SELECT id, :s AS s FROM p WHERE v > :limit"
    ran = made("sql", asked, "--param", "limit=1.5", "--param", "s=x' OR '1'='1", "--format", "json")
    assert (ran.code, ran.out) == (0, '{"id":2,"s":"x\' OR \'1\'=\'1"}\n')
    ran = made("sql", "INSERT INTO p VALUES (:id, :n, NULL)", "--param", "id=3", "--param", "n=null")
    assert (ran.code, ran.err) == (0, '1 row inserted into "p"\n')


@pytest.mark.parametrize(
    ("arguments", "message", "code"),
    [
        (["SELECT :n"], "parameter :n has no value", 1),
        (["SELECT ?"], "parameter number 1 has no value", 1),
        (["SELECT 1", "--param", "n=1"], 'parameter "n" is not used', 1),
        (["SELECT :n", "--param", "n"], '--param "n" is not name=value', 2),
        (["SELECT :n", "--param", "n=1", "--param", "n=2"], '--param "n" is given twice', 2),
    ],
)
def test_parameters_that_do_not_fit(made: Velo, arguments: list[str], message: str, code: int) -> None:
    ran = made("sql", *arguments)
    assert (ran.code, ran.out) == (code, "")
    assert message in ran.err


def test_a_statement_that_the_locale_cannot_read(velo: Velo) -> None:
    ran = velo("sql", "SELECT '\udcfc'")
    assert ran.code == 2
    assert "characters that the locale" in ran.err


def test_a_terminal_that_is_not_utf8_gets_what_it_can_show(
    made: Velo, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(*arguments: str) -> bytes:
        raw = io.BytesIO()
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "ascii", errors="backslashreplace"))
        assert run(["sql", "SELECT 'ü' AS t, NULL AS n FROM p WHERE id = 1", *arguments]) == 0
        return raw.getvalue()

    assert shown() == b"t  n\n-  ----\n\\xfc  NULL\n"
    assert shown("--format", "json") == '{"t":"ü","n":null}\n'.encode()
    assert shown("--format", "csv") == "t,n\nü,\n".encode()


def test_passwords_are_not_shown_again(velo: Velo) -> None:
    made = "CREATE SOURCE s (a INT) FROM postgresql://u:s3cret@h/db?table=t WITH ('password' = 's3cret')"
    assert velo("sql", made).code == 0
    for asked in ("SHOW CREATE s", "SHOW SOURCES"):
        ran = velo("sql", asked)
        assert "s3cret" not in ran.out
        assert "postgresql://u:***@h/db?table=t" in ran.out
