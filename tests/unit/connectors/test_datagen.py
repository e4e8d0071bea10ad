"""Generated rows follow from their number, and from nothing else."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from refusals import refusal
from velostream.connectors.base import SourceContext
from velostream.connectors.datagen.generators import NAMES
from velostream.connectors.datagen.options import DatagenOptions
from velostream.connectors.datagen.source import DatagenSource
from velostream.errors import SourceConfigError


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2024, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def rows(source: DatagenSource, start, end) -> list[dict]:
    return [row for batch in source.read("rows", start, end) for row in batch.to_pylist()]


def test_rows_come_at_their_rate_and_go_on_after_a_restart(tmp_path):
    clock = Clock()
    options = DatagenOptions(rows_per_second=100)
    source = DatagenSource(options, SourceContext(tmp_path, clock=clock))
    assert source.latest(None) == {"rows": 0}
    clock.now += timedelta(seconds=2)
    first = source.latest(None)
    assert first == {"rows": 200}
    again = DatagenSource(options, SourceContext(tmp_path, clock=clock))
    clock.now += timedelta(seconds=1)
    assert again.latest(first) == {"rows": 300}
    assert rows(again, 0, 200) == rows(source, 0, 200)
    assert rows(again, 100, 200) == rows(again, 0, 200)[100:]
    assert rows(again, 0, 200)[150]["ts"] == datetime(2024, 1, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert not again.finished(first)


def test_a_bounded_generator_ends(tmp_path):
    clock = Clock()
    source = DatagenSource(DatagenOptions(rows=50, rows_per_second=10), SourceContext(tmp_path, clock=clock))
    clock.now += timedelta(seconds=3)
    assert source.latest(None) == {"rows": 30}
    assert not source.finished({"rows": 30})
    clock.now += timedelta(seconds=30)
    assert source.latest(None) == {"rows": 50}
    assert source.finished({"rows": 50})
    once = DatagenSource(DatagenOptions(rows=50), SourceContext(tmp_path / "once", once=True, clock=clock))
    assert once.latest(None) == {"rows": 50}


def test_seeds_differ_and_values_vary(tmp_path):
    one = DatagenSource(DatagenOptions(seed=1, rows=1000), SourceContext(tmp_path / "a"))
    two = DatagenSource(DatagenOptions(seed=2, rows=1000), SourceContext(tmp_path / "b"))
    first, second = rows(one, 0, 1000), rows(two, 0, 1000)
    assert [r["price"] for r in first] != [r["price"] for r in second]
    assert {r["symbol"] for r in first} == {r["symbol"] for r in second}
    assert len({r["user_id"] for r in first}) > 90
    assert len({(r["symbol"], r["side"]) for r in first}) == 16


@pytest.mark.parametrize("name", NAMES)
def test_named_generators(tmp_path, name):
    source = DatagenSource(DatagenOptions(generator=name, rows=10), SourceContext(tmp_path))
    assert rows(source, 0, 10)[0].keys() >= set(source.discover().names)


def test_declared_columns_get_values_of_their_type(tmp_path):
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("small", pa.int8()),
            ("d", pa.decimal128(5, 3)),
            ("f", pa.float64()),
            ("ok", pa.bool_()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us", tz="UTC")),
            ("name", pa.string()),
        ]
    )
    options = DatagenOptions(generator="sensors", rows=100)
    source = DatagenSource(options, SourceContext(tmp_path, schema=schema, declared=True))
    assert source.discover() == schema
    found = rows(source, 0, 100)
    assert [row["id"] for row in found] == list(range(1, 101))
    assert {row["ok"] for row in found} == {True, False}


def test_unknown_generators_and_types(tmp_path):
    with pytest.raises(SourceConfigError) as caught:
        DatagenSource(DatagenOptions(generator="trade"), SourceContext(tmp_path))
    assert caught.value.hint == 'did you mean "trades"?'
    nested = pa.schema([("l", pa.list_(pa.int64()))])
    with refusal("source.config", "l"):
        DatagenSource(DatagenOptions(), SourceContext(tmp_path, schema=nested, declared=True))
