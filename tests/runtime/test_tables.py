"""What a user does with tables, statement by statement, on a real Spark."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from trading import QUICK, TRADES, append, rows, settle

from refusals import check_refusal, refusal
from velostream.errors import (
    UnknownNameError,
)

pytestmark = [pytest.mark.spark, pytest.mark.sampled(3)]


# --- where rows come from ---------------------------------------------------------------------------


def test_formats_give_the_same_rows(database, tmp_path, name):
    table = pa.table({"id": [1, 2], "price": [Decimal("1.50"), None], "tags": [["a", "b"], []]})
    pq.write_table(table, tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_text(
        '{"id":1,"price":1.50,"tags":["a","b"]}\n{"id":2,"price":null,"tags":[]}\n'
    )
    (tmp_path / "x.json").write_text('[{"id":1,"price":1.50,"tags":["a","b"]},\n {"id":2,"tags":[]}]')
    for form in ("parquet", "jsonl", "json"):
        database.sql(f"CREATE TABLE {name}_{form} AS SELECT id, price, tags FROM file://{tmp_path}/x.{form}")
        assert rows(database, f"{name}_{form}") == [(1, Decimal("1.50"), ["a", "b"]), (2, None, [])]


def test_a_continuous_select_shows_what_comes_and_what_goes(database, trades):
    sql = f"SELECT trade_id, price FROM file://{trades} WHERE quantity > 4 {QUICK}"
    with database.stream(sql) as live:
        batches = live.batches()
        added, removed = next(batches)
        assert sorted(added.column("trade_id").to_pylist()) == ["T1", "T2", "T4"]
        trades.write_text(trades.read_text().replace("T2,u2,MSFT,5,300.10", "T2,u2,MSFT,6,301.10"))
        added, removed = next(batches)
        assert (added.to_pylist(), removed.to_pylist()) == (
            [{"trade_id": "T2", "price": Decimal("301.10")}],
            [{"trade_id": "T2", "price": Decimal("300.10")}],
        )


def test_a_grouped_continuous_select_is_a_live_view(database, trades, wait_until):
    with database.stream(f"SELECT user_id, COUNT(*) AS n FROM file://{trades} GROUP BY user_id") as live:
        wait_until(lambda: live.table.get("u1").n == 2)
        append(trades, "T5,u1,X,1,1.00\n")
        wait_until(lambda: live.table.get("u1").n == 3)


def test_a_select_over_a_source_reads_what_is_there_and_ends(database, trades):
    assert database.sql(f"SELECT COUNT(*) AS n, SUM(quantity) AS q FROM file://{trades}").rows() == [(4, 25)]
    found = database.sql(f"SELECT trade_id FROM file://{trades} WHERE price > 151").rows()
    assert found == [("T2",)]
    given = {"p": Decimal("151.00"), "s": "it's", "n": -1}
    asked = f"SELECT trade_id, :s AS s, :n AS n FROM file://{trades} WHERE price > :p"
    assert database.sql(asked, given).rows() == [("T2", "it's", -1)]
    assert database.sql(f"SELECT trade_id FROM file://{trades} WHERE symbol = ?", ["IBM"]).rows() == [("T4",)]
    with refusal("sql", ":p"):
        database.sql(f"SELECT * FROM file://{trades} WHERE price > :p")


def test_a_stream_to_the_console_shows_what_comes_and_what_goes(database, name, capsys, wait_until):
    database.sql(f"CREATE TABLE {name}_t (id BIGINT PRIMARY KEY, v STRING)")
    database.sql(f"INSERT INTO {name}_t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    database.sql(f"CREATE STREAM {name} AS SELECT v, id FROM {name}_t WHERE id < 3")
    shown = wait_until(lambda: capsys.readouterr().out).splitlines()
    assert sorted(shown) == ['{"v":"a","id":1}', '{"v":"b","id":2}']
    database.sql(f"UPDATE {name}_t SET v = 'z' WHERE id = 2")
    shown = wait_until(lambda: capsys.readouterr().out).splitlines()
    assert shown == ['{"v":"b","id":2,"_weight":-1}', '{"v":"z","id":2}']
    database.sql(f"DELETE FROM {name}_t WHERE id = 1")
    assert wait_until(lambda: capsys.readouterr().out) == '{"v":"a","id":1,"_weight":-1}\n'
    assert database.job(name).state == "running"
    database.sql(f"DROP STREAM {name}; DROP TABLE {name}_t")


def test_a_stream_into_a_file_fails_when_a_row_is_taken_back(database, tmp_path, name, wait_until):
    out = tmp_path / "out.jsonl"
    database.sql(f"CREATE TABLE {name}_t (id BIGINT PRIMARY KEY); INSERT INTO {name}_t VALUES (1), (2)")
    database.sql(f"CREATE STREAM {name} AS SELECT * FROM {name}_t WITH ('sink' = 'file://{out}')")
    database.sql(f"DELETE FROM {name}_t WHERE id = 1")
    wait_until(lambda: database.job(name).state == "failed")
    check_refusal(database.job(name).error, "sql.unsupported", why="only append")
    assert sorted(out.read_text().splitlines()) == ['{"id":1}', '{"id":2}']
    database.sql(f"DROP STREAM {name}; DROP TABLE {name}_t")


# --- keys -------------------------------------------------------------------------------------------


def test_the_later_row_of_a_key_wins_and_the_earlier_comes_back(database, trades, name):
    database.sql(
        f"CREATE TABLE {name} AS SELECT user_id, symbol, quantity"
        f" FROM file://{trades} {QUICK[:-1]}, 'key' = 'user_id')"
    )
    table = database.table(name)
    assert table.get("u1").quantity == 3
    append(trades, "T5,u1,GOOG,50,9.00\n")
    settle(database)
    assert table.get("u1") == ("u1", "GOOG", 50)
    trades.write_text(TRADES)
    settle(database)
    assert table.get("u1") == ("u1", "AAPL", 3)
    trades.write_text(TRADES.replace("T3,u1", "T3,u9"))
    settle(database)
    assert table.get("u1").quantity == 10
    assert table.get("u9").quantity == 3


def test_declared_columns_cast_and_name_the_result(database, trades, name):
    database.sql(
        f"CREATE TABLE {name} (id STRING PRIMARY KEY, q DECIMAL(10,3), p DOUBLE) AS"
        f" SELECT trade_id, quantity, price FROM file://{trades}"
    )
    assert database.table(name).get("T1") == ("T1", Decimal("10.000"), 150.25)
    described = database.sql(f"DESCRIBE {name}").rows()
    assert [(row[0], row[1].replace(" ", ""), row[2]) for row in described] == [
        ("id", "STRING", True),
        ("q", "DECIMAL(10,3)", False),
        ("p", "DOUBLE", False),
    ]


def test_null_and_composite_keys(database, trades, name):
    database.sql(
        f"CREATE TABLE {name} AS SELECT user_id, symbol, COUNT(*) AS n FROM file://{trades} GROUP BY ALL"
    )
    table = database.table(name)
    assert table.get("u1", "AAPL").n == 2
    assert table.get(None, "IBM").n == 1
    assert ("u2", "MSFT") in table


def test_a_key_over_an_unkeyed_table_holds_one_row_each(database, trades, name):
    database.sql(f"CREATE TABLE {name}_base AS SELECT * FROM file://{trades} {QUICK}")
    database.sql(f"CREATE TABLE {name} AS SELECT user_id, symbol FROM {name}_base WITH ('key' = 'user_id')")
    assert len(database.table(name)) == 3
    trades.write_text(TRADES.replace("T2,u2", "T2,u3"))
    settle(database)
    assert {row[0] for row in rows(database, name)} == {"u1", "u3", None}


# --- shapes of queries --------------------------------------------------------------------------------


def test_rows_appear_and_vanish_with_having(database, trades, name):
    database.sql(
        f"CREATE TABLE {name} AS SELECT symbol, COUNT(*) AS n FROM file://{trades}"
        f" GROUP BY symbol HAVING n > 1 {QUICK}"
    )
    assert rows(database, name) == [("AAPL", 2)]
    append(trades, "T5,u1,IBM,1,1.00\n")
    settle(database)
    assert rows(database, name) == [("AAPL", 2), ("IBM", 2)]
    trades.write_text(TRADES.replace("T3,u1,AAPL", "T3,u1,MSFT"))
    settle(database)
    assert rows(database, name) == [("MSFT", 2)]


def test_two_files_in_one_table(database, trades, tmp_path, name):
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "X1", "q": 1}\n')
    database.sql(
        f"CREATE TABLE {name} AS SELECT trade_id AS id, quantity AS q FROM file://{trades}"
        f" UNION ALL SELECT id, q FROM file://{other}"
    )
    append(other, '{"id": "X2", "q": 2}\n')
    append(trades, "T5,u1,IBM,1,1.00\n")
    settle(database)
    assert {row[0] for row in rows(database, name)} == {"T1", "T2", "T3", "T4", "T5", "X1", "X2"}


def test_a_view_is_expanded_where_it_is_used(database, trades, name):
    database.sql(f"CREATE VIEW {name}_v AS SELECT user_id, quantity FROM file://{trades} WHERE quantity > 3")
    database.sql(f"CREATE TABLE {name} AS SELECT user_id, SUM(quantity) AS q FROM {name}_v GROUP BY user_id")
    assert rows(database, name) == [("u1", 10), ("u2", 5), (None, 7)]


def test_a_python_function_in_sql(database, trades, name):
    @database.udf
    def shout(text: str) -> str:
        return f"{text}!"

    @database.udf(returns="decimal(20,2)", name="doubled")
    def twice(value):
        return None if value is None else value * 2

    database.sql(
        f"CREATE TABLE {name} AS SELECT shout(symbol) AS s, doubled(price) AS p FROM file://{trades} {QUICK}"
    )
    assert rows(database, name) == [
        ("AAPL!", Decimal("300.50")),
        ("AAPL!", Decimal("302.00")),
        ("IBM!", None),
        ("MSFT!", Decimal("600.20")),
    ]
    trades.write_text(TRADES.replace("T1,u1,AAPL,10,150.25\n", ""))
    settle(database)
    assert len(database.table(name)) == 3
    assert database.sql(f"SELECT shout('x') AS a FROM {name} LIMIT 1").scalar() == "x!"


def test_deletes_flow_through_several_tables(database, name):
    database.sql(f"CREATE TABLE {name} (id BIGINT PRIMARY KEY, grp STRING, v DECIMAL(10,2))")
    database.sql(f"INSERT INTO {name} VALUES (1, 'a', 1.50), (2, 'a', 2.50), (3, 'b', 4.00)")
    database.sql(
        f"CREATE TABLE {name}_g AS SELECT grp, SUM(v) AS s, MAX(v) AS m, COUNT(*) AS n"
        f" FROM {name} GROUP BY grp"
    )
    database.sql(f"CREATE TABLE {name}_t AS SELECT SUM(s) AS total, COUNT(*) AS groups FROM {name}_g")
    database.sql(f"CREATE TABLE {name}_j AS SELECT x.id, g.s FROM {name} x JOIN {name}_g g ON x.grp = g.grp")
    database.sql(f"DELETE FROM {name} WHERE id = 2")
    database.sql(f"UPDATE {name} SET grp = 'a' WHERE id = 3")
    settle(database)
    assert rows(database, f"{name}_g") == [("a", Decimal("5.50"), Decimal("4.00"), 2)]
    assert rows(database, f"{name}_t") == [(Decimal("5.50"), 1)]
    assert rows(database, f"{name}_j") == [(1, Decimal("5.50")), (3, Decimal("5.50"))]
    database.sql(f"DELETE FROM {name}")
    settle(database)
    assert rows(database, f"{name}_g") == rows(database, f"{name}_j") == []
    assert rows(database, f"{name}_t") == [(None, 0)]


# --- bad rows and wider columns -----------------------------------------------------------------------


def test_bad_rows_are_kept_with_their_reason(database, trades, name):
    database.sql(f"CREATE TABLE {name} AS SELECT trade_id, quantity, price FROM file://{trades}")
    database.sql(
        f"CREATE TABLE {name}_sums AS SELECT user_id, SUM(quantity) AS q"
        f" FROM file://{trades} GROUP BY user_id"
    )
    append(trades, "T5,short\nT6,u1,X,many,1.00\nT7,u1,X,7,1.00\n")
    settle(database)
    assert database.table(name).count() == 5
    assert database.table(f"{name}_sums").get("u1").q == 20
    letters = database.sql(
        "SELECT reason, source, raw FROM dead_letters WHERE job = :job", {"job": name}
    ).rows()
    assert sorted(bytes(row.raw) for row in letters) == [b"T5,short", b"T6,u1,X,many,1.00"]
    assert all(str(trades) in row.source for row in letters)
    assert any("many" in row.reason for row in letters)


def test_rows_that_cannot_be_computed_are_dead_letters(database, trades, name):
    database.sql(
        f"CREATE TABLE {name} AS SELECT trade_id, 100 / (quantity - 5) AS r FROM file://{trades} {QUICK}"
    )
    database.sql(f"CREATE TABLE {name}_derived AS SELECT trade_id, 1 / (r - 20) AS z FROM {name}")
    assert {row[0] for row in rows(database, name)} == {"T1", "T3", "T4"}
    assert {row[0] for row in rows(database, f"{name}_derived")} == {"T3", "T4"}
    trades.write_text(
        TRADES.replace("T2,u2,MSFT,5", "T2,u2,MSFT,6").replace("T1,u1,AAPL,10", "T1,u1,AAPL,11")
    )
    settle(database)
    assert {row[0] for row in rows(database, name)} == {"T1", "T2", "T3", "T4"}
    assert {row[0] for row in rows(database, f"{name}_derived")} == {"T1", "T2", "T3", "T4"}
    letters = database.sql(f"SELECT job, reason FROM dead_letters WHERE job LIKE '{name}%'").rows()
    assert sorted(row.job for row in letters) == [name, f"{name}_derived"]
    assert all("division by zero" in row.reason.lower() for row in letters)


def test_bad_rows_skipped_or_fatal(database, trades, name):
    append(trades, "T5,short\n")
    database.sql(f"CREATE TABLE {name} AS SELECT trade_id FROM file://{trades} WITH ('on.error' = 'skip')")
    assert len(database.table(name)) == 4
    assert database.sql(f"SELECT * FROM dead_letters WHERE job = '{name}'").rows() == []
    with refusal("source.data", why="fields"):
        database.sql(
            f"CREATE TABLE {name}_f AS SELECT trade_id FROM file://{trades} WITH ('on.error' = 'fail')"
        )
    with pytest.raises(UnknownNameError):
        database.table(f"{name}_f")


def test_a_running_job_fails_at_the_first_bad_row_if_told_to(database, trades, name, wait_until):
    database.sql(f"CREATE TABLE {name} AS SELECT trade_id FROM file://{trades} WITH ('on.error' = 'fail')")
    append(trades, "T5,short\n")
    wait_until(lambda: database.job(name).state == "failed")
    check_refusal(database.job(name).error, "source.data", why="fields")
    assert len(database.table(name)) == 4
    wait_until(lambda: database.table(name).stats().health == "failed")
    trades.write_text(TRADES + "T5,u1,X,1,1.00\n")
    database.sql(f"RESUME JOB {name}")
    wait_until(lambda: len(database.table(name)) == 5)
    settle(database)
    assert (database.job(name).state, database.job(name).info.reason) == ("running", None)
    wait_until(lambda: database.table(name).stats().health == "healthy")
    append(trades, "T6,short\n")
    wait_until(lambda: database.job(name).state == "failed")
    database.sql(f"RESUME JOB {name}")
    wait_until(lambda: database.job(name).stats.errors == 3)
    assert database.job(name).state == "failed"
    assert len(database.table(name)) == 5


def test_discovered_columns_widen_all_the_way_down(database, trades, name):
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{trades} {QUICK}")
    database.sql(
        f"CREATE TABLE {name}_sums AS SELECT symbol, SUM(quantity) AS q, MAX(price) AS p"
        f" FROM file://{trades} GROUP BY symbol {QUICK}"
    )
    database.sql(f"CREATE TABLE {name}_down AS SELECT trade_id, quantity, price FROM {name}")
    database.sql(f"CREATE TABLE {name}_star AS SELECT * FROM {name}_down")
    append(trades, "T5,u1,AAPL,2.5,150.12345\n")
    settle(database)
    assert database.table(f"{name}_sums").get("AAPL") == ("AAPL", Decimal("15.5"), Decimal("151.00000"))
    for table in (f"{name}_down", f"{name}_star"):
        assert ("T5", Decimal("2.5"), Decimal("150.12345")) in rows(database, table)
        assert ("T1", Decimal("10.0"), Decimal("150.25000")) in rows(database, table)


def test_new_csv_columns_and_json_fields_widen_the_table(database, trades, tmp_path, name):
    lines = tmp_path / "x.jsonl"
    lines.write_text('{"id": 1}\n')
    database.sql(f"CREATE TABLE {name}_json AS SELECT * FROM file://{lines} {QUICK}")
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM file://{trades} {QUICK}")
    append(lines, '{"id": 2, "note": "new", "deep": {"x": 1.5}}\n')
    header, *rest = TRADES.splitlines()
    trades.write_text("\n".join([f"{header},venue", *(f"{line},NYSE" for line in rest), ""]))
    settle(database)
    assert rows(database, f"{name}_json") == [(1, None, None), (2, "new", {"x": Decimal("1.5")})]
    append(lines, '{"id": 3, "deep": {"x": 2, "y": {"z": "within"}}}\n')
    settle(database)
    found = rows(database, f"{name}_json")
    assert found[1] == (2, "new", {"x": Decimal("1.5"), "y": None})
    assert found[2] == (3, None, {"x": Decimal("2.0"), "y": {"z": "within"}})
    assert {row[5] for row in rows(database, name)} == {"NYSE"}


def test_a_declared_column_does_not_widen(database, tmp_path, name):
    path = tmp_path / "x.csv"
    path.write_text("id,v\n1,10\n")
    database.sql(f"CREATE SOURCE {name}_s (id BIGINT, v BIGINT) FROM file://{path} {QUICK}")
    database.sql(f"CREATE TABLE {name} AS SELECT * FROM {name}_s")
    append(path, "2,10.5\n3,30\n")
    settle(database)
    assert rows(database, name) == [(1, 10), (3, 30)]
    assert len(database.sql(f"SELECT * FROM dead_letters WHERE job = '{name}'")) == 1


def test_a_column_that_the_source_does_not_have_is_shown_in_its_place(database, trades, name):
    with refusal("sql.unknown_name", "pric", at="pric") as caught:
        database.sql(f"CREATE TABLE {name} AS\nSELECT trade_id, pric FROM file://{trades}")
    assert caught.value.location.line == 2
    assert "price" in caught.value.hint
