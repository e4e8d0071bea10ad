"""No digit is lost: arithmetic whose result type would have to drop digits is refused at creation.

Spark widens decimals as far as 38 digits and then drops digits after the point. The types are Spark's own:
for each SELECT one more SELECT, of the operands and results of its arithmetic, is analysed but never run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from velostream.errors import SqlError, TypeMismatchError
from velostream.plan.query.functions import aggregates_in
from velostream.spark.dataframes import query_types, show_empty
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType


def refuse_cut_digits(spark: SparkSession, tree: exp.Expr, views: Mapping[str, pa.Schema]) -> None:
    """Raise TypeMismatchError for the first `+`, `-` or `*` of decimals that would lose digits."""
    selects = [select for select in tree.find_all(exp.Select) if any(True for _ in _arithmetic(select))]
    if selects:
        show_empty(spark, views)
    for select in selects:
        nodes = list(_arithmetic(select))
        per_row = [node for node in nodes if not any(True for _ in aggregates_in(node))]
        per_group = [node for node in nodes if any(True for _ in aggregates_in(node))]
        _check(spark, select, per_row, grouped=False)
        _check(spark, select, per_group, grouped=True)


def _arithmetic(select: exp.Select) -> Iterator[exp.Binary]:
    for node in select.find_all(exp.Mul, exp.Add, exp.Sub):
        if node.parent_select is select:
            yield node


def _check(
    spark: SparkSession,
    select: exp.Select,
    nodes: list[exp.Binary],
    *,
    grouped: bool,
) -> None:
    if not nodes:
        return
    probe = select.copy()
    items = []
    for number, node in enumerate(nodes):
        for part, expression in (("l", node.left), ("r", node.right), ("v", node)):
            items.append(exp.alias_(expression.copy(), f"{part}{number}"))
    probe.set("expressions", items)
    dropped = ("having", "distinct", "order", "limit", "qualify") + (() if grouped else ("group",))
    for name in dropped:
        probe.set(name, None)
    try:
        types = query_types(spark, probe.sql(dialect=SPARK))
    except SqlError:
        # Correlated or otherwise not analysable by itself: Spark's own analysis of the whole decides.
        return
    for number, node in enumerate(nodes):
        _check_one(node, *(types[f"{part}{number}"].dataType for part in "lrv"))


def _check_one(node: exp.Binary, left: DataType, right: DataType, result: DataType) -> None:
    from pyspark.sql.types import DecimalType

    if not isinstance(result, DecimalType):
        return
    scales = [_scale(left), _scale(right)]
    needed = sum(scales) if isinstance(node, exp.Mul) else max(scales)
    if result.scale >= needed:
        return
    text = node.sql(dialect=SPARK)
    half = max(1, 37 // 2)
    raise TypeMismatchError(
        f"the result of {text} would lose digits: it needs {needed} after the point and has room for "
        f"{result.scale}",
        detail=f"{left.simpleString()} {node.key} {right.simpleString()} gives {result.simpleString()}",
        hint=f"cast the operands to what they hold, for example "
        f"CAST({node.left.sql(dialect=SPARK)} AS DECIMAL({half},{min(scales[0], 6)}))",
    )


def _scale(kind: DataType) -> int:
    return int(getattr(kind, "scale", 0))
