"""SQL of users that is more than a condition, an order or a query is refused before a server sees it."""

from __future__ import annotations

import pytest

from refusals import refusal
from velostream.connectors.any_sql.options import SqlOptions
from velostream.connectors.databases.user_sql import check_user_sql

DROP = "DROP TABLE customers"


def options(**given: str) -> SqlOptions:
    return SqlOptions.model_validate({"driver": "sqlite", "connection": "x.db", "table": "t", **given})


@pytest.mark.parametrize(
    "text",
    [
        f"1 = 1); {DROP}; --",
        f"1 = 1; {DROP}",
        f"(1 = 1)) q; {DROP}; SELECT ((1 = 1",
        "1 = 1) UNION ALL SELECT id FROM customers WHERE (1 = 1",
        # What is a quote depends on what a backslash is.
        f"'\\' ; {DROP} --'",
        f"E'\\'' || 'x''\\' ; {DROP}; --'",
        f"E'a'\n'\\'' || 'x\\' ; {DROP} --'",
        # What is a comment, and where it ends.
        f"a /* /* */ ; {DROP} */",
        f"/*! ; {DROP} */ 1",
        f"/*M! ; {DROP} */ 1",
        f"1 --;{DROP}",
        f"x # '\n; {DROP} --'",
        # Quotes that few databases have.
        f"$$'$$ ; {DROP} --'",
        f"$a$'$a$ ; {DROP} --'",
        f"`'` ; {DROP} --'",
        f"[']; {DROP} --'",
    ],
)
def test_more_than_a_condition(text: str) -> None:
    with refusal("source.config", "where"):
        check_user_sql(options(where=text))
    with refusal("source.config", "order.by"):
        check_user_sql(options(**{"order.by": text}))


@pytest.mark.parametrize(
    "text",
    [
        "id IN (SELECT id FROM customers) OR note = '?' -- ours; (",
        "a = ';)' AND b <> '(' AND \"c;)\" = 1",
        "note = 'it''s; fine)'",
        "path LIKE 'C:\\%' AND note <> 'a\\'",
        "data #> '{a,b}' = '1' AND tags[1] = 'x' AND f(a)",
        "1 /* ) ; */ = 1",
        "a - -1 > 0 AND b->>'x' = 'y'",
    ],
)
def test_a_condition(text: str) -> None:
    check_user_sql(options(where=text))


def test_queries_may_end_with_a_semicolon() -> None:
    given = {"driver": "sqlite", "connection": "x.db", "query": "SELECT ';' AS a FROM (SELECT 1);\n"}
    check_user_sql(SqlOptions.model_validate(given))
    with refusal("source.config", "poll.query"):
        more = {"table": "t", "incremental.column": "a", "poll.query": f"SELECT ?; {DROP};"}
        check_user_sql(SqlOptions.model_validate({"driver": "sqlite", "connection": "x.db", **more}))
