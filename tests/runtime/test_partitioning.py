"""Rows may be spread over tasks in any way; what comes out is the same."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import velostream
from refusals import refusal

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]

LINES = "\n".join(f"{n},c{n % 7},{n % 100}.25" for n in range(500))


@pytest.fixture(scope="module")
def database(spark, tmp_path_factory):
    with velostream.connect(tmp_path_factory.mktemp("data") / "velostream") as shared:
        shared.partition_strategy("by_length", by_length)
        yield shared


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    file = tmp_path_factory.mktemp("files") / "orders.csv"
    file.write_text(f"id,customer,amount\n{LINES}\n")
    return file


def by_length(rows: pa.RecordBatch, partitions: int) -> pa.Array:
    return pc.utf8_length(rows.column("customer"))


SPREADS = {
    "smart": "",
    "two": '"partitions" = "2"',
    "many": '"partitions" = "9"',
    "hash": '"partition.strategy" = "hash", "partitions" = "3"',
    "sticky": '"partition.strategy" = "sticky"',
    "round_robin": '"partition.strategy" = "round_robin", "partitions" = "4"',
    "own": '"partition.strategy" = "by_length", "partitions" = "5"',
}
STATEMENTS = {
    "groups": "SELECT upper(customer) AS customer, COUNT(*) AS n, SUM(amount) AS total FROM {} GROUP BY 1",
    "keyed": "SELECT customer, id, amount FROM {}",
}


@pytest.mark.parametrize("statement", STATEMENTS)
@pytest.mark.parametrize("spread", SPREADS)
def test_a_strategy_changes_no_row(database, orders, spread, statement):
    def made(name: str, properties: str) -> list[object]:
        given = ", ".join(filter(None, [properties, '"key" = "customer"' if statement == "keyed" else ""]))
        query = STATEMENTS[statement].format(f"file://{orders}")
        database.sql(f"CREATE TABLE {name} AS {query}" + (f" WITH ({given})" if given else ""))
        assert database.wait_idle(60), database.jobs()
        found = sorted(database.table(name).rows())
        database.sql(f"DROP TABLE {name}")
        return found

    expected = made("plain", "")
    assert len(expected) == 7
    assert made("spread", SPREADS[spread]) == expected


def test_rows_that_go_are_spread_too(database, tmp_path, wait_until):
    file = tmp_path / "orders.csv"
    file.write_text("customer,amount\na,1\nb,2\nccc,3\n")
    database.sql(
        f"CREATE TABLE shrinking AS SELECT customer, SUM(amount) AS total FROM file://{file} "
        'GROUP BY customer WITH ("partition.strategy" = "by_length", "partitions" = "2")'
    )
    assert database.wait_idle(60), database.jobs()
    file.write_text("customer,amount\na,1\nccc,4\n")
    table = database.table("shrinking")
    wait_until(lambda: sorted(table.rows()) == [("a", 1), ("ccc", 4)])


def test_explain_tells_where_rows_go(database, orders):
    def told(properties: str) -> str:
        query = f"SELECT customer, COUNT(*) AS n FROM file://{orders} GROUP BY customer"
        lines = database.explain(f"CREATE TABLE t AS {query} {properties}").splitlines()
        return next(line for line in lines if line.startswith("partitions: "))

    assert told("") == (
        "partitions: smart: the partitioning of the source is kept, whichever way it fits the groups: each "
        "task sums up its own rows, and only sums are brought together"
    )
    assert told('WITH ("partition.strategy" = "hash", "partitions" = "3")') == (
        "partitions: hash, 3 partitions: rows with the same customer are brought together before anything "
        "is computed"
    )


def test_a_strategy_that_nobody_knows_is_refused(database, orders):
    with refusal("sql.unknown_name", "by_lenght") as error:
        database.sql(
            f"CREATE TABLE t AS SELECT * FROM file://{orders} WITH (\"partition.strategy\" = 'by_lenght')"
        )
    assert error.value.hint == 'did you mean "by_length"?'


def test_hash_needs_something_that_belongs_together(database, orders):
    with refusal("sql.unsupported", "hash"):
        database.sql(
            f"CREATE TABLE t AS SELECT id FROM file://{orders} WITH (\"partition.strategy\" = 'hash')"
        )


def test_names_that_are_built_in_stay_so(database):
    with refusal("config", "hash"):
        database.partition_strategy("hash", by_length)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda rows, partitions: 1 / 0, "ZeroDivisionError"),
        (lambda rows, partitions: [0], "numbers for"),
    ],
    ids=["fails", "too few"],
)
def test_a_strategy_that_fails_is_not_the_fault_of_a_row(database, orders, function, said):
    database.partition_strategy("broken", function)
    with refusal("job", "broken", why=said):
        database.sql(f"SELECT * FROM file://{orders} WITH (\"partition.strategy\" = 'broken')").rows()
    assert not database.sql("SELECT * FROM dead_letters WHERE job = 'select'").rows()


def test_a_job_waits_for_its_strategy(tmp_path, spark, orders):
    statement = (
        f"CREATE TABLE t AS SELECT customer, COUNT(*) AS n FROM file://{orders} GROUP BY customer "
        'WITH ("partition.strategy" = "by_length")'
    )
    with velostream.connect(tmp_path / "data") as database:
        database.partition_strategy("by_length", by_length)
        database.sql(statement)
        assert database.wait_idle(60), database.jobs()
    with velostream.connect(tmp_path / "data") as database:
        assert not [job for job in database.jobs() if job.state.alive]
        assert len(database.table("t")) == 7
        database.partition_strategy("by_length", by_length)
        assert database.wait_idle(60), database.jobs()
        assert [job.name for job in database.jobs() if job.state.alive] == ["t"]
