"""What is answered over tables can be kept as a table, with the same result, or is refused with a reason."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from equivalence import agreement, corpus
from equivalence.four_ways import Findings, FourWays
from equivalence.selects import TABLES, Orders, Selects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from velostream.runtime.instance import Instance

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

REFUSALS = (
    r"would have two columns",
    r"the result has two columns named",
    r"would lose digits",
    r"may return another value",
    r"draws other rows each time",
    r"which no table can hold",
    r"which Spark does not hand over",
)
"""Why a query that is answered ad hoc may not be kept: docs/sql.md lists these."""


def settled(found: Findings) -> None:
    """Nothing is wrong, and what is refused is refused for a documented reason."""
    undocumented = {
        sql: reason
        for sql, reason in found.refused.items()
        if not any(re.search(refusal, reason) for refusal in REFUSALS)
    }
    assert not found.wrong, found.told()
    assert not undocumented, undocumented


@pytest.mark.timeout(7200)
def test_random_selects_are_the_same_four_ways(spark, opened, tmp_path, rng, rounds):
    database = opened(tmp_path / "data")
    for name, columns in TABLES.items():
        database.sql(f"CREATE TABLE {name} ({columns})")
    selects, found = Selects(rng), Findings()
    for _ in range(rounds(1, 100)):
        orders = Orders(rng)
        queries = [selects.query() for _ in range(rounds(12, 20))]
        ways = FourWays(spark, database, tuple(TABLES), orders.fill, orders.change)
        found += ways.compare(queries)
        ways.drop(queries)
        orders.empty(database)
    settled(found)
    assert found.agreed > 8 * len(found.invalid)


def kept_of(spark, database: Instance, corpora: Sequence[corpus.Corpus]) -> Findings:
    """What comes of the queries of other tests' files."""
    found = Findings()
    for each in corpora:
        each.make(database)
        ways = FourWays(spark, database, each.tables, each.fill, each.change, extended=True)
        found += ways.compare(each.queries)
        ways.drop(each.queries)
        tables = {row.name for row in database.sql("SHOW TABLES").rows()}
        for name in reversed(each.tables):
            database.sql(f"DROP {'TABLE' if name in tables else 'VIEW'} {name}")
    return found


@pytest.mark.timeout(7200)
def test_the_queries_that_two_engines_agree_on_can_be_kept(spark, opened, tmp_path, rng, rounds):
    tables = {"v": agreement.values(), "l": agreement.labels(), "nested": agreement.nested()}
    queries = [f"SELECT {line} FROM v" for line in agreement.lines("expressions")]
    queries += [*agreement.lines("queries"), *agreement.lines("spark_only")]
    queries = [sql for sql in queries if "TABLESAMPLE" not in sql]  # another sample each time
    drawn = rng.sample(queries, rounds(8, len(queries)))
    batches = [drawn[at : at + 20] for at in range(0, len(drawn), 20)]
    corpora = [corpus.of_arrow("agreement", tables, batch) for batch in batches]
    settled(kept_of(spark, opened(tmp_path / "data"), corpora))


@pytest.mark.timeout(7200)
def test_the_queries_of_the_fixtures_can_be_kept(spark, opened, tmp_path, rng, rounds):
    tables = corpus.fixture_tables()
    queries = corpus.fixture_queries()
    drawn = rng.sample(queries, rounds(6, len(queries)))
    batches = [drawn[at : at + 20] for at in range(0, len(drawn), 20)]
    settled(
        kept_of(
            spark, opened(tmp_path / "data"), [corpus.of_arrow("fixtures", tables, each) for each in batches]
        )
    )


@pytest.mark.timeout(7200)
def test_the_queries_of_case_files_can_be_kept_over_tables(spark, opened, tmp_path, rng, rounds):
    corpora = corpus.of_cases()
    drawn = rng.sample(corpora, rounds(3, len(corpora)))
    settled(kept_of(spark, opened(tmp_path / "data"), drawn))
