"""How tables and their jobs begin, go on after a restart, are told of, and end."""

from __future__ import annotations

import gc
import json
import threading
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from pyspark.sql.streaming.query import StreamingQuery
from trading import QUICK, TRADES, append, rows, settle

from refusals import refusal
from velostream.errors import (
    JobError,
    SqlError,
    TypeMismatchError,
    UnknownNameError,
)

pytestmark = pytest.mark.spark


# --- statements about tables and jobs -----------------------------------------------------------------


def test_create_again_replace_and_drop(database, trades, name):
    sql = f"TABLE {name} AS SELECT trade_id FROM file://{trades}"
    database.sql(f"CREATE {sql}")
    with refusal("sql.duplicate_name", name):
        database.sql(f"CREATE {sql}")
    database.sql(f"CREATE TABLE IF NOT EXISTS {name} AS SELECT price FROM file://{trades}")
    assert database.table(name).spec.visible == ("trade_id",)
    database.sql(f"CREATE OR REPLACE TABLE {name} AS SELECT price, symbol FROM file://{trades}")
    assert database.table(name).spec.visible == ("price", "symbol")
    database.sql(f"CREATE TABLE {name}_d AS SELECT symbol FROM {name}")
    with refusal("sql.duplicate_name", f"{name}_d"):
        database.sql(f"DROP TABLE {name}")
    database.sql(f"DROP TABLE {name}_d; DROP TABLE {name}; DROP TABLE IF EXISTS {name}")
    with pytest.raises(UnknownNameError):
        database.sql(f"SELECT * FROM {name}")
    with pytest.raises(UnknownNameError):
        database.job(name)


def test_pause_resume_and_stop(database, trades, name):
    database.sql(f"CREATE TABLE {name} AS SELECT trade_id FROM file://{trades}")
    database.sql(f"PAUSE JOB {name}")
    assert database.job(name).state == "paused"
    append(trades, "T5,u1,X,1,1.00\n")
    settle(database)
    assert len(database.table(name)) == 4
    database.sql(f"RESUME JOB {name}")
    settle(database)
    assert len(database.table(name)) == 5
    database.sql(f"STOP JOB {name}")
    assert database.job(name).state == "stopped"
    listed = {row.name: row.state for row in database.sql("SHOW JOBS")}
    assert listed[name] == "stopped"


def test_show_describe_and_explain(database, trades, name):
    database.sql(
        f"CREATE TABLE {name} AS SELECT symbol, MAX(price) AS top FROM file://{trades} GROUP BY symbol"
    )
    shown = {row.name: row for row in database.sql("SHOW TABLES")}
    assert (shown[name].rows, shown[name].key, shown[name].health) == (3, "symbol", "healthy")
    assert database.sql(f"SHOW CREATE {name}").scalar().startswith(f"CREATE TABLE {name} AS")
    told = database.explain(f"CREATE TABLE z AS SELECT symbol, MAX(top) FROM {name} GROUP BY symbol")
    assert "merge" in told
    assert "full recompute" in database.explain(
        f"CREATE TABLE z AS SELECT * FROM {name} ORDER BY top LIMIT 1"
    )


def test_a_failed_create_leaves_nothing(database, tmp_path, name):
    with refusal("source.missing", f"{tmp_path}/none.csv"):
        database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{tmp_path}/none.csv")
    assert name not in {row.name for row in database.sql("SHOW TABLES")}
    (tmp_path / "none.csv").write_text("a\n1\n")
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{tmp_path}/none.csv")
    assert rows(database, name) == [(1,)]


@pytest.mark.parametrize(
    ("sql", "what"),
    [
        (
            "CREATE TABLE z AS SELECT DISTINCT symbol, AVG(price) OVER (ORDER BY price) FROM {f}",
            "DISTINCT beside OVER",
        ),
        (
            "CREATE TABLE z AS SELECT a.symbol FROM {f} a JOIN {f} b ON a.symbol = b.symbol",
            "without a bound in time",
        ),
        ("CREATE TABLE z AS SELECT symbol FROM {f} EMIT FINAL", "EMIT FINAL"),
        ("CREATE TABLE z AS SELECT symbol FROM {f} ORDER BY price LIMIT 3", "LIMIT"),
        ("CREATE TABLE z AS SELECT symbol, now() AS t FROM {f}", "now"),
        (
            "INSERT INTO file://{out} SELECT symbol, COUNT(*) AS n FROM {f} GROUP BY symbol",
            "rows of this query are updated",
        ),
    ],
)
def test_later_features_say_so(database, trades, tmp_path, sql, what):
    with refusal("sql.unsupported", why=what):
        database.sql(sql.format(f=f"file://{trades}", out=tmp_path / "out.csv"))
    assert database.catalog.get("z") is None


# --- sinks --------------------------------------------------------------------------------------------


def test_sinks_hold_each_row_once_across_restarts(opened, trades, tmp_path, wait_until):
    database = opened(tmp_path / "data")
    out = tmp_path / "out"
    for form in ("csv", "jsonl", "parquet"):
        database.sql(f"INSERT INTO file://{out}/x.{form} SELECT trade_id, price FROM file://{trades}")
    for number in range(5, 8):
        append(trades, f"T{number},u1,X,1,1.{number}0\n")
        settle(database)
        database.close()
        database = opened(tmp_path / "data")
    append(trades, "T8,u1,X,1,1.80\n")
    settle(database)
    wanted = {f"T{n}" for n in range(1, 9)}
    text = (out / "x.csv").read_text().splitlines()
    assert text[:2] == ["trade_id,price", "T1,150.25"]
    assert sorted(line.split(",")[0] for line in text[1:]) == sorted(wanted)
    lines = (out / "x.jsonl").read_text().splitlines()
    assert lines[0] == '{"trade_id":"T1","price":150.25}'
    assert sorted(json.loads(line)["trade_id"] for line in lines) == sorted(wanted)
    assert sorted(pq.read_table(out / "x.parquet").column("trade_id").to_pylist()) == sorted(wanted)


def test_two_sinks_of_one_name_are_two_jobs(opened, trades, tmp_path):
    database = opened(tmp_path / "data")
    for folder in ("a", "b"):
        database.sql(f"INSERT INTO file://{tmp_path}/{folder}/out.csv SELECT trade_id FROM file://{trades}")
    with refusal("sql.changed_statement", why="another statement"):
        database.sql(f"INSERT INTO file://{tmp_path}/a/out.csv SELECT symbol FROM file://{trades}")
    database.close()
    database = opened(tmp_path / "data")
    append(trades, "T5,u1,X,1,1.00\n")
    settle(database)
    for folder in ("a", "b"):
        assert (tmp_path / folder / "out.csv").read_text().splitlines()[-1] == "T5"


def test_a_sink_of_fixed_columns_says_when_they_change(database, tmp_path, wait_until):
    path, out = tmp_path / "in.csv", tmp_path / "out"
    path.write_text("id,v\n1,1.50\n")
    for form in ("csv", "jsonl", "parquet"):
        database.sql(f"INSERT INTO file://{out}/{form}-x.{form} SELECT * FROM file://{path} {QUICK}")
    (parquet,) = [job.id for job in database.jobs() if job.name.startswith("insert-parquet-x")]
    append(path, "2,1.505\n")
    wait_until(lambda: database.job(parquet).state == "failed", 60)
    assert '"v" is decimal128(18, 2)' in database.job(parquet).info.reason
    settle(database)
    assert (out / "csv-x.csv").read_text().splitlines() == ["id,v", "1,1.50", "2,1.505"]
    assert (out / "jsonl-x.jsonl").read_text().splitlines() == ['{"id":1,"v":1.50}', '{"id":2,"v":1.505}']


def test_a_sink_says_that_it_cannot_take_rows_back(database, name, tmp_path, wait_until):
    database.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)")
    database.sql(f"INSERT INTO {name} VALUES (1), (2)")
    database.sql(f"INSERT INTO file://{tmp_path}/{name}.csv SELECT id FROM {name} EMIT CHANGES")
    database.sql(f"DELETE FROM {name} WHERE id = 1")
    (job,) = [job for job in database.jobs() if job.name.startswith(f"insert-{name}")]
    wait_until(lambda: database.job(job.id).state == "failed")
    assert "retracted" in database.job(job.id).info.reason
    assert (tmp_path / f"{name}.csv").read_text() == "id\n1\n2\n"


# --- across restarts ------------------------------------------------------------------------------------


def test_everything_resumes_as_it_was(opened, trades, tmp_path):
    database = opened(tmp_path / "data")
    database.sql(f"CREATE TABLE t AS SELECT * FROM file://{trades} {QUICK}")
    database.sql("CREATE TABLE g AS SELECT symbol, SUM(quantity) AS q FROM t GROUP BY symbol")
    database.sql("CREATE TABLE hand (id BIGINT PRIMARY KEY); INSERT INTO hand VALUES (1)")
    database.sql(f"CREATE TABLE paused AS SELECT trade_id FROM file://{trades}; PAUSE JOB paused")
    version = database.table("g").version
    database.close()
    trades.write_text(TRADES.replace("T3,u1,AAPL,3", "T3,u1,AAPL,30") + "T5,u1,IBM,1,2.125\n")
    database = opened(tmp_path / "data")
    settle(database)
    assert rows(database, "g") == [("AAPL", 40), ("IBM", 8), ("MSFT", 5)]
    assert database.table("g").version == version + 1
    assert ("T5", "u1", "IBM", 1, Decimal("2.125")) in rows(database, "t")
    assert rows(database, "hand") == [(1,)]
    assert len(database.table("paused")) == 4
    assert database.job("paused").state in ("paused", "stopped")
    database.sql("RESUME JOB paused")
    settle(database)
    assert len(database.table("paused")) == 5


def test_a_table_with_a_python_function_waits_for_it_after_a_restart(opened, trades, tmp_path):
    def tripled(value: int) -> int:
        return value * 3

    database = opened(tmp_path / "data")
    database.udf(tripled)
    database.sql(f"CREATE TABLE t AS SELECT trade_id, tripled(quantity) AS q FROM file://{trades}")
    database.close()
    append(trades, "T5,u1,X,2,1.00\n")
    database = opened(tmp_path / "data")
    assert len(database.table("t")) == 4
    database.udf(tripled)
    settle(database)
    assert ("T5", 6) in rows(database, "t")


def test_mistakes_are_told_at_creation(database, trades, name):
    with refusal("sql.unknown_name", "pricee", at="pricee"):
        database.sql(f"CREATE TABLE {name} AS SELECT pricee FROM file://{trades}")
    with pytest.raises(SqlError):
        database.sql(f"CREATE TABLE {name} AS SELECT symbol + 1 FROM file://{trades} GROUP BY user_id")
    with pytest.raises((SqlError, TypeMismatchError, JobError)):
        database.sql(f"CREATE TABLE {name} AS SELECT date_add(price, 'x') AS y FROM file://{trades}")
    assert database.catalog.get(name) is None


def test_rows_that_a_filter_drops_count_as_read(database, trades, name):
    database.sql(f"CREATE TABLE {name} AS SELECT trade_id FROM file://{trades} WHERE quantity > 5 {QUICK}")
    with trades.open("a") as out:
        out.write("T5,u1,AAPL,1,1.00\nT6,u1,AAPL,many,1.00\n")
    assert database.wait_idle(60)
    stats = next(job.stats for job in database.jobs() if job.name == name)
    assert (stats.records_in, stats.records_out, stats.bad_rows) == (6, 2, 1)


def test_a_dropped_table_leaves_nothing_behind(database, trades, name, wait_until):
    """Java holds our function by its query: a query that we went on holding would never be freed.

    Nor would the thread that answers the query's calls end by itself.
    """

    def queries() -> list[str]:
        gc.collect()
        return [item.name for item in gc.get_objects() if isinstance(item, StreamingQuery)]

    threads = threading.active_count()
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{trades} {QUICK}")
    job = next(job for job in database.jobs() if job.name == name)
    assert job.id in queries()
    assert threading.active_count() > threads
    database.sql(f"DROP TABLE {name}")
    assert job.id not in queries()
    wait_until(lambda: threading.active_count() <= threads)
