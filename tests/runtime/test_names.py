"""Names mean the same on every engine: plain Spark, DuckDB, Spark over tables, and tables that are kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from velostream.sql.check import queries_of

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark

TABLES = {
    "na": ("x INT, k INT, Va INT", "(1, 10, 100), (2, 20, 200)"),
    "nb": ("y INT, s STRING, K INT", "(1, 'p', 10), (3, 'q', 30)"),
    "nc": ("y INT, k INT, Z STRING", "(1, 10, 'c'), (3, 30, 'd')"),
    "nd": ("w INT, v STRING", "(1, 'x')"),
    "nt": ("a INT, b INT", "(1, 5), (1, 6), (2, 7)"),
}
QUERIES = [
    "SELECT na.x, nd.v FROM na NATURAL JOIN nd",
    "SELECT * FROM na NATURAL RIGHT JOIN nb",
    "SELECT * FROM na JOIN nb USING (k) JOIN nc USING (y, k)",
    "SELECT * FROM na FULL JOIN nb USING (k) FULL JOIN nc USING (k, y)",
    "SELECT nb.*, x FROM na LEFT JOIN nb USING (K)",
    "SELECT k, nb.y, COUNT(*) AS n FROM na FULL JOIN nb USING (k) GROUP BY k, nb.y HAVING K > 10",
    "SELECT * FROM (SELECT k, x FROM na) JOIN nc USING (K)",
    "SELECT * FROM nv NATURAL JOIN nc",
    "SELECT p.x AS px, q.Va FROM na p NATURAL JOIN na q",
    "WITH Q AS (SELECT k AS kk, x FROM na) SELECT q.X, z FROM q JOIN nc ON KK = nc.k",
    "SELECT A AS b, SUM(B) AS a FROM nt GROUP BY NT.a HAVING a > 1",
    "SELECT 5 AS k, COUNT(*) AS n FROM nt GROUP BY k",
]


@pytest.fixture(scope="module")
def tables(database: Instance) -> Instance:
    for name, (columns, rows) in TABLES.items():
        database.sql(f"CREATE TABLE {name} ({columns}); INSERT INTO {name} VALUES {rows}")
    database.sql("CREATE VIEW nv AS SELECT x, k FROM na")
    return database


@pytest.fixture(scope="module")
def views(tables: Instance, spark: SparkSession) -> SparkSession:
    for name in TABLES:
        spark.createDataFrame(tables.table(name).snapshot()).createOrReplaceTempView(name)
    spark.sql("SELECT x, k FROM na").createOrReplaceTempView("nv")
    return spark


def contents(found: pa.Table) -> tuple[list[str], list[str]]:
    width = found.num_columns
    rows = found.rename_columns([str(number) for number in range(width)]).to_pylist()
    return found.schema.names, sorted(str(list(row.values())) for row in rows)


@pytest.mark.parametrize("sql", QUERIES)
def test_all_engines_agree(sql: str, tables: Instance, views: SparkSession, name: str) -> None:
    expected = contents(views.sql(sql).toArrow())
    assert contents(tables.sql(sql).arrow()) == expected
    (query,) = queries_of(tables.check(sql)[0])
    versions = {each: tables.table(each).version_object for each in query.tables}
    on_spark = tables.jobs_by_name.site.store.questions.spark
    assert on_spark is not None
    assert contents(on_spark(query, versions, None)) == expected
    tables.sql(f"CREATE TABLE {name} AS {sql}")
    assert contents(tables.table(name).snapshot()) == expected
    tables.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    ("sql", "key", "rows"),
    [
        ("SELECT USER_ID, SUM(amount) AS t FROM {} GROUP BY user_id", ("USER_ID",), [("u1", 6), ("u2", 7)]),
        (
            "SELECT user_id, SUM(amount) AS t FROM {} o GROUP BY o.user_id",
            ("user_id",),
            [("u1", 6), ("u2", 7)],
        ),
        ("SELECT o.`User_Id` u, SUM(Amount) s FROM {} o GROUP BY U HAVING S > 6", ("u",), [("u2", 7)]),
        ("SELECT DISTINCT USER_ID FROM {} o WHERE O.AMOUNT > 1", ("USER_ID",), [("u1",), ("u2",)]),
        ('SELECT * FROM {} WITH ("key" = "USER_ID")', ("user_id",), [("u1", 1, 10), ("u2", 7, 20)]),
        ("SELECT o.amount, nc.Z FROM {} o NATURAL JOIN nc", (), [(1, "c"), (5, "c")]),
    ],
)
def test_a_source_that_tells_its_columns_late(
    sql: str, key: tuple[str, ...], rows: list[Any], tables: Instance, tmp_path: Path, name: str
) -> None:
    (tmp_path / "orders.csv").write_text("user_id,amount,k\nu1,5,10\nu2,7,20\nu1,1,10\n")
    tables.sql(f"CREATE TABLE {name} AS {sql.format(f'file://{tmp_path}/orders.csv')}")
    table = tables.table(name)
    assert table.spec.key == key
    assert sorted(tuple(row) for row in table.rows()) == rows
    tables.sql(f"DROP TABLE {name}")
