"""What Spark gets is what the user wrote: generated SQL is accepted by a real session and answers alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from velostream.connectors.registry import Registry
from velostream.location import SourceText
from velostream.model import statements as model
from velostream.sql import EmptyCatalog, bind_one, check_script, dependency_order, spark_ddl
from velostream.sql.functions import functions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXPRESSIONS = Path(__file__).parent / "expressions.sql"
PARSE = Path(__file__).parent / "parse"
SYSTEM = (
    "CAST(NULL AS TIMESTAMP) AS _timestamp, CAST(NULL AS TIMESTAMP) AS _event_time, "
    "CAST(NULL AS INT) AS _partition, "
    "CAST(NULL AS BIGINT) AS _offset, CAST(NULL AS BINARY) AS _key, CAST(NULL AS STRING) AS _topic"
)
NOT_YET = re.compile(r"\b(ASOF|HEADER|HAS_HEADER|HEADER_KEYS|SET_HEADER|REMOVE_HEADER|TUMBLE_\w+)\b")
ROWS = {
    "orders": """VALUES (1L, 1L, 10.50BD, 'a', array('x', 'y'), TIMESTAMP '2024-01-01 10:00:00'),
        (2L, 1L, 3.25BD, 'b', array('q'), TIMESTAMP '2024-01-01 11:30:00'),
        (3L, 2L, NULL, 'x', NULL, TIMESTAMP '2024-02-29 00:00:00'),
        (4L, 9L, 99.99BD, NULL, array('b', NULL), NULL) AS v(id, customer, amount, status, tags, at)""",
    "customers": """VALUES (1L, 'ann', 'EU', named_struct('city', 'Bern', 'zip', '3000')),
        (2L, 'bob', 'US', NULL), (3L, NULL, 'EU', named_struct('city', NULL, 'zip', '1'))
        AS v(id, name, region, info)""",
}
REGISTRY = Registry()
UNSTABLE = ("uuid()", "now()", "TABLESAMPLE")
QUANTIFIED = (" ALL (SELECT", " ANY (SELECT", " SOME (SELECT")


@pytest.fixture(autouse=True)
def no_views_left(spark: SparkSession) -> Iterator[None]:
    yield
    for view in spark.catalog.listTables():
        if view.isTemporary:
            spark.catalog.dropTempView(view.name)


def make_view(spark: SparkSession, name: str, columns: tuple[model.ColumnDef, ...], system: str = "") -> None:
    shown = [f"CAST(NULL AS {spark_ddl(column.type)}) AS `{column.name}`" for column in columns]
    spark.sql(f"SELECT {', '.join(filter(None, [*shown, system]))} LIMIT 0").createOrReplaceTempView(name)


def queries(script: str) -> list[tuple[model.Statement, model.Query]]:
    text = (PARSE / f"{script}.sql").read_text()
    checked = check_script(SourceText(text), EmptyCatalog(), REGISTRY, environment={})
    assert not checked.errors
    ordered = dependency_order(checked.statements)
    return [
        (statement, statement.query)
        for statement in ordered
        if isinstance(getattr(statement, "query", None), model.Query)
    ]


@pytest.mark.parametrize("script", ["queries", "names", "windows", "statements"])
def test_generated_sql_is_accepted(spark: SparkSession, script: str) -> None:
    text = (PARSE / f"{script}.sql").read_text()
    checked = check_script(SourceText(text), EmptyCatalog(), REGISTRY, environment={})
    for statement in checked.statements:
        if isinstance(statement, model.CreateTable) and statement.query is None:
            make_view(spark, statement.name, statement.columns)
    for statement, query in queries(script):
        sql = query.tree.sql(dialect="spark")
        if (
            any(not source.columns for source in query.sources)
            or NOT_YET.search(sql)
            or "dead_letters" in sql
            or getattr(statement, "values", ())  # their parameters are bound before Spark is asked
        ):
            continue
        if query.window is not None and re.search(r"window_(start|end)", sql):
            continue
        for source in query.sources:
            make_view(spark, source.id, source.columns, SYSTEM)
        if query.window is not None and query.window.partition_by:
            continue  # grouping comes from the WINDOW clause, which is not in the tree
        named = {name: 1 for name in query.parameters if not name.isdigit()}
        arguments: Any = named or [1 for _ in query.parameters]
        frame = spark.sql(sql, args=arguments) if query.parameters else spark.sql(sql)
        if isinstance(statement, model.CreateTable | model.CreateStream):
            frame.limit(0).createOrReplaceTempView(statement.name)


def test_answers_are_those_of_the_text_itself(spark: SparkSession) -> None:
    for name, rows in ROWS.items():
        spark.sql(f"SELECT * FROM {rows}").createOrReplaceTempView(name)
    compared = 0
    for statement, query in queries("queries"):
        if any(mark in statement.text for mark in (*UNSTABLE, *QUANTIFIED)) or "QUALIFY" in statement.text:
            continue
        mine = spark.sql(query.tree.sql(dialect="spark"))
        theirs = spark.sql(statement.text)
        assert [field.dataType for field in mine.schema] == [field.dataType for field in theirs.schema], (
            statement.text
        )
        assert sorted(map(str, mine.collect())) == sorted(map(str, theirs.collect())) or (
            sorted(str(tuple(row)) for row in mine.collect())
            == sorted(str(tuple(row)) for row in theirs.collect())
        ), statement.text
        compared += 1
    assert compared > 45


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("amount > ALL (SELECT amount FROM orders WHERE status = 'b')", [1, 4]),
        ("amount > ALL (SELECT amount FROM orders WHERE status = 'none')", [1, 2, 3, 4]),
        ("amount > ALL (SELECT amount FROM orders WHERE status = 'x')", []),
        ("amount >= ANY (SELECT amount FROM orders WHERE customer = 1)", [1, 2, 4]),
        ("customer = ANY (SELECT id FROM customers)", [1, 2, 3]),
        ("customer <> ALL (SELECT id FROM customers)", [4]),
        ("amount < SOME (SELECT 5)", [2]),
    ],
)
def test_quantified_comparisons(spark: SparkSession, condition: str, ids: list[int]) -> None:
    for name, rows in ROWS.items():
        spark.sql(f"SELECT * FROM {rows}").createOrReplaceTempView(name)
    tables = "CREATE TABLE orders (id BIGINT, customer BIGINT, amount DECIMAL(4, 2), status STRING);\n"
    tables += "CREATE TABLE customers (id BIGINT);\n"
    checked = check_script(
        SourceText(f"{tables}SELECT id FROM orders WHERE {condition}"),
        EmptyCatalog(),
        REGISTRY,
        environment={},
    )
    assert not checked.errors
    statement = checked.statements[-1]
    assert isinstance(statement, model.SelectStatement)
    found = spark.sql(statement.query.tree.sql(dialect="spark")).collect()
    assert sorted(row.id for row in found) == ids


def test_expressions_mean_the_same(spark: SparkSession) -> None:
    """Each expression as written and as generated, compared in value and type."""
    written = [line for line in EXPRESSIONS.read_text().splitlines() if not line.startswith("--")]
    generated = []
    for text in written:
        statement = bind_one(f"SELECT {text}", connectors=REGISTRY)
        assert isinstance(statement, model.SelectStatement)
        generated.append(statement.query.tree.expressions[0].sql(dialect="spark"))
    mine, theirs = answers(spark, generated), answers(spark, written)
    wrong = [found for found in zip(written, generated, mine, theirs, strict=True) if found[2] != found[3]]
    assert wrong == []


def answers(spark: SparkSession, expressions: list[str]) -> list[tuple[str, str]]:
    listed = ", ".join(f"{text} AS v{position}" for position, text in enumerate(expressions))
    frame = spark.sql(f"SELECT {listed}")
    values = frame.selectExpr(*(f"CAST({name} AS STRING) AS {name}" for name in frame.columns)).collect()[0]
    return [(field.dataType.simpleString(), value) for field, value in zip(frame.schema, values, strict=True)]


def test_the_list_of_functions_is_that_of_this_spark(spark: SparkSession) -> None:
    registered = {row.function for row in spark.sql("SHOW SYSTEM FUNCTIONS").collect()}
    ours = set(functions())
    assert {name for name in registered if name.isidentifier()} - ours <= {
        "and", "or", "not", "in", "between", "when", "case", "cast", "measure",
        "reflect", "java_method", "try_reflect", "from_protobuf", "to_protobuf",
        "range", "collations", "sql_keywords", "python_worker_logs",
    }  # fmt: skip
