"""Tables whose rows leave after a while: what is there at each time, by key and as a multiset."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from velostream.model.changes import Commit
from velostream.model.columns import EXPIRES
from velostream.model.moments import micros
from velostream.model.tables import Retention, TableSpec
from velostream.serving.table.store import TableStore

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from velostream.serving.contract.table import Table

START = datetime(2026, 5, 1, 12, tzinfo=UTC)
MINUTE = 60_000_000
TS = pa.timestamp("us", tz="UTC")


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def forward(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Iterator[TableStore]:
    with TableStore(tmp_path, clock=clock) as store:
        yield store


def made(
    store: TableStore, retention: Retention, *, key: tuple[str, ...] = (), owner: str | None = None
) -> Table:
    columns = [("id", pa.int64()), ("v", pa.string()), ("ts", TS), ("day", pa.date32()), ("ms", pa.int64())]
    schema = pa.schema([*columns, (EXPIRES, pa.int64())])
    return store.create(TableSpec("t", schema, key, retention.options(), owner=owner))


def ids(table: Table) -> list[Any]:
    return sorted(row["id"] for row in table.rows())


def test_rows_leave_after_they_were_last_written(store, clock):
    table = made(store, Retention(10 * MINUTE), key=("id",))
    table.insert([{"id": 1, "v": "a"}, {"id": 2, "v": "b"}])
    clock.forward(5)
    table.upsert({"id": 1, "v": "a"})
    table.insert({"id": 3})
    assert table.next_due == micros(START) + 10 * MINUTE
    version = table.expire()
    assert ids(table) == [1, 2, 3]
    clock.forward(5)
    table.expire()
    assert (ids(table), table.get(2)) == ([1, 3], None)
    gone = table.changes_between(version, table.version).to_pylist()
    assert [(row["id"], row["_weight"]) for row in gone] == [(2, -1)]
    assert EXPIRES not in gone[0]
    table.update(3, v="again")
    clock.forward(5)
    table.expire()
    assert ids(table) == [3]
    assert table.next_due == micros(START) + 20 * MINUTE
    table.insert({"id": 1, "v": "new"})
    assert ids(table) == [1, 3]


def test_a_multiset_counts_equal_rows_by_when_they_were_written(store, clock):
    table = made(store, Retention(10 * MINUTE))
    for _ in range(3):
        table.insert([{"id": 1}, {"id": 1}])
        clock.forward(4)
    table.expire()
    assert ids(table) == [1] * 4
    table.delete([{"id": 1}])
    assert ids(table) == [1] * 3
    clock.forward(4)
    table.expire()
    assert ids(table) == [1] * 2
    clock.forward(4)
    table.expire()
    assert (ids(table), table.next_due) == ([], None)
    table.delete([{"id": 1}])
    table.insert({"id": 1})
    assert ids(table) == [1]


@pytest.mark.parametrize(
    ("column", "unit", "value"),
    [
        ("ts", 1, START - timedelta(minutes=4)),
        ("day", 1, date(2026, 5, 1)),
        ("ms", 1000, int((START - timedelta(minutes=4)).timestamp() * 1000)),
    ],
)
def test_rows_leave_after_their_event_time(store, clock, column, unit, value):
    length = 725 * MINUTE if column == "day" else 9 * MINUTE
    table = made(store, Retention(length, column, unit), key=("id",))
    table.insert([{"id": 1, column: value}, {"id": 2}])
    clock.forward(4.9)
    table.upsert({"id": 1, column: value})
    table.expire()
    assert ids(table) == [1, 2]
    clock.forward(0.1)
    table.expire()
    assert ids(table) == [2]


def test_the_last_day_of_all_is_waited_for(store):
    table = made(store, Retention(10 * MINUTE, "ts"), key=("id",))
    table.insert({"id": 1, "ts": datetime(9999, 12, 31, 23, 59, tzinfo=UTC)})
    assert table.next_due is not None
    table.expire()
    assert ids(table) == [1]


def test_a_row_that_is_too_old_is_not_taken_in(store):
    table = made(store, Retention(10 * MINUTE, "ts"), key=("id",))
    old, new = START - timedelta(minutes=10), START
    table.insert([{"id": 1, "ts": new}, {"id": 2, "ts": old}])
    assert ids(table) == [1]
    table.upsert([{"id": 1, "ts": old}, {"id": 3, "ts": old}, {"id": 3, "ts": new}])
    assert ids(table) == [3]
    rows = made_rows = TableStore.create(store, TableSpec("m", table.spec.schema, (), table.spec.options))
    made_rows.insert([{"id": 1, "ts": old}, {"id": 2, "ts": new}])
    assert ids(rows) == [2]


def test_what_is_due_is_known_after_a_restart(tmp_path, clock):
    with TableStore(tmp_path, clock=clock) as store:
        made(store, Retention(10 * MINUTE), key=("id",)).insert([{"id": 1}])
        clock.forward(3)
        store.open("t").insert([{"id": 2}])
        store.open("t").checkpoint()
    clock.forward(8)
    with TableStore(tmp_path, clock=clock) as store:
        table = store.open("t")
        assert ids(table) == [1, 2]
        table.expire()
        assert (ids(table), table.next_due) == ([2], micros(START) + 13 * MINUTE)


def test_the_positions_of_a_job_stay_when_rows_leave(store, clock):
    table = made(store, Retention(10 * MINUTE), key=("id",), owner="job")
    rows = pa.table({"id": pa.array([1], pa.int64()), "v": ["a"], "ts": pa.nulls(1, TS)})
    rows = rows.append_column("day", pa.nulls(1, pa.date32())).append_column("ms", pa.nulls(1, pa.int64()))
    table.commit_keyed(rows, None, Commit("job", 4, {"in": {"p": 9}}, clock(), {"lost": ["x"]}))
    clock.forward(10)
    table.expire()
    last = table.last_commit
    assert last is not None
    assert (ids(table), last.offsets, last.extra, last.at) == ([], {"in": {"p": 9}}, {"lost": ["x"]}, clock())


@pytest.mark.parametrize("column", [None, "ts"])
@pytest.mark.parametrize("keyed", [True, False])
def test_tables_follow_a_model(store, clock, rng: random.Random, rounds, column, keyed):
    table = made(store, Retention(10 * MINUTE, column), key=("id",) if keyed else ())
    model: list[tuple[tuple[int, datetime], datetime]] = []
    for _ in range(rounds(150, 3000)):
        clock.forward(rng.choice([0, 0.5, 3]))
        row = (
            rng.randrange(6),
            START + timedelta(minutes=rng.choice([0, round((clock() - START).seconds / 60)])),
        )
        leaves = (clock() if column is None else row[1]) + timedelta(minutes=10)
        given = {"id": row[0], "ts": row[1]}
        if rng.random() < 0.7:
            if keyed:
                model = [each for each in model if each[0][0] != row[0]]
                table.upsert(given)
            else:
                table.insert(given)
            model.append((row, leaves))
        elif keyed:
            model = [each for each in model if each[0][0] != row[0]]
            table.delete(row[0])
        else:
            same = [each for each in model if each[0] == row and each[1] > clock()]
            if same:
                model.remove(min(same, key=lambda each: each[1]))
            table.expire()
            table.delete([given])
        table.expire()
        model = [each for each in model if each[1] > clock()]
        found = Counter((row["id"], row["ts"]) for row in table.rows())
        assert found == Counter(row for row, _ in model)
