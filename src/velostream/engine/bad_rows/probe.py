"""Finds all rows on which a query fails in one run: Spark evaluates the query's expressions in a try.

Spark has an expression (`TryEval`) that is NULL where its child raises. It has no name in SQL, and does not
catch errors of Python functions; those, and queries of more than one SELECT over one input, are left to
`search`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import sqlglot
from sqlglot import exp

from velostream.plan.query.functions import AROUND, aggregates_in, generator_call
from velostream.spark.try_eval import attempted
from velostream.sql.text.spark_text import SPARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PARTS = {"kind", "expressions", "from_", "from", "where", "group"}


@dataclass(frozen=True)
class Probe:
    """An expression that raises for the same rows as a query, and the query's alias of its input."""

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


def divided(spark: SparkSession, rows: DataFrame, probe: Probe) -> tuple[DataFrame, DataFrame]:
    """The rows on which the probe raises, and the others; to be read in `unshared`."""
    failed = attempted(spark, probe.expression).isNull()
    named = rows.alias(probe.name)
    return named.where(failed), named.where(~failed)
