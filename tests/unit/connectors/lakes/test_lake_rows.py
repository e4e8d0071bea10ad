"""Rows for tables of lakes: what is added, what goes, what fits."""

from __future__ import annotations

import math
from decimal import Decimal

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.connectors.lakes.changes import among, changes, halves, key_tuples
from velostream.connectors.lakes.columns import (
    aligned,
    check_fits,
    check_types,
    fits,
    missing,
    names_of,
    without_demands,
    without_value,
)
from velostream.model.columns import WEIGHT

NAN = math.nan


def table(**columns: pa.Array | list[object]) -> pa.Table:
    return pa.table(columns)


def test_rows_are_parted_by_their_sign() -> None:
    rows = table(id=[1, 2, 3]).append_column(WEIGHT, pa.array([-1, 1, 1], pa.int64()))
    added, removed = halves(rows)
    assert added.to_pydict() == {"id": [2, 3]}
    assert removed.to_pydict() == {"id": [1]}
    added, removed = halves(table(id=[1]))
    assert (added.num_rows, removed.num_rows) == (1, 0)


def test_a_key_goes_only_where_no_row_came_for_it() -> None:
    step = changes(table(id=[1, 2], v=["a", "b"]), table(id=[2, 3], v=["old", "c"]), ["id"])
    assert step.replaces
    assert step.gone is not None
    assert step.gone.to_pydict() == {"id": [3]}


@pytest.mark.parametrize(
    ("rows", "keys", "found"),
    [
        ({"a": [1, 2, None]}, {"a": [2, None]}, [False, True, True]),
        ({"a": [NAN, 0.0, 1.0]}, {"a": [NAN, -0.0]}, [True, True, False]),
        ({"a": [1, 1, 2], "b": ["x", "y", "x"]}, {"a": [1, 2], "b": ["x", "y"]}, [True, False, False]),
        (
            {"a": [1.0, NAN], "b": [NAN, None]},
            {"a": [NAN], "b": pa.array([None], pa.float64())},
            [False, True],
        ),
        ({"a": [Decimal("1.10")]}, {"a": [Decimal("1.10")]}, [True]),
    ],
)
def test_rows_are_found_by_their_keys(
    rows: dict[str, list[object]], keys: dict[str, list[object]], found: list[bool]
) -> None:
    assert among(table(**rows), table(**keys)).to_pylist() == found


def test_keys_are_equal_where_values_are() -> None:
    assert len(set(key_tuples(table(a=[NAN, NAN, 0.0, -0.0, None])))) == 3


def test_names_are_parted_at_commas_outside_of_parentheses() -> None:
    assert names_of("day(at), bucket(16, id),region,") == ["day(at)", "bucket(16, id)", "region"]
    assert names_of(None) == []


@pytest.mark.parametrize(
    ("ours", "theirs", "fit"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), False),
        (pa.int64(), pa.float64(), False),
        (pa.decimal128(9, 2), pa.decimal128(12, 4), True),
        (pa.decimal128(9, 2), pa.decimal128(10, 4), False),
        (pa.string(), pa.large_string(), True),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), False),
        (pa.list_(pa.int8()), pa.large_list(pa.int64()), True),
        (pa.map_(pa.string(), pa.int8()), pa.map_(pa.large_string(), pa.int64()), True),
        (pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int64()), ("y", pa.string())]), True),
        (pa.struct([("x", pa.int8()), ("z", pa.int8())]), pa.struct([("x", pa.int64())]), False),
        (
            pa.struct([("x", pa.int8())]),
            pa.struct([("x", pa.int8()), pa.field("y", pa.int8(), False)]),
            False,
        ),
    ],
)
def test_which_values_fit(ours: pa.DataType, theirs: pa.DataType, fit: bool) -> None:
    assert fits(ours, theirs) is fit


def test_what_a_table_lacks() -> None:
    theirs = pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int32())]))])
    ours = pa.schema(
        [("id", pa.int64()), ("s", pa.struct([("x", pa.int32()), ("y", pa.int32())])), ("n", pa.string())]
    )
    assert [field.name for field in missing(ours, theirs)] == ["n", "s"]
    with refusal("sink.config", "t", "n"):
        check_fits("t", ours, theirs)
    with refusal("sink.config", "ID", "id"):
        missing(pa.schema([("ID", pa.int64())]), theirs)
    with refusal("sink.config", "d"):
        check_types(pa.schema([("d", pa.list_(pa.duration("us")))]))


def test_values_that_are_demanded() -> None:
    demanded = pa.field("value", pa.int32(), nullable=False)
    theirs = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("l", pa.list_(pa.struct([pa.field("x", pa.int32(), nullable=False)]))),
            ("m", pa.map_(pa.string(), demanded)),
        ]
    )
    assert without_demands(theirs).field("id").nullable
    assert without_demands(theirs).field("l").type.value_type.field(0).nullable
    structs = pa.list_(pa.struct([("x", pa.int32())]))
    numbers = pa.map_(pa.string(), pa.int32())
    rows = pa.table(
        {
            "id": [1, None, 3, 4, 5],
            "l": pa.array([None, None, [{"x": 1}, {"x": None}], [None], []], structs),
            "m": pa.array([[("a", 1)], None, None, [], [("a", 1), ("b", None)]], numbers),
        }
    )
    found = without_value(rows, theirs)
    assert {place: reason.split('"')[1] for place, reason in found.items()} == {
        1: "id",
        2: "l.element.x",
        4: "m.value",
    }
    assert without_value(rows.slice(3), theirs) == {1: 'column "m.value" cannot be NULL'}


def test_rows_take_the_columns_of_the_table() -> None:
    theirs = pa.schema([("b", pa.string()), ("a", pa.int64()), ("d", pa.decimal128(10, 4))])
    rows = pa.table({"a": pa.array([1], pa.int8()), "d": pa.array([Decimal("1.5")], pa.decimal128(3, 1))})
    assert aligned(rows, theirs).schema == theirs
    assert aligned(rows, theirs).to_pylist() == [{"b": None, "a": 1, "d": Decimal("1.5000")}]
