"""INSERT INTO a URI that is done once: which statements are, what they write, and what a second run does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.runtime.answers.explain import explain
from velostream.runtime.instance import open_instance
from velostream.runtime.statements.application import Application

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.runtime.instance import Instance


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Instance]:
    with open_instance(tmp_path / "data") as database:
        database.sql("CREATE TABLE t (id BIGINT PRIMARY KEY, name STRING)")
        database.sql("INSERT INTO t VALUES (1, 'ann'), (2, 'bob')")
        yield database


def run(database: Instance, text: str) -> list[str | None]:
    told: list[str | None] = []
    Application(database, database.check(text)).start(lambda step: told.append(step.result.message))
    return told


@pytest.mark.parametrize(
    ("rows", "once"),
    [
        ("VALUES (1)", True),
        ("SELECT 1 AS a", True),
        ("SELECT id FROM t", True),
        ("SELECT COUNT(*) AS n FROM t WINDOW TUMBLING(ts, 1m)", True),
        ("SELECT id FROM t EMIT CHANGES", False),
        ("SELECT id FROM file:///tmp/x.csv", False),
        ("SELECT t.id FROM t JOIN kafka://x k ON t.id = k.id", False),
    ],
)
def test_which_are_done_once(database: Instance, rows: str, once: bool) -> None:
    database.sql("CREATE OR REPLACE TABLE t (id BIGINT PRIMARY KEY, ts TIMESTAMP)")
    (statement,) = database.check(f"INSERT INTO kafka://x {rows}")
    assert statement.once is once
    assert ("output: kafka://x, once" in explain(statement)) is once


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ("(1, 'x'), (2, NULL)", ['{"a":1,"b":"x"}', '{"a":2,"b":null}']),
        ("(1.5, true), (-22, false)", ['{"a":1.5,"b":true}', '{"a":-22.0,"b":false}']),
        ("(NULL, NULL)", ['{"a":null,"b":null}']),
        ("(0.001, 123), (99999999999, 9223372036854775807)",
         ['{"a":0.001,"b":123}', '{"a":99999999999.000,"b":9223372036854775807}']),
        ("(DATE '2026-05-01', TIMESTAMP '2026-05-01 12:00:00')",
         ['{"a":"2026-05-01","b":"2026-05-01T12:00:00Z"}']),
        ("(1 + 1, upper('x'))", ['{"a":2,"b":"X"}']),
    ],
)  # fmt: skip
def test_values_keep_their_digits(database: Instance, out: Path, values: str, written: list[str]) -> None:
    database.sql(f"INSERT INTO file://{out} (a, b) VALUES {values}")
    assert out.read_text().splitlines() == written


def test_tables_are_written_as_they_are_now(database: Instance, out: Path) -> None:
    told = database.sql(f"INSERT INTO file://{out}(who) SELECT name FROM t WHERE id > :id", {"id": 1}).message
    assert told == f"1 record written to file://{out}; EMIT CHANGES would go on with every change"
    database.sql("INSERT INTO t VALUES (3, 'cho')")
    assert out.read_text() == '{"who":"bob"}\n'
    assert database.jobs() == []


def test_many_rows(database: Instance, out: Path) -> None:
    rows = ", ".join(f"({n}, 'x{n}', {n}.50)" for n in range(3000))
    assert database.sql(f"INSERT INTO file://{out} (a, b, c) VALUES {rows}").message == (
        f"3,000 records written to file://{out}"
    )
    assert len(out.read_text().splitlines()) == 3000


def test_names_come_from_the_target(database: Instance, out: Path) -> None:
    out.write_text('{"id":1,"name":"ann"}\n')
    database.sql(f"INSERT INTO file://{out} VALUES (2, 'bob')")
    assert out.read_text().splitlines()[1] == '{"id":2,"name":"bob"}'
    with refusal("sql", "3", "2"):
        database.sql(f"INSERT INTO file://{out} VALUES (2, 'bob', 3)")
    with refusal("sql", f"file://{out.with_name('none.jsonl')}"):
        database.sql(f"INSERT INTO file://{out.with_name('none.jsonl')} VALUES (2, 'bob', 3)")


def test_columns_need_names_of_their_own(database: Instance, out: Path) -> None:
    with refusal("sql", "id"):
        database.sql(f"INSERT INTO file://{out} SELECT id, id FROM t")
    assert not out.exists()


def test_a_file_of_statements_writes_once(database: Instance, tmp_path: Path, out: Path) -> None:
    script = f"INSERT INTO file://{out} (a) VALUES (1); INSERT INTO file://{out} (a) VALUES (1);"
    assert run(database, script) == [f"1 record written to file://{out}"] * 2
    assert run(database, script) == ["done before in this data directory"] * 2
    database.close()
    with open_instance(tmp_path / "data") as again:
        more = f"{script} INSERT INTO file://{out} (a) VALUES (2);"
        assert run(again, more)[:2] == ["done before in this data directory"] * 2
    assert out.read_text().splitlines() == ['{"a":1}', '{"a":1}', '{"a":2}']
    assert not list((tmp_path / "data" / "writes").glob("*"))


def test_what_was_written_before_a_crash_is_not_written_again(
    database: Instance, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = f"INSERT INTO file://{out} (a) VALUES (1);"

    def killed(identity: str) -> None:
        raise MemoryError

    monkeypatch.setattr(database.catalog, "mark_done", killed)
    with pytest.raises(MemoryError):
        run(database, script)
    database.close()
    with open_instance(tmp_path / "data") as again:
        assert run(again, script) == ["done before in this data directory"]
    assert out.read_text() == '{"a":1}\n'


def test_nothing_is_left_of_a_failure(database: Instance, tmp_path: Path, out: Path) -> None:
    out.mkdir()
    with refusal("sink", out):
        run(database, f"INSERT INTO file://{out} (a) VALUES (1);")
    out.rmdir()
    assert run(database, f"INSERT INTO file://{out} (a) VALUES (1);") == [f"1 record written to file://{out}"]
    assert not list((tmp_path / "data" / "tmp").glob("write-*"))
