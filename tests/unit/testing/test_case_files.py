"""Case files: what they say, and what is said of those that cannot be read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from velostream.testing import cases as model
from velostream.testing import parse_cases

if TYPE_CHECKING:
    from pathlib import Path

ORDERS = """\
# Orders, and what comes of them.
setup
  CREATE SOURCE orders (id BIGINT, who STRING) FROM test://orders;

case rows pass   through
  CREATE TABLE t AS
    SELECT * FROM orders;

given orders partition 2
    id | who
     1 | ann
  -  2 | 'a | ''b'''
  +  3 | null
  # a comment
  -4 | -x
watermark orders 12:00:05
wait 1h30m
restart
end orders
expect t
  id
expect changes in t
    id | who
  -  1 | ann
expect no changes in t
expect t empty
expect nothing written to out
expect dead letters
  divide by zero
expect no dead letters
run
  DROP TABLE t;
expect error not found
  hint
expect error in t zero
"""


def only(text: str) -> model.Case:
    parsed = parse_cases(text, "orders.velotest")
    assert [str(error) for error in parsed.errors] == []
    (case,) = parsed.cases
    return case


def test_a_case_is_its_name_and_its_steps():
    case = only(ORDERS)
    assert case.name == "rows pass through"
    assert str(case) == "orders.velotest:5: rows pass through"
    assert [type(step) for step in case.steps] == [
        *(model.Run, model.Run, model.Given, model.Advance, model.Wait, model.Restart, model.End),
        *(model.ExpectRows, model.ExpectChanges, model.ExpectChanges, model.ExpectRows, model.ExpectWritten),
        *(model.ExpectDeadLetters, model.ExpectDeadLetters, model.Run, model.ExpectError, model.ExpectError),
    ]
    assert case.sources == {"orders"}


def test_statements_keep_their_lines():
    run = only(ORDERS).steps[1]
    assert isinstance(run, model.Run)
    lines = run.sql.split("\n")
    assert lines[5] == "  CREATE TABLE t AS"
    assert not any(lines[:5])


def test_rows_are_cells_and_a_sign():
    given = next(step for step in only(ORDERS).steps if isinstance(step, model.Given))
    assert (given.source, given.partition, given.rows.columns) == ("orders", 2, ("id", "who"))
    assert [(line.sign, line.cells) for line in given.rows.lines] == [
        ("+", ("1", "ann")),
        ("-", ("2", "a | 'b'")),
        ("+", ("3", None)),
        ("+", ("-4", "-x")),
    ]


def test_times_and_durations():
    steps = only(ORDERS).steps
    assert [step.to for step in steps if isinstance(step, model.Advance)] == [
        datetime(2026, 1, 1, 12, 0, 5, tzinfo=UTC)
    ]
    assert [step.duration for step in steps if isinstance(step, model.Wait)] == [timedelta(minutes=90)]


def test_expectations():
    steps = only(ORDERS).steps
    first, empty = [step for step in steps if isinstance(step, model.ExpectRows)]
    assert first.rows is not None
    assert (first.rows.columns, first.rows.lines) == (("id",), ())
    assert empty.rows is None
    refused, failed = [step for step in steps if isinstance(step, model.ExpectError)]
    assert (refused.job, refused.texts) == (None, ("not found", "hint"))
    assert (failed.job, failed.texts) == ("t", ("zero",))


def test_included_files_are_statements(tmp_path: Path):
    (tmp_path / "app.sql").write_text("CREATE TABLE t AS SELECT 1;")
    parsed = parse_cases("case c\ninclude app.sql\n", "c.velotest", tmp_path)
    (run,) = parsed.cases[0].steps
    assert isinstance(run, model.Run)
    assert (run.sql, run.name) == ("CREATE TABLE t AS SELECT 1;", str(tmp_path / "app.sql"))


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("given orders\n  id\n  1\n", 1, "before any case"),
        ("  SELECT 1;\n", 1, "before any case"),
        ("case a\n  SELECT 1;\nexpct t\n  id\n", 3, 'did you mean "expect"?'),
        ("case a\nSELECT 1;\n", 2, "SQL is indented"),
        ("case a\n", 1, "has no steps"),
        ("case\n  SELECT 1;\n", 1, "write case NAME"),
        ("case a\nrun\n", 2, "no statements below"),
        ("case a\ngiven\n  id\n", 2, "write given SOURCE [partition N]"),
        ("case a\ngiven s\n", 2, "no rows below"),
        ("case a\ngiven s\n  id | x\n  1\n", 4, "1 cells stand below 2 columns"),
        ("case a\ngiven s\n  id | x\n  1 | \n", 4, "cell 2 is empty: write null"),
        ("case a\ngiven s\n  id | id\n  1 | 2\n", 3, "twice"),
        ("case a\ngiven s\n  id\n  'x\n", 4, "a quote is not closed"),
        ("case a\nwatermark s noon\n", 2, '"noon" is not a time'),
        ("case a\nwait long\n", 2, "100ms, 30s"),
        ("case a\nrestart now\n", 2, "write restart"),
        ("case a\nrestart\n  id\n", 3, 'nothing stands below "restart"'),
        ("case a\nexpect t\n", 2, "no rows below"),
        ("case a\nexpect t empty\n  id\n", 3, "nothing stands below"),
        ("case a\nexpect error\n", 2, "nothing is said of the error"),
        ("case a\ninclude no.sql\n", 2, "cannot read"),
        ("case a\n  SELECT 1;\ncase a\n  SELECT 1;\n", 3, 'another case "a"'),
        ("case a\n  SELECT 1;\nsetup\n  SELECT 1;\n", 3, "before the first case"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, line: int, said: str):
    parsed = parse_cases(text, "bad.velotest")
    assert parsed.errors
    assert f"bad.velotest:{line}:" in str(parsed.errors[0])
    assert said in str(parsed.errors[0])


def test_other_cases_of_a_file_with_an_error_can_be_run():
    parsed = parse_cases("case a\nnonsense\ncase b\n  SELECT 1;\n", "two.velotest")
    assert [case.name for case in parsed.cases] == ["b"]
    assert len(parsed.errors) == 1
