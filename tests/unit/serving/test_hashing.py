"""Hashes of rows agree with what the serving layer calls equal, whatever the columns look like in memory."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from velostream.serving.columns.hashing import hash_rows
from velostream.serving.columns.merging import compact
from velostream.serving.columns.segments import index_by, make_views, subtract
from velostream.serving.columns.values import EXACT, KeyCodec, canonical
from velostream.serving.index.matching import ids_with_hashes

if TYPE_CHECKING:
    from velostream.serving.columns.segments import Views

nan = float("nan")
lengths = [0, 1, 7, 8, 9, 16, 17, 255, 256, 257, 264, 1000]
texts = st.one_of(
    st.text(max_size=20),
    st.builds(lambda letter, size: letter * size, st.sampled_from("aé"), st.sampled_from(lengths)),
)
small = st.integers(-3, 3)
floats = st.one_of(st.sampled_from([0.0, -0.0, 1.5, nan, -nan, float("inf")]), st.floats(width=16))
dicts = st.dictionaries(st.sampled_from("abc"), small)
instants = st.datetimes(datetime(1900, 1, 1), datetime(2100, 1, 1))

FLAT: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.string(), texts),
    (pa.large_string(), texts),
    (pa.binary(), texts.map(str.encode)),
    (pa.large_binary(), texts.map(str.encode)),
    (pa.bool_(), st.booleans()),
    (pa.int8(), small),
    (pa.int16(), small),
    (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.uint64(), st.integers(0, 2**64 - 1)),
    (pa.float32(), floats),
    (pa.float64(), st.one_of(floats, st.floats())),
    (pa.decimal128(9, 2), st.decimals(-99999, 99999, places=2)),
    (
        pa.decimal128(38, 6),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: EXACT.scaleb(Decimal(n), -6)),
    ),
    (pa.timestamp("us"), instants),
    (pa.timestamp("us", tz="UTC"), instants.map(lambda at: at.replace(tzinfo=UTC))),
    (pa.timestamp("ms", tz="Europe/Berlin"), instants.map(lambda at: at.replace(microsecond=0, tzinfo=UTC))),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.duration("us"), st.timedeltas(timedelta(-9), timedelta(9))),
]
OTHER: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.date64(), st.dates()),
    (pa.null(), st.none()),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.decimal256(50, 3), st.decimals(-(10**30), 10**30, places=3)),
    (pa.list_(pa.float64()), st.lists(st.one_of(st.none(), floats), max_size=2)),
    (pa.list_(pa.decimal128(9, 2)), st.lists(st.decimals(-9, 9, places=2), max_size=2)),
    (pa.struct({"a": pa.int32(), "b": pa.string()}), st.fixed_dictionaries({"a": small, "b": texts})),
    (pa.map_(pa.string(), pa.int64()), dicts.map(lambda d: list(d.items()))),
]


def layouts(array: pa.Array) -> list[pa.Array | pa.ChunkedArray]:
    """The same values in other forms: a piece of more, in pieces some of which are empty, as codes."""
    half = len(array) // 2
    forms = [
        pa.concat_arrays([array, array, array]).slice(len(array), len(array)),
        pa.chunked_array([array.slice(0, half), array.slice(0, 0), array.slice(half)]),
    ]
    try:
        coded = array.dictionary_encode()
        forms += [coded, pa.concat_arrays([coded] * 9).slice(0, len(array))]
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
        pass
    return forms


def hashes_of(column: pa.Array | pa.ChunkedArray) -> list[int]:
    return list(hash_rows(pa.table({"c": column}), ("c",)).tolist())


@pytest.mark.parametrize(
    ("kind", "values"), [pytest.param(*each, id=str(each[0])) for each in (*FLAT, *OTHER)]
)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_equal_values_have_equal_hashes_in_every_layout(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=8))
    array = pa.array(drawn + drawn[::-1], kind)
    codes, hashes = canonical(array), hashes_of(array)
    hash_of = dict(zip(codes, hashes, strict=True))
    assert [hash_of[code] for code in codes] == hashes
    for other in layouts(array):
        assert canonical(other) == codes
        assert hashes_of(other) == hashes
    # As many that they are hashed all at once.
    assert hashes_of(pa.concat_arrays([array] * 20)) == hashes * 20
    if not pa.types.is_nested(kind):
        assert len(set(hash_of.values())) == len(hash_of)


def test_values_that_are_equal_in_two_columns_do_not_cancel_each_other_out() -> None:
    numbers = pa.array(range(1000))
    same = pa.table({"a": numbers, "b": numbers, "c": numbers})
    for columns in combinations("abc", 2):
        assert len(set(hash_rows(same, columns).tolist())) == 1000
    assert len(set(hash_rows(same, ("a", "b", "c")).tolist())) == 1000
    swapped = pa.table({"a": [1, 2], "b": [2, 1]})
    assert len(set(hash_rows(swapped, ("a", "b")).tolist())) == 2


row = st.tuples(*(st.one_of(st.none(), values) for _, values in FLAT))


@settings(max_examples=30, deadline=None)
@given(drawn=st.lists(row, min_size=1, max_size=5), order=st.randoms(use_true_random=False))
def test_equal_rows_of_all_types_have_equal_hashes(drawn: list[Any], order: Any) -> None:
    mixed = drawn * 3
    order.shuffle(mixed)
    arrays = [
        pa.array(column, kind) for column, (kind, _) in zip(zip(*mixed, strict=True), FLAT, strict=True)
    ]
    rows = pa.table(arrays, names=[f"c{number}" for number in range(len(FLAT))])
    contents = KeyCodec(rows.schema, rows.schema.names).encode_columns(rows)
    by_content: dict[Any, set[int]] = {}
    for content, found in zip(contents, hash_rows(rows, rows.schema.names).tolist(), strict=True):
        by_content.setdefault(content, set()).add(found)
    assert all(len(found) == 1 for found in by_content.values())
    assert len({next(iter(found)) for found in by_content.values()}) == len(by_content)


@pytest.mark.timeout(20)
def test_a_text_of_megabytes_does_not_take_a_step_for_every_eight_bytes() -> None:
    size = 20_000_000
    longest = pa.array(["a" * size, "a" * (size - 1) + "b", *"abcdefghijklmnopqrst"], pa.large_string())
    assert len(set(hashes_of(longest))) == len(longest)


numbers = st.lists(st.integers(0, 4), min_size=1, max_size=6)
steps = st.one_of(
    st.tuples(st.just("add"), numbers, st.booleans()),
    st.tuples(st.just("take"), st.lists(st.integers(0, 1000), max_size=4), st.booleans()),
    st.tuples(st.just("merge"), st.just([]), st.booleans()),
    st.tuples(st.just("look"), st.just([]), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(done=st.lists(steps, max_size=30))
def test_rows_are_found_by_their_hash_while_rows_come_and_go_and_segments_merge(done: list[Any]) -> None:
    views: Views = ()
    model: dict[int, int] = {}
    limit = 0
    wanted = pa.table({"c": pa.array([3, 9, 0, 1, 2, 4], pa.int64())})
    looked_for = hash_rows(wanted, ("c",))
    for what, values, known in [*done, ("look", [], False), ("merge", [], False), ("look", [], False)]:
        if what == "add":
            rows = pa.record_batch({"c": pa.array(values, pa.int64())})
            fresh = make_views([rows.slice(0, 2), rows.slice(2)] if len(values) > 2 else [rows], limit, None)
            if known:
                index_by(("c",), hash_rows(rows, ("c",)), fresh)
            views += fresh
            model.update(zip(range(limit, limit + len(values)), values, strict=True))
            limit += len(values)
        elif what == "take":
            ids = np.array(
                sorted({sorted(model)[at % len(model)] for at in values} if model else ()), np.int64
            )
            views = subtract(views, ids, np.ones(len(ids), np.int64))
            for each in ids.tolist():
                del model[each]
        elif what == "merge":
            views = compact(views)
        else:
            places, ids = ids_with_hashes(views, ("c",), looked_for)
            assert list(zip(places.tolist(), ids.tolist(), strict=True)) == [
                (place, each)
                for place, value in enumerate(wanted.column("c").to_pylist())
                for each in sorted(model)
                if model[each] == value
            ]
