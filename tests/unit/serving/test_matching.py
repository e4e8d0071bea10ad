"""Rows found by the values of columns, against a search through all rows."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trade_rows import commit

from refusals import refusal
from velostream.model.columns import SHOWN
from velostream.model.tables import TableSpec
from velostream.serving.columns.hashing import hash_rows
from velostream.serving.columns.values import freeze
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from random import Random

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("score", pa.float64()),
        pa.field("amount", pa.decimal128(20, 2)),
        pa.field("tags", pa.list_(pa.int32())),
    ]
)

names = st.sampled_from([None, "", "a", "b", "a longer name than eight bytes", "ä"])
scores = st.sampled_from([None, 0.0, -0.0, 1.5, float("nan")])
amounts = st.sampled_from([None, "0.00", "-1.25", "99999999999999999.99"])
tags = st.sampled_from([None, [], [1], [1, 2]])
rows = st.lists(st.tuples(st.integers(0, 20), names, scores, amounts, tags), max_size=12)
COLUMNS = [
    ("id",),
    ("name",),
    ("score",),
    ("amount",),
    ("tags",),
    ("name", "score"),
    ("amount", "name", "id"),
]


def table_of(given: list[tuple[Any, ...]], schema: pa.Schema = SCHEMA) -> pa.Table:
    columns = []
    for place, field in enumerate(schema):
        values = pa.array(
            [row[place] for row in given], pa.string() if field.name == "amount" else field.type
        )
        columns.append(values.cast(field.type) if field.name == "amount" else values)
    return pa.table(columns, schema=schema)


def counted(table: pa.Table) -> Counter[Any]:
    return Counter(freeze(tuple(row.values())) for row in table.to_pylist())


def searched(table: pa.Table, columns: tuple[str, ...], keys: pa.Table) -> Counter[Any]:
    wanted = {freeze(tuple(row.values())) for row in keys.select(columns).to_pylist()}
    wanted = {key for key in wanted if None not in key}
    found = [row for row in table.to_pylist() if freeze(tuple(row[name] for name in columns)) in wanted]
    return Counter(freeze(tuple(row.values())) for row in found)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    commits=st.lists(st.tuples(rows, st.lists(st.integers(0, 20), max_size=5)), max_size=6),
    wanted=rows,
    keyed=st.booleans(),
)
def test_every_version_finds_what_a_search_finds(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[tuple[list[tuple[Any, ...]], list[int]]],
    wanted: list[tuple[Any, ...]],
    keyed: bool,
) -> None:
    keys = table_of(wanted)
    with TableStore(tmp_path_factory.mktemp("tables")) as store:
        table = store.create(TableSpec("t", SCHEMA, ("id",) if keyed else ()))
        held = [table.version_object]
        for number, (upserts, deletes) in enumerate(commits):
            if keyed:
                gone = pa.table({"id": pa.array(deletes, pa.int64())})
                table.commit_keyed(table_of(upserts), gone, commit(number))
            else:
                present = table.snapshot()
                back = present.slice(0, min(len(deletes), present.num_rows))
                weights = pa.array([1] * len(upserts) + [-1] * back.num_rows)
                table.commit_rows(pa.concat_tables([table_of(upserts), back]), weights, commit(number))
            held.append(table.version_object)
            for columns in COLUMNS[number % 2 :: 2]:
                found = table.fetch_where(columns, keys)
                assert counted(found) == searched(table.snapshot(), columns, keys)
        for version in held:
            for columns in COLUMNS:
                found = version.fetch_where(columns, keys)
                assert found.schema == version.spec.visible_schema
                assert counted(found) == searched(version.snapshot(), columns, keys)


def test_a_new_version_is_found_through_an_index_made_before(store: TableStore, rng: Random) -> None:
    schema = pa.schema([("k", pa.int64()), ("town", pa.string())])
    table = store.create(TableSpec("people", schema, ("k",)))
    towns = ["Ulm", "Bonn", "Kiel", "a town with quite a long name"]
    truth: dict[int, str] = {}
    keys = pa.table({"town": ["Ulm", "a town with quite a long name"]})
    for number in range(40):
        changed = {rng.randrange(400): rng.choice(towns) for _ in range(60)}
        gone = [key for key in rng.sample(range(400), 10) if key not in changed]
        rows = pa.table({"k": list(changed), "town": list(changed.values())}, schema=schema)
        table.commit_keyed(rows, pa.table({"k": pa.array(gone, pa.int64())}), commit(number))
        truth = {key: town for key, town in (truth | changed).items() if key not in gone}
        found = table.fetch_where(["town"], keys).to_pylist()
        wanted = {key: town for key, town in truth.items() if town in keys["town"].to_pylist()}
        assert {row["k"]: row["town"] for row in found} == wanted
        assert len(found) == len(wanted)


def test_merging_segments_carries_their_indexes_over(store: TableStore) -> None:
    schema = pa.schema([("k", pa.int64()), ("town", pa.string())])
    table = store.create(TableSpec("people", schema, ("k",)))
    for number in range(6):
        rows = pa.table({"k": range(number, number + 10), "town": ["Ulm"] * 10}, schema=schema)
        table.commit_keyed(rows, None, commit(number))
        table.fetch_where(["town"], pa.table({"town": ["Ulm"]}))
    views = table.version_object.views
    last = pa.table({"k": range(100, 110), "town": ["Bonn"] * 10}, schema=schema)
    table.commit_keyed(last, None, commit(7))
    merged = [view.segment for view in table.version_object.views if view not in views]
    assert merged
    assert all(("town",) in segment.indexes for segment in merged)
    assert table.fetch_where(["town"], pa.table({"town": ["Bonn"]})).column("k").to_pylist() == list(
        range(100, 110)
    )


def test_hidden_rows_and_columns_stay_hidden(store: TableStore) -> None:
    schema = pa.schema([("k", pa.int64()), ("town", pa.string()), (SHOWN, pa.bool_())])
    table = store.create(TableSpec("t", schema, ("k",)))
    rows = pa.table({"k": [1, 2], "town": ["Ulm", "Ulm"], SHOWN: [True, False]}, schema=schema)
    table.commit_keyed(rows, None, commit(1))
    for columns in (["town"], ["k"]):
        found = table.fetch_where(columns, pa.table({"town": ["Ulm", "Ulm"], "k": [1, 2]}))
        assert found.to_pylist() == [{"k": 1, "town": "Ulm"}]


def test_an_unknown_column_is_named(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    with refusal("sql.unknown_name", "volumes") as caught:
        table.fetch_where(["volumes"], pa.table({"volumes": [1]}))
    assert "volume" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "bb", None, "", "a text of more than sixteen bytes", "a"]),
        pa.array(["a", "bb", None, "", "a text of more than sixteen bytes", "a"], pa.large_string()),
        pa.array([b"a", b"bb", None, b"", b"more than eight bytes", b"a"]),
        pa.array([1, 2, None, 0, -1, 1], pa.int32()),
        pa.array([1.0, 2.0, None, 0.0, float("nan"), 1.0], pa.float32()),
        pa.array([True, False, None, False, False, True]),
        pa.array([1, 2, None, 0, -1, 1], pa.timestamp("us", tz="UTC")),
        pa.array([1, 2, None, 0, -1, 1], pa.date32()),
    ],
    ids=lambda column: str(column.type),
)
def test_hashes_do_not_depend_on_how_a_column_is_laid_out(column: pa.Array) -> None:
    plain = hash_rows(pa.table({"c": column}), ["c"]).tolist()
    assert plain[0] == plain[5]
    assert len(set(plain)) >= 3
    sliced = pa.concat_arrays([column, column]).slice(6, 6)
    assert hash_rows(pa.table({"c": sliced}), ["c"]).tolist() == plain
    pieces = pa.chunked_array([column.slice(0, 2), column.slice(2)])
    assert hash_rows(pa.table({"c": pieces}), ["c"]).tolist() == plain
    if not pa.types.is_floating(column.type):
        encoded = column.dictionary_encode()
        assert hash_rows(pa.table({"c": encoded}), ["c"]).tolist() == plain
