"""A second process on a data directory: attached to the one that holds it, or reading the files."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

import velostream
from refusals import refusal
from velostream.errors import ClosedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Holder
    from velostream import Database, Table

pytestmark = pytest.mark.sampled(3)


@pytest.fixture(params=["attached", "reading", "reading files", "own"])
def db(request: pytest.FixtureRequest, holder: Holder) -> Iterator[Database]:
    """The same tables, reached in each way."""
    how = request.param
    if how in ("reading files", "own"):
        holder.end()
    with velostream.connect(holder.data, read_only=how.startswith("reading")) as database:
        yield database


def trade(n: int) -> tuple[object, ...]:
    return (n, "AB"[n % 2], Decimal(n) / 4, datetime(2026, 1, 1, n, tzinfo=UTC), [str(n)])


def test_every_way_reads_the_same(db: Database) -> None:
    table = db.table("trades")
    everything = [trade(n) for n in range(10)]
    assert (table.name, table.key, len(table), table.version) == ("trades", ("id",), 10, 1)
    assert table.schema.names == ["id", "symbol", "price", "at", "tags"]
    assert [(c.name, c.key) for c in table.describe()][:2] == [("id", True), ("symbol", False)]
    assert table.health == ("healthy", None)
    stats = table.stats()
    assert (stats.record_count, stats.version, stats.datasource_type) == (10, 1, "memory")
    assert stats.bytes == stats.memory.total > 0
    row = table.get(3)
    assert row == trade(3)
    assert (row.symbol, row["price"]) == ("B", Decimal("0.75"))
    assert table.get(77) is None
    assert 3 in table
    assert "x" not in table
    assert table.page(2, 3) == [trade(3), trade(4)]
    assert list(table.rows()) == everything
    assert list(table.rows("id > 7")) == [trade(8), trade(9)]
    assert pa.Table.from_batches(table.stream()) == table.snapshot()
    assert table.snapshot().num_rows == 10
    assert table.column_values("ID", "symbol = 'A'") == [0, 2, 4, 6, 8]
    assert table.column("price").type == table.schema.field("price").type
    assert table.scalar("SUM(price)", "symbol = 'B'") == Decimal("6.25")
    assert table.scalar("MAX(at)") == datetime(2026, 1, 1, 9, tzinfo=UTC)
    assert table.scalar("MAX(id)", "id > 99") is None
    assert table.count("price > 1") == 5
    found = table.fetch_where(["symbol"], pa.table({"symbol": ["B"]}))
    assert sorted(found.column("id").to_pylist()) == [1, 3, 5, 7, 9]
    assert db.table("bids").get("A", date(2026, 1, 1)) == ("A", date(2026, 1, 1), 1)
    assert db.table("bids").get(("A", date(2026, 1, 1))) == ("A", date(2026, 1, 1), 1)
    assert db.table("bids").get_many([("A", date(2026, 1, 2)), ("A", date(2026, 1, 1))])[0] is None
    assert sorted(db.table("bag").column_values("n"), key=str) == [1, 1, None]
    assert db.sql("SELECT symbol, COUNT(*) AS n FROM trades GROUP BY symbol ORDER BY 1").rows() == [
        ("A", 5),
        ("B", 5),
    ]
    assert db.sql("SELECT id FROM trades WHERE price = ?", [Decimal("0.5")]).scalar() == 2
    assert "trades" in {row[0] for row in db.sql("SHOW TABLES")}
    assert db.jobs() == []
    assert db.wait_idle(5)
    assert all(report.problem is None for report in db.verify())

    async def streamed() -> int:
        return sum([batch.num_rows async for batch in table.astream()])

    assert asyncio.run(streamed()) == 10


def test_every_way_refuses_the_same(db: Database) -> None:
    with refusal("sql.unknown_name", "trade"):
        db.table("trade")
    with refusal("sql.unknown_name", "pric", at="pric"):
        db.sql("SELECT pric FROM trades")
    with refusal("sql.unknown_name", "pric"):
        db.table("trades").column_values("pric")
    with refusal("table", "bag"):
        db.table("bag").get(1)
    with refusal("sql.unknown_name", "nobody"):
        db.job("nobody")


KEYS: list[object] = [
    *("3", 3.0, 3.5, True, None, Decimal("3.0"), 2**70, b"3", "\udc80"),
    *([3], {"id": 3}, object(), date(2026, 1, 1), datetime(2026, 1, 1)),
]


def test_keys_mean_the_same_everywhere(holder: Holder) -> None:
    def found(db: Database) -> list[object]:
        table = db.table("trades")
        alone = [table.get(key) for key in KEYS]
        assert table.get_many([*KEYS, 3]) == [*alone, trade(3)]
        return alone

    with velostream.connect(holder.data) as attached:
        there = found(attached)
    holder.end()
    with velostream.connect(holder.data) as own:
        assert found(own) == there


def test_writing_through_the_holder(holder: Holder) -> None:
    with velostream.connect(holder.data) as db:
        trades, bag = db.table("trades"), db.table("bag")
        assert trades.insert({"id": 10, "price": "1.5"}) == 1
        assert trades.upsert([(0, "Z", 1, datetime(2026, 1, 1), []), (11, "Z", None, None, None)]) == 2
        assert trades.update(1, symbol="Z", tags=["a", "b"]) == 1
        assert trades.update(99, symbol="Z") == 0
        assert trades.delete([2, 3, 99]) == 2
        assert trades.delete(4) == 1
        assert trades.delete([]) == 0
        assert sorted(trades.column_values("id")) == [0, 1, 5, 6, 7, 8, 9, 10, 11]
        assert trades.get(1).tags == ["a", "b"]
        assert bag.insert(pa.table({"n": [2, 2]})) == 2
        assert bag.delete([(1,), (2,)]) == 2
        made = db.create_table("made", [{"a": 1}], key="a")
        assert made.get(1) == (1,)
        assert db.sql("DELETE FROM made").message == '1 row deleted from "made"'
        with refusal("sql.key_exists", "trades"):
            trades.insert({"id": 10})
        with refusal("table", "price", why="does not fit"):
            trades.insert({"id": 12, "price": "much"})
        with refusal("sql.unknown_name", "prize"):
            trades.insert({"id": 12, "prize": 1})
        with refusal("table", "id"):
            trades.update(1, id=2)
        with refusal("table", why="cannot be sent"):
            trades.update(1, symbol=object())
    holder.run("assert len(db.table('trades')) == 9 and len(db.table('bag')) == 3")


def test_reading_only_changes_nothing(holder: Holder) -> None:
    def refused() -> None:
        with velostream.connect(holder.data, read_only=True) as db:
            table = db.table("trades")
            for change in (
                lambda: table.insert({"id": 99}),
                lambda: table.upsert({"id": 99}),
                lambda: table.update(1, symbol="Z"),
                lambda: table.delete(1),
                lambda: db.sql("INSERT INTO trades (id) VALUES (99)"),
                lambda: db.sql("SELECT 1; DELETE FROM trades"),
                lambda: db.sql("CREATE TABLE more (a INT)"),
                lambda: db.sql("DROP TABLE trades"),
                lambda: db.sql("PAUSE JOB trades"),
                lambda: db.replay_dead_letters(),
                lambda: db.create_table("more", [{"a": 1}]),
            ):
                with refusal("table", why="read-only"):
                    change()
            assert len(table) == 10

    refused()
    holder.end()
    refused()


def test_a_reader_follows_whoever_writes(holder: Holder, hold: Callable[[], Holder]) -> None:
    with velostream.connect(holder.data, read_only=True) as db:
        table = db.table("trades")
        assert table.get(0).symbol == "A"
        holder.run("db.table('trades').update(0, symbol='held')")
        assert table.get(0).symbol == "held"
        holder.kill()
        assert table.get(0).symbol == "held"
        with velostream.connect(holder.data) as own:
            own.table("trades").update(0, symbol="own")
            assert table.get(0).symbol == "own"
            own.table("trades").update(0, symbol="own again")
            assert table.get(0).symbol == "own again"
        assert table.get(0).symbol == "own again"
        again = hold()
        again.run("db.table('trades').update(0, symbol='later')")
        again.end()
        assert table.get(0).symbol == "later"


def versions(table: Table, after: int) -> list[tuple[int, list[dict[str, object]]]]:
    changes = table.changes(after=after, timeout=0.2)
    return [(version, rows.select(["id", "_weight"]).to_pylist()) for version, rows in changes]


@pytest.mark.parametrize("read_only", [False, True])
def test_changes_across_processes(holder: Holder, hold: Callable[[], Holder], read_only: bool) -> None:
    with velostream.connect(holder.data, read_only=read_only) as db:
        table = db.table("trades")
        found = []

        def follow() -> None:
            with table.changes(after=1) as changes:
                for version, _ in changes:
                    found.append(version)
                    if version == 3:
                        return

        thread = threading.Thread(target=follow)
        thread.start()
        holder.run("db.table('trades').delete(1)")
        holder.run("db.table('trades').insert({'id': 1})")
        thread.join(30)
        assert found == [2, 3]
        expected = [(2, [{"id": 1, "_weight": -1}]), (3, [{"id": 1, "_weight": 1}])]
        assert versions(table, 1) == expected
        holder.end()
        if read_only:
            assert versions(table, 1) == expected
        again = hold()
        again.run("db.table('trades').delete(2)")
        assert versions(table, 2) == [expected[1], (4, [{"id": 2, "_weight": -1}])]


def test_closing_a_subscription_ends_one_that_waits(holder: Holder) -> None:
    with velostream.connect(holder.data) as db:
        changes = db.table("trades").changes()
        thread = threading.Thread(target=lambda: list(changes))
        thread.start()
        changes.close()
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("read_only", [False, True])
def test_a_table_of_the_same_name_is_another_one(holder: Holder, read_only: bool) -> None:
    with velostream.connect(holder.data, read_only=read_only) as db:
        table = db.table("bag")
        changes = table.changes()
        holder.run("db.sql('DROP TABLE bag'); db.create_table('bag', [dict(other='x')])")
        for use in (lambda: len(table), lambda: changes.next_change(1), table.snapshot):
            with pytest.raises(ClosedError, match="was replaced"):
                use()
        assert db.table("bag").schema.names == ["other"]
        holder.run("db.sql('DROP TABLE bag')")
        with refusal("sql.unknown_name", "bag"):
            len(db.table("bag"))


def test_a_holder_that_ended(holder: Holder, hold: Callable[[], Holder]) -> None:
    with velostream.connect(holder.data) as db:
        table = db.table("trades")
        holder.kill()
        with refusal("connection", str(holder.data), why="has ended"):
            table.get(1)
        gone = f"the process that held data directory {holder.data} has ended"
        for each in (db, table):
            # What a notebook shows of it again.
            assert repr(each).endswith(f": {gone}>")
            assert gone in each._repr_html_()
        hold()
        assert table.get(1) == trade(1)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_closed_connection(holder: Holder, read_only: bool) -> None:
    db = velostream.connect(holder.data, read_only=read_only)
    table = db.table("trades")
    db.close()
    db.close()
    for use in (lambda: table.get(1), lambda: db.sql("SELECT 1"), db.jobs, lambda: len(table)):
        with pytest.raises(ClosedError):
            use()
    assert repr(db).endswith("closed>")
    assert repr(table) == "<Table: closed>"
    holder.run("assert len(db.table('trades')) == 10")


def test_what_stays_with_the_holder(holder: Holder) -> None:
    with velostream.connect(holder.data) as db:
        for use in (
            lambda: db.udf(lambda x: x, returns="int", name="f"),
            lambda: db.partition_strategy("s", lambda rows, n: [0]),
            db.spark,
        ):
            with refusal("data_dir", str(holder.data)):
                use()
    with refusal("config", "master"):
        velostream.connect(holder.data, master="local[1]")
    with refusal("config", "allowed"):
        velostream.connect(holder.data, allowed_roots=["/"])


def test_again_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db = velostream.connect("data")
    assert velostream.connect(tmp_path / "data") is db
    assert velostream.connect("../" + tmp_path.name + "/data") is db
    with refusal("config", "master", why="open in this process"):
        velostream.connect("data", master="local[1]")
    db.close()
    with velostream.connect("data", master="local[1]") as other:
        assert other is not db
        assert velostream.connect("data", master="local[1]") is other


def test_again_in_a_second_process(holder: Holder) -> None:
    attached = velostream.connect(holder.data)
    assert velostream.connect(holder.data) is attached
    with refusal("config", "master"):
        velostream.connect(holder.data, master="local[1]")
    reading = velostream.connect(holder.data, read_only=True)
    assert reading is not attached
    assert velostream.connect(holder.data, read_only=True) is reading
    holder.end()
    assert velostream.connect(holder.data, read_only=True) is reading
    attached.close()
    reading.close()


def test_the_next_one_to_hold_it_is_this_process(holder: Holder) -> None:
    attached = velostream.connect(holder.data)
    holder.end()
    with velostream.connect(holder.data) as own:
        assert own is not attached
        assert ", of another process" not in repr(own)
        assert velostream.connect(holder.data) is own
    attached.close()


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with refusal("data_dir", "nowhere"):
        velostream.connect(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("running", [True, False])
def test_reading_needs_no_spark(holder: Holder, running: bool) -> None:
    if not running:
        holder.end()
    script = (
        "import sys, velostream; db = velostream.connect(sys.argv[1], read_only=True); "
        "t = db.table('trades'); "
        "assert t.get(3).symbol == 'B' and t.stats().record_count == 10; "
        "changes = list(t.changes(after=0, timeout=0)); assert [v for v, _ in changes] == [1], changes; "
        "assert sum(rows.num_rows for _, rows in changes) == 10; "
        "assert db.sql('SELECT SUM(price) FROM trades').scalar() == 11.25; "
        "assert 'pyspark' not in sys.modules and 'py4j' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(holder.data)], check=True, timeout=60)
