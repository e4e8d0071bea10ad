"""What EXPLAIN says of state, and what is said unasked when a statement is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.plan.strategy import Known, decide
from velostream.runtime.answers.explain import explain, warned
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from velostream.model.statements import Statement

SOURCES = """
CREATE SOURCE s (k STRING, x BIGINT, ts TIMESTAMP) FROM kafka://b:9092/s;
CREATE SOURCE f (k STRING, x BIGINT, ts TIMESTAMP) FROM 'file:///tmp/f.csv';
CREATE TABLE d (k STRING PRIMARY KEY, name STRING);
"""


def statement(sql: str) -> Statement:
    checked = check_script(SourceText(f"{SOURCES}{sql}"), EmptyCatalog(), default_registry())
    assert not checked.errors, checked.errors
    return checked.statements[-1]


def told(sql: str) -> tuple[list[str], str]:
    """What bounds each kind of state, and whether it grows."""
    lines = explain(statement(sql), Known({"d": ("k", "name")}))
    bounded = [line.removeprefix("  bounded: ") for line in lines if line.startswith("  bounded: ")]
    (grows,) = [line.removeprefix("state grows: ") for line in lines if line.startswith("state grows: ")]
    return bounded, grows


def warned_of(sql: str) -> tuple[str, ...]:
    return warned(decide(statement(sql), Known({"d": ("k", "name")})))


WINDOW = "SELECT k, SUM(x) AS total FROM s WINDOW TUMBLING(1m) GROUP BY k"
DISTINCT = "SELECT k, COUNT(DISTINCT x) AS n FROM s GROUP BY k"
DISTINCT_WINDOW = "SELECT k, COUNT(DISTINCT x) AS n FROM s WINDOW TUMBLING(1m) GROUP BY k"
GROUPS = "SELECT k, SUM(x) AS total FROM s GROUP BY k"


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE STREAM t AS SELECT k FROM s WHERE x > 1 WITH (\"sink\" = 'kafka://b:9092/o')",
        "CREATE TABLE t AS SELECT f.k, d.name FROM f JOIN d ON f.k = d.k",
    ],
)
def test_rows_by_themselves_are_not_remembered(sql):
    assert told(sql) == ([], "no")
    assert warned_of(sql) == ()


@pytest.mark.parametrize(
    ("sql", "bounded"),
    [
        ("CREATE TABLE t AS SELECT COUNT(*) AS n FROM s", "only that one"),
        (f'CREATE TABLE t AS {GROUPS} WITH ("state.ttl" = "7d")', "without a new row for 7d"),
        (f"INSERT INTO kafka://b:9092/o {WINDOW}", "when it has closed and its row is written"),
        (f"INSERT INTO kafka://b:9092/o {WINDOW} EMIT CHANGES", "when it has closed and its row is written"),
        (
            f'INSERT INTO kafka://b:9092/o {WINDOW} WITH ("late.rows" = "update", "state.ttl" = "1h")',
            "1h after it has closed",
        ),
        (
            f'CREATE TABLE t AS {WINDOW} WITH ("retention" = "1d")',
            "when it has closed and its row is written",
        ),
    ],
)
def test_what_bounds_the_result(sql, bounded):
    found, grows = told(sql)
    assert len(found) == 1
    assert found[0].startswith("yes, ")
    assert found[0].endswith(bounded)
    assert grows == "no"
    assert warned_of(sql) == ()


@pytest.mark.parametrize(
    ("sql", "grows"),
    [
        (f"CREATE TABLE t AS {GROUPS}", "the number of groups"),
        ("CREATE TABLE t AS SELECT DISTINCT k FROM s", "the number of groups"),
        ("CREATE TABLE t AS SELECT k, x FROM s WITH (\"key\" = 'k')", "the number of keys"),
        (f"INSERT INTO kafka://b:9092/o {GROUPS}", "the number of groups"),
        (f"CREATE TABLE t AS {WINDOW}", "time: windows that have closed stay in the table"),
    ],
)
def test_what_grows_with_what_users_ask_for_is_explained_and_not_warned_of(sql, grows):
    found, summary = told(sql)
    assert any(grows in line and line.startswith("no, ") for line in found)
    assert grows in summary
    assert warned_of(sql) == ()


@pytest.mark.parametrize(
    ("sql", "grown", "advice"),
    [
        (f"CREATE TABLE t AS {DISTINCT}", "all rows of kafka://b:9092/s", "after it came"),
        (
            f'CREATE TABLE t AS {DISTINCT_WINDOW} WITH ("late.rows" = "update")',
            "all rows of kafka://b:9092/s",
            "after their windows have closed",
        ),
        (
            f'INSERT INTO kafka://b:9092/o {WINDOW} WITH ("late.rows" = "update")',
            "late rows may correct any of them",
            "after it has closed",
        ),
    ],
)
def test_rows_that_are_kept_for_ever_are_warned_of(sql, grown, advice):
    (warning,) = warned_of(sql)
    assert warning.startswith("state grows without bound: ")
    assert grown in warning
    assert '"state.ttl"' in warning
    assert warning.endswith(advice)


def test_rows_for_over_are_bounded_by_their_frames():
    over = "SELECT k, SUM(x) OVER (PARTITION BY k ORDER BY ts{}) AS total FROM s "
    over += "WITH (\"event.time.column\" = 'ts')"
    last = f"CREATE TABLE t AS {over.format(' ROWS BETWEEN 9 PRECEDING AND CURRENT ROW')}"
    assert told(last)[1] == "with the number of keys"
    assert warned_of(last) == ()
    running = f"CREATE TABLE t AS {over.format('')}"
    (warning,) = warned_of(running)
    assert "all rows, which OVER looks back to" in warning


@pytest.mark.parametrize(
    ("sql", "bounded"),
    [
        (f"CREATE TABLE t AS {DISTINCT_WINDOW}", "every window that it is in has closed"),
        (f'CREATE TABLE t AS {DISTINCT} WITH ("state.ttl" = "7d")', "forgets a row 7d after it came"),
    ],
)
def test_rows_that_are_kept_for_a_while_are_not(sql, bounded):
    found, _ = told(sql)
    assert found[0].endswith(bounded)
    assert warned_of(sql) == ()
