"""`velo test` as a user sees it: what passes, what fails, and how that is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from velostream.cli.main import run
from velostream.testing import Bench, Way, parse_cases

if TYPE_CHECKING:
    from pathlib import Path

CASES = """\
setup
  CREATE SOURCE orders (id BIGINT, who STRING) FROM test://orders;

case passes
  CREATE TABLE t AS SELECT id FROM orders;
given orders
  id
  1
expect t
  id
  1

case fails
  CREATE TABLE t AS SELECT id, who FROM orders;
given orders
  id | who
  1 | ann
  x | bob
expect t
  id | who
  1 | eve
  2 | bob

case does not say that a row is bad
  CREATE TABLE t AS SELECT id FROM orders;
given orders
  id
  x
expect t empty

case gives a column that is not there
  CREATE TABLE t AS SELECT id FROM orders;
given orders
  idd
  1

case has a mistake in its statement
  CREATE TABLE t AS
    SELECT wo FROM orders;

case expects an error that does not come
  CREATE TABLE t AS SELECT id FROM orders;
expect error something

case expects another error
  CREATE TABLE t AS SELECT wo FROM orders;
expect error something else

case fills a source that nobody reads
  CREATE TABLE t AS SELECT id FROM orders;
given order
  id
  1

case has a job that fails
  CREATE TABLE t AS SELECT 1 / id AS x FROM orders WITH ("on.error" = "fail");
given orders
  id
  0
"""


def place(text: str, column: int = 1) -> str:
    return f"orders.velotest:{CASES[: CASES.index(text)].count(chr(10)) + 1}:{column}: "


SAID = {
    "fails": (
        place("expect t\n  id | who") + 'rows of table "t" are not as expected',
        "  !  1 | eve     1 | ann",
        "  <  2 | bob        (missing)",
        "there are dead letters:",
        'id: "x" is not a BIGINT',
    ),
    "does not say that a row is bad": (
        place("case does not say") + "there are dead letters",
        "hint: if they belong to it",
    ),
    "gives a column that is not there": (
        place("given orders\n  idd") + 'test://orders has no column "idd"',
        'mean "id"?',
    ),
    "has a mistake in its statement": (
        place("    SELECT wo", 12) + "a statement failed",
        '"wo"',
        "SELECT wo FROM orders",
    ),
    "expects an error that does not come": ("an error was expected, but the statements above were accepted",),
    "expects another error": ("the error does not say: something else", "it says:", '"wo"'),
    "fills a source that nobody reads": ("no statement of the case names test://order", 'mean "orders"?'),
    "has a job that fails": ('job "t" failed', "zero"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VELOSTREAM_DATA_DIR", str(tmp_path / "data"))
    (tmp_path / "orders.velotest").write_text(CASES)
    return tmp_path


@pytest.mark.spark
def test_what_passes(spark, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", "orders.velotest", "-k", "passes"]) == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("ok  passes  (straight ")
    assert "1 case: 1 passed" in told.err
    assert not (folder / "data").exists()


@pytest.mark.spark
def test_what_fails(spark, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", "--way", "straight", "--format", "csv"]) == 1
    told = capsys.readouterr()
    assert f"9 cases: 1 passed, {len(SAID)} failed" in told.err
    reports = dict(part.split(" (straight)\n", 1) for part in told.err.split("failed  ")[1:])
    assert reports.keys() == SAID.keys()
    for case, texts in SAID.items():
        for text in texts:
            assert text in reports[case], f"{case}: {text}\n{reports[case]}"
    lines = told.out.splitlines()
    assert lines[0] == "file,line,case,way,passed,seconds,error"
    assert lines[1].startswith("orders.velotest,4,passes,straight,true,")


@pytest.mark.spark
def test_the_first_that_fails_is_the_last(spark, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["test", "-x", "--way", "spread", "--format", "json"]) == 1
    told = capsys.readouterr()
    outcomes = [json.loads(line) for line in told.out.splitlines()]
    assert [(each["case"], each["way"], each["passed"]) for each in outcomes] == [
        ("passes", "spread", True),
        ("fails", "spread", False),
    ]
    assert "7 not run" in told.err


@pytest.mark.spark
def test_a_case_that_fails_when_spread_is_told_what_that_means(spark) -> None:
    text = CASES.partition("case fails")[0].replace(
        "expect t\n  id\n  1", "expect t empty\nwatermark orders 12:05"
    )
    (case,) = parse_cases(text, "orders.velotest").cases
    with Bench() as bench:
        straight, spread = (bench.run(case, way).error for way in (Way.STRAIGHT, Way.SPREAD))
    assert straight is not None
    assert spread is not None
    assert straight.hint is None
    assert "the slowest decides" in str(spread.hint)
