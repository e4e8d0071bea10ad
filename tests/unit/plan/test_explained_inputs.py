"""What EXPLAIN says of the inputs of a statement: as the statement opens them."""

from __future__ import annotations

import pytest

from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.plan.strategy import Known
from velostream.runtime.answers.explain import explain
from velostream.sql import EmptyCatalog, check_script

SOURCES = """
CREATE SOURCE f (k STRING, x BIGINT, ts TIMESTAMP) FROM 'file:///tmp/f.csv' WITH ("event.time.column" = 'ts');
CREATE SOURCE s (k STRING, x BIGINT, ts TIMESTAMP) FROM kafka://b:9092/s;
CREATE TABLE d (k STRING PRIMARY KEY, ts TIMESTAMP);
"""


def told(sql: str) -> list[str]:
    checked = check_script(SourceText(f"{SOURCES}{sql}"), EmptyCatalog(), default_registry())
    assert not checked.errors, checked.errors
    return explain(checked.statements[-1], Known({"d": ("k", "ts")}, {"d": ("k",)}))


@pytest.mark.parametrize(
    ("sql", "changes"),
    [
        ("CREATE TABLE t AS SELECT k FROM f", "rows can be retracted"),
        ("CREATE TABLE t AS SELECT k FROM s", "rows only grow"),
        ("INSERT INTO kafka://b:9092/o SELECT k FROM f", "rows only grow"),
        (
            "CREATE STREAM t AS SELECT k, COUNT(*) AS n FROM f WINDOW TUMBLING(1m) GROUP BY k EMIT FINAL "
            "WITH (\"sink\" = 'kafka://b:9092/o')",
            "rows only grow",
        ),
        ("INSERT INTO kafka://b:9092/o SELECT k, COUNT(*) AS n FROM f GROUP BY k", "rows can be retracted"),
    ],
)
def test_an_edited_file_retracts_rows_only_where_the_result_can_take_it(sql, changes):
    assert f"  changes: everything that is there, then what is new; {changes}" in told(sql)


def test_nothing_is_said_of_what_is_not_decided_yet():
    lines = told("CREATE TABLE t AS SELECT DISTINCT * FROM 'file:///tmp/unknown.csv'")
    assert "  changes: everything that is there, then what is new" in lines
    assert "step: chosen once the columns of every input are known" in lines


def test_rows_of_a_table_with_a_key_that_age_out_keep_their_key():
    lines = told("CREATE TABLE t AS SELECT k FROM d WHERE ts > now() - INTERVAL 1 HOUR")
    assert "step 2: last row per k" in lines
