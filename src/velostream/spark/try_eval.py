"""Expressions that give NULL instead of an error, so that one run finds every failing row.

Spark has such an expression, but no SQL name for it.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import Column, SparkSession

SHARED = "spark.sql.subexpressionElimination.enabled"
"""Whether Spark evaluates common subexpressions in advance, which would be outside of an attempt."""


def attempted(spark: SparkSession, expression: str) -> Column:
    """The value of the expression, or null where it raises; to be read in `unshared`."""
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column as ClassicColumn

    jvm = spark._jvm  # noqa: SLF001
    assert jvm is not None
    convert = jvm.org.apache.spark.sql.classic.ExpressionUtils
    child = convert.expression(functions.expr(expression)._jc)  # noqa: SLF001
    attempt = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(child)
    return ClassicColumn(convert.column(attempt))


@contextmanager
def unshared(spark: SparkSession) -> Iterator[None]:
    """Keep Spark from evaluating common subexpressions in advance, outside of the attempt."""
    before = spark.conf.get(SHARED)
    spark.conf.set(SHARED, "false")
    try:
        yield
    finally:
        spark.conf.set(SHARED, before or "true")
