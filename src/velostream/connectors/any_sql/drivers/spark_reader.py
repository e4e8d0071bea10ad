"""Spark's own reader of databases with a JDBC driver."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from velostream.errors import SourceConfigError
from velostream.spark.failures import cause_of, error_text
from velostream.spark.jars.class_path import load_pinned
from velostream.spark.session import current_session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from velostream.spark.jars.maven import Jar


_CAUSE = re.compile(r"Caused by: [\w.$]+: (.+)")


class JdbcError(Exception):
    """What the driver said, in its own words."""


def read(
    query: str, options: Mapping[str, str], driver: str, jars: Sequence[Jar], *, rows: bool = True
) -> pa.Table:
    """The result of a query, or its columns without rows; the driver's jars are downloaded the first time.

    Raises JdbcError.
    """
    spark = current_session()
    if spark is None:
        raise SourceConfigError(
            "JDBC drivers run in Spark, which is not running here", hint="use a driver of Python's to check"
        )
    load_pinned(spark, driver, jars)
    try:
        reader = spark.read.format("jdbc").options(**options).option("driver", driver)
        frame = reader.option("dbtable", f"({query}\n) q").load()
        return (frame if rows else frame.limit(0)).toArrow()
    except Exception as exc:
        # Spark only tells that it failed; the last cause is what the driver says.
        said = _CAUSE.findall(error_text(exc))
        raise JdbcError(said[-1] if said else cause_of(exc)) from exc
