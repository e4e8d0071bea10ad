from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import Row as SparkRow
from trade_rows import TRADES, commit, trades

from refusals import refusal
from velostream.errors import UnknownNameError
from velostream.model.tables import TableSpec
from velostream.serving.table.rows import inferred, stored_schema

if TYPE_CHECKING:
    from velostream.serving.table.store import TableStore

D = Decimal
ROWS = [("A", D("1.50"), 1), ("B", None, None)]


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        [list(row) for row in ROWS],
        iter(ROWS),
        [{"symbol": "A", "price": "1.50", "volume": 1}, {"SYMBOL": "B"}],
        [{"symbol": "A", "price": 1.5, "volume": 1.0}, {"symbol": "B"}],
        trades(("A", "1.50", 1), ("B", None, None)),
        trades(("A", "1.50", 1), ("B", None, None)).to_batches()[0],
        pd.DataFrame({"symbol": ["A", "B"], "price": [1.5, None], "volume": pd.array([1, None], "Int64")}),
        pl.DataFrame({"volume": [1, None], "symbol": ["A", "B"], "price": [D("1.50"), None]}),
        pl.DataFrame({"symbol": ["A", "B"], "price": [1.5, None], "volume": [1, None]}).lazy(),
    ],
    ids=["tuples", "lists", "iterator", "dicts", "floats", "table", "batch", "pandas", "polars", "lazy"],
)
def test_rows_of_every_kind(store: TableStore, keyed_spec: TableSpec, rows: Any) -> None:
    table = store.create(keyed_spec)
    assert table.insert(rows) == 2
    assert sorted(table.rows(), key=repr) == ROWS
    assert table.version == 1
    assert table.last_commit is not None
    assert (table.last_commit.checkpoint, table.last_commit.batch) == ("manual", 1)


def test_one_row_alone(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.insert({"symbol": "A", "volume": 1})
    table.insert(("B", D("2.00"), 2))
    assert [row.symbol for row in table.rows()] == ["A", "B"]
    table.insert([])
    assert len(table) == 2


@pytest.mark.parametrize(
    ("row", "named"),
    [
        ({"symbol": "A", "price": "1.505"}, "price"),
        ({"symbol": "A", "price": 0.1 + 0.2}, "price"),
        ({"symbol": "A", "price": "abc"}, "price"),
        ({"symbol": "A", "price": True}, "price"),
        ({"symbol": "A", "price": D("NaN")}, "price"),
        ({"symbol": "A", "price": D(10) ** 17}, "price"),
        ({"symbol": "A", "volume": 1.5}, "volume"),
        ({"symbol": "A", "volume": "1"}, "volume"),
        ({"symbol": "A", "volume": 2**63}, "volume"),
        ({"symbol": 5}, "symbol"),
        (("A", 1), "2 values"),
        (5, "int"),
        ("text", "str"),
        ([5], "neither"),
    ],
)
def test_what_does_not_fit_is_named(store: TableStore, keyed_spec: TableSpec, row: Any, named: str) -> None:
    table = store.create(keyed_spec)
    with refusal("table", named):
        table.insert(row)
    assert table.version == 0


def test_unknown_columns_are_named(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    with refusal("sql.unknown_name", "prise"):
        table.insert({"symbol": "A", "prise": 1})
    with refusal("sql.unknown_name", "nope"):
        table.insert(pa.table({"nope": [1]}))


def test_columns_that_must_not_be_null(store: TableStore) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("x", pa.int64())])
    table = store.create(TableSpec("t", schema, ("id",)))
    with refusal("table", "id"):
        table.insert({"x": 1})


def test_times_are_taken_in_utc(store: TableStore) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", tz="UTC")), pa.field("day", pa.date32())])
    table = store.create(TableSpec("t", schema))
    noon = datetime(2024, 1, 1, 12, tzinfo=UTC)
    table.insert(
        [
            (noon.astimezone(timezone(timedelta(hours=2))), date(2024, 1, 1)),
            (noon.replace(tzinfo=None), "2024-01-01"),
            ("2024-01-01T12:00:00", None),
        ]
    )
    assert {row[0] for row in table.rows()} == {noon}
    with refusal("table", "day"):
        table.insert({"day": noon})


def test_insert_refuses_keys_that_exist(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.insert(ROWS)
    with refusal("sql.key_exists", "symbol = 'B'"):
        table.insert([("C", None, 1), ("B", None, 2)])
    with refusal("sql.key_exists", "symbol = 'D'"):
        table.insert([("D", None, 1), ("D", None, 2)])
    assert (len(table), table.version) == (2, 1)


def test_upsert_update_delete(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.insert(ROWS)
    assert table.upsert([("B", D("2.00"), 2), ("C", None, 3)]) == 2
    assert table.update("A", price="9.99") == 1
    assert table.get("A") == ("A", D("9.99"), 1)
    assert table.update("nobody", price=1) == 0
    assert table.update("A", price=None) == 1
    assert table.get("A") == ("A", None, 1)
    with refusal("table", "symbol", why="updated"):
        table.update("A", symbol="Z")
    with pytest.raises(UnknownNameError):
        table.update("A", nothing=1)
    assert table.delete("A") == 1
    assert table.delete(["B", "nobody", "B"]) == 1
    assert [row.symbol for row in table.rows()] == ["C"]


def test_multisets_by_hand(store: TableStore, rows_spec: TableSpec) -> None:
    table = store.create(rows_spec)
    table.insert([ROWS[0], ROWS[0], ROWS[1]])
    assert table.delete([ROWS[0]]) == 1
    assert sorted(table.rows()) == ROWS


def test_tables_of_a_job_are_not_written_by_hand(store: TableStore) -> None:
    table = store.create(TableSpec("derived", TRADES, ("symbol",), owner="job-1"))
    for write in (
        lambda: table.insert(ROWS),
        lambda: table.upsert(ROWS),
        lambda: table.update("A", volume=1),
        lambda: table.delete("A"),
    ):
        with refusal("table", "job-1"):
            write()
    table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
    assert len(table) == 1


def test_concurrent_inserts_are_all_there_once(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)

    def insert(start: int) -> None:
        for number in range(start, start + 20):
            table.insert({"symbol": f"k{number}", "volume": number})

    threads = [threading.Thread(target=insert, args=(start,)) for start in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(table) == 60
    assert table.version == 60
    assert table.scalar("COUNT(DISTINCT volume)") == 60


def test_schemas_of_rows_handed_over() -> None:
    rows = inferred([{"id": 1, "price": D("1.50"), "at": datetime(2024, 1, 1), "name": "x"}])
    assert [str(field.type) for field in stored_schema(rows)] == [
        "int64",
        "decimal128(3, 2)",
        "timestamp[us, tz=UTC]",
        "string",
    ]
    frame = pl.DataFrame({"c": pl.Series(["a"], dtype=pl.Categorical), "u": pl.Series([1], dtype=pl.UInt8)})
    assert [str(field.type) for field in stored_schema(inferred(frame))] == ["string", "int64"]
    some = inferred({"id": number, **({"late": 1.5} if number else {})} for number in range(3))
    assert some.to_pydict() == {"id": [0, 1, 2], "late": [None, 1.5, 1.5]}
    with refusal("table", why="no row"):
        inferred([])
    with refusal("table", "id"):
        inferred([{"id": 1}, {"id": "x"}])


@dataclass
class Trade:
    volume: int
    symbol: str
    price: D | None = None


class Named(NamedTuple):
    volume: int
    symbol: str


class Foreign(NamedTuple):
    first: str
    second: D
    third: int


@pytest.mark.parametrize(
    "rows",
    [
        [{"symbol": "A", "volume": 1}, {"volume": 2, "symbol": "B"}],
        [{"symbol": "A", "volume": 1}, {"SYMBOL": "B", "volume": 2, "price": None}],
        [Trade(1, "A"), Trade(2, "B")],
        [Named(1, "A"), Named(2, "B")],
        [SparkRow(volume=1, symbol="A"), SparkRow(volume=2, symbol="B")],
        [MappingProxyType({"symbol": "A", "volume": 1}), Trade(2, "B")],
        [("A", None, 1), ["B", None, 2]],
        (Trade(1, "A"), Trade(2, "B")),
        (trade for trade in (Trade(1, "A"), Named(2, "B"))),
        pl.DataFrame({"volume": [1, 2], "symbol": ["A", "B"]}),
    ],
)
def test_rows_with_and_without_names(store: TableStore, rows_spec: TableSpec, rows: Any) -> None:
    table = store.create(rows_spec)
    assert table.insert(rows) == 2
    assert sorted(table.rows()) == [("A", None, 1), ("B", None, 2)]


def test_one_row_of_every_kind(store: TableStore, rows_spec: TableSpec) -> None:
    table = store.create(rows_spec)
    for row in (Trade(1, "A"), Named(1, "A"), ("A", None, 1), {"volume": 1, "symbol": "A"}):
        assert table.insert(row) == 1
    table.insert(list(table.rows()))
    assert list(table.rows()) == [("A", None, 1)] * 8
    # Names that the table has not at all say nothing, so that the values go by place.
    table.insert(Foreign("B", D("2.50"), 2))
    assert max(table.rows()) == ("B", D("2.50"), 2)


def test_rows_that_do_not_belong_together(store: TableStore, rows_spec: TableSpec) -> None:
    table = store.create(rows_spec)
    with refusal("table", "log", "row 2", why="like the others"):
        table.insert([("A", None, 1), {"symbol": "B"}])
    with refusal("sql.unknown_name", "third"):
        table.insert([{"symbol": "A", "third": 1}])
    with refusal("table", "log", "row 2", "2 values"):
        table.insert([("A", None, 1), ("B", 2)])
    assert len(table) == 0


def test_nested_values(store: TableStore) -> None:
    point = pa.struct([("x", pa.decimal128(4, 1)), ("tags", pa.list_(pa.string()))])
    schema = pa.schema([("p", point), ("m", pa.map_(pa.string(), pa.int64())), ("ps", pa.list_(point))])
    table = store.create(TableSpec("nested", schema))

    @dataclass
    class Point:
        x: float
        tags: list[str]

    table.insert({"p": Point(0.1, ["a"]), "m": {"k": 1}, "ps": [Point(0.2, []), None, {"x": 1}]})
    row = next(iter(table.rows()))
    assert row.p == {"x": D("0.1"), "tags": ["a"]}
    assert row.ps == [{"x": D("0.2"), "tags": []}, None, {"x": D("1.0"), "tags": None}]
    for wrong in ({"p": {"x": 0.25}}, {"p": {"y": 1}}, {"p": 7}, {"ps": "text"}, {"m": {"k": 1.5}}):
        with refusal("table", next(iter(wrong)), "nested"):
            table.insert(wrong)


@pytest.mark.parametrize("spread", [1, 3])
def test_the_time_that_dicts_take_grows_with_them_and_no_faster(store, rows_spec, spread) -> None:
    rows = [
        {"symbol": f"S{n}", "volume": n, **({"price": D(n)} if n % spread else {})} for n in range(80_000)
    ]
    table = store.create(rows_spec)
    started = time.process_time()
    table.insert(rows)
    assert time.process_time() - started < 3
    assert len(table) == 80_000


def test_a_row_with_a_column_of_no_type_is_replaced_and_deleted(store: TableStore) -> None:
    rows = pa.table({"id": [1, 2], "nothing": pa.nulls(2)})
    table = store.create(TableSpec("nothing", rows.schema, ("id",)))
    table.commit_keyed(rows, None, commit(1))
    table.commit_keyed(rows.slice(0, 1), rows.slice(1, 1).select(["id"]), commit(2))
    assert [tuple(row) for row in table.rows()] == [(1, None)]
