"""Groups that are merged in Arrow: keys of every type, and averages of integers of every size."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from velostream.formats.columns.nested_keys import grouped
from velostream.plan.groups.merge import average


def test_groups_by_lists_and_structs_as_by_plain_keys():
    point = pa.struct([("x", pa.int64()), ("y", pa.string())])
    rows = pa.table(
        {
            "tags": pa.array([["a", None], [], None, ["a", None], [], None], pa.list_(pa.string())),
            "at": pa.array([{"x": 1, "y": None}, None, None, {"x": 1, "y": None}, None, None], point),
            "k": ["p", "p", "p", "p", "q", "p"],
            "n": [1, 2, 3, 4, 5, 6],
        }
    )
    found = grouped(rows, ("tags", "at", "k"), [("n", "sum")])
    assert found.schema.field("tags").type == pa.list_(pa.string())
    assert found.schema.field("at").type == point
    assert [tuple(row.values()) for row in found.to_pylist()] == [
        (["a", None], {"x": 1, "y": None}, "p", 5),
        ([], None, "p", 2),
        (None, None, "p", 9),
        ([], None, "q", 5),
    ]


def test_plain_keys_are_grouped_by_arrow_itself():
    rows = pa.table({"k": ["a", None, "a", None], "n": [1, 2, 3, 4]})
    assert grouped(rows, ("k",), [("n", "max")]).to_pylist() == [
        {"k": "a", "n_max": 3},
        {"k": None, "n_max": 4},
    ]


def test_an_average_of_integers_that_no_double_holds():
    total = pa.chunked_array([pa.array([2**53 + 1, 2**62 + 1, -(2**60) - 1, 6], pa.int64())])
    count = pa.chunked_array([pa.array([1, 2, 3, 0], pa.int64())])
    found = average(total, count, pa.float64())
    assert found.to_pylist() == [float(2**53 + 1), (2**62 + 1) / 2, (-(2**60) - 1) / 3, None]
    assert pc.count(found).as_py() == 3
