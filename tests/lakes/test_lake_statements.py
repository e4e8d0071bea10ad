"""Statements that write to tables of Delta Lake and Iceberg."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import velostream
from refusals import refusal
from velostream.spark.delta import DeltaEngine, read

if TYPE_CHECKING:
    from pathlib import Path

    from lakehouses import DeltaFolder, IcebergFolder, Lakehouse
    from pyspark.sql import SparkSession
    from tests.conftest import WaitUntil

    from velostream import Database

pytestmark = pytest.mark.spark


@pytest.fixture
def totals(db: Database) -> None:
    db.sql("CREATE TABLE totals (city STRING PRIMARY KEY, total DECIMAL(15,2), n INT)")
    db.sql("INSERT INTO totals VALUES ('Rome', 12345.67, 3), ('Bonn', 0.01, 1)")


def test_a_table_is_mirrored(db: Database, any_lake: Lakehouse, totals: None, wait_until: WaitUntil) -> None:
    db.sql(f"INSERT INTO {any_lake.uri('mirror')} SELECT * FROM totals EMIT CHANGES {any_lake.with_()}")

    def same() -> bool:
        return any_lake.rows("mirror") == Counter(tuple(row) for row in db.sql("SELECT * FROM totals").rows())

    wait_until(same)
    table = db.table("totals")
    table.update("Rome", total=Decimal("9999999999999.99"))
    table.delete(["Bonn"])
    table.insert([{"city": "Oslo \"'\\,\n", "total": None, "n": 0}])
    wait_until(same)
    table.insert([{"city": "Bonn", "total": 2, "n": 2}])
    wait_until(same)
    db.close()
    with velostream.connect(db.data_dir) as again:
        again.table("totals").delete(["Rome"])
        wait_until(lambda: {row[0] for row in any_lake.rows("mirror")} == {"Bonn", "Oslo \"'\\,\n"})


def test_groups_follow_their_source(
    db: Database, lake: Lakehouse, tmp_path: Path, wait_until: WaitUntil
) -> None:
    sales = tmp_path / "sales.csv"
    sales.write_text("city,amount\nRome,1.50\nBonn,2.25\nRome,1.00\n")
    db.sql(
        f"CREATE STREAM out AS SELECT city, SUM(amount) AS total FROM file://{sales} GROUP BY city "
        f"""{lake.with_(sink=lake.uri("groups"), watch="true")}"""
    )
    wait_until(lambda: lake.rows("groups") == Counter([("Rome", Decimal("2.50")), ("Bonn", Decimal("2.25"))]))
    with sales.open("a") as file:
        file.write("Bonn,0.75\nOslo,1.00\n")
    wanted = Counter([("Rome", Decimal("2.50")), ("Bonn", Decimal("3.00")), ("Oslo", Decimal("1.00"))])
    wait_until(lambda: lake.rows("groups") == wanted)


def test_rows_are_appended_and_columns_are_added(
    db: Database, lake: Lakehouse, tmp_path: Path, wait_until: WaitUntil
) -> None:
    events = tmp_path / "events.jsonl"
    events.write_text('{"id":1,"a":1}\n{"id":1,"a":1}\n')
    db.sql(f"INSERT INTO {lake.uri('log')} SELECT * FROM file://{events} {lake.with_(partition_by='id')}")
    wait_until(lambda: lake.rows("log") == Counter({(1, 1): 2}))
    with events.open("a") as file:
        file.write('{"id":2,"a":2,"z":"new"}\n')
    wait_until(lambda: lake.rows("log") == Counter({(1, 1, None): 2, (2, 2, "new"): 1}))


def test_rows_that_the_table_refuses_are_dead_letters_until_it_takes_them(
    db: Database, delta: DeltaFolder, totals: None, wait_until: WaitUntil
) -> None:
    schema = pa.schema([("city", pa.string()), ("total", pa.decimal128(15, 2)), ("n", pa.int32())])
    delta.make("strict", schema)
    table = DeltaTable(str(delta.folder / "strict"))
    table.alter.add_constraint({"few": "n < 3"})
    db.sql(f"INSERT INTO {delta.uri('strict')} SELECT * FROM totals EMIT CHANGES")
    wait_until(lambda: delta.rows("strict") == Counter([("Bonn", Decimal("0.01"), 1)]))
    (letter,) = db.sql("SELECT reason FROM dead_letters").rows()
    assert "few" in letter.reason
    table.alter.drop_constraint("few")
    db.sql("REPLAY DEAD LETTERS")
    wait_until(lambda: len(delta.rows("strict")) == 2)
    assert not db.sql("SELECT * FROM dead_letters").rows()


def test_rows_are_written_once(db: Database, lake: Lakehouse) -> None:
    made = f"INSERT INTO {lake.uri('values')} (id, amount) VALUES (1, 2.50), (2, 3.75) {lake.with_()}"
    db.sql(made)
    assert lake.rows("values") == Counter([(1, Decimal("2.50")), (2, Decimal("3.75"))])


def test_mistakes_are_named(db: Database, delta: DeltaFolder, iceberg: IcebergFolder, totals: None) -> None:
    copied = "SELECT * FROM totals EMIT CHANGES"
    with refusal("sink.missing", why="holds no Delta Lake table"):
        db.sql(f'INSERT INTO {delta.uri("x")} {copied} WITH ("table.create.if.missing" = "false")')
    (delta.folder / "full").mkdir()
    (delta.folder / "full" / "file").touch()
    with refusal("sink", why="holds files"):
        db.sql(f"INSERT INTO {delta.uri('full')} {copied}")
    with refusal("sink.missing", "catalog.db"):
        db.sql(f"INSERT INTO {iceberg.uri('x')} {copied}")
    with refusal("sink.config", why="names no table"):
        db.sql(
            f'INSERT INTO iceberg://{iceberg.folder}/w/t {copied} WITH ("table.create.if.missing" = "true")'
        )
    with refusal("sink.config", "nowhere", why="needs a catalogue"):
        db.sql(f"INSERT INTO iceberg://nowhere/ns.t {copied}")
    for scheme in ("delta", "iceberg"):
        with refusal("sql.unsupported", why="is a sink"):
            db.sql(f"CREATE TABLE t AS SELECT * FROM {scheme}:///nowhere/ns.t")
    with refusal("sql.unknown_name", "partition.bye"):
        db.sql(f'INSERT INTO {delta.uri("x")} {copied} WITH ("partition.bye" = "city")')


def test_statements_reach_what_they_may(
    spark: object, tmp_path: Path, delta: DeltaFolder, iceberg: IcebergFolder
) -> None:
    with velostream.connect(tmp_path / "data", allowed_roots=[tmp_path / "mine"], allowed_hosts=[]) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY)")
        for lake in (delta, iceberg):
            with refusal("sql.unsafe"):
                db.sql(f"INSERT INTO {lake.uri('t')} SELECT * FROM t EMIT CHANGES {lake.with_()}")
        with refusal("sql.unsafe", "127.0.0.1:9"):
            db.sql(
                "INSERT INTO iceberg://c/ns.t SELECT * FROM t EMIT CHANGES "
                'WITH ("uri" = "http://127.0.0.1:9")'
            )


def test_what_is_told_of_them(db: Database, delta: DeltaFolder, totals: None) -> None:
    shown = {row["name"]: row for row in db.sql("SHOW CONNECTORS").arrow().to_pylist()}
    for name, package in (("delta", "velostream[delta]"), ("iceberg", "velostream[iceberg]")):
        told = shown[name]
        assert (told["reads"], told["writes"], told["installed"]) == (False, True, True)
        assert (told["delivery"], told["package"]) == ("exactly_once", package)
    explained = str(db.sql(f"EXPLAIN INSERT INTO {delta.uri('x')} SELECT * FROM totals EMIT CHANGES").rows())
    assert "delta://" in explained
    assert not (delta.folder / "x").exists()


@pytest.mark.sampled(2)
def test_what_spark_reads_is_what_was_written(
    db: Database, delta: DeltaFolder, spark: SparkSession, wait_until: WaitUntil
) -> None:
    db.sql(
        "CREATE TABLE kinds (id INT PRIMARY KEY, b BOOLEAN, f DOUBLE, e DECIMAL(38, 10), d DATE, "
        "t TIMESTAMP, l TIMESTAMP_NTZ, y BINARY, a ARRAY<STRING>, m MAP<STRING, INT>, "
        "s STRUCT<x: INT, y: ARRAY<DATE>>)"
    )
    db.sql(
        "INSERT INTO kinds VALUES (1, true, 1.5, 1234567890123456789012345678.0123456789, DATE'2024-02-29', "
        "TIMESTAMP'2024-01-02 03:04:05.678901Z', TIMESTAMP_NTZ'2024-01-02 03:04:05.678901', X'00FF', "
        "array('a', NULL, ''), map('k', 1), named_struct('x', 1, 'y', array(DATE'2024-01-01'))), "
        "(2, NULL, double('NaN'), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"
    )
    db.sql(
        f"INSERT INTO {delta.uri('kinds')} SELECT * FROM kinds EMIT CHANGES {delta.with_(partition_by='d')}"
    )
    wait_until(lambda: len(delta.read("kinds")) == 2)
    db.table("kinds").update(2, b=False)
    wait_until(lambda: {row["b"] for row in delta.read("kinds").to_pylist()} == {True, False})
    path = delta.folder / "kinds"
    session = DeltaEngine(lambda: spark, {}).session()
    found = read(session, path, DeltaTable(str(path)).version()).toArrow().select(_names(db)).sort_by("id")
    moment = dt.datetime(2024, 1, 2, 3, 4, 5, 678901)
    assert list(found.to_pylist()[0].values()) == [
        1, True, 1.5, Decimal("1234567890123456789012345678.0123456789"), dt.date(2024, 2, 29),
        moment.replace(tzinfo=dt.UTC), moment, b"\x00\xff", ["a", None, ""], [("k", 1)],
        {"x": 1, "y": [dt.date(2024, 1, 1)]},
    ]  # fmt: skip
    assert str(list(found.to_pylist()[1].values())) == str([2, False, float("nan"), *[None] * 8])


def _names(db: Database) -> list[str]:
    return db.table("kinds").snapshot().schema.names
