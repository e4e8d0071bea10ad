"""Rows with moments: what is stored, shown and gone at each time, against a list of all rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from velostream.engine.kept.clock_rows import ClockRows, kept_schema
from velostream.model.changes import Commit
from velostream.model.columns import FROM, UNTIL
from velostream.model.moments import moment
from velostream.model.tables import TableSpec
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = pa.schema([("id", pa.int64()), (FROM, pa.int64()), (UNTIL, pa.int64())])
Row = tuple[int, int | None, int | None]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[TableStore]:
    with TableStore(tmp_path) as store:
        yield store


def output(store: TableStore) -> ClockRows:
    return ClockRows(store.create(TableSpec("live", kept_schema(SCHEMA), owner="job")))


def commit(at: int) -> Commit:
    return Commit("job", at, {"in": {"p": at}}, moment(at))


def table(*rows: Row) -> pa.Table:
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


def shown(live: ClockRows) -> list[Any]:
    return sorted(live.table.snapshot().column("id").to_pylist())


def test_rows_come_and_go_when_they_are_due(store):
    live = output(store)
    assert live.clock is None
    live.rows(table((1, None, 10), (2, 5, None), (3, 5, 7), (4, None, None), (5, 0, 1)), None, commit(1))
    assert (shown(live), live.next_due, live.clock) == ([1, 4], 5, 1)
    live.age(commit(4))
    assert shown(live) == [1, 4]
    live.age(commit(5))
    assert (shown(live), live.next_due) == ([1, 2, 3, 4], 7)
    live.age(commit(10))
    assert (shown(live), live.next_due) == ([2, 4], None)
    assert live.table.version_object.physical_count == 2


def test_a_row_that_comes_and_goes_between_two_looks_is_never_shown(store):
    live = output(store)
    live.rows(table((1, 5, 7)), None, commit(1))
    before = live.table.version
    live.age(commit(9))
    assert live.table.changes_between(before, live.table.version).num_rows == 0
    assert live.table.version_object.physical_count == 0


def test_a_row_is_taken_back_before_and_after_it_has_gone(store):
    live = output(store)
    rows = [(1, None, 10), (2, 5, 20), (3, 5, 20), (4, 30, 40)]
    live.rows(table(*rows), None, commit(1))
    live.rows(table(), table((2, 5, 20)), commit(6))
    assert shown(live) == [1, 3]
    live.rows(table(), table((1, None, 10), (4, 30, 40)), commit(10))
    assert shown(live) == [3]
    live.rows(table(), table((1, None, 10), (2, 5, 20)), commit(21))
    assert (shown(live), live.table.version_object.physical_count) == ([], 0)


def test_equal_rows_are_counted(store):
    live = output(store)
    live.rows(table((1, 3, 10), (1, 3, 10), (1, 3, 10)), None, commit(1))
    live.rows(table(), table((1, 3, 10)), commit(3))
    assert shown(live) == [1, 1]
    live.age(commit(10))
    assert shown(live) == []


def test_what_is_due_is_known_again_after_a_restart(tmp_path):
    with TableStore(tmp_path) as store:
        output(store).rows(table((1, 5, 20), (2, None, 10)), None, commit(1))
    with TableStore(tmp_path) as store:
        live = ClockRows(store.open("live"))
        assert (live.clock, live.next_due, shown(live)) == (1, 5, [2])
        live.age(commit(15))
        assert (shown(live), live.next_due) == ([1], 20)


def test_a_commit_that_fails_forgets_nothing(store):
    live = output(store)
    live.rows(table((1, None, 10)), None, commit(1))
    with pytest.raises(KeyError):
        live.rows(table().drop_columns(["id"]), None, commit(10))
    assert (shown(live), live.next_due) == ([1], 10)
    live.age(replace(commit(10), batch=3))
    assert shown(live) == []


def test_replacing_leaves_out_what_has_gone(store):
    live = output(store)
    live.rows(table((1, None, 10), (2, None, 30)), None, commit(1))
    live.replace_all(table((1, None, 10), (3, 15, 40), (4, None, 13)), commit(12))
    assert (shown(live), live.next_due) == ([4], 13)
    live.age(commit(15))
    assert shown(live) == [3]


def test_live_rows_follow_a_model(store, rng: random.Random, rounds):
    live, model, at = output(store), [], 0
    for _ in range(rounds(200, 5000)):
        at += rng.choice([0, 1, 1, 3, 10])
        came: list[Row] = []
        for _ in range(rng.randint(0, 3)):
            first = rng.choice([None, at + rng.randint(-5, 10)])
            last = rng.choice([None, (first or at) + rng.randint(1, 12)])
            came.append((rng.randrange(5), first, last))
        went = rng.sample(model, min(len(model), rng.randint(0, 2)))
        for row in went:
            model.remove(row)
        model += came
        live.rows(table(*came), table(*went) if went or rng.random() < 0.5 else None, commit(at))
        wanted = [
            i for i, first, last in model if (first is None or first <= at) and (last is None or at < last)
        ]
        assert shown(live) == sorted(wanted), at
        stored = [row for row in model if row[2] is None or at < row[2]]
        assert live.table.version_object.physical_count == len(stored)
