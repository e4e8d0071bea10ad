"""Intervals of days to seconds: columns like any other, in tables, keys, aggregates, SQL and sinks."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.formats.encoder import encoder_for

if TYPE_CHECKING:
    from velostream.runtime.instance import Instance

pytestmark = pytest.mark.spark
HOUR = timedelta(hours=1)


def filled(database: Instance) -> None:
    database.sql("CREATE TABLE trips (id BIGINT PRIMARY KEY, who STRING, left TIMESTAMP, came TIMESTAMP)")
    database.sql(
        "INSERT INTO trips VALUES"
        " (1, 'ann', TIMESTAMP'2024-01-01 10:00:00', TIMESTAMP'2024-01-01 11:00:00'),"
        " (2, 'ann', TIMESTAMP'2024-01-02 10:00:00', TIMESTAMP'2024-01-02 12:00:00.000001'),"
        " (3, 'bob', TIMESTAMP'2024-01-02 10:00:00', TIMESTAMP'2024-01-02 11:00:00'),"
        " (4, 'bob', null, TIMESTAMP'2024-01-02 09:00:00')"
    )


def test_an_interval_lives_in_a_table_and_comes_back_after_a_restart(opened, tmp_path):
    database = opened(tmp_path / "data")
    filled(database)
    database.sql("CREATE TABLE took AS SELECT id, who, came - left AS took FROM trips")
    database.sql(
        "CREATE TABLE often AS SELECT came - left AS took, count(*) AS n FROM trips GROUP BY came - left"
    )
    database.sql(
        "CREATE TABLE sums AS SELECT who, sum(took) AS total, avg(took) AS mean, min(took) AS least,"
        " max(took) AS most, count(DISTINCT took) AS n FROM took GROUP BY who"
    )
    database.sql("CREATE TABLE longest AS SELECT id, took FROM took ORDER BY took DESC NULLS LAST LIMIT 1")
    for _ in range(2):
        assert database.wait_idle()
        assert database.table("took").get(2).took == 2 * HOUR + timedelta(microseconds=1)
        assert database.table("often").get(HOUR).n == 2
        assert database.table("often").get(None).n == 1
        total = 3 * HOUR + timedelta(microseconds=1)
        assert database.table("sums").get("ann") == (
            "ann",
            total,
            timedelta(hours=1, minutes=30, microseconds=1),
            HOUR,
            2 * HOUR + timedelta(microseconds=1),
            2,
        )
        assert database.table("longest").snapshot().to_pylist()[0]["id"] == 2
        assert database.table("took").snapshot().schema.field("took").type == pa.duration("us")
        assert database.sql("DESCRIBE took").arrow().to_pylist()[2]["type"] == "INTERVAL DAY TO SECOND"
        database.close()
        database = opened(tmp_path / "data")
    database.sql("UPDATE trips SET came = came + INTERVAL 1 HOUR WHERE id = 3")
    database.sql("DELETE FROM trips WHERE id = 2")
    assert database.wait_idle()
    assert database.table("often").get(HOUR).n == 1
    assert database.table("often").get(2 * HOUR).n == 1
    assert database.table("sums").get("ann")[1:] == (HOUR, HOUR, HOUR, HOUR, 1)


def test_sql_over_intervals_and_what_is_written_of_them(database, tmp_path):
    filled(database)
    database.sql("CREATE TABLE spans AS SELECT id, came - left AS took FROM trips")
    assert database.wait_idle()
    plain = database.sql("SELECT took FROM spans WHERE id = 1")
    assert (plain.engine, plain.rows()) == ("duckdb", [(HOUR,)])
    assert database.sql("SELECT id FROM spans WHERE took > INTERVAL '90' MINUTE").rows() == [(2,)]
    assert database.sql("SELECT max(took) + INTERVAL 1 DAY AS m FROM spans").rows() == [
        (26 * HOUR + timedelta(microseconds=1),)
    ]
    assert min(database.sql("SELECT DISTINCT took FROM spans WHERE id <> 4").rows()) == (HOUR,)
    assert database.sql("SELECT took FROM spans ORDER BY id").df()["took"][0] == HOUR
    out = tmp_path / "spans.jsonl"
    database.sql(f"CREATE STREAM written AS SELECT id, took FROM spans WITH ('sink' = 'file://{out}')")
    assert database.wait_idle()
    written = {row["id"]: row["took"] for row in map(json.loads, out.read_text().splitlines())}
    assert written == {1: "3600s", 2: "7200.000001s", 3: "3600s", 4: None}
    with refusal("config", "duration"):
        encoder_for("avro", database.table("spans").snapshot().schema)


def test_an_interval_can_be_declared_and_inserted(database):
    database.sql("CREATE TABLE waits (id BIGINT PRIMARY KEY, waited INTERVAL DAY TO SECOND)")
    database.sql("INSERT INTO waits VALUES (1, INTERVAL '1 02:03:04.5' DAY TO SECOND), (2, null)")
    database.table("waits").insert([{"id": 3, "waited": HOUR}])
    database.sql("CREATE TABLE longer AS SELECT id, waited * 2 AS waited FROM waits")
    assert database.wait_idle()
    first = timedelta(days=1, hours=2, minutes=3, seconds=4.5)
    assert sorted(database.table("longer").rows()) == [(1, 2 * first), (2, None), (3, 2 * HOUR)]
    assert "waited INTERVAL DAY TO SECOND" in database.sql("SHOW CREATE waits").rows()[0][0]


@pytest.mark.parametrize("kind", ["INTERVAL", "INTERVAL YEAR TO MONTH", "INTERVAL MONTH", "TIME", "TIME(3)"])
def test_types_that_no_table_can_hold_are_refused_by_name(database, kind):
    with refusal("sql.type", kind.partition("(")[0], at="x") as caught:
        database.sql(f"CREATE TABLE refused (id BIGINT PRIMARY KEY, x {kind})")
    assert caught.value.hint
