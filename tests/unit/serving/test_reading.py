from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.errors import SqlError
from velostream.model.tables import TableSpec
from velostream.serving.table.record import row_class

if TYPE_CHECKING:
    from velostream.serving.contract.table import Table
    from velostream.serving.table.store import TableStore

D = Decimal


@pytest.fixture
def table(store: TableStore, keyed_spec: TableSpec) -> Table:
    made = store.create(keyed_spec)
    rows = trades(("AAPL", "10.50", 5), ("MSFT", "20.25", 7), ("GOOG", None, None), ("IBM", "20.25", 1))
    made.commit_keyed(rows, None, commit(1))
    return made


def test_one_row_and_many(table: Table) -> None:
    row = table.get("AAPL")
    assert row is not None
    assert row == ("AAPL", D("10.50"), 5)
    assert (row.price, row["volume"], row[0]) == (D("10.50"), 5, "AAPL")
    assert row._asdict() == {"symbol": "AAPL", "price": D("10.50"), "volume": 5}
    assert repr(row) == "Row(symbol='AAPL', price=Decimal('10.50'), volume=5)"
    assert pickle.loads(pickle.dumps(row)) == row
    assert table.get("absent") is None
    assert table.get_many(["IBM", "absent", "GOOG"]) == [("IBM", D("20.25"), 1), None, ("GOOG", None, None)]
    assert "AAPL" in table
    assert "absent" not in table
    assert len(table) == 4
    with refusal("table", "symbol", "2 values"):
        table.get("a", "b")


def test_rows_take_any_column_name() -> None:
    row = row_class(("count", "class", "two words", "_x", "index"))((1, 2, 3, 4, 5))
    assert (row.count, row.index, row["class"], row["two words"], row["_x"]) == (1, 5, 2, 3, 4)
    with pytest.raises(KeyError):
        row["nothing"]


def test_several_key_columns_of_many_types(store: TableStore) -> None:
    schema = pa.schema(
        [
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("raw", pa.binary()),
            pa.field("x", pa.float64()),
            pa.field("flag", pa.bool_()),
            pa.field("n", pa.int32()),
        ]
    )
    table = store.create(TableSpec("t", schema, tuple(schema.names)))
    moment = datetime(2024, 1, 2, 3, 4, 5, 6, tzinfo=UTC)
    key = (date(2024, 1, 2), moment, D("1.50"), b"\x00", float("nan"), True, 7)
    table.insert([key])
    found = table.get(*key)
    assert found is not None
    assert (found.day, found.at, found.price, found.raw) == (date(2024, 1, 2), moment, D("1.50"), b"\x00")
    assert found.at.tzinfo is UTC
    assert table.get(key) is found
    assert key in table
    assert table.get(key[0], moment.replace(tzinfo=None), D("1.5"), *key[3:]) is found
    assert table.get(key[0], moment, D("1.501"), *key[3:]) is None
    with refusal("table", "price"):
        table.get(key[0], moment, 1.5, *key[3:])
    with refusal("table", "day"):
        table.get("2024-01-02", *key[1:])


def test_values_come_out_exact_and_in_utc(store: TableStore) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("big", pa.decimal128(38, 10)),
            pa.field("at", pa.timestamp("us", tz="UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("tags", pa.map_(pa.string(), pa.decimal128(10, 1))),
            pa.field("path", pa.list_(pa.timestamp("us", tz="UTC"))),
            pa.field(
                "point",
                pa.struct([pa.field("x", pa.int32()), pa.field("m", pa.map_(pa.string(), pa.int32()))]),
            ),
        ]
    )
    table = store.create(TableSpec("t", schema, ("id",)))
    moment = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    row = {
        "id": 1,
        "big": D("-1234567890123456789012345678.0123456789"),
        "at": moment,
        "local": None,
        "tags": {"a": D("1.5")},
        "path": [moment, None],
        "point": {"x": 1, "m": {"k": 2}},
    }
    table.insert([row])
    found = table.get(1)
    assert found is not None
    assert found._asdict() == row
    assert next(table.rows()) == found
    assert table.page() == [found]


def test_columns_scalars_and_counts(table: Table) -> None:
    assert sorted(table.column_values("symbol", "price = 20.25")) == ["IBM", "MSFT"]
    assert table.column_values("VOLUME", "symbol = 'AAPL'") == [5]
    assert table.column("price").to_pylist() == [D("10.50"), D("20.25"), None, D("20.25")]
    assert table.scalar("SUM(volume)", "symbol <> 'AAPL'") == 8
    assert table.scalar("MAX(price)") == D("20.25")
    assert table.scalar("price", "symbol = 'nobody'") is None
    assert (table.count(), table.count("volume > 1")) == (4, 2)
    with refusal("table", "symbol", "2 rows"):
        table.scalar("symbol", "price = 20.25")
    with refusal("sql.unknown_name", "prize"):
        table.column_values("prize")


@pytest.mark.parametrize(
    "where",
    ["symbol = ", "1 = 1; DROP TABLE trades", "symbol = 'A' FROM other", "a, b", "SELECT 1 UNION SELECT 2"],
)
def test_a_condition_is_one_expression(table: Table, where: str) -> None:
    with pytest.raises(SqlError):
        table.count(where)


def test_without_spark_a_query_that_needs_it_says_so(table: Table) -> None:
    with refusal("sql.unsupported", "Spark") as caught:
        table.column_values("symbol", "symbol RLIKE 'A.*'")
    assert caught.value.detail is not None


def test_spark_answers_what_the_fast_engine_does_not(store: TableStore, table: Table) -> None:
    asked = []
    answer = pa.table({"symbol": ["from spark"]})

    def on_spark(query: object, versions: object, params: object) -> pa.Table:
        asked.append((query, versions))
        return answer

    store.questions.spark = on_spark
    assert table.column_values("symbol", "symbol RLIKE 'A.*'") == ["from spark"]
    assert len(asked) == 1


def test_streams_and_pages(table: Table) -> None:
    assert pa.Table.from_batches(table.stream()).equals(table.snapshot())
    assert sum(batch.num_rows for batch in table.stream("volume >= 5")) == 2
    assert [row.symbol for row in table.rows()] == ["AAPL", "MSFT", "GOOG", "IBM"]
    assert [row.symbol for row in table.page(limit=2, offset=1)] == ["MSFT", "GOOG"]
    assert table.page(limit=2, offset=10) == []


def test_a_stream_stays_at_its_version(table: Table) -> None:
    batches = table.rows()
    first = next(batches)
    table.commit_keyed(None, pa.table({"symbol": ["MSFT", "GOOG"]}), commit(2))
    assert [first.symbol, *(row.symbol for row in batches)] == ["AAPL", "MSFT", "GOOG", "IBM"]


def test_figures_and_description(store: TableStore, table: Table) -> None:
    for _ in range(3):
        table.count("volume > 1")
    stats = table.stats()
    assert (stats.record_count, stats.version, stats.datasource_type, stats.health) == (
        4,
        1,
        "memory",
        "healthy",
    )
    assert (stats.queries, stats.cache_hits) == (3, 2)
    assert stats.last_updated == commit(1).at
    assert stats.bytes_per_row > 0
    assert stats.disk_bytes > 0
    table.set_health("degraded", "the file is gone")
    assert (table.stats().health, table.stats().health_reason) == ("degraded", "the file is gone")
    assert [(column.name, column.key) for column in table.describe()] == [
        ("symbol", True),
        ("price", False),
        ("volume", False),
    ]
    assert store.create(TableSpec("none", TRADES)).stats().bytes_per_row == 0


def test_keyless_tables_say_so(store: TableStore, rows_spec: TableSpec) -> None:
    table = store.create(rows_spec)
    for read in (
        lambda: table.get("A"),
        lambda: table.get_many(["A"]),
        lambda: "A" in table,
        lambda: table.fetch(pa.table({"symbol": ["A"]})),
        lambda: table.upsert([("A", None, 1)]),
        lambda: table.update("A", volume=1),
    ):
        with refusal("table", "log", why="no key"):
            read()


def test_changes_from_now_and_from_a_version(table: Table) -> None:
    following = table.changes(timeout=0)
    assert list(following) == []
    table.commit_keyed(trades(("AAPL", "11.00", 5)), None, commit(2))
    table.commit_keyed(None, pa.table({"symbol": ["IBM"]}), commit(3))
    seen = [(version, rows.column("_weight").to_pylist()) for version, rows in following]
    assert seen == [(2, [-1, 1]), (3, [-1])]
    assert following.version == 3
    assert [version for version, _ in table.changes(after=0, timeout=0)] == [1, 2, 3]


def test_a_waiting_subscriber_is_woken_by_a_commit_and_by_close(table: Table) -> None:
    seen: list[int] = []
    following = table.changes()
    ready = threading.Event()

    def follow() -> None:
        ready.set()
        seen.extend(version for version, _ in following)

    thread = threading.Thread(target=follow)
    thread.start()
    ready.wait(5)
    table.commit_keyed(trades(("NEW", "1.00", 1)), None, commit(2))
    woken = table.changes(after=1).next_change(timeout=5)
    assert woken is not None
    assert woken[0] == 2
    following.close()
    thread.join(5)
    assert not thread.is_alive()
    assert seen in ([2], [])


def test_a_waiting_subscriber_ends_with_its_table(store: TableStore, table: Table) -> None:
    following = table.changes()
    with ThreadPoolExecutor() as others:
        waiting = others.submit(list, following)
        store.drop("trades")
        with refusal("closed", "trades", why="dropped"):
            waiting.result(5)


def test_readers_see_whole_versions_while_the_writer_goes_on(store: TableStore) -> None:
    schema = pa.schema([pa.field("k", pa.int64()), pa.field("batch", pa.int64())])
    table = store.create(TableSpec("t", schema, ("k",)))
    keys = list(range(200))
    table.commit_keyed(pa.table([keys, [0] * 200], schema=schema), None, commit(0))
    stop = threading.Event()
    torn: list[object] = []

    def read() -> None:
        while not stop.is_set():
            batches = {row.batch if row is not None else None for row in table.get_many(keys)}
            whole = set(table.snapshot().column("batch").to_pylist())
            if len(batches) != 1 or len(whole) > 1:
                torn.append((batches, whole))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(1, 60):
        if number % 10 == 0:
            table.truncate(commit(number))
            table.commit_keyed(pa.table([keys, [number] * 200], schema=schema), None, commit(number))
        else:
            table.commit_keyed(pa.table([keys, [number] * 200], schema=schema), None, commit(number))
    stop.set()
    for thread in threads:
        thread.join()
    assert torn == []


def test_pages_cut_through_segments_and_deleted_rows(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    for number in range(1, 8):
        rows = trades(*((f"s{each:03d}", "1.00", number) for each in range(number * 10, number * 10 + 25)))
        table.commit_keyed(rows, pa.table({"symbol": [f"s{number * 10 + 1:03d}"]}), commit(number))
    every = [row.symbol for row in table.rows()]
    assert len(every) == len(table)
    for limit in (1, 7, 1000):
        table.commit_keyed(trades(("s090", "2.00", limit)), None, commit(100 + limit))
        every = [row.symbol for row in table.rows()]
        pages = [table.page(limit, offset) for offset in range(0, len(every) + limit, limit)]
        assert [row.symbol for page in pages for row in page] == every
