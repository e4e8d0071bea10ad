"""Every table of a database against the same SQL from scratch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from equivalence.truth import Truth, differences
from equivalence.worlds import as_arrow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from equivalence.queries import Case
    from equivalence.worlds import World
    from velostream.runtime.instance import Instance


def create(database: Instance, world: World, cases: Sequence[Case]) -> None:
    """Make the relation and every table."""
    world.create(database)
    for case in cases:
        database.sql(f"CREATE TABLE {case.name} AS {case.sql}{case.properties}")


def wrong(
    spark: SparkSession, database: Instance, world: World, cases: Sequence[Case]
) -> dict[str, list[str]]:
    """By name, what is not right: jobs that do not run, and tables that differ from the truth."""
    truth = Truth(spark, {"src": as_arrow(world.rows())})
    found = {job.name: [f"{job.state}: {job.reason}"] for job in database.jobs() if job.state != "running"}
    for case in cases:
        lines = differences(database.table(case.name).snapshot(), truth.result(case.name, case.sql))
        if lines:
            found[case.name] = lines
    return found
