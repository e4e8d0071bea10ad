"""Decimals stay exact through the store and the query engine, measured against Python's own."""

from __future__ import annotations

import tempfile
from decimal import Context, Decimal
from pathlib import Path

import pyarrow as pa
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlglot import exp
from trade_rows import commit

from velostream.model.statements import Query
from velostream.model.tables import TableSpec
from velostream.serving.sql.engine import NeedsSpark, QueryEngine
from velostream.serving.table.store import TableStore
from velostream.sql.parse.dialect import Velostream

EXACT = Context(prec=200)
ENGINE = QueryEngine()

shapes = st.tuples(st.integers(1, 38), st.integers(0, 38)).map(lambda pair: (pair[0], min(pair)))


@st.composite
def columns(draw: st.DrawFn, count: int = 2) -> list[tuple[pa.DataType, list[Decimal | None]]]:
    size = draw(st.integers(1, 8))
    made = []
    for _ in range(count):
        precision, scale = draw(shapes)
        largest = 10**precision - 1
        edges = st.sampled_from([0, 1, -1, largest, -largest])
        unscaled = st.lists(
            st.one_of(st.none(), edges, st.integers(-largest, largest)), min_size=size, max_size=size
        )
        values = [None if each is None else Decimal(each).scaleb(-scale, EXACT) for each in draw(unscaled)]
        made.append((pa.decimal128(precision, scale), values))
    return made


def ask(sql: str, rows: pa.Table) -> pa.Table:
    tree = sqlglot.parse_one(sql, dialect=Velostream)
    assert isinstance(tree, exp.Query)
    with tempfile.TemporaryDirectory() as folder, TableStore(Path(folder)) as store:
        table = store.create(TableSpec("t", rows.schema))
        table.commit_rows(rows, None, commit(1))
        store.close()
        reopened = TableStore(Path(folder)).open("t")
        assert reopened.snapshot().equals(rows)
        return ENGINE.answer(Query(tree), {"t": reopened.version_object})


def digits(value: Decimal | None) -> tuple[int, ...] | None:
    """A value with its scale: 1.50 and 1.5 differ."""
    return (
        None
        if value is None
        else (value.as_tuple().sign, *value.as_tuple().digits, value.as_tuple().exponent)
    )


@settings(max_examples=60, deadline=None)
@given(columns())
def test_rows_and_arithmetic_are_exact(given_columns: list[tuple[pa.DataType, list[Decimal | None]]]) -> None:
    (left_type, left), (right_type, right) = given_columns
    rows = pa.table({"a": pa.array(left, left_type), "b": pa.array(right, right_type)})
    operators = {"+": EXACT.add, "-": EXACT.subtract, "*": EXACT.multiply}
    for sign, operator in operators.items():
        try:
            answer = ask(f"SELECT a {sign} b AS x, a, b FROM t", rows)
        except NeedsSpark as exc:
            assert "38 digits" in exc.reason or "common type" in exc.reason  # noqa: PT017
            continue
        expected = [
            None if one is None or other is None else operator(one, other)
            for one, other in zip(left, right, strict=True)
        ]
        assert answer.column("x").to_pylist() == expected
        scale = answer.schema.field("x").type.scale
        wanted = left_type.scale + right_type.scale if sign == "*" else max(left_type.scale, right_type.scale)
        assert scale == wanted
        assert [digits(value) for value in answer.column("a").to_pylist()] == [
            digits(value) for value in left
        ]


@settings(max_examples=60, deadline=None)
@given(columns(count=1))
def test_aggregates_are_exact(given_columns: list[tuple[pa.DataType, list[Decimal | None]]]) -> None:
    ((kind, values),) = given_columns
    rows = pa.table({"a": pa.array(values, kind)})
    present = [value for value in values if value is not None]
    answer = ask("SELECT MIN(a), MAX(a), COUNT(a) FROM t", rows)
    assert tuple(answer.to_pylist()[0].values()) == (
        min(present, default=None),
        max(present, default=None),
        len(present),
    )
    exact = EXACT.create_decimal(0)
    for value in present:
        exact = EXACT.add(exact, value)
    total = exact if present else None
    fits = abs(exact) < Decimal(10).scaleb(min(38, kind.precision + 10) - kind.scale - 1, EXACT)
    try:
        answer = ask("SELECT SUM(a) AS s FROM t", rows)
    except NeedsSpark:
        assert not fits
        return
    assert answer.column("s").to_pylist() == [total]
    assert answer.schema.field("s").type == pa.decimal128(min(38, kind.precision + 10), kind.scale)


@settings(max_examples=60, deadline=None)
@given(columns())
def test_comparisons_are_exact(given_columns: list[tuple[pa.DataType, list[Decimal | None]]]) -> None:
    (left_type, left), (right_type, right) = given_columns
    rows = pa.table({"a": pa.array(left, left_type), "b": pa.array(right, right_type)})
    try:
        answer = ask("SELECT a < b AS less, a = b AS same FROM t", rows)
    except NeedsSpark as exc:
        assert "common type" in exc.reason  # noqa: PT017
        return
    pairs = list(zip(left, right, strict=True))
    assert answer.column("less").to_pylist() == [
        None if one is None or other is None else one < other for one, other in pairs
    ]
    assert answer.column("same").to_pylist() == [
        None if one is None or other is None else one == other for one, other in pairs
    ]
