"""Whether a table holds what the same SQL gives, from scratch, over the rows that are there now."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import duckdb
import sqlglot

from velostream.spark.dataframes import arrow_frame, private_session, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql import SparkSession


class Truth:
    """Batch Spark over rows given as Arrow tables, and over results computed before."""

    def __init__(self, spark: SparkSession, relations: Mapping[str, pa.Table]) -> None:
        self._spark = private_session(spark)
        for name, rows in relations.items():
            arrow_frame(self._spark, rows).createOrReplaceTempView(f"`{name}`")

    def rows(self, sql: str) -> pa.Table:
        """What the query gives."""
        return rows_of(self._spark, sql)

    def result(self, name: str, sql: str) -> pa.Table:
        """What the query gives; later queries may use it under `name`."""
        rows = self.rows(sql)
        arrow_frame(self._spark, rows).createOrReplaceTempView(f"`{name}`")
        return rows


def differences(found: pa.Table, wanted: pa.Table) -> list[str]:
    """Lines that say how two results differ as multisets of rows; none when they do not.

    Everything is compared exactly but doubles, whose sums depend on the order of adding.
    """
    if found.schema.names != wanted.schema.names or found.schema.types != wanted.schema.types:
        return [f"columns {found.schema} where {wanted.schema} is right"]
    left, right = _sorted(found), _sorted(wanted)
    if len(left) == len(right) and all(_same(one, other) for one, other in zip(left, right, strict=True)):
        return []
    extra = [f"+ {row}" for row in left if not any(_same(row, other) for other in right)]
    missing = [f"- {row}" for row in right if not any(_same(row, other) for other in left)]
    return [f"{len(left)} rows where {len(right)} are right", *extra[:5], *missing[:5]]


def _sorted(table: pa.Table) -> list[tuple[Any, ...]]:
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    return sorted(rows, key=lambda row: ([_exact(value) for value in row], [_rough(value) for value in row]))


def _exact(value: Any) -> str:
    return "" if isinstance(value, float) else repr(value)


def _rough(value: Any) -> float:
    return value if isinstance(value, float) and not math.isnan(value) else math.inf


def _same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return all(_equal(a, b) for a, b in zip(one, other, strict=True))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9) or (math.isnan(one) and math.isnan(other))
    return bool(one == other)


class SecondOpinion:
    """The same queries on DuckDB, written for it by sqlglot; it says nothing of those that it cannot run."""

    def __init__(self, relations: Mapping[str, pa.Table]) -> None:
        self._duckdb = duckdb.connect()
        for name, rows in relations.items():
            self._duckdb.register(name, rows)
        self.asked = 0
        self.refused: list[str] = []

    def differences(self, found: pa.Table, sql: str) -> list[str]:
        """As `differences`, of a result and DuckDB's own; its types of numbers may be others."""
        (text,) = sqlglot.transpile(sql, read="spark", write="duckdb")
        self.asked += 1
        try:
            wanted = self._duckdb.sql(text).to_arrow_table()
        except duckdb.Error as exc:
            self.refused.append(f"{text}: {exc}")
            return []
        return differences(found, wanted.rename_columns(found.schema.names).cast(found.schema))
