"""Segments merge beside the commits, and nobody can tell."""

from __future__ import annotations

from threading import Event, Thread
from threading import enumerate as enumerate_threads
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from trade_rows import commit

from velostream.errors import ClosedError
from velostream.model.tables import TableSpec
from velostream.serving.columns import merger
from velostream.serving.columns.merging import merge
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import WaitUntil

    from velostream.serving.columns.segments import SegmentView, Views
    from velostream.serving.contract.table import Table

SCHEMA = pa.schema([("k", pa.int64()), ("town", pa.string()), ("n", pa.int64())])


def rows_of(keys: Any, n: int = 0) -> pa.Table:
    keys = list(keys)
    return pa.table({"k": keys, "town": [f"t{k % 3}" for k in keys], "n": [n] * len(keys)}, schema=SCHEMA)


def keys_of(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64())})


def content(table: Table) -> dict[int, int]:
    return {row["k"]: row["n"] for row in table.snapshot().to_pylist()}


def settle() -> None:
    """Wait until nothing is merged beside the commits any more."""
    for thread in merging():
        thread.join(60)
    assert not merging()


def merging() -> list[Thread]:
    return [thread for thread in enumerate_threads() if thread.name == "table-merge"]


def segments(table: Table) -> list[int]:
    return [view.segment.batch.num_rows for view in table.version_object.views]


class Held:
    """Merging that waits to be let go on."""

    def __init__(self) -> None:
        self.started = Event()
        self.go_on = Event()

    def merge(self, group: Views) -> SegmentView:
        merged = merge(group)
        self.started.set()
        assert self.go_on.wait(60)
        return merged


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    made = Held()
    monkeypatch.setattr(merger, "AT_ONCE", 8)
    monkeypatch.setattr(merger, "merge", made.merge)
    yield made
    made.go_on.set()


@pytest.fixture
def table(store: TableStore) -> Table:
    return store.create(TableSpec("t", SCHEMA, ("k",)))


def begin(table: Table, held: Held) -> None:
    """Two segments of ten rows that are being merged."""
    table.commit_keyed(rows_of(range(10)), None, commit(1))
    table.commit_keyed(rows_of(range(10, 20)), None, commit(2))
    assert held.started.wait(60)
    assert segments(table) == [10, 10]


def test_what_changes_meanwhile_is_in_the_result(table: Table, held: Held) -> None:
    begin(table, held)
    table.commit_keyed(rows_of([0, 15, 30], 7), keys_of(4), commit(3))
    before = table.version_object
    expected = {k: 7 if k in (0, 15, 30) else 0 for k in (*range(20), 30) if k != 4}
    assert content(table) == expected
    total = table.scalar("SUM(n)")
    held.go_on.set()
    settle()
    assert segments(table) == [20, 3]
    assert content(table) == expected
    assert table.version == before.number == 3
    assert table.version_object.snapshot().equals(before.snapshot())
    assert table.version_object.answers == {("SUM(n)", None): total}
    assert [table.get(k) for k in (4, 15)] == [None, (15, "t0", 7)]
    assert table.fetch_where(["town"], pa.table({"town": ["t0"]})).num_rows == 8
    assert table.last_commit == commit(3)


def test_a_group_that_is_gone_altogether_leaves_nothing(table: Table, held: Held) -> None:
    begin(table, held)
    table.commit_keyed(rows_of([50]), keys_of(*range(20)), commit(3))
    held.go_on.set()
    settle()
    assert content(table) == {50: 0}
    assert segments(table) == [1]


def test_a_segment_that_is_being_merged_is_not_written_afresh(table: Table, held: Held) -> None:
    begin(table, held)
    table.commit_keyed(None, keys_of(*range(9)), commit(3))
    assert segments(table) == [10, 10]
    held.go_on.set()
    settle()
    table.commit_keyed(rows_of([9, 12], 7), None, commit(4))
    assert content(table) == {k: 7 if k in (9, 12) else 0 for k in range(9, 20)}


def test_one_of_several_segments_that_is_gone(table: Table, held: Held) -> None:
    begin(table, held)
    table.commit_keyed(None, keys_of(*range(10)), commit(3))
    table.commit_keyed(rows_of([50, 51]), None, commit(4))
    held.go_on.set()
    settle()
    assert content(table) == dict.fromkeys([*range(10, 20), 50, 51], 0)
    assert table.get(3) is None
    assert table.get(13) == (13, "t1", 0)


def test_a_schema_that_widens_meanwhile_wins(table: Table, held: Held) -> None:
    begin(table, held)
    table.evolve(SCHEMA.append(pa.field("more", pa.string())))
    held.go_on.set()
    settle()
    assert table.get(3) == (3, "t0", 0, None)
    assert len(table.snapshot()) == 20
    table.commit_keyed(rows_of([99]), None, commit(3))
    settle()
    assert segments(table)[0] == 20


def test_equal_rows_keep_their_count(store: TableStore, held: Held) -> None:
    table = store.create(TableSpec("t", SCHEMA))
    once = rows_of(range(10))
    table.commit_rows(once, pa.array([1, 2] * 5), commit(1))
    table.commit_rows(rows_of(range(10, 20)), None, commit(2))
    assert held.started.wait(60)
    table.commit_rows(once, pa.array([-1] * 10), commit(3))
    held.go_on.set()
    settle()
    assert sorted(table.column_values("k")) == [1, 3, 5, 7, 9, *range(10, 20)]
    table.commit_rows(rows_of([1, 12]), pa.array([-1, -1]), commit(4))
    assert sorted(table.column_values("k")) == [3, 5, 7, 9, 10, 11, *range(13, 20)]


def test_closing_does_not_wait_for_a_writer_that_closes(table: Table, held: Held) -> None:
    begin(table, held)
    with table.exclusive():
        version = table.version_object
        held.go_on.set()
        table.close()
    settle()
    assert len(version.snapshot()) == 20
    with pytest.raises(ClosedError):
        table.snapshot()


def test_segments_that_cannot_be_merged_stay_as_they_are(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(_: Views) -> SegmentView:
        raise MemoryError("too large")

    monkeypatch.setattr(merger, "AT_ONCE", 8)
    monkeypatch.setattr(merger, "merge", failing)
    for number in range(3):
        table.commit_keyed(rows_of(range(10 * number, 10 * number + 10)), None, commit(number))
        settle()
    assert content(table) == dict.fromkeys(range(30), 0)
    assert "too large" in caplog.text


@pytest.mark.parametrize("keyed", [True, False])
def test_random_changes_beside_merging(
    store: TableStore,
    monkeypatch: pytest.MonkeyPatch,
    rng: random.Random,
    rounds: Callable[[int, int], int],
    keyed: bool,
) -> None:
    monkeypatch.setattr(merger, "AT_ONCE", 4)
    table = store.create(TableSpec("t", SCHEMA, ("k",) if keyed else ()))
    truth: dict[int, int] = {}
    reading = Event()
    wrong: list[Any] = []
    reader = Thread(target=_read, args=(table, reading, wrong))
    reader.start()
    try:
        for number in range(1, rounds(120, 5_000)):
            _change(table, truth, number, rng, keyed=keyed)
            if number % 50 == 0:
                settle()
                assert content(table) == truth
                assert len(segments(table)) < 12
            elif number % 7 == 0:
                assert content(table) == truth
                assert table.scalar("SUM(n)") == (sum(truth.values()) if truth else None)
    finally:
        reading.set()
        reader.join()
    assert not wrong


def _change(table: Table, truth: dict[int, int], number: int, rng: random.Random, *, keyed: bool) -> None:
    upserts = rng.sample(range(200), rng.choice([0, 1, 5, 60]))
    deletes = rng.sample(range(200), rng.choice([0, 1, 5, 60]))
    gone = [k for k in {*deletes, *upserts} if k in truth]
    if keyed:
        table.commit_keyed(rows_of(upserts, number), keys_of(*deletes), commit(number))
    else:
        old = pa.concat_tables([rows_of([k], truth[k]) for k in gone] or [SCHEMA.empty_table()])
        both = pa.concat_tables([old, rows_of(upserts, number)])
        table.commit_rows(both, pa.array([-1] * len(gone) + [1] * len(upserts), pa.int64()), commit(number))
    for k in gone:
        del truth[k]
    truth.update(dict.fromkeys(upserts, number))


def _read(table: Table, stop: Event, wrong: list[Any]) -> None:
    """Every version that is seen is whole: its rows are what its columns add up to."""
    while not stop.is_set():
        version = table.version_object
        rows = version.snapshot()
        if len(rows) != len(version) or len(set(rows.column("k").to_pylist())) != len(rows):
            wrong.append(version.number)
            return


def test_large_segments_merge_after_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_until: WaitUntil
) -> None:
    with TableStore(tmp_path) as store:
        table = store.create(TableSpec("t", SCHEMA, ("k",)))
        table.commit_keyed(rows_of(range(10)), None, commit(1))
        table.checkpoint()
        table.commit_keyed(rows_of(range(10, 20), 3), None, commit(2))
    monkeypatch.setattr(merger, "AT_ONCE", 8)
    with TableStore(tmp_path) as store:
        table = store.open("t")
        wait_until(lambda: segments(table) == [20])
        assert not table.version_object.index.built
        assert [table.get(k) for k in (3, 13, 23)] == [(3, "t0", 0), (13, "t1", 3), None]
        assert table.version == 2
