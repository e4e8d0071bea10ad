from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.errors import (
    DuplicateNameError,
    InternalError,
    LaggingReaderError,
    MemoryBudgetError,
    TableError,
)
from velostream.model.tables import TableSpec
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from pathlib import Path


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_upsert_replaces_and_the_last_of_equal_keys_counts(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    assert table.version == 0
    assert (
        table.commit_keyed(trades(("A", "1.00", 1), ("B", "2.00", 2), ("A", "3.00", 3)), None, commit(1)) == 1
    )
    assert table.get("A") == ("A", Decimal("3.00"), 3)
    assert table.commit_keyed(trades(("A", "4.00", 4)), pa.table({"symbol": ["B", "absent"]}), commit(2)) == 2
    assert rows_of(table.snapshot()) == [("A", Decimal("4.00"), 4)]
    assert table.get("B") is None
    assert table.last_commit == commit(2)


def test_a_key_that_is_deleted_and_upserted_in_one_commit_is_there(
    store: TableStore, keyed_spec: TableSpec
) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
    table.commit_keyed(trades(("A", "2.00", 2)), pa.table({"symbol": ["A"]}), commit(2))
    assert table.get("A") == ("A", Decimal("2.00"), 2)
    assert len(table) == 1


def test_null_is_a_key_like_any_other(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades((None, "1.00", 1), ("A", "2.00", 2)), None, commit(1))
    table.commit_keyed(trades((None, "5.00", 5)), None, commit(2))
    assert table.get(None) == (None, Decimal("5.00"), 5)
    assert len(table) == 2


def test_rows_that_stay_equal_make_no_version_but_move_the_offsets(
    store: TableStore, keyed_spec: TableSpec, tmp_path: Path
) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
    assert table.commit_keyed(trades(("A", "1.00", 1)), None, commit(2)) == 1
    assert table.commit_keyed(None, None, commit(3)) == 1
    store.close()
    again = TableStore(tmp_path / "tables").open("trades")
    assert (again.version, again.last_commit) == (1, commit(3))


def test_a_held_version_never_changes(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1), ("B", "2.00", 2)), None, commit(1))
    held = table.version_object
    table.commit_keyed(trades(("A", "9.00", 9), ("C", "3.00", 3)), pa.table({"symbol": ["B"]}), commit(2))
    table.commit_keyed(trades(("B", "8.00", 8)), pa.table({"symbol": ["A"]}), commit(3))
    found = [held.find(key) for key in ("A", "B", "C")]
    assert found[2] is None
    assert [held.row(each) for each in found[:2] if each is not None] == [
        ("A", Decimal("1.00"), 1),
        ("B", Decimal("2.00"), 2),
    ]
    assert rows_of(held.snapshot()) == [("A", Decimal("1.00"), 1), ("B", Decimal("2.00"), 2)]
    assert table.get("B") == ("B", Decimal("8.00"), 8)
    assert table.get("A") is None


def test_fetch_gives_one_row_per_key_in_order(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1), ("B", "2.00", 2)), None, commit(1))
    table.commit_keyed(trades(("C", "3.00", 3)), None, commit(2))
    found = table.fetch(pa.table({"symbol": ["C", "x", "A", "A", None]}))
    assert found.column("__found").to_pylist() == [True, False, True, True, False]
    assert found.column("volume").to_pylist() == [3, None, 1, 1, None]
    assert store.create(TableSpec("empty", TRADES, ("symbol",))).fetch(
        pa.table({"symbol": ["A"]})
    ).to_pylist() == [{"symbol": None, "price": None, "volume": None, "__found": False}]


def test_multisets_count_equal_rows(store: TableStore, rows_spec: TableSpec) -> None:
    table = store.create(rows_spec)
    table.commit_rows(trades(("A", "1.00", 1), ("A", "1.00", 1), ("B", None, None)), None, commit(1))
    assert len(table) == 3
    table.commit_rows(trades(("A", "1.00", 1), ("B", None, None)), pa.array([-1, 2]), commit(2))
    assert rows_of(table.snapshot()) == [
        ("A", Decimal("1.00"), 1),
        ("B", None, None),
        ("B", None, None),
        ("B", None, None),
    ]
    changes = table.changes_between(1, 2).to_pylist()
    assert [(row["symbol"], row["_weight"]) for row in changes] == [("A", -1), ("B", 2)]


def test_a_multiset_refuses_to_go_below_zero_and_keeps_nothing(
    store: TableStore, rows_spec: TableSpec
) -> None:
    table = store.create(rows_spec)
    table.commit_rows(trades(("A", "1.00", 1)), None, commit(1))
    with pytest.raises(InternalError):
        table.commit_rows(trades(("A", "1.00", 1), ("C", "1.00", 1)), pa.array([-2, 1]), commit(2))
    assert table.last_commit == commit(1)
    assert len(table) == 1
    table.commit_rows(trades(("A", "1.00", 1)), pa.array([-1]), commit(2))
    assert len(table) == 0


def test_a_large_commit_that_takes_rows_back_keeps_the_others_in_their_order(
    store: TableStore, rows_spec: TableSpec
) -> None:
    table = store.create(rows_spec)
    table.commit_rows(trades(*(("A", "1.00", number) for number in range(300))), None, commit(1))
    assert table.stats().memory.indexes == 0
    given = [("A", "1.00", 7), ("B", "2.00", 1), ("A", "1.00", 8), ("B", "2.00", 1), ("B", "2.00", 3)]
    weights = [-1, 2, 1, 1, 0]
    given += [("C", "3.00", number % 90) for number in range(180)]
    weights += [1] * 180
    # Of these two one stays; of the next three none, nor of the one that was there.
    given += [("D", "4.00", 1), ("D", "4.00", 1), ("A", "1.00", 9), ("A", "1.00", 9), ("A", "1.00", 9)]
    weights += [-1, 2, 1, -3, 1]
    table.commit_rows(trades(*given), pa.array(weights), commit(2))
    volumes = [number for number in range(300) if number not in (7, 9)]
    assert [tuple(row.values()) for row in table.snapshot().to_pylist()] == [
        *(("A", Decimal("1.00"), number) for number in volumes),
        *[("B", Decimal("2.00"), 1)] * 2,
        ("A", Decimal("1.00"), 8),
        ("B", Decimal("2.00"), 1),
        *(("C", Decimal("3.00"), number % 90) for number in range(180)),
        ("D", Decimal("4.00"), 1),
    ]
    # One row counts twice.
    assert table.stats().memory.indexes == 12 * (len(table) - 1)
    with refusal("internal", "log", 1, 2):
        table.commit_rows(
            trades(*[("A", "1.00", 6)] * 2, *given[5:185]), pa.array([-1, -1] + [1] * 180), commit(3)
        )
    assert table.last_commit == commit(2)
    table.commit_rows(trades(*given[5:185]), pa.array([-1] * 180), commit(3))
    assert [row for row in rows_of(table.snapshot()) if row[0] == "C"] == []


def test_rows_that_come_and_go_within_a_commit_need_no_index(store: TableStore, rows_spec: TableSpec) -> None:
    table = store.create(rows_spec)
    table.commit_rows(trades(("A", "1.00", 1)), None, commit(1))
    given = trades(*(("B", "1.00", number) for number in range(200)))
    table.commit_rows(pa.concat_tables([given, given]), pa.array([1] * 200 + [-1] * 200), commit(2))
    assert rows_of(table.snapshot()) == [("A", Decimal("1.00"), 1)]
    assert table.stats().memory.indexes == 0


def test_multiset_identity_is_canonical(store: TableStore) -> None:
    schema = pa.schema(
        [
            pa.field("x", pa.float64()),
            pa.field("tags", pa.map_(pa.string(), pa.int64())),
            pa.field("path", pa.list_(pa.float64())),
            pa.field("at", pa.timestamp("us", tz="UTC")),
        ]
    )
    table = store.create(TableSpec("odd", schema))
    nan = float("nan")

    def row(x: float, tags: list[tuple[str, int]], path: list[float | None]) -> pa.Table:
        return pa.table([[x], [tags], [path], [1_000_001]], schema=schema)

    table.commit_rows(row(nan, [("a", 1), ("b", 2)], [nan, None]), None, commit(1))
    table.commit_rows(row(0.0, [], []), None, commit(2))
    table.commit_rows(row(nan, [("b", 2), ("a", 1)], [nan, None]), pa.array([-1]), commit(3))
    table.commit_rows(row(-0.0, [], []), pa.array([-1]), commit(4))
    assert len(table) == 0


def test_replace_all_logs_the_net_difference(
    store: TableStore, keyed_spec: TableSpec, rows_spec: TableSpec
) -> None:
    before = trades(("A", "1.00", 1), ("B", "2.00", 2), ("C", "3.00", 3))
    after = trades(("B", "2.00", 2), ("C", "4.00", 4), ("D", "5.00", 5))
    expected = [("A", -1), ("C", -1), ("C", 1), ("D", 1)]
    for table in (store.create(keyed_spec), store.create(rows_spec)):
        table.replace_all(before, commit(1))
        table.replace_all(after, commit(2))
        assert rows_of(table.snapshot()) == rows_of(after)
        changes = table.changes_between(1, 2).to_pylist()
        assert sorted((row["symbol"], row["_weight"]) for row in changes) == expected
        table.truncate(commit(3))
        assert len(table) == 0


def test_hidden_columns_and_rows_stay_hidden(store: TableStore) -> None:
    schema = pa.schema(
        [
            pa.field("k", pa.string()),
            pa.field("n", pa.int64()),
            pa.field("__acc", pa.int64()),
            pa.field("__shown", pa.bool_()),
        ]
    )
    table = store.create(TableSpec("grouped", schema, ("k",)))

    def row(key: str, number: int, shown: bool) -> pa.Table:
        return pa.table([[key], [number], [number * 10], [shown]], schema=schema)

    table.commit_keyed(pa.concat_tables([row("a", 1, True), row("b", 2, False)]), None, commit(1))
    assert table.snapshot().to_pylist() == [{"k": "a", "n": 1}]
    assert (len(table), table.get("b"), "b" in table, "a" in table) == (1, None, False, True)
    table.commit_keyed(pa.concat_tables([row("a", 1, False), row("b", 3, True)]), None, commit(2))
    changes = table.changes_between(1, 2).to_pylist()
    assert changes == [{"k": "a", "n": 1, "_weight": -1}, {"k": "b", "n": 3, "_weight": 1}]
    assert table.version_object.physical().num_rows == 2
    assert table.fetch(pa.table({"k": ["a"]})).column("__acc").to_pylist() == [10]


def test_evolve_widens_rows_log_and_index(store: TableStore, tmp_path: Path) -> None:
    narrow = pa.schema([pa.field("id", pa.int64()), pa.field("price", pa.decimal128(10, 2))])
    table = store.create(TableSpec("wide", narrow, ("id",)))
    table.commit_keyed(
        pa.table([[1, 2], pa.array(["1.50", "2.25"]).cast(narrow.field(1).type)], schema=narrow),
        None,
        commit(1),
    )
    wide = pa.schema(
        [
            pa.field("id", pa.decimal128(12, 2)),
            pa.field("price", pa.decimal128(20, 4)),
            pa.field("note", pa.string()),
        ]
    )
    held = table.version_object
    table.evolve(wide)
    assert table.version == 1
    assert table.get(Decimal(1)) == (Decimal("1.00"), Decimal("1.5000"), None)
    assert held.snapshot().column("id").to_pylist() == [1, 2]
    store.close()
    again = TableStore(tmp_path / "tables").open("wide")
    assert again.spec.schema.equals(wide)
    assert again.get(Decimal("2.0")) == (Decimal("2.00"), Decimal("2.2500"), None)
    assert again.changes_between(0, 1).schema.field("price").type == pa.decimal128(20, 4)
    with pytest.raises(TableError):
        again.evolve(narrow)


def test_changes_need_the_log_that_a_registered_reader_holds(store: TableStore) -> None:
    options = {"changes.keep.versions": "2", "changes.keep.bytes": "1000000"}
    table = store.create(TableSpec("trades", TRADES, ("symbol",), options))
    table.register_reader("derived", 1)
    for number in range(1, 11):
        table.commit_keyed(trades(("A", f"{number}.00", number)), None, commit(number))
        table.checkpoint()
    assert table.changes_between(1, 10).num_rows == 18
    table.register_reader("derived", 8)
    table.commit_keyed(trades(("A", "0.50", 0)), None, commit(11))
    table.checkpoint()
    with pytest.raises(LaggingReaderError):
        table.changes_between(1, 11)
    assert table.changes_between(8, 11).num_rows == 6
    table.release_reader("derived")


def test_a_lagging_reader_holds_the_log_only_up_to_a_size(store: TableStore) -> None:
    options = {"changes.keep.versions": "0", "changes.keep.bytes": "5000"}
    table = store.create(TableSpec("trades", TRADES, ("symbol",), options))
    table.register_reader("stuck", 0)
    for number in range(1, 21):
        table.commit_keyed(trades(("A", f"{number}.00", number)), None, commit(number))
        table.checkpoint()
    with pytest.raises(LaggingReaderError):
        table.changes_between(0, 20)
    assert table.stats().disk_bytes < 20_000


def test_the_memory_budget_stops_growth_but_not_reading(store: TableStore) -> None:
    table = store.create(TableSpec("small", TRADES, ("symbol",), {"memory.budget": "1000"}))
    table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
    many = trades(*((f"key{number}", "1.00", number) for number in range(100)))
    with pytest.raises(MemoryBudgetError):
        table.commit_keyed(many, None, commit(2))
    assert (len(table), table.last_commit) == (1, commit(1))
    table.commit_keyed(trades(("A", "2.00", 2)), None, commit(2))
    assert table.get("A") == ("A", Decimal("2.00"), 2)


def test_the_store_creates_lists_and_drops(store: TableStore, keyed_spec: TableSpec, tmp_path: Path) -> None:
    odd = store.create(TableSpec("../.odd name", TRADES))
    store.create(keyed_spec)
    assert list(store.tables()) == ["../.odd name", "trades"]
    assert store.open("trades") is store.open("trades")
    assert {path.parent for path in (tmp_path / "tables").iterdir()} == {tmp_path / "tables"}
    with pytest.raises(DuplicateNameError):
        store.create(keyed_spec)
    with refusal("sql.unknown_name", "trade"):
        store.open("trade")
    store.drop("../.odd name")
    assert store.names() == ["trades"]
    with refusal("closed", "../.odd name", why="dropped"):
        odd.commit_rows(trades(("A", "1.00", 1)), None, commit(1))
    with refusal("table", "no_such"):
        store.create(TableSpec("bad", TRADES, ("no_such",)))


def test_many_commits_stay_in_few_segments(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    for number in range(200):
        rows = trades(*((f"k{(number * 7 + each) % 300}", "1.00", number) for each in range(5)))
        table.commit_keyed(rows, None, commit(number))
    assert len(table) == 300
    assert len(table.version_object.views) <= 10
    assert all(table.get(f"k{each}") is not None for each in range(300))
