"""What is taken out of a query with filters on the clock, told without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.connectors.registry import default_registry
from velostream.errors import UnsupportedError
from velostream.location import SourceText
from velostream.model.statements import CreateTable, Query
from velostream.plan.strategy import Known, obstacle
from velostream.plan.time.clock_filters import ageing
from velostream.runtime.answers.explain import explain
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    from velostream.plan.time.kept_rows import Kept

TABLES = """
CREATE TABLE o (id BIGINT PRIMARY KEY, k STRING, n BIGINT, ts TIMESTAMP);
CREATE TABLE p (k STRING, day DATE, valid_to TIMESTAMP);
CREATE VIEW recent AS SELECT id, k FROM o WHERE ts > now() - INTERVAL 1 HOUR;
"""
COLUMNS = {"o": ("id", "k", "n", "ts"), "p": ("k", "day", "valid_to")}


def statement(sql: str) -> CreateTable:
    found = check_script(
        SourceText(f"{TABLES}\nCREATE TABLE t AS {sql};"), EmptyCatalog(), default_registry()
    )
    assert not found.errors, found.errors
    made = found.statements[-1]
    assert isinstance(made, CreateTable)
    return made


def aged(sql: str) -> Kept | None:
    query = statement(sql).query
    assert isinstance(query, Query)
    return ageing(query, COLUMNS)


def test_a_query_without_such_a_filter_is_left_alone():
    assert aged("SELECT k, COUNT(*) AS c FROM o WHERE n > 1 GROUP BY k") is None
    assert aged("SELECT unix_timestamp(ts) AS s FROM o WHERE unix_timestamp(ts) > 5") is None


@pytest.mark.parametrize(
    ("sql", "left", "live"),
    [
        (
            "SELECT k FROM o WHERE n > 1 AND ts > now() - INTERVAL 1 HOUR",
            "SELECT k FROM `__live_1_o` AS `o`",
            ["o while ts > NOW() - INTERVAL '1' HOUR and n > 1"],
        ),
        (
            "SELECT a.k FROM o AS a JOIN p ON a.k = p.k WHERE valid_to > now() AND n > 1 AND a.n < p.day",
            "SELECT a.k FROM o AS a JOIN `__live_1_p` AS `p` ON a.k = p.k WHERE n > 1 AND a.n < p.`day`",
            ["p while valid_to > NOW()"],
        ),
        (
            "SELECT k FROM o WHERE ts > now() UNION ALL SELECT k FROM p WHERE day = current_date()",
            "SELECT k FROM `__live_1_o` AS `o` UNION ALL SELECT k FROM `__live_2_p` AS `p`",
            ["o while ts > NOW()", "p while `day` = CURRENT_DATE()"],
        ),
        (
            "SELECT a.k FROM o AS a JOIN o AS b ON a.id = b.n WHERE a.ts > now() AND b.ts <= now()",
            "SELECT a.k FROM `__live_1_o` AS `a` JOIN `__live_2_o` AS `b` ON a.id = b.n",
            ["o while a.ts > NOW()", "o while b.ts <= NOW()"],
        ),
    ],
)
def test_each_filter_goes_to_the_rows_it_is_about(sql, left, live):
    found = aged(sql)
    assert found is not None
    assert found.query.tree.sql(dialect="spark") == left
    told = [
        f"{each.relation} while {' AND '.join(each.written)}"
        + "".join(f" and {condition.sql(dialect='spark')}" for condition in each.conditions)
        for each in found.rows
    ]
    assert told == live
    assert found.query.sources == ()
    assert {each.id for each in found.rows} <= set(found.query.tables)


def test_views_and_subqueries_are_looked_into():
    found = aged("SELECT k, COUNT(*) AS c FROM recent GROUP BY k")
    assert found is not None
    assert [each.relation for each in found.rows] == ["o"]
    found = aged("SELECT k FROM p WHERE EXISTS (SELECT 1 FROM o WHERE o.k = p.k AND o.ts > now())")
    assert found is not None
    assert [each.used for each in found.rows] == [{"ts"}]


def test_all_sources_of_a_union_become_tables():
    one, other = ("datagen://trades?rows=1", "datagen://orders?rows=1")
    found = aged(f"SELECT _offset FROM {one} WHERE _timestamp > now() UNION ALL SELECT _offset FROM {other}")
    assert found is not None
    assert [len(each.bounds) for each in found.rows] == [1, 0]
    assert found.query.sources == ()


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("SELECT k FROM o WHERE ts > now() OR n = 1", "AND connects"),
        ("SELECT k FROM o WHERE ts NOT BETWEEN now() - INTERVAL 1 HOUR AND now()", "AND connects"),
        ("SELECT k FROM o WHERE ts <> now()", "AND connects"),
        ("SELECT k FROM o WHERE ts > now() - INTERVAL '1' MONTH", "equally long"),
        ("SELECT k FROM o WHERE ts > now() - INTERVAL '1 year 2 days'", "equally long"),
        ("SELECT k FROM o WHERE ts > timestampadd(MONTH, -1, now())", "equally long"),
        ("SELECT k FROM o WHERE ts > date_trunc('month', now())", "date_trunc is followed by"),
        ("SELECT k FROM o WHERE hour(ts) = hour(now())", "move with the clock"),
        ("SELECT k FROM o WHERE now() > now() - INTERVAL 1 HOUR", "both sides"),
        ("SELECT k FROM o WHERE TIMESTAMP '2026-01-01' > now()", "columns of one relation"),
        ("SELECT k FROM o WHERE ts > now() - make_dt_interval(n)", "not the same for every row"),
        ("SELECT k FROM o WHERE ts > TIMESTAMP '2027-01-01' - (now() - ts)", "decreases"),
        ("SELECT o.k FROM o JOIN p ON o.k = p.k WHERE o.ts + (p.valid_to - o.ts) > now()", "one relation"),
        ("SELECT o.k FROM o LEFT JOIN p ON o.k = p.k WHERE p.valid_to > now()", "may be missing"),
        ("SELECT o.k FROM o JOIN p ON o.k = p.k AND o.ts > now()", "in a WHERE"),
        ("SELECT k FROM o GROUP BY k HAVING MAX(ts) > now()", "in a WHERE"),
        ("SELECT k FROM (SELECT k, MAX(ts) AS ts FROM o GROUP BY k) q WHERE ts > now()", "inside it"),
        ("SELECT k FROM o WHERE ts + rand() * INTERVAL 1 HOUR > now()", "each time"),
        (
            "SELECT t.symbol FROM datagen://trades t JOIN p ON t.symbol = p.k WHERE p.valid_to > now()",
            "joined once",
        ),
    ],
)
def test_what_cannot_be_followed_says_why(sql, why):
    with refusal("sql.unsupported", why=why, at=sql) as caught:
        aged(sql)
    assert caught.value.hint
    assert isinstance(obstacle(statement(sql)), UnsupportedError)


def test_explain_tells_filter_and_plan():
    told = explain(
        statement("SELECT k, MAX(n) AS m FROM o WHERE ts > now() - INTERVAL 1 HOUR GROUP BY k"),
        Known(COLUMNS),
    )
    steps = [line for line in told if line.startswith(("step", "  kind", "  state"))]
    assert steps[:3] == [
        "step 1: rows while ts > NOW() - INTERVAL '1' HOUR",
        "  kind: by the clock",
        "  state: the rows that the clock has not passed",
    ]
    assert "groups by k" in steps[3]
