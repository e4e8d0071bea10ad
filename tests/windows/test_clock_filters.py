"""The moments of a filter on the clock: a row passes between them, and only then, as Spark says."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from equivalence.stopped import EPOCH, micros, stopped
from velostream.connectors.registry import default_registry
from velostream.location import SourceText
from velostream.model.columns import FROM, UNTIL
from velostream.model.statements import CreateTable
from velostream.plan.time.clock_filters import ageing
from velostream.sql import EmptyCatalog, check_script

if TYPE_CHECKING:
    import random

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.sampled(3)

NOON = datetime(2026, 5, 1, 12, 30, 15, 250_000, tzinfo=UTC)

FORMS = [
    "ts > now() - INTERVAL 1 HOUR",
    "ts >= current_timestamp() - INTERVAL '90 minutes'",
    "now() - INTERVAL '1 02:00:00' DAY TO SECOND < ts",
    "ts + INTERVAL 1 HOUR > current_timestamp",
    "ts <= now()",
    "ts < now() + INTERVAL 10 SECONDS",
    "NOT (ts > now())",
    "ts BETWEEN now() - INTERVAL '1' HOUR AND now()",
    "ts BETWEEN now() - INTERVAL '1' HOUR AND TIMESTAMP '2026-05-01 12:00:00'",
    "now() BETWEEN ts AND until_ts",
    "now() - ts < INTERVAL 1 HOUR",
    "INTERVAL '30' MINUTE >= now() - ts",
    "ts - now() > INTERVAL 5 MINUTES",
    "ts > now() - 2 * INTERVAL 1 HOUR",
    "ts > timestampadd(MINUTE, -45, now())",
    "ts > localtimestamp() - INTERVAL 1 DAY",
    "ts >= date_trunc('hour', now())",
    "ts < date_trunc('HOUR', now()) - INTERVAL 30 MINUTES",
    "ts > date_trunc('day', now() - INTERVAL 1 DAY)",
    "ts + INTERVAL 1 MONTH > now()",
    "day = current_date()",
    "day >= current_date() - 7",
    "day > date_sub(current_date, 2)",
    "day <= date_add(curdate(), -1)",
    "day > current_date() - INTERVAL 1 DAY",
    "day < dateadd(DAY, 1, current_date())",
    "ts >= current_date()",
    "to_date(ts) = CAST(now() AS DATE)",
    "date(now() + INTERVAL 6 HOURS) > day",
    "day > now() - INTERVAL 36 HOURS",
    "seconds > unix_timestamp() - 3600",
    "unix_timestamp(ts) <= unix_timestamp()",
    "seconds <= unix_timestamp() + 60",
    "unix_timestamp() - 60 >= seconds AND ts > now() - INTERVAL 2 HOURS AND n % 2 = 0",
    "coalesce(ts, until_ts) > now() - INTERVAL 20 MINUTES AND day <= current_date()",
]
COLUMNS = "id BIGINT, ts TIMESTAMP, until_ts TIMESTAMP, day DATE, seconds BIGINT, n BIGINT"


def _query(condition: str):
    script = f"CREATE TABLE t ({COLUMNS}); CREATE TABLE r AS SELECT id FROM t WHERE {condition};"
    found = check_script(SourceText(script), EmptyCatalog(), default_registry())
    assert not found.errors, found.errors
    statement = found.statements[-1]
    assert isinstance(statement, CreateTable)
    assert statement.query is not None
    return statement.query


def _times(rng: random.Random) -> list[datetime | None]:
    steps = [timedelta(0), timedelta(microseconds=1), timedelta(seconds=1), timedelta(minutes=30)]
    near = [NOON + sign * step for step in steps for sign in (1, -1)]
    whole = [
        NOON.replace(minute=0, second=0, microsecond=0),
        NOON.replace(hour=0, minute=0, second=0, microsecond=0),
    ]
    spread = [NOON + timedelta(seconds=rng.uniform(-200_000, 200_000)) for _ in range(15)]
    return [*near, *whole, *spread, None]


@pytest.mark.parametrize("condition", FORMS)
def test_a_row_passes_between_its_moments(spark: SparkSession, rng: random.Random, condition: str):
    times = _times(rng)
    rows = [
        (
            number,
            ts,
            ts and ts + timedelta(minutes=rng.choice([0, 7, 300])),
            ts and ts.date(),
            ts and int(ts.timestamp()),
            number % 3,
        )
        for number, ts in enumerate(times)
    ]
    spark.createDataFrame(rows, COLUMNS).createOrReplaceTempView("t")
    query = _query(condition)
    aged = ageing(query, {"t": [each.split()[0] for each in COLUMNS.split(", ")]})
    assert aged is not None
    (kept,) = aged.rows
    assert aged.query.tree.args.get("where") is None
    moments = {row["id"]: row.asDict() for row in spark.sql(replace(kept, columns=("id",)).sql()).collect()}
    turning = [m for row in moments.values() for m in (row.get(FROM), row.get(UNTIL)) if m is not None]
    clocks = [NOON, NOON + timedelta(days=1), NOON - timedelta(hours=5)]
    for each in rng.sample(turning, min(4, len(turning))):
        clocks += [EPOCH + timedelta(microseconds=each + off) for off in (-1, 0)]
    wanted = spark.sql(
        " UNION ALL ".join(
            f"SELECT {number} AS clock, id FROM t WHERE {stopped(condition, clock)}"
            for number, clock in enumerate(clocks)
        )
    ).collect()
    for number, clock in enumerate(clocks):
        now = micros(clock)
        passing = {
            key
            for key, row in moments.items()
            if (row.get(FROM) is None or row[FROM] <= now) and (row.get(UNTIL) is None or now < row[UNTIL])
        }
        assert passing == {row["id"] for row in wanted if row["clock"] == number}, clock
