"""Which plan a query over tables gets, told without Spark."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.plan.strategy import Known
from velostream.runtime.answers.explain import explain
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from velostream.model.statements import Statement

TABLES = """
CREATE TABLE a (id BIGINT PRIMARY KEY, k STRING, n BIGINT, price DECIMAL(10,2));
CREATE TABLE b (id BIGINT PRIMARY KEY, k STRING, m BIGINT);
CREATE TABLE c (k STRING, z BIGINT);
"""
COLUMNS = {"a": ("id", "k", "n", "price"), "b": ("id", "k", "m"), "c": ("k", "z")}


def checked(script: str) -> tuple[Statement, ...]:
    found = check_script(SourceText(script), EmptyCatalog(), default_registry())
    assert not found.errors, found.errors
    return tuple(found.statements)


def kinds(sql: str) -> list[str]:
    lines = explain(checked(f"{TABLES}\nCREATE TABLE t AS {sql};")[-1], Known(COLUMNS))
    return [
        f"{step.partition(': ')[2]} ({kind.partition(': ')[2]})"
        for step, kind in pairwise(lines)
        if step.startswith("step ")
    ]


@pytest.mark.parametrize(
    ("sql", "steps"),
    [
        (
            "SELECT a.n, b.m FROM a JOIN b ON a.k = b.k",
            ["join by k (affected keys)", "filter and project (stateless)"],
        ),
        (
            "SELECT a.n, c.z FROM a LEFT JOIN b ON a.id = b.id LEFT JOIN c ON b.k = c.k WHERE n > 1",
            [
                "left join by id (affected keys)",
                "left join by k (affected keys)",
                "filter and project (stateless)",
            ],
        ),
        (
            "SELECT b.k, COUNT(*) AS c FROM a FULL JOIN b USING (id) GROUP BY b.k",
            ["full join by id (affected keys)", "groups by k (merge)"],
        ),
        (
            "SELECT n FROM a WHERE k IN (SELECT k FROM c) AND NOT EXISTS (SELECT 1 FROM b WHERE b.id = a.id)",
            [
                "left semi join by k (affected keys)",
                "left anti join by id (affected keys)",
                "filter and project (stateless)",
            ],
        ),
        (
            "SELECT a.id, g.c FROM a JOIN (SELECT k, COUNT(*) AS c FROM b GROUP BY k) g ON a.k = g.k",
            [
                "groups by k (affected keys)",
                "join by k (affected keys)",
                "filter and project (stateless)",
            ],
        ),
        (
            "SELECT id, row_number() OVER (PARTITION BY k ORDER BY n) AS r FROM a",
            ["OVER by k (affected keys)"],
        ),
        (
            "SELECT a.k, COUNT(*) AS c FROM a JOIN b USING (id) "
            "GROUP BY a.k, session_window(timestamp_seconds(a.n), '5 minutes')",
            [
                "join by id (affected keys)",
                "sessions by k (affected keys)",
                "groups by k, window_start, window_end (merge)",
            ],
        ),
        (
            "SELECT e, SUM(m) AS m FROM a JOIN b USING (id) LATERAL VIEW explode(array(n)) v AS e GROUP BY e",
            ["join by id (affected keys)", "groups by e (merge)"],
        ),
        ("SELECT k FROM a EXCEPT SELECT k FROM b", ["EXCEPT (affected keys)"]),
        ("SELECT k FROM a UNION SELECT k FROM b", ["distinct rows (affected keys)"]),
        ("SELECT a.n FROM a JOIN b ON a.n < b.m", ["the whole query (full recompute)"]),
        ("SELECT n FROM a WHERE k NOT IN (SELECT k FROM c)", ["the whole query (full recompute)"]),
        ("SELECT n, SUM(n) OVER (ORDER BY id) AS s FROM a", ["the whole query (full recompute)"]),
        ("SELECT n FROM a ORDER BY n LIMIT 3", ["the whole query (full recompute)"]),
        ("SELECT n FROM a WHERE n > (SELECT AVG(m) FROM b)", ["the whole query (full recompute)"]),
        ("SELECT k, n, COUNT(*) AS c FROM a GROUP BY ROLLUP (k, n)", ["the whole query (full recompute)"]),
        (
            "SELECT k, COUNT(*) AS c FROM a GROUP BY GROUPING SETS ((k), ())",
            ["the whole query (full recompute)"],
        ),
        (
            "SELECT * FROM (SELECT k, n FROM a) PIVOT (SUM(n) FOR k IN ('x'))",
            ["the whole query (full recompute)"],
        ),
        ("SELECT k FROM a UNION ALL VALUES ('x')", ["the whole query (full recompute)"]),
        ("SELECT k FROM a TABLESAMPLE (2 ROWS)", ["the whole query (full recompute)"]),
        ("SELECT k, explode(array(1, 2)) AS e FROM a GROUP BY k", ["groups by k (affected keys)"]),
    ],
)
def test_the_kind_of_each_step(sql, steps):
    assert kinds(sql) == steps


@pytest.mark.parametrize(
    ("sql", "steps"),
    [
        (
            "SELECT o.id, a.n FROM datagen://orders o LEFT JOIN a ON o.user_id = a.id",
            ["left join by user_id (lookup)", "filter and project (stateless)"],
        ),
        (
            "SELECT b.k, COUNT(*) AS c FROM datagen://orders o JOIN a ON o.user_id = a.id"
            " JOIN b ON a.k = b.k GROUP BY b.k",
            ["join by user_id (lookup)", "join by k (lookup)", "groups by k (merge)"],
        ),
        (
            "SELECT o.id FROM file:///x.csv o"
            " JOIN (SELECT k, COUNT(*) AS c FROM a GROUP BY k) g ON o.k = g.k",
            ["groups by k (affected keys)", "join by k (lookup)", "filter and project (stateless)"],
        ),
    ],
)
def test_the_kind_of_each_step_of_a_stream_joined_to_tables(sql, steps):
    assert kinds(sql) == steps


def test_what_a_stream_joined_to_tables_cannot_answer_is_told_before_it_runs():
    sql = "SELECT o.id, a.n FROM datagen://orders o FULL JOIN a ON o.user_id = a.id"
    told = explain(checked(f"{TABLES}\nCREATE TABLE t AS {sql};")[-1], Known(COLUMNS))
    assert any("keeps rows of a table that no row of the stream matches" in line for line in told)


def test_a_recompute_says_why():
    statements = checked(f"{TABLES}\nCREATE TABLE t AS SELECT a.n FROM a JOIN b ON a.n < b.m;")
    told = "\n".join(explain(statements[-1], Known(COLUMNS)))
    assert "no equality between the two sides gives a key" in told
    assert "cost: the whole query runs again for every change of an input" in told


def test_names_alone_are_enough_when_the_columns_of_a_table_are_not_known():
    script = """
    CREATE TABLE x AS SELECT * FROM file:///nowhere/x.csv;
    CREATE TABLE y AS SELECT * FROM file:///nowhere/y.csv;
    CREATE TABLE t AS SELECT x.n, y.m FROM x JOIN y ON x.k = y.k;
    CREATE TABLE u AS SELECT * FROM x JOIN y ON x.k = y.k;
    """
    statements = checked(script)
    assert "step 1: join by k" in explain(statements[-2])
    assert "step: chosen once the columns of every input are known" in explain(statements[-1])
