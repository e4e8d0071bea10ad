"""What Spark gets is what the user wrote, however often it was read and written on the way."""

from __future__ import annotations

from datetime import timedelta

import pytest
from sqlglot import parse_one

from equivalence.kept_queries import TABLES, lines, queries
from refusals import refusal
from velostream.connectors.registry import Registry
from velostream.formats.json.text import plain_text
from velostream.location import SourceText
from velostream.plan.query.functions import aggregates_in, volatile_calls
from velostream.plan.query.stateless import why_not_stateless
from velostream.sql import Relation, RelationKind, check_script, parse_columns
from velostream.sql.text.spark_text import SPARK


class Tables:
    """The tables of the kept queries."""

    def lookup(self, name: str) -> Relation | None:
        columns = TABLES.get(name)
        return Relation(RelationKind.TABLE, name, parse_columns(columns), by_hand=True) if columns else None

    def names(self) -> tuple[str, ...]:
        return tuple(TABLES)


def checked(sql: str):
    found = check_script(SourceText(sql), Tables(), Registry(), environment={})
    if found.errors:
        raise found.errors[0]
    return found.statements[0].query


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM (WITH a AS (SELECT v FROM u) SELECT * FROM a) AS x",
        "SELECT id FROM t QUALIFY ROW_NUMBER() OVER (PARTITION BY g ORDER BY id) = 1",
        "SELECT MODE() WITHIN GROUP (ORDER BY n DESC) FILTER(WHERE n > 1) FROM t",
        "SELECT FIRST(n) IGNORE NULLS OVER (PARTITION BY g) FROM t",
        "SELECT MIN_BY(DISTINCT n, id), DATE_ADD(MONTH, 1, day), DATE_TRUNC('MONTH', ts) FROM t",
        "SELECT g FROM t GROUP BY GROUPING SETS ((g), (b), ())",
        "SELECT id FROM t TABLESAMPLE (50 PERCENT) REPEATABLE (3)",
        "SELECT CAST(s AS TIME), CAST(s AS INTERVAL DAY TO SECOND) FROM t",
    ],
)
def test_nothing_is_rewritten(sql):
    assert parse_one(sql, dialect=SPARK).sql(dialect=SPARK) == sql


def test_every_query_is_the_same_after_being_read_again():
    for sql in queries():
        text = checked(sql).tree.sql(dialect=SPARK)
        assert parse_one(text, dialect=SPARK).sql(dialect=SPARK) == text, sql


def test_an_aggregate_is_taken_with_all_that_belongs_to_it():
    for each in lines("aggregates"):
        tree = parse_one(f"SELECT {each} AS c FROM t", dialect=SPARK)
        calls = [call.sql(dialect=SPARK) for call in aggregates_in(tree.selects[0])]
        assert len(calls) == 1, each
        for word in ("WITHIN GROUP", "FILTER", "IGNORE NULLS", "RESPECT NULLS"):
            assert (word in calls[0]) == (word in each), each


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT * FROM (SELECT g, n FROM t) PIVOT (sum(n) FOR g IN ('a'))", "PIVOT aggregates"),
        ("SELECT id FROM t UNION ALL VALUES (1L)", "VALUES"),
        ("SELECT id FROM t UNION ALL SELECT id FROM range(3)", "rows of their own"),
        ("SELECT id FROM t TABLESAMPLE (2 ROWS)", "TABLESAMPLE"),
        ("SELECT id FROM t UNION ALL (SELECT v FROM u LIMIT 1)", "LIMIT"),
        ("SELECT * FROM (SELECT id, n FROM t) UNPIVOT (val FOR name IN (n))", None),
    ],
)
def test_what_looks_at_more_than_one_row(sql, reason):
    found = why_not_stateless(checked(sql).tree)
    assert (found is None) if reason is None else (reason in (found or "")), found


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT g AS k, count(*) AS c FROM t GROUP BY ROLLUP (k)",
        "SELECT g, upper(s) AS u, count(*) AS c FROM t GROUP BY CUBE (1, 2)",
        "SELECT upper(g) AS k, b, count(*) AS c FROM t GROUP BY GROUPING SETS ((upper(g), b), (b), ())",
        "WITH u AS (SELECT id FROM t) SELECT id FROM u",
        "WITH a AS (WITH a AS (SELECT g FROM t) SELECT g FROM a) SELECT g FROM a",
        "SELECT g, regr_slope(DISTINCT n, i) AS r FROM t GROUP BY g",
    ],
)
def test_names_and_arguments_are_understood(sql):
    assert checked(sql)


@pytest.mark.parametrize(
    ("sql", "code", "reason"),
    [
        ("WITH a AS (SELECT g FROM t), A AS (SELECT g FROM u) SELECT g FROM a", "sql.duplicate_name", '"A"'),
        (
            "SELECT g, min_by(DISTINCT n) AS r FROM t GROUP BY g",
            "sql.unknown_name",
            "2 to 3 arguments, not 1",
        ),
        ("SELECT g, s, count(*) AS c FROM t GROUP BY ROLLUP (upper(g), s)", "sql.syntax", 'column "g"'),
        ("SELECT id FROM t |> LIMIT 2", "sql.syntax", "not part of the language"),
        ("SELECT measure(n) AS m FROM t", "sql.unknown_name", "measure"),
    ],
)
def test_what_is_wrong_is_told(sql, code, reason):
    with refusal(code, why=reason):
        checked(sql)


def test_seconds_have_all_their_digits():
    long = timedelta(days=106751991, microseconds=1)
    texts = [plain_text(each) for each in (timedelta(0), timedelta(hours=-1, microseconds=500_000), long)]
    assert texts == ["0s", "-3599.5s", "9223372022400.000001s"]


def test_the_kept_queries_are_deterministic():
    assert [sql for sql in queries() if any(volatile_calls(checked(sql).tree))] == []
