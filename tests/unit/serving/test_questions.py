"""Questions about one table: answered from the columns as the SQL engine answers them, and remembered."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trade_rows import commit, trades

from refusals import refusal
from velostream.errors import SqlSyntaxError, UnknownNameError
from velostream.model.columns import SHOWN
from velostream.model.tables import TableSpec
from velostream.serving.columns.values import to_python
from velostream.serving.sql.questions import Questions
from velostream.serving.sql.simple import read_plainly, recognise
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    from velostream.serving.contract.table import Table

SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("small", pa.int16()),
        pa.field("big", pa.int64()),
        pa.field("amount", pa.decimal128(20, 2)),
        pa.field("ratio", pa.float64()),
        pa.field(SHOWN, pa.bool_()),
    ]
)

rows = st.lists(
    st.tuples(
        st.integers(0, 15),
        st.sampled_from([None, "", "a", "b", "ä"]),
        st.sampled_from([None, -3, 0, 7]),
        st.sampled_from([None, -1, 0, 5, 2**62, -(2**62)]),
        st.sampled_from([None, Decimal("0.00"), Decimal("-1.25"), Decimal("999999999999999999.99")]),
        st.sampled_from([None, 0.5, -2.0]),
        st.booleans(),
    ),
    max_size=10,
)
projections = st.one_of(
    st.sampled_from(["COUNT(*)", "COUNT(name)", "count(Amount)", "MAX(name)", "COUNT(DISTINCT name)"]),
    st.builds(
        "{}({})".format,
        st.sampled_from(["SUM", "MIN", "MAX"]),
        st.sampled_from(["k", "small", "big", "amount"]),
    ),
)
conditions = st.one_of(
    st.builds(
        "name {} '{}'".format, st.sampled_from(["=", "<>"]), st.sampled_from(["a", "b", "", "zz", "ä"])
    ),
    st.builds(
        "{} {} {}".format,
        st.sampled_from(["small", "BIG", "amount", "k"]),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        st.sampled_from(["0", "7", "-1", "5", "100000"]),
    ),
    st.builds(
        "amount {} {}".format, st.sampled_from(["=", ">", "<="]), st.sampled_from(["-1.25", "0.0", "1.5"])
    ),
    st.sampled_from(
        ["5 > big", "name = 'a' OR small = 7", "ratio > 0", "name IS NULL", "name IN ('a', 'b')"]
    ),
)
wheres = st.one_of(st.none(), st.lists(conditions, min_size=1, max_size=3).map(" AND ".join))


def table_of(given: list[tuple[Any, ...]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [dict(zip(SCHEMA.names, row, strict=True)) for row in given], schema=SCHEMA
    ).select(schema.names)


def by_engine(table: Table, projection: str, where: str | None) -> list[Any]:
    answer = Questions().ask(table.version_object, projection, where)
    return to_python(answer.column(0))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    commits=st.lists(st.tuples(rows, st.lists(st.integers(0, 15), max_size=3)), min_size=1, max_size=4),
    asked=st.lists(st.tuples(projections, wheres), min_size=1, max_size=6),
    keyed=st.booleans(),
    hiding=st.booleans(),
)
def test_answers_are_those_of_the_engine(
    tmp_path_factory: pytest.TempPathFactory,
    commits: list[tuple[list[tuple[Any, ...]], list[int]]],
    asked: list[tuple[str, str | None]],
    keyed: bool,
    hiding: bool,
) -> None:
    schema = SCHEMA if hiding else pa.schema([field for field in SCHEMA if field.name != SHOWN])
    with TableStore(tmp_path_factory.mktemp("tables")) as store:
        table = store.create(TableSpec("t", schema, ("k",) if keyed else ()))
        for number, (upserts, deletes) in enumerate(commits):
            if keyed:
                gone = pa.table({"k": pa.array(deletes, pa.int64())})
                table.commit_keyed(table_of(upserts, schema), gone, commit(number))
            else:
                weights = pa.array([1 + (row[0] % 2) for row in upserts], pa.int64())
                table.commit_rows(table_of(upserts, schema), weights, commit(number))
            for projection, where in asked:
                try:
                    expected = by_engine(table, projection, where)[0]
                except Exception as exc:  # a sum that overflows is refused by both
                    with pytest.raises(type(exc)):
                        table.scalar(projection, where)
                    continue
                for _ in range(2):
                    answer = table.scalar(projection, where)
                    assert (answer, type(answer)) == (expected, type(expected)), (projection, where)
                if where is not None:
                    for column in ("name", "amount", "ratio"):
                        expected_values = sorted(by_engine(table, column, where), key=repr)
                        assert sorted(table.column_values(column, where), key=repr) == expected_values


@pytest.mark.parametrize(
    ("projection", "where"),
    [
        ("SUM(amount)", "name = 'a'"),
        ("COUNT(*)", None),
        ("COUNT(*)", "small = 3 AND amount > 1.5"),
        ("MAX(big)", "'a' = name"),
        ("name", "(k >= -5)"),
    ],
)
def test_simple_questions_are_recognised(store: TableStore, projection: str, where: str | None) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    assert recognise(Questions().bound(table.spec, projection, where), table.spec) is not None


@settings(max_examples=200, deadline=None)
@given(projection=projections, where=wheres)
def test_reading_plainly_is_parsing(projection: str, where: str | None) -> None:
    spec = TableSpec("t", SCHEMA, ("k",))
    plain = read_plainly(projection, where, spec)
    if plain is not None:
        assert recognise(plain, spec) == recognise(Questions().bound(spec, projection, where), spec)


@pytest.mark.parametrize(
    "where",
    [
        "name = 'it''s'",
        "name = 'a\\tb'",
        "name = 'a' -- k",
        "name = 'x' AND name = 'y AND z'",
        "current_date = '2024-01-01'",
        "name = 'a' OR k = 1",
        "nobody = 1",
        "k = 1e3",
        "k == 1",
    ],
)
def test_texts_with_more_to_them_are_parsed(where: str) -> None:
    schema = pa.schema([*SCHEMA, pa.field("current_date", pa.string())])
    assert read_plainly("COUNT(*)", where, TableSpec("t", schema, ("k",))) is None


@pytest.mark.parametrize(
    ("projection", "where"),
    [
        ("SUM(ratio)", None),
        ("SUM(amount) FILTER (WHERE k = 1)", None),
        ("SUM(DISTINCT big)", None),
        ("COUNT(name, small)", None),
        ("COUNT(*)", "name = 5"),
        ("COUNT(*)", "small = 40000"),
        ("COUNT(*)", "small = 1.5"),
        ("COUNT(*)", "amount = 1.234"),
        ("COUNT(*)", "name < 'b'"),
        ("COUNT(*)", "ratio = 1"),
        ("COUNT(*)", "NOT name = 'a'"),
        ("SUM(k) + 1", None),
    ],
)
def test_other_questions_are_left_to_the_engines(
    store: TableStore, projection: str, where: str | None
) -> None:
    table = store.create(TableSpec("t", SCHEMA, ("k",)))
    assert recognise(Questions().bound(table.spec, projection, where), table.spec) is None


def test_a_sum_past_64_bits_is_not_wrapped(store: TableStore) -> None:
    table = store.create(TableSpec("t", pa.schema([("k", pa.int64()), ("n", pa.int64())]), ("k",)))
    table.upsert([{"k": number, "n": 2**62} for number in range(3)])
    with refusal("sql.unsupported", "Spark"):
        table.scalar("SUM(n)")
    table.upsert({"k": 0, "n": -(2**62)})
    assert table.scalar("SUM(n)") == 2**62


def test_a_remembered_answer_ends_with_its_version(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1), ("B", "2.00", 2)), None, commit(1))
    for _ in range(3):
        assert table.scalar("SUM(volume)", "symbol = 'A'") == 1
        assert table.column_values("volume", "symbol = 'A'") == [1]
    table.commit_keyed(trades(("A", "1.00", 5)), None, commit(2))
    assert table.scalar("SUM(volume)", "symbol = 'A'") == 5
    assert table.column_values("volume", "symbol = 'A'") == [5]


def test_a_list_handed_out_may_be_changed(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
    for _ in range(3):
        values = table.column_values("volume", "symbol = 'A'")
        assert values == [1]
        values.append(99)


def test_the_statistics_count_questions_and_hits(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1)), None, commit(1))
    for _ in range(10):
        table.scalar("SUM(volume)", "symbol = 'A'")
        table.scalar("AVG(price)", "symbol = 'A'")
    stats = table.stats()
    assert stats.queries == 20
    assert stats.cache_hits == 18
    assert stats.cache_hit_rate == 0.9


def test_an_index_is_made_when_a_column_is_asked_for_again_and_again(
    store: TableStore, keyed_spec: TableSpec
) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1), ("B", "1.00", 2)), None, commit(1))
    segment = table.version_object.views[0].segment
    table.count("volume = 1")
    assert not segment.indexes
    for number in range(4):
        assert table.count(f"volume = {number}") == (number in (1, 2))
    assert list(segment.indexes) == [("volume",)]


def test_mistakes_are_named(store: TableStore, keyed_spec: TableSpec) -> None:
    table = store.create(keyed_spec)
    table.commit_keyed(trades(("A", "1.00", 1), ("B", "1.00", 2)), None, commit(1))
    with pytest.raises(UnknownNameError):
        table.scalar("SUM(volumes)")
    with pytest.raises(UnknownNameError):
        table.column_values("volumes", "symbol = 'A'")
    with pytest.raises(SqlSyntaxError):
        table.scalar("SUM(volume)", "symbol = 'A' GROUP BY symbol")
    with refusal("table", "volume", "2 rows"):
        table.scalar("volume")
