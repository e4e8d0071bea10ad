"""A query that is answered over tables can be kept as a table, with the same result, or is refused."""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING

import pytest

from equivalence.kept_queries import CHANGE, FILL, TABLES, difference, lines, queries
from velostream.errors import VelostreamError
from velostream.spark.dataframes import arrow_frame, private_session, rows_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]
TOGETHER = 20
"""Queries that one database keeps twice."""


def create(database: Instance, prefix: str, cases: Sequence[str]) -> dict[str, str]:
    kept = {f"{prefix}{number}": sql for number, sql in enumerate(cases)}
    for name, sql in kept.items():
        database.sql(f"CREATE TABLE {name} AS {sql}")
    return kept


def wrong(spark: SparkSession, database: Instance, kept: dict[str, str]) -> list[str]:
    """What is not as plain Spark has it: the answer now, the table, and SQL over the table."""
    assert database.wait_idle(120), database.jobs()
    plain = private_session(spark)
    for name in TABLES:
        arrow_frame(plain, database.table(name).snapshot()).createOrReplaceTempView(name)
    found = [
        f"{job.name}: {job.reason}" for job in database.jobs() if job.state not in ("running", "finished")
    ]
    right = {sql: rows_of(plain, sql) for sql in set(kept.values())}
    answers = {sql: database.sql(sql).arrow() for sql in right}
    for name, sql in kept.items():
        table = database.table(name)
        seen = {
            "answer": answers[sql],
            "table": table.snapshot(),
            "SQL": database.sql(f"SELECT * FROM {name}"),
        }
        seen["SQL"] = seen["SQL"].arrow()
        found += [
            f"{name} {sql}: {what} {line}"
            for what, rows in seen.items()
            if (line := difference(rows, right[sql]))
        ]
        assert len(list(table.rows())) == right[sql].num_rows
    return found


@pytest.mark.timeout(7200)
def test_queries_are_kept_as_they_are_answered(spark, opened, tmp_path, rng, rounds):
    every = queries()
    chosen = rng.sample(every, rounds(10, len(every)))
    for start in range(0, len(chosen), TOGETHER):
        cases = chosen[start : start + TOGETHER]
        database = opened(tmp_path / f"from{start}")
        for name, columns in TABLES.items():
            database.sql(f"CREATE TABLE {name} ({columns})")
        kept = create(database, "before", cases)
        assert wrong(spark, database, kept) == []
        for statement in FILL:
            database.sql(statement)
        kept |= create(database, "after", cases)
        assert wrong(spark, database, kept) == []
        for statement in CHANGE:
            database.sql(statement)
        assert wrong(spark, database, kept) == []
        database.close()


@pytest.fixture(scope="module")
def small(database: Instance) -> Instance:
    for name, columns in TABLES.items():
        database.sql(f"CREATE TABLE {name} ({columns})")
    return database


def test_what_cannot_be_kept_is_refused_with_the_reason(small):
    for line in lines("refused"):
        sql, reason = line.split(" -- ")
        with pytest.raises(VelostreamError) as caught:
            small.sql(f"CREATE TABLE refused AS {sql}")
        assert reason in str(caught.value), (sql, str(caught.value))
        assert caught.value.hint, sql
    assert "refused" not in [row[0] for row in small.sql("SHOW TABLES").rows()]


def test_over_a_file_the_same_is_kept_or_refused(database, tmp_path, wait_until):
    path = tmp_path / "days.csv"
    path.write_text("id,g,n,day\n1,a,3,2024-01-31\n2,a,,2024-02-29\n3,b,7,2023-12-31\n")
    database.sql(
        f"CREATE SOURCE days (id BIGINT, g STRING, n BIGINT, day DATE) FROM file://{path}"
        " WITH ('file.debounce' = '50ms')"
    )
    database.sql(
        "CREATE TABLE later AS"
        " SELECT id, day + INTERVAL 1 MONTH AS day, day - DATE'2024-01-01' AS since FROM days"
    )
    database.sql(
        "CREATE TABLE of_groups AS SELECT g, listagg(g || n, ',') WITHIN GROUP (ORDER BY g || n DESC) AS l,"
        " first(n) IGNORE NULLS > 0 AS f,"
        " percentile_cont(0.5) WITHIN GROUP (ORDER BY n) FILTER (WHERE n > 0) AS p,"
        " min_by(DISTINCT n, id) AS m, max(day) + INTERVAL 1 YEAR AS y FROM days GROUP BY g"
    )
    for sql, reason in (
        ("SELECT g, count(*) AS c FROM days GROUP BY GROUPING SETS ((g), ())", "over a source"),
        ("SELECT * FROM (SELECT g, n FROM days) PIVOT (sum(n) FOR g IN ('a'))", "PIVOT aggregates"),
        ("SELECT id FROM days UNION ALL VALUES (1L)", "rows of their own"),
        (
            "SELECT g COLLATE UTF8_LCASE AS g, count(*) AS c FROM days GROUP BY g COLLATE UTF8_LCASE",
            "collation",
        ),
        ("SELECT id, make_ym_interval(1) AS r FROM days", "INTERVAL YEAR TO MONTH"),
    ):
        with pytest.raises(VelostreamError, match=reason) as caught:
            database.sql(f"CREATE TABLE refused AS {sql}")
        assert caught.value.hint, sql
    path.write_text("id,g,n,day\n1,a,3,2024-01-31\n2,a,5,2024-02-29\n4,b,1,2024-03-31\n")
    wait_until(lambda: [row[0] for row in sorted(database.table("later").rows())] == [1, 2, 4])
    assert database.wait_idle()
    days = {row[0]: row[1:] for row in database.table("later").rows()}
    assert days[2] == (date(2024, 3, 29), timedelta(days=59))
    assert sorted(database.table("of_groups").rows()) == [
        ("a", "a5,a3", True, 4.0, 3, date(2025, 2, 28)),
        ("b", "b1", True, 1.0, 1, date(2025, 3, 31)),
    ]
