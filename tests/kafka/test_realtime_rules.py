"""Which statements may ask for `"latency" = "realtime"`, and what the others are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from refusals import refusal

if TYPE_CHECKING:
    from kafka_clients import Topics

    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark

REALTIME = '"latency" = "realtime", "schema" = "id BIGINT, price DECIMAL(10,2), name STRING"'


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        ("CREATE TABLE r AS SELECT id FROM kafka://{t} WITH ({p})", "from topic to topic"),
        ("INSERT INTO file:///tmp/r.csv SELECT id FROM kafka://{t} WITH ({p})", "does not write to file://"),
        ("INSERT INTO kafka://{o} SELECT id FROM file:///tmp/r.csv WITH ({p})", "does not read file://"),
        ("INSERT INTO kafka://{o} SELECT COUNT(*) AS n FROM kafka://{t} WITH ({p})", "it aggregates"),
        (
            "INSERT INTO kafka://{o} SELECT DISTINCT id FROM kafka://{t} WITH ({p})",
            "DISTINCT looks at all rows",
        ),
        (
            "INSERT INTO kafka://{o} SELECT now() AS n FROM kafka://{t} WITH ({p})",
            "now() would be asked once",
        ),
        ("INSERT INTO kafka://{o} SELECT explode(array(1)) AS n FROM kafka://{t} WITH ({p})", "several rows"),
        ("INSERT INTO kafka://{o} SELECT CAST(id AS DOUBLE) AS d FROM kafka://{t} WITH ({p})", 'column "d"'),
        ("INSERT INTO kafka://{o} SELECT id AS a, a + 1 AS b FROM kafka://{t} WITH ({p})", '"a"'),
        ("INSERT INTO kafka://{o} SELECT id, SET_HEADER('a', id) FROM kafka://{t} WITH ({p})", "SET_HEADER"),
        (
            'INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "delivery" = "exactly_once")',
            "at least once",
        ),
        ('INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "format" = "avro")', "in Python"),
        ('INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "sink.format" = "csv")', "by Python"),
        (
            'INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "changelog" = "upsert")',
            "replace each",
        ),
        (
            'INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "partitions" = "2")',
            "about batches",
        ),
        (
            'INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "trigger.interval" = "1s")',
            "at least 5s",
        ),
        (
            'INSERT INTO kafka://{o} SELECT id FROM kafka://{t} WITH ({p}, "sink.timestamp.column" = "id")',
            "its own time",
        ),
    ],
)
def test_what_cannot_be_done_is_refused(database: Instance, topic: Topics, sql: str, why: str) -> None:
    before = {job.id for job in database.jobs()}
    with refusal("sql.unsupported", why=why) as caught:
        database.sql(sql.format(t=topic(1), o=topic(1), p=REALTIME))
    assert caught.value.hint
    assert {job.id for job in database.jobs()} == before


def test_a_missing_topic(database: Instance, topic: Topics) -> None:
    with refusal("sink.missing"):
        database.sql(f"INSERT INTO kafka://{topic(0)} SELECT id FROM kafka://{topic(1)} WITH ({REALTIME})")


def test_explain_tells_whether_it_can_be(database: Instance) -> None:
    into = "INSERT INTO kafka://b SELECT {} FROM kafka://a WITH ({})"
    asked = database.explain(into.format("id", REALTIME))
    assert "realtime: yes, each record by itself, in milliseconds" in asked
    assert "guarantee: at least once; a start may write again what came in the 5m before it" in asked
    assert 'realtime: possible, with "latency" = "realtime"' in database.explain(
        into.format("id", '"key" = "id"')
    )
    assert "realtime: no, it aggregates" in database.explain(into.format("COUNT(*) AS n", REALTIME))
    assert "realtime" not in database.explain(into.format("COUNT(*) AS n", '"key" = "n"'))
