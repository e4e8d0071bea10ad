"""DuckDB answers exactly as Spark does, for everything that it is allowed to answer."""

from __future__ import annotations

import math
from decimal import Context
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from equivalence import agreement as data
from velostream.model.statements import Query
from velostream.model.tables import TableSpec
from velostream.serving.sql.duckdb.expressions import called
from velostream.serving.sql.duckdb.functions import AGGREGATES, SCALAR, WINDOW
from velostream.serving.sql.engine import NeedsSpark, QueryEngine
from velostream.serving.table.store import TableStore
from velostream.sql.parse.dialect import Velostream

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from velostream.serving.contract.version import TableVersion

EXACT = Context(prec=60)
EXPRESSION_QUERIES = [f"SELECT {line} FROM v" for line in data.lines("expressions")]
QUERIES = [*EXPRESSION_QUERIES, *data.lines("queries")]
TABLES = {"v": data.values, "l": data.labels, "nested": data.nested}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, TableVersion]]:
    with TableStore(tmp_path_factory.mktemp("agreement")) as store:
        made = {}
        for name, make in TABLES.items():
            rows = make()
            table = store.create(TableSpec(name, rows.schema))
            table.insert(rows)
            made[name] = table.version_object
        yield made


@pytest.fixture(scope="module")
def views(spark: SparkSession) -> SparkSession:
    for name, make in TABLES.items():
        spark.createDataFrame(make()).createOrReplaceTempView(name)
    return spark


@pytest.fixture(scope="module")
def engine() -> QueryEngine:
    return QueryEngine()


def bound(sql: str) -> Query:
    tree = sqlglot.parse_one(sql, dialect=Velostream)
    assert isinstance(tree, exp.Query)
    return Query(tree)


def comparable(value: Any) -> Any:
    """Values whose repr tells all differences that matter: NaN is one value, 0.0 and -0.0 are two."""
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {key: comparable(item) for key, item in value.items()}
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def rows_of(table: pa.Table) -> list[str]:
    columns = [[repr(comparable(value)) for value in column.to_pylist()] for column in table.columns]
    return [", ".join(row) for row in zip(*columns, strict=True)]


def types_of(table: pa.Table) -> list[str]:
    return [str(field.type).replace("element: ", "item: ").replace(" not null", "") for field in table.schema]


@pytest.mark.spark
@pytest.mark.parametrize("sql", QUERIES)
def test_both_engines_give_the_same(
    sql: str, engine: QueryEngine, versions: dict[str, TableVersion], views: SparkSession
) -> None:
    ours = engine.answer(bound(sql), versions)
    spark = views.sql(sql).toArrow()
    assert types_of(ours) == types_of(spark)
    mine, theirs = rows_of(ours), rows_of(spark)
    if " ORDER BY " not in sql or " OVER " in sql or sql.startswith("("):
        mine, theirs = sorted(mine), sorted(theirs)
    assert mine == theirs


@pytest.mark.spark
@pytest.mark.parametrize(
    "clause", ["", " WHERE d < 1e9", " WHERE d > 1e9", " WHERE d IS NULL", " GROUP BY k"]
)
def test_sums_of_doubles_agree_as_far_as_their_order_allows(
    clause: str, engine: QueryEngine, versions: dict[str, TableVersion], views: SparkSession
) -> None:
    key = "k" if "GROUP" in clause else "1"
    rows = "(SELECT k, d, n * 0.1e0 AS x FROM v)"
    sql = f"SELECT {key} AS g, sum(d) AS s, avg(d) AS a, sum(x) AS t FROM {rows}{clause}"
    ours = {row["g"]: row for row in engine.answer(bound(sql), versions).to_pylist()}
    spark = {row["g"]: row for row in views.sql(sql).toArrow().to_pylist()}
    assert ours.keys() == spark.keys()
    for key, row in ours.items():
        for name in ("s", "a", "t"):
            mine, theirs = row[name], spark[key][name]
            if mine is None or theirs is None:
                assert mine is theirs
            else:
                assert (math.isnan(mine) and math.isnan(theirs)) or math.isclose(mine, theirs, rel_tol=1e-12)


@pytest.mark.spark
def test_random_decimal_divisions_and_averages_agree(
    engine: QueryEngine, views: SparkSession, rng: random.Random, tmp_path: Path
) -> None:
    kinds = [(18, 2), (9, 4), (5, 0), (12, 6), (20, 3), (30, 10)]
    columns = {}
    for number, (precision, scale) in enumerate(kinds):
        digits = [
            rng.randrange(-(10 ** rng.randint(1, precision)) + 1, 10 ** rng.randint(1, precision))
            for _ in range(300)
        ]
        values = [
            None if rng.random() < 0.05 else data.Decimal(each or 1).scaleb(-scale, EXACT) for each in digits
        ]
        columns[f"d{number}"] = pa.array(values, pa.decimal128(precision, scale))
    columns["g"] = pa.array([rng.randrange(40) for _ in range(300)], pa.int32())
    rows = pa.table(columns)
    views.createDataFrame(rows).createOrReplaceTempView("decimals")
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("decimals", rows.schema))
        table.insert(rows)
        version = {"decimals": table.version_object}
        pairs = [(one, other) for one in range(6) for other in range(6)]
        queries = [f"SELECT d{one} / d{other} AS q FROM decimals" for one, other in pairs]
        queries += [
            f"SELECT g, avg(d{one}) AS a, sum(d{one}) / count(*) AS b FROM decimals GROUP BY g"
            for one in range(6)
        ]
        agreed = 0
        for sql in queries:
            try:
                ours = engine.answer(bound(sql), version)
            except NeedsSpark:
                continue
            spark = views.sql(sql).toArrow()
            assert types_of(ours) == types_of(spark), sql
            assert sorted(rows_of(ours)) == sorted(rows_of(spark)), sql
            agreed += 1
        assert agreed > len(queries) // 2


@pytest.mark.spark
def test_parameters_are_bound_as_values(
    engine: QueryEngine, versions: dict[str, TableVersion], views: SparkSession
) -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("SELECT n FROM v WHERE k = :k OR n > :low ORDER BY n LIMIT :most", {"k": "a", "low": 9, "most": 4}),
        ("SELECT n + :x AS x, :t AS t FROM v", {"x": 2**40, "t": "'; DROP TABLE v; --"}),
        ("SELECT n FROM v WHERE money > :m", {"m": data.Decimal("2.495")}),
        (
            "SELECT n FROM v WHERE day = :d OR at < :t",
            {"d": data.date(2024, 2, 29), "t": data.datetime(2000, 1, 1, tzinfo=data.UTC)},
        ),
        ("SELECT :f AS f, :b AS b, n FROM v WHERE flag = :b", {"f": 0.5, "b": True}),
    ]
    for sql, params in cases:
        ours = engine.answer(bound(sql), versions, params)
        spark = views.sql(sql, args=params).toArrow()
        assert types_of(ours) == types_of(spark)
        assert sorted(rows_of(ours)) == sorted(rows_of(spark))
    positional = engine.answer(bound("SELECT n FROM v WHERE n > ? AND n < ?"), versions, [3, 6])
    assert sorted(positional.column(0).to_pylist()) == [4, 5]


@pytest.mark.parametrize(
    ("sql", "first", "later"),
    [
        ("SELECT word LIKE :p AS x FROM v", "100%", "100\\%"),
        ("SELECT substring(word, :p) AS x FROM v WHERE n > :p", 1, 3),
        ("SELECT date_trunc(:p, at) AS x, :p AS y FROM v", "year", "month"),
        ("SELECT day = :p AS x, :p AS y FROM v", "2024-02-29", "2024-01-31"),
        ("SELECT replace(word, :p, 'x') AS x FROM v", "a", ""),
        ("SELECT lag(n, :p) OVER (ORDER BY n) + :p AS x FROM v", 1, 2),
        ("SELECT CAST(n AS DECIMAL(3,2)) + :p AS x FROM v WHERE n < 9", 1, 100),
    ],
)
def test_a_kept_plan_answers_as_a_new_one(
    sql: str, first: Any, later: Any, versions: dict[str, TableVersion]
) -> None:
    kept, new = QueryEngine(), QueryEngine()
    _answer(kept, sql, versions, first)
    assert _answer(kept, sql, versions, later) == _answer(new, sql, versions, later)


def _answer(engine: QueryEngine, sql: str, versions: dict[str, TableVersion], value: Any) -> list[str] | str:
    try:
        answer = engine.answer(bound(sql), versions, {"p": value})
    except NeedsSpark:
        return "left to Spark"
    return [*types_of(answer), *rows_of(answer)]


@pytest.mark.parametrize("sql", data.lines("spark_only"))
def test_what_may_differ_is_left_to_spark(
    sql: str, engine: QueryEngine, versions: dict[str, TableVersion]
) -> None:
    with pytest.raises(NeedsSpark) as caught:
        engine.answer(bound(sql), versions)
    assert caught.value.reason


def test_every_allowed_function_is_in_the_matrix() -> None:
    used = {
        called(node)[0]
        for sql in QUERIES
        for node in sqlglot.parse_one(sql, dialect=Velostream).find_all(exp.Func)
        if not isinstance(node, exp.Cast | exp.Case)
    }
    allowed = {*SCALAR, *AGGREGATES, *WINDOW}
    assert allowed - used == set()
