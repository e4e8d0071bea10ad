"""Which rows a query fails on, found in one run: Spark itself tries the query's expressions on every row.

Spark has an expression that is NULL where its child raises. It has no name in SQL, and cannot look into
Python functions; queries that are more than one SELECT over one input are left to `isolation` as well.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from velostream.plan.calls import AROUND, aggregates_in, generator_call
from velostream.sql.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, DataFrame, SparkSession

SHARED = "spark.sql.subexpressionElimination.enabled"
"""Whether Spark computes what occurs twice in advance, which would be outside of an attempt."""
_PARTS = {"kind", "expressions", "from_", "from", "where", "group"}


@dataclass(frozen=True)
class Probe:
    """An expression that raises for the rows on which a query does, and what the query calls its input."""

    expression: str
    name: str


def probe_of(sql: str) -> Probe | None:
    """The probe of a query, or None where there is none."""
    tree = sqlglot.parse_one(sql, dialect=SPARK)
    if not isinstance(tree, exp.Select) or any(
        value for key, value in tree.args.items() if key not in _PARTS
    ):
        return None
    if any(node is not tree for node in tree.find_all(exp.Query, exp.Window, *AROUND)):
        return None
    if any(generator_call(call) for call in tree.find_all(exp.Func)):
        return None
    group = tree.args.get("group")
    values: list[exp.Expr] = []
    for each in (*tree.expressions, *(group.expressions if group is not None else ())):
        value = each.unalias()
        if value.is_star:
            return None
        aggregates = list(aggregates_in(value))
        if not aggregates:
            values.append(value)
        for aggregate in aggregates:
            values += [part for part in aggregate.iter_expressions() if not part.find(exp.Star, exp.Distinct)]
    texts = [value.sql(dialect=SPARK) for value in values if not isinstance(value, exp.Literal)]
    condition = tree.args["where"].this.sql(dialect=SPARK) if tree.args.get("where") else "true"
    fields = ", ".join(f"'c{number}', {text}" for number, text in enumerate(texts))
    table = tree.find(exp.Table)
    if not texts or table is None:
        return None
    expression = f"named_struct('row', CASE WHEN {condition} THEN named_struct({fields}) END)"
    return Probe(expression, table.alias_or_name)


def attempted(spark: SparkSession, expression: str) -> Column:
    """What the expression gives, or null where it raises; to be read in `unshared`."""
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm = spark._jvm  # noqa: SLF001
    assert jvm is not None
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    child = convert.expression(functions.expr(expression)._jc)  # noqa: SLF001
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(child)
    return ClassicColumn(convert.column(attempt))


def divided(spark: SparkSession, rows: DataFrame, probe: Probe) -> tuple[DataFrame, DataFrame]:
    """The rows on which the probe raises, and the others; to be read in `unshared`."""
    failed = attempted(spark, probe.expression).isNull()
    named = rows.alias(probe.name)
    return named.where(failed), named.where(~failed)


@contextmanager
def unshared(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from computing what occurs twice in advance, outside of the attempt."""
    before = spark.conf.get(SHARED)
    spark.conf.set(SHARED, "false")
    try:
        yield
    finally:
        spark.conf.set(SHARED, before or "true")
