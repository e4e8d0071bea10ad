"""Names once they are resolved: one spelling of each column, joins by names as ON, results as expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal
from velostream.connectors.registry import Registry
from velostream.location import SourceText
from velostream.sql import EmptyCatalog, check_script
from velostream.sql.names.usage import column_usage, resolved, result_names

if TYPE_CHECKING:
    from velostream.model.statements import Query

TABLES = {
    "a": ("x", "k", "Va"),
    "b": ("y", "s", "K"),
    "c": ("y", "k", "Z"),
    "d": ("w", "v"),
    "t": ("a", "b"),
}
SCRIPT = "".join(
    f"CREATE TABLE {name} ({', '.join(f'{n} INT' for n in names)});" for name, names in TABLES.items()
)
SOURCES = {"__source_1": ("user_id", "Amount", "Payload"), "__source_2": ("user_id", "city")}


def bound(sql: str) -> Query:
    checked = check_script(SourceText(f"{SCRIPT}{sql}"), EmptyCatalog(), Registry(), environment={})
    if checked.errors:
        raise checked.errors[0]
    query: Query = checked.statements[-1].query  # type: ignore[attr-defined]
    return query


def names(sql: str, *, known: bool = True) -> str:
    columns = {**TABLES, **SOURCES} if known else TABLES
    found = resolved(bound(sql), columns)
    assert resolved(found, columns).tree == found.tree
    return found.tree.sql(dialect="spark")


JOINS = [
    ("NATURAL JOIN b", "a.k, a.x, a.Va, b.y, b.s", "JOIN b ON a.k = b.K"),
    ("NATURAL INNER JOIN b", "a.k, a.x, a.Va, b.y, b.s", "INNER JOIN b ON a.k = b.K"),
    ("NATURAL LEFT JOIN b", "a.k, a.x, a.Va, b.y, b.s", "LEFT JOIN b ON a.k = b.K"),
    ("NATURAL RIGHT JOIN b", "b.K, a.x, a.Va, b.y, b.s", "RIGHT JOIN b ON a.k = b.K"),
    ("NATURAL FULL JOIN b", "COALESCE(a.k, b.K) AS k, a.x, a.Va, b.y, b.s", "FULL JOIN b ON a.k = b.K"),
    ("NATURAL LEFT SEMI JOIN b", "a.k, a.x, a.Va", "LEFT SEMI JOIN b ON a.k = b.K"),
    ("NATURAL ANTI JOIN b", "a.k, a.x, a.Va", "ANTI JOIN b ON a.k = b.K"),
    ("NATURAL JOIN d", "a.x, a.k, a.Va, d.w, d.v", "CROSS JOIN d"),
    ("NATURAL LEFT JOIN d", "a.x, a.k, a.Va, d.w, d.v", "LEFT JOIN d ON TRUE"),
    ("JOIN b USING (K)", "a.k, a.x, a.Va, b.y, b.s", "JOIN b ON a.k = b.K"),
    (
        "JOIN b USING (k) JOIN c USING (y, k)",
        "b.y, a.k, a.x, a.Va, b.s, c.Z",
        "JOIN b ON a.k = b.K JOIN c ON b.y = c.y AND a.k = c.k",
    ),
    (
        "FULL JOIN b USING (k) FULL JOIN c USING (k)",
        "COALESCE(a.k, b.K, c.k) AS k, a.x, a.Va, b.y, b.s, c.y, c.Z",
        "FULL JOIN b ON a.k = b.K FULL JOIN c ON COALESCE(a.k, b.K) = c.k",
    ),
    # Of two columns of one name on the left, Spark takes the first.
    (
        "JOIN b ON a.k = b.k JOIN c USING (k)",
        "a.k, a.x, a.Va, b.y, b.s, b.K, c.y, c.Z",
        "JOIN b ON a.k = b.K JOIN c ON a.k = c.k",
    ),
    ("p NATURAL JOIN a q", "p.x, p.k, p.Va", "AS p JOIN a AS q ON p.x = q.x AND p.k = q.k AND p.Va = q.Va"),
]


@pytest.mark.parametrize(("join", "columns", "written"), JOINS)
def test_joins_by_names_say_on_and_their_star_has_sparks_order(join: str, columns: str, written: str) -> None:
    assert names(f"SELECT * FROM a {join}") == f"SELECT {columns} FROM a {written}"


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT k FROM a FULL JOIN b USING (k)", "SELECT COALESCE(a.k, b.K) AS k"),
        ("SELECT K FROM a RIGHT JOIN b USING (k)", "SELECT b.K"),
        ("SELECT a.k, b.k, x FROM a JOIN b USING (k)", "SELECT a.k, b.K AS k, a.x"),
        ("SELECT b.* FROM a JOIN b USING (k)", "SELECT b.K, b.y, b.s"),
        ("SELECT a.*, b.* FROM a FULL JOIN b USING (k)", "SELECT a.k, a.x, a.Va, b.K, b.y, b.s"),
        ("SELECT * EXCEPT (K, s) FROM a JOIN b USING (k)", "SELECT a.x, a.Va, b.y"),
        ("SELECT upper(k) FROM a FULL JOIN b USING (k)", "SELECT UPPER(COALESCE(a.k, b.K)) AS `upper(k)`"),
        ("SELECT Z.* FROM (a JOIN c USING (k)) z", "SELECT z.*"),
    ],
)
def test_columns_of_joins_by_names(sql: str, found: str) -> None:
    assert names(sql).startswith(f"{found} FROM ")


def test_relations_of_all_kinds_are_joined_by_names() -> None:
    assert names("SELECT * FROM (SELECT k, x FROM a) NATURAL JOIN c") == (
        "SELECT __query_1.k, __query_1.x, c.y, c.Z "
        "FROM (SELECT k, x FROM a) AS __query_1 JOIN c ON __query_1.k = c.k"
    )
    assert names("WITH Q AS (SELECT k AS y FROM a) SELECT Y FROM q NATURAL JOIN c") == (
        "WITH Q AS (SELECT k AS y FROM a) SELECT Q.y AS Y FROM Q JOIN c ON Q.y = c.y"
    )
    assert names("SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b NATURAL JOIN c WHERE c.k = a.k)") == (
        "SELECT x FROM a WHERE EXISTS(SELECT 1 FROM b JOIN c ON b.y = c.y AND b.K = c.k WHERE c.k = a.k)"
    )
    assert names("CREATE VIEW w AS SELECT k, x FROM a; SELECT * FROM w NATURAL JOIN c").endswith(
        "JOIN c ON w.k = c.k"
    )
    assert names("SELECT * FROM a JOIN (b JOIN c USING (k)) USING (k)") == (
        "SELECT a.k, a.x, a.Va, b.y, b.s, c.y, c.Z FROM a JOIN (b JOIN c ON b.K = c.k) ON a.k = b.K"
    )


def test_sources_are_joined_by_names_once_they_told_their_columns() -> None:
    sql = "SELECT * FROM kafka://x NATURAL JOIN kafka://y"
    assert names(sql, known=False).endswith("NATURAL JOIN __source_2 AS y")
    assert names(sql) == (
        "SELECT x.user_id, x.Amount, x.Payload, y.city"
        " FROM __source_1 AS x JOIN __source_2 AS y ON x.user_id = y.user_id"
    )
    assert column_usage(resolved(bound(sql), SOURCES), SOURCES) == {"__source_1": None, "__source_2": None}
    assert result_names(bound(sql), SOURCES) == ("user_id", "Amount", "Payload", "city")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT user_id, SUM(Amount) AS s FROM kafka://x o GROUP BY user_id HAVING SUM(Amount) > 1",
        "SELECT `user_id`, SUM(AMOUNT) s FROM kafka://x o GROUP BY USER_ID HAVING S > 1",
        "SELECT o.user_id, SUM(O.amount) AS s FROM kafka://x o GROUP BY 1 HAVING sum(amount) > 1",
        "SELECT user_id AS user_id, sum(amount) s FROM kafka://x o GROUP BY (O.User_Id) HAVING s > 1",
    ],
)
def test_one_query_in_several_spellings(sql: str) -> None:
    assert names(sql) == (
        "SELECT user_id, SUM(Amount) AS s FROM __source_1 AS o GROUP BY user_id HAVING SUM(Amount) > 1"
    )
    assert names(sql, known=False).lower() == names(sql).lower()


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        # As in Spark, HAVING means what is grouped by, then the result, then the input.
        ("SELECT a AS b, SUM(b) AS a FROM t GROUP BY a HAVING a > 5", "GROUP BY t.a HAVING t.a > 5"),
        ("SELECT a AS b, SUM(b) FROM t GROUP BY a HAVING b > 5", "GROUP BY t.a HAVING t.a > 5"),
        (
            "SELECT a, SUM(b) AS b FROM t GROUP BY a HAVING SUM(b) > 1 AND b > 2",
            "HAVING SUM(t.b) > 1 AND SUM(t.b) > 2",
        ),
        (
            "SELECT a + b AS c, COUNT(*) FROM t GROUP BY C HAVING c * 2 > 1",
            "GROUP BY a + b HAVING (a + b) * 2 > 1",
        ),
        # GROUP BY means the input first, ORDER BY the result.
        ("SELECT -a AS a, COUNT(*) FROM t GROUP BY a ORDER BY A", "GROUP BY t.a ORDER BY a"),
        ("SELECT -a AS a FROM t ORDER BY t.A", "ORDER BY t.a"),
        # A number that is grouped by is no position.
        ("SELECT 5 AS k, COUNT(*) FROM t GROUP BY k", "GROUP BY CAST(5 AS INT)"),
    ],
)
def test_names_of_results(sql: str, found: str) -> None:
    assert names(sql).endswith(f" {found}")


def test_fields_of_columns_and_lambdas_keep_one_spelling() -> None:
    assert names(
        "SELECT x.payload.Kind, PAYLOAD.kind, transform(payload.tags, T -> t + Amount) FROM kafka://x"
    ) == (
        "SELECT Payload.Kind, Payload.Kind AS kind, TRANSFORM(Payload.tags, T -> T + Amount)"
        " FROM __source_1 AS x"
    )


def test_what_is_wrong_is_told_when_columns_are_known() -> None:
    query = bound("SELECT user, Amount FROM kafka://x")
    with refusal("sql.unknown_name", "user", at="user") as caught:
        resolved(query, SOURCES)
    assert caught.value.location is not None
    assert caught.value.location.text == "user"
    with refusal("sql.ambiguous_name", "user_id", at="user_id") as ambiguous:
        resolved(bound("SELECT user_id FROM kafka://x, kafka://y"), SOURCES)
    assert ambiguous.value.hint == "write x.user_id or y.user_id"
    with refusal("sql.ambiguous_name", "user_id", at="user_id") as ambiguous:
        resolved(bound("SELECT user_id FROM file:///a.csv, file:///b.csv"), SOURCES)
    assert ambiguous.value.hint == "give the relations aliases, and write one before it"
